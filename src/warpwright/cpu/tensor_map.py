"""Tensor maps: the 128-byte descriptors of tensor copies (TMA), as cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col make them.

NVIDIA keeps the layout to itself; this is the one that was found by varying the driver's arguments one at a time, in 32-bit words:

    0-1    the tensor's address
    2      flags: bit 0 im2col; 4-6 rank - 1; 7-10 element type; 11-12 interleave; 13-14 swizzle span; 15 fill with NaN; 16 TF32;
           17-18 L2 promotion; 19-20 swizzle atom; 21 set for tensors of 65,536 elements or more
    3-6    strides of dimensions 1 to 4, in 16 bytes
    8-12   sizes - 1
    13     bits 0-14 element strides - 1, three bits each; 24-31 box size of dimension 0 - 1 (im2col: channels a pixel - 1)
    14     box sizes of dimensions 1 to 4 - 1, a byte each (im2col: the corners of the pixel box)
    15     im2col: pixels a column - 1
    16     bytes of a box         18     a summary of the swizzle         others: 0

Dimension 0 is the innermost, as in the driver and in PTX. Python sees tensors in numpy's order, outermost first: `tiled` and `im2col` turn it
round, `encode_tiled` and `encode_im2col` take the driver's arguments in the driver's order.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from warpwright.cpu.memory import Extent, locate
from warpwright.errors import LaunchError

BYTES = 128


@dataclass(frozen=True)
class ElementType:
    """bits: of an element in global memory. driver: CUtensorMapDataType. ptx: `tensormap.replace.elemtype`. code, tf32: in the map's flags."""

    name: str
    bits: int
    driver: int
    ptx: int
    code: int
    tf32: bool = False

    @property
    def float(self) -> bool:
        return "f" in self.name


TYPES = (
    ElementType("u8", 8, 0, 0, 0), ElementType("u16", 16, 1, 1, 1), ElementType("u32", 32, 2, 2, 2), ElementType("s32", 32, 3, 3, 3),
    ElementType("u64", 64, 4, 4, 4), ElementType("s64", 64, 5, 5, 5), ElementType("f16", 16, 6, 6, 6), ElementType("f32", 32, 7, 7, 7),
    ElementType("f64", 64, 8, 9, 9), ElementType("bf16", 16, 9, 10, 10), ElementType("f32.ftz", 32, 10, 8, 8),
    ElementType("tf32", 32, 11, 11, 7, True), ElementType("tf32.ftz", 32, 12, 12, 8, True),
    ElementType("b4x16", 4, 13, 13, 11), ElementType("b4x16_p64", 4, 14, 14, 12), ElementType("b6x16_p32", 6, 15, 15, 13),
)
BY_NAME = {type_.name: type_ for type_ in TYPES}
_BY_CODE = {(type_.code, type_.tf32): type_ for type_ in TYPES}
_DTYPES = {"uint8": "u8", "int8": "u8", "bool": "u8", "float8_e4m3fn": "u8", "float8_e5m2": "u8", "float8_e8m0fnu": "u8",
           "uint16": "u16", "int16": "u16", "uint32": "u32",
           "int32": "s32", "uint64": "u64", "int64": "s64", "float16": "f16", "bfloat16": "bf16", "float32": "f32",
           "float64": "f64"}

INTERLEAVES = ("none", "16B", "32B")
SWIZZLES = ("none", "32B", "64B", "128B", "128B_atom_32B", "128B_atom_32B_flip_8B", "128B_atom_64B")
PROMOTIONS = ("none", "64B", "128B", "256B")
FILLS = ("zero", "nan")
SPANS = (0, 32, 64, 128, 128, 128, 128)  # bytes that a swizzle permutes
ATOMS = (16, 16, 16, 16, 32, 32, 64)  # bytes that stay together
FLIP = 5  # the swizzle that also swaps the halves of 16 bytes in every other row
NAN = 0x7FF7  # what `fill="nan"` puts in every 16 bits: a NaN of every format, which fma.oob takes for 0

# Why a copy cannot be made. Faults carry the index; both engines say the same words.
REASONS = (
    "what its operand points to is no tensor map: fields that are always zero are not, or the element type or rank does not exist",
    "the tensor map's rank is not the instruction's",
    "the tensor map is for im2col copies, the instruction is not",
    "the tensor map is for tiled copies, the instruction is for im2col",
    "the tensor map's box has rows that are not a multiple of 16 bytes, or longer than its swizzle's span",
    "the tensor map's address is not a multiple of 16 (32 with interleave 32B)",
    "copies of this element type or interleave are not there yet",
    "the reduction is not defined for the tensor map's element type",
    "the im2col offsets or coordinates lie outside of the tensor map's pixel box",
    "the tensor map's swizzle does not go with its swizzle atom or its interleave",
    "coordinate 0 of a tensor of 4-bit elements is odd",
)
NO_MAP, RANK, IS_IM2COL, IS_TILED, ROW, ADDRESS, UNSUPPORTED, REDUCTION, OFFSETS, SWIZZLE, ODD = range(len(REASONS))


@dataclass(frozen=True)
class PixelBox:
    """The im2col part of a map. lower, upper: the corners in W, H, D; channels and pixels: the sizes of what a copy makes."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int


@dataclass(frozen=True)
class Fields:
    """What a map says, innermost dimension first. strides: bytes, of dimensions 1 on. box is () where `pixel_box` is given.

    interleave, swizzle, promotion and fill index INTERLEAVES, SWIZZLES, PROMOTIONS and FILLS.
    """

    type: ElementType
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    promotion: int = 0
    fill: int = 0
    pixel_box: PixelBox | None = None

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def unit_bytes(self) -> int:
        """Bytes that dimension 0 counts in: an element, two of 4 bits, or with interleave a slice of channels."""
        return (max(1, self.type.bits // 8), 16, 32)[self.interleave]

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements that a tiled copy takes of each dimension. Dimension 0 has no element stride unless it is interleaved."""
        steps = self.element_strides if self.interleave else (1, *self.element_strides[1:])
        return tuple(-(-size // step) for size, step in zip(self.box, steps, strict=True))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in shared memory that belong together."""
        if self.pixel_box:
            return self.pixel_box.channels * self.type.bits // 8
        return self.unit_bytes if self.interleave else self.box[0] * self.type.bits // 8

    @property
    def pitch(self) -> int:
        """Bytes from row to row in shared memory: a swizzle's rows take its whole span."""
        return self.row_bytes if self.interleave else max(self.row_bytes, SPANS[self.swizzle])

    @property
    def rows(self) -> int:
        return self.pixel_box.pixels if self.pixel_box else math.prod(self.counts if self.interleave else self.counts[1:])

    @property
    def box_bytes(self) -> int:
        """Bytes that a copy counts at its mbarrier; elements out of bounds count too."""
        return self.rows * self.row_bytes


def problems(fields: Fields) -> list[str]:
    """Every limit of the driver that a map breaks, each in a sentence."""
    f, rank, size = fields, fields.rank, fields.type.bits
    wide = f.interleave == 2 or f.type.name in ("b4x16_p64", "b6x16_p32")
    align = 32 if wide else 16
    why = f" with interleave {INTERLEAVES[f.interleave]}" if f.interleave == 2 else f" for {f.type.name}" if wide else ""
    found = []
    least = 3 if f.interleave or f.pixel_box else 1
    if not least <= rank <= 5:
        kind = " with interleave" if f.interleave else " for im2col" if f.pixel_box else ""
        return [f"the tensor has {rank} dimensions; {least} to 5 are possible{kind}"]
    if len(f.strides) != rank - 1 or len(f.element_strides) != rank or (not f.pixel_box and len(f.box) != rank):
        return [f"a tensor of {rank} dimensions takes {rank - 1} strides, {rank} box sizes and {rank} element strides; "
                f"here are {len(f.strides)}, {len(f.box)} and {len(f.element_strides)}"]
    if f.address % align or f.address <= 0:
        found.append(f"the tensor's address {f.address:#x} is not a multiple of {align}{why}")
    for i, dim in enumerate(f.dims):
        if not 1 <= dim <= 2**32:
            found.append(f"size {i} is {dim}; 1 to 2^32 is possible")
    for i, stride in enumerate(f.strides, 1):
        if stride % align or not 0 <= stride < 2**36:
            found.append(f"the stride of dimension {i} is {stride} bytes; it must be a multiple of {align}{why} and below 2^36")
    for i, step in enumerate(f.element_strides):
        if not 1 <= step <= 8:
            found.append(f"element stride {i} is {step}; 1 to 8 is possible")
    for i, length in enumerate(f.box):
        if not 1 <= length <= 256:
            found.append(f"box size {i} is {length}; 1 to 256 is possible")
    if f.pixel_box:
        found += _pixel_problems(f)
    if not f.interleave and not found:
        inner = (f.pixel_box.channels if f.pixel_box else f.box[0]) * size
        if inner % 128:
            found.append(f"a row of the box is {inner / 8:g} bytes; it must be a multiple of 16")
        elif f.swizzle and inner // 8 > SPANS[f.swizzle] and f.type.name not in ("b4x16_p64", "b6x16_p32"):
            found.append(f"a row of the box is {inner // 8} bytes; swizzle {SWIZZLES[f.swizzle]} takes at most {SPANS[f.swizzle]}")
    if f.interleave == 2 and f.swizzle != 1:
        found.append("interleave 32B goes with swizzle 32B only")
    if f.fill and (not f.type.float or size < 16):
        found.append(f"fill 'nan' is for floating-point types, not {f.type.name}")
    if size == 4 and f.dims[0] % 2:
        found.append(f"size 0 is {f.dims[0]}; {f.type.name} needs a multiple of 2")
    if f.type.name in ("b4x16_p64", "b6x16_p32"):
        if f.dims[0] % 128 or (f.box and f.box[0] != 128):
            found.append(f"{f.type.name} needs a size 0 that is a multiple of 128, and a box of 128")
        if f.swizzle not in (0, 3, 4, 6) or (f.swizzle == 6 and size == 4):
            found.append(f"{f.type.name} does not go with swizzle {SWIZZLES[f.swizzle]}")
    return found


def _pixel_problems(f: Fields) -> list[str]:
    box, spatial = f.pixel_box, f.rank - 2
    assert box is not None
    found = []
    limit = {1: 2**15, 2: 2**7, 3: 2**4}[spatial]
    if len(box.lower) != spatial or len(box.upper) != spatial:
        return [f"the pixel box of a tensor of {f.rank} dimensions has corners of {spatial} numbers"]
    for name, corner in (("lower", box.lower), ("upper", box.upper)):
        if not all(-limit <= x < limit for x in corner):
            found.append(f"the {name} corner {corner} has numbers outside of {-limit} to {limit - 1}")
    if not 1 <= box.channels <= 256:
        found.append(f"channels={box.channels}; 1 to 256 is possible")
    if not 1 <= box.pixels <= 1024:
        found.append(f"pixels={box.pixels}; 1 to 1024 is possible")
    for axis, dim, low, high in zip("WHD", f.dims[1:], box.lower, box.upper, strict=False):
        if low > dim - 1 + high:
            found.append(f"the pixel box is empty in {axis}: it begins at {low} and ends at {dim - 1 + high}")
    return found


# ── the bits ─────────────────────────────────────────────────────────────────────────────────────────────────────


def encode(fields: Fields) -> bytes:
    """The 128 bytes of a legal map."""
    f, words = fields, [0] * 32
    words[0], words[1] = f.address & 0xFFFFFFFF, f.address >> 32
    large = math.prod(f.dims) >= 65536 if not f.interleave else f.box_bytes >= 65536
    words[2] = (int(f.pixel_box is not None) | (f.rank - 1) << 4 | f.type.code << 7 | f.interleave << 11 | min(f.swizzle, 3) << 13 | f.fill << 15
                | f.type.tf32 << 16 | f.promotion << 17 | max(f.swizzle - 3, 0) << 19 | large << 21)
    for i, stride in enumerate(f.strides):
        words[3 + i] = stride // 16
    for i, dim in enumerate(f.dims):
        words[8 + i] = dim - 1
    words[13] = sum(step - 1 << 3 * i for i, step in enumerate(f.element_strides))
    if f.pixel_box:
        bits = _corner_bits(f.rank)
        words[13] |= f.pixel_box.channels - 1 << 24
        for half, corner in ((0, f.pixel_box.lower), (16, f.pixel_box.upper)):
            words[14] |= sum((x & (1 << bits) - 1) << bits * i for i, x in enumerate(corner)) << half
        words[15] = f.pixel_box.pixels - 1
    else:
        words[13] |= f.box[0] - 1 << 24
        words[14] = sum(length - 1 << 8 * i for i, length in enumerate(f.box[1:]))
    words[16] = f.box_bytes & 0xFFFFFFFF if f.type.bits >= 8 else 0
    words[18] = (0x10, 0x100, 0x200, 0x400)[min(f.swizzle, 3)]
    return struct.pack("<32I", *words)


def _corner_bits(rank: int) -> int:
    return {3: 16, 4: 8, 5: 5}[rank]


class NoTensorMap(ValueError):
    """128 bytes, or a copy by them, that make no sense. `reason` indexes REASONS."""

    def __init__(self, reason: int):
        super().__init__(REASONS[reason])
        self.reason = reason


def decode(data: bytes) -> Fields:
    """What 128 bytes say. Raises NoTensorMap where they cannot be a map; a copy may still find that it cannot use it."""
    words = struct.unpack("<32I", data)
    flags = words[2]
    im2col, rank = bool(flags & 1), (flags >> 4 & 7) + 1
    type_ = _BY_CODE.get((flags >> 7 & 15, bool(flags >> 16 & 1)))
    interleave, span, atom = flags >> 11 & 3, flags >> 13 & 3, flags >> 19 & 3
    idle = flags & 0xE or flags >> 22 or words[7] or words[13] & 0xFF8000 or any(words[17:18] + words[19:]) or (words[15] and not im2col)
    if idle or rank > 5 or type_ is None or interleave == 3 or (im2col and (rank < 3 or words[15] > 1023)):
        raise NoTensorMap(NO_MAP)
    if atom and span != 3:
        raise NoTensorMap(SWIZZLE)
    box: tuple[int, ...] = ()
    pixel_box = None
    if im2col:
        bits = _corner_bits(rank)

        def corner(half: int) -> tuple[int, ...]:
            return tuple(((words[14] >> half + bits * i & (1 << bits) - 1) ^ 1 << bits - 1) - (1 << bits - 1) for i in range(rank - 2))

        pixel_box = PixelBox(corner(0), corner(16), (words[13] >> 24) + 1, words[15] + 1)
    else:
        box = ((words[13] >> 24) + 1, *((words[14] >> 8 * i & 255) + 1 for i in range(rank - 1)))
    return Fields(type_, words[0] | words[1] << 32, tuple(word + 1 for word in words[8:8 + rank]), tuple(16 * word for word in words[3:2 + rank]),
                  box, tuple((words[13] >> 3 * i & 7) + 1 for i in range(rank)), interleave, span + atom, flags >> 17 & 3, flags >> 15 & 1, pixel_box)


def field_bits(field: str, index: int = 0) -> tuple[int, int, int]:
    """Where `tensormap.replace` finds a field: (byte of a 4- or 8-byte word, lowest bit in it, number of bits). The word holds
    `replaced(field, value)`."""
    return {
        "global_address": (0, 0, 64), "rank": (8, 4, 3), "interleave_layout": (8, 11, 2), "swizzle_mode": (8, 13, 2), "fill_mode": (8, 15, 1),
        "swizzle_atomicity": (8, 19, 2), "elemtype": (8, 7, 10), "global_stride": (12 + 4 * index, 0, 32), "global_dim": (32 + 4 * index, 0, 32),
        "element_stride": (52, 3 * index, 3), "box_dim": (52, 24, 8) if index == 0 else (56, 8 * (index - 1), 8),
    }[field]


# How `tensormap.replace` turns its operand into a field's bits: (right shift, what is subtracted first). Sizes are stored less one.
REPLACED = {"global_stride": (4, 0), "global_dim": (0, 1), "element_stride": (0, 1), "box_dim": (0, 1)}
ELEMTYPE_KEPT = 0x1F0  # of the ten bits that begin with the element type, those of other fields


def elemtype_bits(ptx: int) -> int:
    """The bits that `.elemtype` sets, relative to bit 7 of the flags; those of ELEMTYPE_KEPT are not its own."""
    type_ = next(type_ for type_ in TYPES if type_.ptx == ptx)
    return type_.code | type_.tf32 << 9


# ── for programs ─────────────────────────────────────────────────────────────────────────────────────────────────


def _index(what: str, value: int | str, names: Sequence[str]) -> int:
    if isinstance(value, str):
        wanted = value.lower()
        for i, name in enumerate(names):
            if name.lower() == wanted:
                return i
    elif value in range(len(names)):
        return int(value)
    raise LaunchError(f"{what}={value!r}: it is one of {', '.join(names)}")


def _type(type_: int | str) -> ElementType:
    if isinstance(type_, str) and type_ in BY_NAME:
        return BY_NAME[type_]
    if not isinstance(type_, str) and type_ in range(len(TYPES)):
        return TYPES[int(type_)]  # TYPES is in the order of the driver's enumeration
    raise LaunchError(f"type={type_!r}: it is one of {', '.join(BY_NAME)}, or a CUtensorMapDataType")


class TensorMap:
    """A tensor map, to be passed to a launch.

    For `.param .align 64 .b8 map[128]` its bytes are passed; for a pointer the address of a copy that it owns. Either way its tensor's memory,
    and no more, becomes legal for that launch. `fields` says what is in it; `bytes(map)` are the 128 bytes, for maps kept in arrays
    (whose tensors are then registered with `Device.register`). Without `extent`, it is legal from the tensor's first byte to its last.
    """

    def __init__(self, fields: Fields, extent: Extent | None = None, keep: object = None):
        found = problems(fields)
        if found:
            raise LaunchError(f"the tensor map is not possible: {'; '.join(found)}")
        self.fields, self._keep = fields, keep
        inner = -(-fields.dims[0] * fields.type.bits // 8) if not fields.interleave else fields.dims[0] * fields.unit_bytes
        last = inner + sum((dim - 1) * stride for dim, stride in zip(fields.dims[1:], fields.strides, strict=True))
        self.extent = extent or Extent(fields.address, fields.address, fields.address + last)
        if not self.extent.start <= fields.address or self.extent.end < fields.address + last:
            raise LaunchError(f"the tensor map reaches {last} bytes from {fields.address:#x}, beyond its tensor's memory, "
                              f"which ends at {self.extent.end:#x}")

    @classmethod
    def tiled(cls, tensor, box: Sequence[int], *, element_strides: Sequence[int] | None = None, interleave: int | str = "none",
              swizzle: int | str = "none", l2_promotion: int | str = "none", fill: int | str = "zero", type: int | str | None = None) -> TensorMap:
        """A map for copies of boxes of a numpy array or torch CPU tensor.

        box, element_strides: in the order of the tensor's shape (copies' coordinates go the other way: innermost first). With interleave, the
        tensor's last dimension is a slice of channels, of 16 or 32 bytes, and is no dimension of the map. type: where it is not the
        tensor's own: "tf32", "f32.ftz", "b4x16" (then sizes count 4-bit elements, two a byte) …
        """
        name, address, shape, strides, extent = _describe(tensor)
        kind = _type(name if type is None else type)
        layout = _index("interleave", interleave, INTERLEAVES)
        dims, steps = list(reversed(shape)), list(reversed(strides))
        if layout:
            if dims[0] * (kind.bits // 8) != 16 * layout or steps[0] != kind.bits // 8:
                raise LaunchError(f"with interleave {INTERLEAVES[layout]} the tensor's last dimension is {16 * layout} bytes, one after the other")
            dims, steps = dims[1:], steps[1:]
            if steps[0] != 16 * layout:
                raise LaunchError("with interleave the last dimension but one must lie without gaps")
        elif kind.bits < 8:
            dims[0] *= 8 // kind.bits
        elif steps[0] != kind.bits // 8:
            raise LaunchError(f"the tensor's last dimension has a stride of {steps[0]} bytes; its elements of {kind.bits // 8} bytes must lie "
                              "one after the other")
        return cls(Fields(kind, address, tuple(dims), tuple(steps[1:]), tuple(map(int, reversed(box))),
                          tuple(map(int, reversed(element_strides))) if element_strides is not None else (1,) * len(dims), layout,
                          _index("swizzle", swizzle, SWIZZLES), _index("l2_promotion", l2_promotion, PROMOTIONS), _index("fill", fill, FILLS)),
                   extent, tensor)

    @classmethod
    def im2col(cls, tensor, lower: Sequence[int], upper: Sequence[int], channels: int, pixels: int, *, element_strides: Sequence[int] | None = None,
               swizzle: int | str = "none", l2_promotion: int | str = "none", fill: int | str = "zero", type: int | str | None = None) -> TensorMap:
        """A map for im2col copies of an NWC, NHWC or NDHWC tensor.

        lower, upper: the corners of the pixel box in the tensor's order (D, H, W): the base of a filter goes from `lower` to the last pixel plus
        `upper`. channels, pixels: what a copy makes: `pixels` rows of `channels` elements.
        """
        name, address, shape, strides, extent = _describe(tensor)
        kind = _type(name if type is None else type)
        if strides[-1] != kind.bits // 8:
            raise LaunchError("the tensor's channels must lie one after the other")
        return cls(Fields(kind, address, tuple(reversed(shape)), tuple(reversed(strides[:-1])), (),
                          tuple(map(int, reversed(element_strides))) if element_strides is not None else (1,) * len(shape), 0,
                          _index("swizzle", swizzle, SWIZZLES), _index("l2_promotion", l2_promotion, PROMOTIONS), _index("fill", fill, FILLS),
                          PixelBox(tuple(map(int, reversed(lower))), tuple(map(int, reversed(upper))), int(channels), int(pixels))), extent, tensor)

    @classmethod
    def encode_tiled(cls, type: int | str, address: int, dims: Sequence[int], strides: Sequence[int], box: Sequence[int],
                     element_strides: Sequence[int], interleave: int | str = 0, swizzle: int | str = 0, l2_promotion: int | str = 0,
                     fill: int | str = 0, extent: Extent | None = None) -> TensorMap:
        """The arguments of cuTensorMapEncodeTiled: innermost dimension first, strides in bytes of all dimensions but that."""
        return cls(Fields(_type(type), int(address), tuple(map(int, dims)), tuple(map(int, strides)), tuple(map(int, box)),
                          tuple(map(int, element_strides)), _index("interleave", interleave, INTERLEAVES), _index("swizzle", swizzle, SWIZZLES),
                          _index("l2_promotion", l2_promotion, PROMOTIONS), _index("fill", fill, FILLS)), extent)

    @classmethod
    def encode_im2col(cls, type: int | str, address: int, dims: Sequence[int], strides: Sequence[int], lower: Sequence[int], upper: Sequence[int],
                      channels: int, pixels: int, element_strides: Sequence[int], interleave: int | str = 0, swizzle: int | str = 0,
                      l2_promotion: int | str = 0, fill: int | str = 0, extent: Extent | None = None) -> TensorMap:
        """The arguments of cuTensorMapEncodeIm2col: innermost dimension first, corners in W, H, D."""
        return cls(Fields(_type(type), int(address), tuple(map(int, dims)), tuple(map(int, strides)), (), tuple(map(int, element_strides)),
                          _index("interleave", interleave, INTERLEAVES), _index("swizzle", swizzle, SWIZZLES),
                          _index("l2_promotion", l2_promotion, PROMOTIONS), _index("fill", fill, FILLS),
                          PixelBox(tuple(map(int, lower)), tuple(map(int, upper)), int(channels), int(pixels))), extent)

    def at(self, address: int, extent: Extent | None = None) -> TensorMap:
        """The same map of a tensor elsewhere (cuTensorMapReplaceAddress)."""
        return TensorMap(replace(self.fields, address=int(address)), extent)

    def __bytes__(self) -> bytes:
        return encode(self.fields)

    @cached_property
    def _storage(self):
        storage = ctypes.create_string_buffer(BYTES + 64)
        at = -(-ctypes.addressof(storage) // 64) * 64
        ctypes.memmove(at, bytes(self), BYTES)
        return storage, at

    @property
    def address(self) -> int:
        """Where a copy of the 128 bytes lies, a multiple of 64."""
        return self._storage[1]

    def __repr__(self) -> str:
        f = self.fields
        what = f"box={f.box}" if f.box else f"{f.pixel_box}"
        return f"TensorMap({f.type.name}, dims={f.dims}, strides={f.strides}, {what}, swizzle={SWIZZLES[f.swizzle]})"


def _describe(tensor) -> tuple[str, int, tuple[int, ...], tuple[int, ...], Extent]:
    """(element type, address, shape, strides in bytes, memory) of an array or tensor."""
    extent = locate(tensor)
    if extent is None or not hasattr(tensor, "dtype"):
        raise LaunchError(f"{type(tensor).__name__} was given; a tensor map is of a numpy array or a torch CPU tensor")
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise LaunchError(f"tensor maps know no elements of type {name}")
    if hasattr(tensor, "element_size"):
        strides = [step * tensor.element_size() for step in tensor.stride()]
    else:
        strides = list(tensor.strides)
    shape = tuple(tensor.shape)
    for i in range(len(shape) - 2, -1, -1):
        if shape[i] == 1:  # where there is one element, any stride will do
            strides[i] = -(-shape[i + 1] * strides[i + 1] // 16) * 16
    return _DTYPES[name], extent.address, shape, tuple(strides), extent
