"""The 64-bit descriptors by which wgmma finds a matrix in shared memory.

The matrix is made of *chunks* of 16 bytes. In a K-major matrix a chunk holds 16 bytes of one row (of A; a column of B), K running; in an
MN-major one it holds eight 16-bit elements of one k, rows running. Eight chunks that follow each other across the chunks' own direction
make a core matrix, and `swizzle` / 16 chunks side by side share its lines. What the two strides mean depends on the order and the swizzle:

| order | swizzle | a chunk further along | eight rows (K-major: of MN, MN-major: of K) further |
|---|---|---|---|
| K | none | `leading` | `stride` |
| K | 32, 64, 128 | 16 bytes | `stride` |
| MN | none | `stride` | `leading` |
| MN | 32, 64, 128 | 16 bytes; from one swizzle's width to the next, `leading` | `stride` |

Swizzling exchanges chunks inside lines of 128 bytes: the chunk's number is XORed with the line's number, counted from where the pattern
begins, as far as the width allows. Bits: 0-13 the start address / 16, 16-29 leading / 16, 32-45 stride / 16, 49-51 base offset (the line
in which the pattern begins, where that is no multiple of eight lines), 62-63 the swizzle (0 none, 1 128 bytes, 2 64, 3 32).
"""

from __future__ import annotations

from dataclasses import dataclass

SWIZZLE_CODES = {0: 0, 128: 1, 64: 2, 32: 3}
_FIELD = 0x3FFF0  # what 14 bits of multiples of 16 can say


@dataclass(frozen=True)
class MatrixDescriptor:
    """A matrix in shared memory. start, leading, stride: bytes, multiples of 16; base_offset: lines of 128 bytes; swizzle: 0, 32, 64, 128."""

    start: int
    leading: int = 0
    stride: int = 0
    swizzle: int = 0
    base_offset: int = 0

    @classmethod
    def decode(cls, bits: int) -> MatrixDescriptor:
        swizzle = next(width for width, code in SWIZZLE_CODES.items() if code == bits >> 62 & 3)
        return cls((bits << 4) & _FIELD, (bits >> 12) & _FIELD, (bits >> 28) & _FIELD, swizzle, bits >> 49 & 7)

    def encode(self) -> int:
        """The 64 bits. Raises ValueError where they cannot say it."""
        for name in ("start", "leading", "stride"):
            value = getattr(self, name)
            if value % 16 or not 0 <= value <= _FIELD:
                raise ValueError(f"{name} is a multiple of 16 from 0 to {_FIELD:#x}, not {value}")
        if self.swizzle not in SWIZZLE_CODES or not 0 <= self.base_offset < 8:
            raise ValueError(f"swizzle is 0, 32, 64 or 128 and base_offset 0 to 7, not {self.swizzle} and {self.base_offset}")
        return (self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | self.base_offset << 49
                | SWIZZLE_CODES[self.swizzle] << 62)

    def chunk(self, across: int, along: int, *, k_major: bool) -> int:
        """The shared-memory address of a chunk: the `along`-th one in its own direction, at row (k_major; else at k) `across`."""
        chunks = max(1, self.swizzle // 16)
        eights, line = divmod(across, 8)
        if k_major:
            linear = line * 16 * chunks + eights * self.stride + along * (16 if self.swizzle else self.leading)
        elif self.swizzle:
            linear = line * 16 * chunks + eights * self.stride + along % chunks * 16 + along // chunks * self.leading
        else:
            linear = line * 16 + eights * self.leading + along * self.stride
        address = self.start + linear
        return address ^ ((address >> 7) - self.base_offset & chunks - 1) << 4
