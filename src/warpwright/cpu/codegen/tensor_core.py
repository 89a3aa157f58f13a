"""Matrix products of a warp (`mma.sync`) as LLVM functions of their own: outlined, since they are long and used again and again.

A fragment register is a vector of 32 lanes. Lane 4g + t, the t-th of quad g, holds of A the rows g and g + 8, of B the column g, and of C
and D the rows g, g + 8 and the columns 2t, 2t + 1 (PTX ISA, "Matrix fragments for mma").

The product is formed by columns: 16 rows of A for one k, times one element of B, which comes from memory in every lane at no cost, added to
the 16 rows of one column of C. Four by four transpositions inside quads bring A and C to that form and D back. Everything is f32, fused,
k ascending: what the reference interpreter does. 8-bit floats become bf16 on the way, exactly, by table. (The host's own bf16 dot
product was tried: half the rate of two fused multiply-adds on Sapphire Rapids, and subnormals lost.)
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from functools import cache

from warpwright.cpu.codegen.emitter import Host

LANES = range(32)


@dataclass
class Helper:
    """An LLVM function: its name, its text, and the intrinsics that it needs declared, by name."""

    name: str
    result: str
    parameters: list[str]
    text: str = ""
    declarations: dict[str, str] = field(default_factory=dict)


class _Writer:
    """Text of one function."""

    def __init__(self, helper: Helper):
        self.helper, self.count = helper, 0
        self.lines: list[str] = []

    def ins(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def call(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        self.helper.declarations[name] = f"declare {result} {name}({', '.join(kind for kind, _ in arguments)})"
        return self.ins(f"call {result} {name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def shuffle(self, kind: str, value: str, indices, other: str | None = None, count: int = 32) -> str:
        indices = list(indices)
        mask = ", ".join(f"i32 {i}" for i in indices)
        return self.ins(f"shufflevector <{count} x {kind}> {value}, <{count} x {kind}> {other or 'poison'}, <{len(indices)} x i32> <{mask}>")

    def finish(self, results: list[str], kind: str) -> Helper:
        helper, current = self.helper, "poison"
        for i, result in enumerate(results):
            current = self.ins(f"insertvalue {helper.result} {current}, {kind} {result}, {i}")
        parameters = ", ".join(f"{kind} %{name}" for kind, _, name in (parameter.rpartition(" ") for parameter in helper.parameters))
        head = f"define internal fastcc {helper.result} {helper.name}({parameters}) alwaysinline nounwind {{"
        helper.text = "\n".join([head, *self.lines, f"  ret {helper.result} {current}", "}", ""])
        return helper


def supported(slots: dict) -> bool:
    """Whether `mma_helper` knows this form of mma.sync."""
    special = any(slots.get(name) for name in ("sp", "sp::ordered_metadata", "kind"))
    floats = slots.get("A") in _K_BITS and slots.get("D") in ("f16", "f32")
    return floats and slots.get("shape", "")[:6] == "m16n8k" and slots["C"] == slots["D"] and not special


_K_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}


def mma_helper(slots: dict, host: Host) -> Helper:
    """The function of an mma.sync's slots; see `_mma_helper`."""
    return _mma_helper(tuple((name, slots.get(name)) for name in ("shape", "A", "B", "C", "D")), host)


@cache
def _mma_helper(named: tuple, host: Host) -> Helper:
    """The function of an mma.sync's slots (shape, A, B, C, D): (a…, b…, c…) → d…, one <32 x T> a register."""
    slots = dict(named)
    a_type, b_type, c_type = slots["A"], slots["B"], slots["C"]
    k = int(re.fullmatch(r"m16n8k(\d+)", slots["shape"])[1])  # type: ignore[index]
    halves = k * _K_BITS[a_type] // 128  # registers of A (for each row half) and of B
    packed = c_type == "f16"
    c_kind = "<32 x i32>" if packed else "<32 x float>"
    c_count = 2 if packed else 4
    parameters = [f"<32 x i32> a{i}" for i in range(2 * halves)] + [f"<32 x i32> b{i}" for i in range(halves)]
    parameters += [f"{c_kind} c{i}" for i in range(c_count)]
    name = f"@mma_{slots['shape']}_{a_type}_{b_type}_{c_type}"
    helper = Helper(name, f"{{ {', '.join([c_kind] * c_count)} }}", parameters)
    w = _Writer(helper)
    a, b = [f"%a{i}" for i in range(2 * halves)], [f"%b{i}" for i in range(halves)]
    accumulators = _unpack_halves(w, ["%c0", "%c1"]) if packed else [f"%c{i}" for i in range(4)]
    accumulators = _f32_product(w, a, b, accumulators, a_type, b_type, host)
    if packed:
        accumulators = _pack_halves(w, accumulators)
    else:
        accumulators = [_canonical(w, value) for value in accumulators]
    return w.finish(accumulators, c_kind)


def _quarters(w: _Writer, registers: list[str], kind: str) -> list[str]:
    """The 4×4 transposition of two registers: vector t holds element t of every quad, rows in the order 4z + i for quad i, place z."""
    halves = [w.shuffle(kind, register, range(first, first + 16)) for register in registers for first in (0, 16)]
    return _transpose(w, halves, kind)


def _transpose(w: _Writer, x: list[str], kind: str) -> list[str]:
    """Four vectors of 16 transposed inside each quad: out[t] in place z of a quad is x[z] in place t. Its own inverse."""

    def unpack(a: str, b: str, width: int, high: int) -> str:
        places = {1: ((0, 16, 1, 17), (2, 18, 3, 19)), 2: ((0, 1, 16, 17), (2, 3, 18, 19))}[width][high]
        return w.shuffle(kind, a, [4 * quad + place for quad in range(4) for place in places], b, 16)

    t = [unpack(x[i], x[i + 1], 1, high) for i in (0, 2) for high in (0, 1)]
    return [unpack(t[0], t[2], 2, 0), unpack(t[0], t[2], 2, 1), unpack(t[1], t[3], 2, 0), unpack(t[1], t[3], 2, 1)]


def _f32_product(w: _Writer, a: list[str], b: list[str], c: list[str], a_type: str, b_type: str, host: Host) -> list[str]:
    """c + a·b by fused multiply-adds, k ascending."""
    f, places = "<16 x float>", _places(a_type)
    columns = [_quarters(w, [c[parity], c[2 + parity]], "float") for parity in (0, 1)]
    scratch = w.ins(f"alloca [{len(b) * len({place[::2] for place in places})} x <32 x float>], align 64")
    slots: dict[tuple, int] = {}
    for register, value in enumerate(b):
        parts = _parts(w, value, b_type, host)
        for part, _, parity in places:
            if (register, part, parity) not in slots:
                slots[register, part, parity] = len(slots)
                single = _single(w, parts[part], b_type, parity, 32)
                w.lines.append(f"  store <32 x float> {single}, ptr {_at(w, scratch, 32 * slots[register, part, parity])}, align 64")
    # LLVM must not carry the stored vectors over to the loads: each would become a shuffle, where a load can broadcast for nothing.
    w.lines.append(f'  call void asm sideeffect "", "r,~{{memory}}"(ptr {scratch})')
    for register in range(len(b)):
        rows = [_parts(w, a[2 * register + row], a_type, host) for row in (0, 1)]
        quarters = [_quarters(w, [low, high], "i32") for low, high in zip(*rows, strict=True)]
        for part, position, parity in places:
            element = _single(w, quarters[part][position], a_type, parity, 16)
            for column in range(8):
                offset = 32 * slots[register, part, parity] + 4 * column + position
                scalar = w.ins(f"load float, ptr {_at(w, scratch, offset)}, align 4")
                vector = w.ins(f"insertelement {f} poison, float {scalar}, i32 0")
                vector = w.shuffle("float", vector, [0] * 16, count=16)
                slot = columns[column % 2]
                slot[column // 2] = w.call(f, "@llvm.fma.v16f32", (f, element), (f, vector), (f, slot[column // 2]))
    even, odd = (_transpose(w, slot, "float") for slot in columns)
    return [w.shuffle("float", slot[first], LANES, slot[first + 1], 16) for first in (0, 2) for slot in (even, odd)]


def _at(w: _Writer, base: str, floats: int) -> str:
    return w.ins(f"getelementptr float, ptr {base}, i64 {floats}")


# ── elements ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _places(type_: str) -> list[tuple[int, int, int | None]]:
    """Where each k of a register is, ascending: (part, place in the quad, which half of the i32 or None for all of it)."""
    if type_ == "tf32":
        return [(0, quad, None) for quad in range(4)]
    if _K_BITS[type_] == 16:
        return [(0, quad, parity) for quad in range(4) for parity in (0, 1)]
    return [(quad // 2, quad % 2 * 2 + half, parity) for quad in range(4) for half in (0, 1) for parity in (0, 1)]


def _parts(w: _Writer, register: str, type_: str, host: Host) -> list[str]:
    """A register as vectors of pairs (or of tf32); 8-bit floats as two vectors of bf16 pairs."""
    return _eight_bit_pairs(w, register, type_, host) if _K_BITS[type_] == 8 else [register]


def _single(w: _Writer, value: str, type_: str, parity: int | None, lanes: int) -> str:
    """One half of each pair as f32."""
    i, f = f"<{lanes} x i32>", f"<{lanes} x float>"
    if type_ == "f16":
        if parity:
            value = w.ins(f"lshr {i} {value}, splat (i32 16)")
        half = w.ins(f"bitcast <{lanes} x i16> {w.ins(f'trunc {i} {value} to <{lanes} x i16>')} to <{lanes} x half>")
        return w.ins(f"fpext <{lanes} x half> {half} to {f}")
    if parity is None:
        value = w.ins(f"and {i} {value}, splat (i32 -8192)")  # the 13 bits that tf32 lacks
    else:
        value = w.ins(f"and {i} {value}, splat (i32 -65536)" if parity else f"shl {i} {value}, splat (i32 16)")
    return w.ins(f"bitcast {i} {value} to {f}")


def _eight_bit_pairs(w: _Writer, register: str, type_: str, host: Host) -> list[str]:
    """128 8-bit floats as bf16, exactly: two vectors of pairs, the first with each quad's lanes 0 and 1, the second with its lanes 2 and 3."""
    bytes_ = w.ins(f"bitcast <32 x i32> {register} to <128 x i8>")
    if host.vbmi:
        table = [_bf16_of(code, type_) for code in range(128)]
        low, high = _lookup(w, bytes_, [bits & 255 for bits in table]), _lookup(w, bytes_, [bits >> 8 for bits in table])
        sign = w.ins(f"and <128 x i8> {bytes_}, splat (i8 -128)")
        high = w.ins(f"or <128 x i8> {high}, {sign}")
        parts = []
        for first in (0, 8):  # interleave eight bytes of each 16: an unpack instruction
            order = [16 * (i // 16) + first + i % 16 // 2 + 128 * (i % 2) for i in range(128)]
            parts.append(w.ins(f"bitcast <128 x i8> {w.shuffle('i8', low, order, high, 128)} to <32 x i32>"))
        return parts
    values = _eight_bit_floats(w, bytes_, type_)
    bits = w.ins(f"bitcast <128 x float> {values} to <128 x i32>")
    top = w.ins(f"lshr <128 x i32> {bits}, splat (i32 16)")
    halves = w.ins(f"trunc <128 x i32> {top} to <128 x i16>")
    parts = []
    for first in (0, 8):
        order = [16 * (i // 8) + first + i % 8 for i in range(64)]
        parts.append(w.ins(f"bitcast <64 x i16> {w.shuffle('i16', halves, order, None, 128)} to <32 x i32>"))
    return parts


def _lookup(w: _Writer, bytes_: str, table: list[int]) -> str:
    """table[byte & 127] for 128 bytes."""
    kind = "<64 x i8>"
    constants = [f"<{', '.join(f'i8 {value - 256 if value > 127 else value}' for value in table[half:half + 64])}>" for half in (0, 64)]
    first, second = ((kind, constant) for constant in constants)
    halves = [w.shuffle("i8", bytes_, range(half, half + 64), None, 128) for half in (0, 64)]
    parts = [w.call(kind, "@llvm.x86.avx512.vpermi2var.qi.512", first, (kind, half), second) for half in halves]
    return w.shuffle("i8", parts[0], range(128), parts[1], 64)


def _bf16_of(code: int, type_: str) -> int:
    """The bf16 bits of a non-negative e4m3 or e5m2 code; every one of them has an exact bf16."""
    mantissa_bits, bias = (3, 7) if type_ == "e4m3" else (2, 15)
    exponent, mantissa = code >> mantissa_bits, code & (1 << mantissa_bits) - 1
    if type_ == "e4m3" and code == 0x7F:
        return 0x7FC0
    if type_ == "e5m2" and exponent == 31:
        return 0x7FC0 if mantissa else 0x7F80
    scale = exponent - bias - mantissa_bits if exponent else 1 - bias - mantissa_bits
    value = (mantissa + (1 << mantissa_bits if exponent else 0)) * 2.0**scale
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def _eight_bit_floats(w: _Writer, bytes_: str, type_: str) -> str:
    """128 8-bit floats as f32 by arithmetic: the exponent and mantissa moved into place are 2^-k of the value, subnormals too."""
    i, f = "<128 x i32>", "<128 x float>"
    mantissa, bias = (3, 7) if type_ == "e4m3" else (2, 15)
    wide = w.ins(f"zext <128 x i8> {bytes_} to {i}")
    magnitude = w.ins(f"and {i} {wide}, splat (i32 127)")
    # As a normal number with an exponent one too high, less what its hidden bit then says, a subnormal comes out right; no host subnormals arise.
    moved = w.ins(f"shl {i} {magnitude}, splat (i32 {23 - mantissa})")
    normal = w.ins(f"add {i} {moved}, splat (i32 {127 - bias << 23})")
    raised = w.ins(f"add {i} {moved}, splat (i32 {128 - bias << 23})")
    least = struct.unpack("<Q", struct.pack("<d", 2.0 ** (1 - bias)))[0]
    raised = w.ins(f"bitcast {i} {raised} to {f}")
    subnormal = w.ins(f"fsub {f} {raised}, splat (float 0x{least:016X})")
    tiny = w.ins(f"icmp ult {i} {magnitude}, splat (i32 {1 << mantissa})")
    value = w.ins(f"bitcast {i} {normal} to {f}")
    value = w.ins(f"select <128 x i1> {tiny}, {f} {subnormal}, {f} {value}")
    if type_ == "e4m3":
        nan = w.ins(f"icmp eq {i} {magnitude}, splat (i32 127)")
        value = w.ins(f"select <128 x i1> {nan}, {f} splat (float 0x7FF8000000000000), {f} {value}")
    else:
        infinite = w.ins(f"icmp eq {i} {magnitude}, splat (i32 124)")
        nan = w.ins(f"icmp ugt {i} {magnitude}, splat (i32 124)")
        value = w.ins(f"select <128 x i1> {infinite}, {f} splat (float 0x7FF0000000000000), {f} {value}")
        value = w.ins(f"select <128 x i1> {nan}, {f} splat (float 0x7FF8000000000000), {f} {value}")
    bits = w.ins(f"bitcast {f} {value} to {i}")
    sign = w.ins(f"shl {i} {wide}, splat (i32 24)")
    sign = w.ins(f"and {i} {sign}, splat (i32 -2147483648)")
    return w.ins(f"bitcast {i} {w.ins(f'or {i} {bits}, {sign}')} to {f}")


def _halves(w: _Writer, register: str) -> tuple[str, str]:
    """The (low, high) f16 of each lane as f32."""
    halves = w.ins(f"bitcast <32 x i32> {register} to <64 x half>")
    parts = [w.shuffle("half", halves, range(first, 64, 2), None, 64) for first in (0, 1)]
    low, high = (w.ins(f"fpext <32 x half> {part} to <32 x float>") for part in parts)
    return low, high


def _unpack_halves(w: _Writer, registers: list[str]) -> list[str]:
    return [value for register in registers for value in _halves(w, register)]


def _canonical(w: _Writer, value: str) -> str:
    """NaN as 0x7FFFFFFF."""
    nan = w.ins(f"fcmp uno <32 x float> {value}, zeroinitializer")
    return w.ins(f"select <32 x i1> {nan}, <32 x float> splat (float 0x7FFFFFFFE0000000), <32 x float> {value}")


def _pack_halves(w: _Writer, values: list[str]) -> list[str]:
    """Pairs of f32 rounded to f16, two to a register; NaN as 0x7FFF."""
    packed = []
    for low, high in zip(values[0::2], values[1::2], strict=True):
        parts = [w.ins(f"fptrunc <32 x float> {value} to <32 x half>") for value in (_canonical(w, low), _canonical(w, high))]
        order = [i // 2 + 32 * (i % 2) for i in range(64)]
        packed.append(w.ins(f"bitcast <64 x half> {w.shuffle('half', parts[0], order, parts[1])} to <32 x i32>"))
    return packed
