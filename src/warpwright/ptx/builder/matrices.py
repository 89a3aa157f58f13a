"""Words for matrices in shared memory."""

from __future__ import annotations

from typing import Any

from warpwright.ptx.builder import trace
from warpwright.ptx.builder.types import Pointer, u64
from warpwright.ptx.builder.words import word
from warpwright.ptx.descriptor import MatrixDescriptor


def matrix_descriptor(address: Any, *, leading: int = 0, stride: int = 0, swizzle: int = 0, base_offset: int = 0) -> Any:
    """The u64 register by which wgmma finds a matrix at `address`, a pointer into shared memory or a u32 of its window.

    leading, stride: bytes, multiples of 16; swizzle: 0 (none), 32, 64 or 128; base_offset: lines of 128 bytes. See `ptx.descriptor` for
    what they mean. Adding n to a descriptor moves it by 16·n bytes.
    """
    try:
        rest = MatrixDescriptor(0, leading, stride, swizzle, base_offset).encode()
    except ValueError as failure:
        raise trace.error(str(failure)) from None
    start = address.register() if isinstance(address, Pointer) else address
    sixteens = word("cvt.u64.u32")(word("and.b32")(word("shr.u32")(start, 4), 0x3FFF))
    signed = rest - (1 << 64) if rest >> 63 else rest
    return word("or.b64")(sixteens, signed, out=trace.current().new(u64))
