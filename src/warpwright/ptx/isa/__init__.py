"""The instruction set, as one table: importing this package fills it, a module a family."""

from warpwright.ptx.isa import (  # noqa: F401  each declares its instructions
    arithmetic,
    async_copy,
    atomics,
    compare,
    control,
    convert,
    floating,
    integer,
    matrix,
    memory,
    move,
    recent,
    special,
    synchronise,
    tensor_memory,
    texture,
    video,
    warp,
)
from warpwright.ptx.isa.table import TABLE, TYPE_BITS, Entry, Form, Match, Value, match

__all__ = ["TABLE", "TYPE_BITS", "Entry", "Form", "Match", "Value", "match"]
