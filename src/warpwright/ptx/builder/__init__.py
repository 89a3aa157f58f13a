"""Kernels as traced Python. `warpwright.ptx` re-exports all of this, and every opcode of the instruction table as a word."""

from __future__ import annotations

from typing import Any

from warpwright.ptx.builder.flow import (
    Label,
    break_,
    continue_,
    dynamic_shared,
    label,
    local,
    loop,
    otherwise,
    raw,
    shared,
    when,
    while_,
)
from warpwright.ptx.builder.kernel import Kernel, kernel
from warpwright.ptx.builder.matrices import matrix_descriptor
from warpwright.ptx.builder.types import (
    Pointer,
    Register,
    b8,
    b16,
    b32,
    b64,
    b128,
    bf16,
    bf16x2,
    e4m3,
    e5m2,
    f16,
    f16x2,
    f32,
    f64,
    pred,
    s8,
    s16,
    s32,
    s64,
    u8,
    u16,
    u32,
    u64,
)
from warpwright.ptx.builder.words import (
    Word,
    assign,
    ctaid,
    global_thread_index,
    laneid,
    linear_thread_index,
    nctaid,
    ntid,
    select,
    special,
    tid,
    var,
    warpid,
    word,
)

__all__ = [
    "Kernel", "Label", "Pointer", "Register", "Word", "assign", "b8", "b16", "b32", "b64", "b128", "bf16", "bf16x2", "break_", "continue_",
    "ctaid", "dynamic_shared", "e4m3", "e5m2", "f16", "f16x2", "f32", "f64", "global_thread_index", "kernel", "label", "laneid",
    "linear_thread_index", "local", "loop", "matrix_descriptor", "nctaid", "ntid", "otherwise", "pred", "raw", "s8", "s16", "s32", "s64",
    "select", "shared", "special", "tid", "u8", "u16", "u32", "u64", "var", "warpid", "when", "while_", "word",
]


def __getattr__(name: str) -> Any:
    """The word for an attribute of `warpwright.ptx` that names an opcode (with Python's trailing underscore where needed).

    Raises AttributeError if the instruction table has no such opcode.
    """
    from warpwright.ptx.isa import TABLE

    opcode = name.rstrip("_")
    if opcode in TABLE and not name.startswith("_"):
        return Word(opcode)
    raise AttributeError(f"module 'warpwright.ptx' has no attribute {name!r}: neither one of its words nor an instruction of its table")
