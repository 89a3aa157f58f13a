"""The instruction set, as one table: importing this package fills it, a module a family."""

from warpwright.ptx.isa.table import TABLE, TYPE_BITS, Entry, Form, Match, Value, match

__all__ = ["TABLE", "TYPE_BITS", "Entry", "Form", "Match", "Value", "match"]
