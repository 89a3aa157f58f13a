"""Products of integers, of bits and of f64 in the layout that the registers have.

Lane 4g + t holds four bytes (one word of bits, one f64) of A's row g and of B's column g, and of C row g and the columns 2t, 2t + 1. So for
each place q in a quad, A's lanes are the quad's q-th, in all four; B's are the q-th of the quads 2t and 2t + 1; and a dot product of four
bytes (a count of common bits, a fused multiply-add) goes to where C's elements are. k ascends.

With AVX-512 VNNI the dot product is one instruction of unsigned by signed bytes: signed by signed adds 128 to A's and takes 128 · Σ b away
again, unsigned by unsigned likewise with B. 4-bit integers are two registers of bytes: of the even elements, and of the odd ones.
"""

from __future__ import annotations

from collections.abc import Callable

from warpwright.cpu import fragments
from warpwright.cpu.codegen.emitter import Host
from warpwright.cpu.codegen.tensor_core import Helper, _Writer

Vectors = list[list[str]]  # for each register of C: its parts of 64 bytes


def supported(slots: dict) -> bool:
    """Whether `helper` knows this form of mma."""
    special = any(slots.get(name) for name in ("sp", "sp::ordered_metadata", "kind")) or slots.get("rnd") not in (None, "rn")
    return slots.get("A") in ("s8", "u8", "s4", "u4", "b1", "f64") and not special


def helper(slots: dict, name: str, host: Host) -> Helper:
    """The function (a…, b…, c…) → d… of an mma of 8 or 16 rows and 8 columns."""
    layouts = [fragments.mma_layout(slots, letter) for letter in "ABC"]
    kind = "double" if slots["A"] == "f64" else "i32"
    parameters = [f"<32 x {kind}> {letter}{i}" for letter, layout in zip("abc", layouts, strict=True) for i in range(layout.registers)]
    made = Helper(name, "{ " + ", ".join([f"<32 x {kind}>"] * layouts[2].registers) + " }", parameters)
    w = _Quads(made, kind)
    a, b, c = ([f"%{letter}{i}" for i in range(layout.registers)] for letter, layout in zip("abc", layouts, strict=True))
    halves = layouts[0].rows // 8
    if slots["A"] == "f64":
        sums = w.multiply(a, b, w.split(c), halves, lambda s, x, y: w.wide("llvm.fma", x, y, s))
        results = [w.canonical(w.join(parts)) for parts in sums]
    elif slots["A"] == "b1":
        sums = w.multiply(a, b, w.split(c), halves,
                          lambda s, x, y: w.op("add", s, w.wide("llvm.ctpop", w.op(slots["op"], x, y))))
        results = [w.join(parts) for parts in sums]
    else:
        results = _integers(w, a, b, c, halves, slots, host)
    return w.finish(results, f"<32 x {kind}>")


def _integers(w: _Quads, a: list[str], b: list[str], c: list[str], halves: int, slots: dict, host: Host) -> list[str]:
    a_signed, b_signed = slots["A"][0] == "s", slots["B"][0] == "s"
    if slots["A"][1:] == "4":
        a = [w.nibbles(a[i + h], odd, a_signed) for i in range(0, len(a), halves) for odd in (False, True) for h in range(halves)]
        b = [w.nibbles(register, odd, b_signed) for register in b for odd in (False, True)]
    saturate = bool(slots.get("satfinite"))
    start = [["zeroinitializer"] * w.parts for _ in c] if saturate else w.split(c)
    if not host.vnni:
        sums = w.multiply(a, b, start, halves, lambda s, x, y: w.bytes_dot(s, x, y, a_signed, b_signed))
    elif a_signed != b_signed:
        sums = w.multiply(a, b, start, halves, lambda s, x, y: w.dot(s, x, y) if b_signed else w.dot(s, y, x))
    else:
        flip = "splat (i32 -2139062144)"  # 0x80 in each byte
        if a_signed:
            a = [w.ins(f"xor <32 x i32> {register}, {flip}") for register in a]
        else:
            b = [w.ins(f"xor <32 x i32> {register}, {flip}") for register in b]
        sums = w.multiply(a, b, start, halves, w.dot)
        if a_signed:  # less 128 · Σ b, of each column
            excess = w.multiply([flip] * len(a), b, [["zeroinitializer"] * w.parts for _ in range(2)], 1, w.dot, one_part=True)
            sums = [[w.op("sub", part, excess[i % 2][0]) for part in parts] for i, parts in enumerate(sums)]
        else:  # and 128 · Σ a, of each row
            ones = "splat (i32 16843009)"
            lacking = [[w.total([w.dot("zeroinitializer", w.part(register, i), ones) for register in a[h::halves]]) for i in range(w.parts)]
                       for h in range(halves)]
            spread = [[w.quad_sum(part) for part in parts] for parts in lacking]
            sums = [[w.op("add", part, w.op("shl", more, "splat (i32 7)")) for part, more in zip(parts, spread[i // 2], strict=True)]
                    for i, parts in enumerate(sums)]
    if saturate:
        sums = [[w.wide("llvm.sadd.sat", part, old) for part, old in zip(parts, olds, strict=True)]
                for parts, olds in zip(sums, w.split(c), strict=True)]
    return [w.join(parts) for parts in sums]


class _Quads(_Writer):
    """Text of one function; `kind` is the element's type, `lanes` how many fill 64 bytes."""

    def __init__(self, made: Helper, kind: str):
        super().__init__(made)
        self.kind, self.lanes = kind, 8 if kind == "double" else 16
        self.parts = 32 // self.lanes
        self.type = f"<{self.lanes} x {kind}>"

    def part(self, register: str, i: int) -> str:
        return self.shuffle(self.kind, register, range(self.lanes * i, self.lanes * (i + 1)))

    def split(self, registers: list[str]) -> Vectors:
        return [[self.part(register, i) for i in range(self.parts)] for register in registers]

    def join(self, parts: list[str]) -> str:
        count = self.lanes
        while len(parts) > 1:
            parts = [self.shuffle(self.kind, x, range(2 * count), y, count) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            count *= 2
        return parts[0]

    def op(self, operation: str, x: str, y: str) -> str:
        return self.ins(f"{operation} {self.type} {x}, {y}")

    def wide(self, name: str, *operands: str) -> str:
        suffix = "f64" if self.kind == "double" else "i32"
        return self.call(self.type, f"@{name}.v{self.lanes}{suffix}", *((self.type, operand) for operand in operands))

    def multiply(self, a: list[str], b: list[str], sums: Vectors, halves: int, step: Callable[[str, str, str], str],
                 one_part: bool = False) -> Vectors:
        """sums, with `step` (sum, of A, of B) for all of A and B. one_part: A is the same in all rows, and so is every part of the sums."""
        sums = [list(parts) for parts in sums]
        for r, column in enumerate(b):
            for q in range(4):
                right = [self.shuffle(self.kind, column, [4 * (2 * (lane % 4) + odd) + q for lane in range(self.lanes)]) for odd in (0, 1)]
                for h in range(halves):
                    for part in range(1 if one_part else self.parts):
                        register = a[halves * r + h]
                        first = self.lanes * part + q
                        left = register if register[0] != "%" else self.shuffle(
                            self.kind, register, [first + lane // 4 * 4 for lane in range(self.lanes)])
                        for odd in (0, 1):
                            sums[2 * h + odd][part] = step(sums[2 * h + odd][part], left, right[odd])
        return sums

    def total(self, parts: list[str]) -> str:
        while len(parts) > 1:
            parts = [self.op("add", *parts[:2]), *parts[2:]]
        return parts[0]

    def quad_sum(self, part: str) -> str:
        """Each lane's sum over its quad."""
        for distance in (1, 2):
            part = self.op("add", part, self.shuffle(self.kind, part, [lane ^ distance for lane in range(self.lanes)], count=self.lanes))
        return part

    def dot(self, total: str, unsigned: str, signed: str) -> str:
        return self.call(self.type, "@llvm.x86.avx512.vpdpbusd.512", (self.type, total), (self.type, unsigned), (self.type, signed))

    def bytes_dot(self, total: str, x: str, y: str, x_signed: bool, y_signed: bool) -> str:
        for i in range(4):
            factors = []
            for value, is_signed in ((x, x_signed), (y, y_signed)):
                raised = self.op("shl", value, f"splat (i32 {24 - 8 * i})") if i < 3 else value
                factors.append(self.op("ashr" if is_signed else "lshr", raised, "splat (i32 24)"))
            total = self.op("add", total, self.op("mul", *factors))
        return total

    def nibbles(self, register: str, odd: bool, is_signed: bool) -> str:
        """Every other 4-bit element as a byte."""
        if odd:
            register = self.ins(f"lshr <32 x i32> {register}, splat (i32 4)")
        low = self.ins(f"and <32 x i32> {register}, splat (i32 252645135)")
        if not is_signed:
            return low
        flipped = self.ins(f"xor <32 x i32> {low}, splat (i32 134744072)")
        taken = self.ins(f"sub <128 x i8> {self.ins(f'bitcast <32 x i32> {flipped} to <128 x i8>')}, splat (i8 8)")
        return self.ins(f"bitcast <128 x i8> {taken} to <32 x i32>")

    def canonical(self, value: str) -> str:
        """NaN of f64 as 0xFFF8000000000000."""
        nan = self.ins(f"fcmp uno <32 x double> {value}, zeroinitializer")
        return self.ins(f"select <32 x i1> {nan}, <32 x double> splat (double 0xFFF8000000000000), <32 x double> {value}")
