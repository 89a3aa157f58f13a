"""Writing LLVM IR: values of one lane or of 32, operands, and results blended where lanes wait.

Everything is written at the emitter's `width`: 1 for a value that the warp holds once (uniform, or lane 0's of an affine one), 32 for a
value a lane. A lowering asks for operands and combines them with `bin`, `icmp`, `select`, … and need not know which it is.
PTX registers are allocas, which LLVM turns into SSA values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from warpwright.cpu.analysis.flow import Flow
from warpwright.cpu.analysis.forms import Form
from warpwright.cpu.analysis.lanes import Lanes
from warpwright.cpu.analysis.program import Arg, Imm, Not, Op, Program, Reg, Special
from warpwright.cpu.analysis.variables import Place
from warpwright.errors import PtxError

# The LLVM type that holds one lane of a PTX type in a register or an operand. bf16 and the packed types are bits.
LLVM_TYPE = {
    "pred": "i1", "b1": "i1", "b8": "i8", "u8": "i8", "s8": "i8", "b16": "i16", "u16": "i16", "s16": "i16", "f16": "i16", "bf16": "i16",
    "b32": "i32", "u32": "i32", "s32": "i32", "f32": "float", "tf32": "i32", "f16x2": "i32", "bf16x2": "i32", "u16x2": "i32", "s16x2": "i32",
    "b64": "i64", "u64": "i64", "s64": "i64", "f64": "double", "f32x2": "i64", "b128": "i128",
    "e4m3": "i8", "e5m2": "i8", "e4m3x2": "i16", "e5m2x2": "i16", "e4m3x4": "i32", "e5m2x4": "i32",
}
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128, "half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}
_SUFFIX = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}


@dataclass(frozen=True)
class Host:
    """What of the host's instruction set the lowerings use."""

    avx512: bool = False
    fp16: bool = False
    vbmi: bool = False
    vnni: bool = False
    amx: bool = False


def float_constant(bits: int, kind: str) -> str:
    """An LLVM literal of kind float, double or half from its bits."""
    if kind == "half":
        return f"0xH{bits:04X}"
    if kind == "double":
        return f"0x{bits:016X}"
    if bits & 0x7F800000 == 0x7F800000 and bits & 0x7FFFFF:  # a NaN keeps its payload
        return f"0x{(bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29:016X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', struct.unpack('<f', struct.pack('<I', bits))[0]))[0]:016X}"


def single(value: float) -> int:
    """The bits of a number as f32."""
    return struct.unpack("<I", struct.pack("<f", value))[0]


class Home(Protocol):
    """Where the 32 lanes of a register live, if not in a slot of their own."""

    def load(self, e: Emitter) -> str: ...

    def store(self, e: Emitter, value: str) -> None: ...


class Emitter:
    """Writes one function. `lines` are its instructions; `helpers` the functions it calls, by name, shared by the module.

    late, exact_mma: what `Device` was asked for.
    """

    def __init__(self, program: Program, flow: Flow, lanes: Lanes, host: Host, late: bool = False, exact_mma: bool = False):
        self.late, self.exact_mma = late, exact_mma
        self.program, self.flow, self.lanes, self.host = program, flow, lanes, host
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.declarations: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self.width = 32
        self.mask: str | None = None  # i32 of the active lanes; None: all 32
        self.position = 0
        self.trusted = False  # the access being written has been checked
        self.here = "entry"  # the LLVM block being written
        self.homes: dict[int, Home] = {}  # registers that do not live in slots of their own
        self.read_somewhere = {reg.index for block in flow.blocks for op in block.ops for reg in op.reads} | {
            reg.index for block in flow.blocks for reg in (block.branch[0] if block.branch else None, block.switch) if reg is not None}
        self._count = 0
        self._entry_values: dict[str, str] = {}
        self._mask_vectors: dict[str, str] = {}

    # ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def name(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def label(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def ins(self, text: str) -> str:
        """An instruction with a result."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append("  " + text)

    def start(self, label: str) -> None:
        """Begin an LLVM block."""
        self.lines.append(f"{label}:")
        self.here = label
        self._mask_vectors.clear()

    def at_entry(self, key: str, text: str) -> str:
        """A value computed once at the function's start, by a key that says what it is."""
        if key not in self._entry_values:
            self._count += 1
            self._entry_values[key] = f"%e{self._count}"
            self.entry.append(f"  %e{self._count} = {text}")
        return self._entry_values[key]

    def alloca(self, key: str, kind: str, initial: str | None = None) -> str:
        """A stack slot made at the function's start."""
        if key not in self._entry_values:
            self._entry_values[key] = self.at_entry(key + "'", f"alloca {kind}")
            if initial is not None:
                self.entry.append(f"  store {kind} {initial}, ptr {self._entry_values[key]}")
        return self._entry_values[key]

    def library(self, name: str) -> None:
        """Take in the functions of `codegen/library/NAME.ll`: run-time code that only some kernels need."""
        if name not in self.helpers:
            lines = (Path(__file__).parent / "library" / f"{name}.ll").read_text().split("\n")
            for line in lines:
                if line.startswith("declare "):  # an intrinsic may be declared only once
                    self.declarations[line[line.index("@"):line.index("(", line.index("@"))]] = line
            self.helpers[name] = "\n".join(line for line in lines if not line.startswith("declare "))

    def declare(self, name: str, signature: str) -> None:
        """`signature` is `i32 (i32, i32)`."""
        result, _, arguments = signature.partition(" (")
        self.declarations[name] = f"declare {result} {name}({arguments}"

    @contextmanager
    def shape(self, width: int):
        before, self.width = self.width, width
        try:
            yield self
        finally:
            self.width = before

    # ── values at the current width ──────────────────────────────────────────────────────────────────────────────

    def ty(self, kind: str) -> str:
        return kind if self.width == 1 else f"<{self.width} x {kind}>"

    def k(self, kind: str, value: int | float | str) -> str:
        """A constant: an int (for float kinds too, its value), a Python float, or LLVM's spelling."""
        if kind in ("float", "double", "half") and not isinstance(value, str):
            value = float_constant(_bits_of(float(value), kind), kind)
        if kind == "i1" and not isinstance(value, str):
            value = "true" if value else "false"
        if kind[0] == "i" and isinstance(value, int) and kind != "i1":
            bits = BITS[kind]
            value = (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        return str(value) if self.width == 1 else f"splat ({kind} {value})"

    def bin(self, operation: str, kind: str, a: str, b: str) -> str:
        return self.ins(f"{operation} {self.ty(kind)} {a}, {b}")

    def neg(self, a: str, kind: str = "float") -> str:
        return self.ins(f"fneg {self.ty(kind)} {a}")

    def icmp(self, condition: str, kind: str, a: str, b: str) -> str:
        return self.ins(f"icmp {condition} {self.ty(kind)} {a}, {b}")

    def fcmp(self, condition: str, kind: str, a: str, b: str) -> str:
        return self.ins(f"fcmp {condition} {self.ty(kind)} {a}, {b}")

    def select(self, condition: str, kind: str, a: str, b: str) -> str:
        return self.ins(f"select {self.ty('i1')} {condition}, {self.ty(kind)} {a}, {self.ty(kind)} {b}")

    def cast(self, operation: str, a: str, kind: str, to: str) -> str:
        return a if kind == to else self.ins(f"{operation} {self.ty(kind)} {a} to {self.ty(to)}")

    def bits(self, a: str, kind: str, to: str) -> str:
        """The same bits as another type of the same size."""
        return self.cast("bitcast", a, kind, to)

    def resize(self, a: str, kind: str, to: str, signed: bool = False) -> str:
        """An integer made wider or narrower."""
        if BITS[kind] == BITS[to]:
            return a
        return self.cast("trunc" if BITS[to] < BITS[kind] else "sext" if signed else "zext", a, kind, to)

    def suffix(self, kind: str) -> str:
        kind_name = _SUFFIX.get(kind, kind)
        return kind_name if self.width == 1 else f"v{self.width}{kind_name}"

    def intrinsic(self, name: str, kind: str, *operands: str, result: str | None = None, extra: str = "", extra_types: str = "") -> str:
        """A call of an intrinsic overloaded on one type: `llvm.fma`."""
        full = f"@{name}.{self.suffix(kind)}"
        ty, out = self.ty(kind), self.ty(result or kind)
        if full not in self.declarations:
            self.declarations[full] = f"declare {out} {full}({', '.join([ty] * len(operands))}{extra_types})"
        return self.ins(f"call {out} {full}({', '.join(f'{ty} {operand}' for operand in operands)}{extra})")

    def wide(self, name: str, kind: str, *operands: str, after: str = "", after_types: str = "") -> str:
        """An AVX-512 intrinsic on 512-bit vectors, applied to operands of the current width part by part. `after` are further operands."""
        n = 512 // BITS[kind]
        part_type = f"<{n} x {kind}>"
        self.declarations["@" + name] = f"declare {part_type} @{name}({', '.join([part_type] * len(operands) + [after_types] * bool(after))})"
        parts = []
        for start in range(0, self.width, n):
            given = []
            for operand in operands:
                if self.width < n:
                    one = operand if self.width > 1 else self.ins(f"insertelement <1 x {kind}> poison, {kind} {operand}, i64 0")
                    given.append(self.shuffle(one, kind, [i % self.width for i in range(n)], self.width))
                else:
                    given.append(self.shuffle(operand, kind, range(start, start + n), self.width))
            arguments = [f"{part_type} {part}" for part in given] + [after] * bool(after)
            parts.append(self.ins(f"call {part_type} @{name}({', '.join(arguments)})"))
        if self.width == 1:
            return self.ins(f"extractelement {part_type} {parts[0]}, i64 0")
        if self.width < n:
            return self.shuffle(parts[0], kind, range(self.width), n)
        while len(parts) > 1:
            parts = [self.shuffle(x, kind, range(2 * n), n, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            n *= 2
        return parts[0]

    # ── scalars and vectors ──────────────────────────────────────────────────────────────────────────────────────

    def splat(self, scalar: str, kind: str) -> str:
        """A vector of 32 copies."""
        if not scalar.startswith("%"):
            return f"splat ({kind} {scalar})"
        one = self.ins(f"insertelement <32 x {kind}> poison, {kind} {scalar}, i64 0")
        return self.ins(f"shufflevector <32 x {kind}> {one}, <32 x {kind}> poison, <32 x i32> zeroinitializer")

    def vector_constant(self, kind: str, values: Iterable[int]) -> str:
        return "<" + ", ".join(f"{kind} {value}" for value in values) + ">"

    def spread(self, scalar: str, kind: str, form: Form) -> str:
        """The vector of a value that is held as lane 0's (kind: an integer type, or any type where the form is uniform)."""
        vector = self.splat(scalar, kind)
        if form.uniform:
            return vector
        if any(form.offsets):
            half = 1 << BITS[kind] - 1
            lanes = self.vector_constant(kind, ((offset + half) % (2 * half) - half for offset in form.offsets))
            vector = self.ins(f"add <32 x {kind}> {vector}, {lanes}")
        for symbol, factors in form.scaled:
            term = self.splat(self.symbol(symbol, kind), kind)
            term = self.ins(f"mul <32 x {kind}> {term}, {self.vector_constant(kind, factors)}")
            vector = self.ins(f"add <32 x {kind}> {vector}, {term}")
        return vector

    def symbol(self, symbol, kind: str) -> str:
        """A symbol of a form, as a scalar of an integer type at least as wide."""
        index, how, width = symbol
        reg = self.program.registers[index]
        value = self.ins(f"load {LLVM_TYPE[reg.type]}, ptr %r{index}")
        with self.shape(1):
            if reg.bits > width:
                value = self.resize(value, LLVM_TYPE[reg.type], f"i{width}")
            return self.resize(value, f"i{width}", kind, how == "s")

    def extract(self, vector: str, kind: str, lane: int | str) -> str:
        index = f"i32 {lane}"
        return self.ins(f"extractelement <32 x {kind}> {vector}, {index}")

    def shuffle(self, vector: str, kind: str, lanes: Iterable[int], width: int = 32, second: str = "poison") -> str:
        """A vector of any length from the lanes of one or two vectors of `width`."""
        lanes = list(lanes)
        indices = "<" + ", ".join(f"i32 {lane}" for lane in lanes) + ">"
        return self.ins(f"shufflevector <{width} x {kind}> {vector}, <{width} x {kind}> {second}, <{len(lanes)} x i32> {indices}")

    # ── masks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def mask_bits(self) -> str:
        """The active lanes as an i32."""
        return self.mask if self.mask is not None else "-1"

    def mask_vector(self) -> str:
        """The active lanes as a <32 x i1>."""
        if self.mask is None:
            return "splat (i1 true)"
        if self.mask not in self._mask_vectors:
            self._mask_vectors[self.mask] = self.ins(f"bitcast i32 {self.mask} to <32 x i1>")
        return self._mask_vectors[self.mask]

    def to_bits(self, predicate: str) -> str:
        """A <32 x i1> as an i32."""
        return self.ins(f"bitcast <32 x i1> {predicate} to i32")

    # ── operands ─────────────────────────────────────────────────────────────────────────────────────────────────

    def arg(self, op: Op, name: str, kind: str | None = None) -> str:
        """An operand by its name, as the LLVM type of its PTX type, or as another of the same size."""
        type_ = op.types[name][0]
        return self.value(op.args[name], kind or LLVM_TYPE[type_ or "b64"])

    def value(self, arg: Arg, kind: str) -> str:
        """Any operand but an address, as an LLVM type (its bits, cut or zero-extended) at the current width."""
        match arg:
            case Reg():
                return self.read(arg, kind)
            case Imm():
                return self.k(kind, self.literal(arg, kind))
            case Not(reg=reg):
                return self.ins(f"xor {self.ty('i1')} {self.read(reg, 'i1')}, {self.k('i1', 1)}")
            case Special(name=name):
                from warpwright.cpu.codegen.special import special

                return special(self, name, kind)
            case Place():
                scalar = self.address_of(arg, kind)
                return scalar if self.width == 1 else self.splat(scalar, kind)
            case None:
                return self.k(kind, 0)
            case _:
                raise PtxError(f"the engine cannot take {type(arg).__name__} as a value")

    def literal(self, imm: Imm, kind: str) -> str:
        value = imm.value
        if imm.float:
            number = struct.unpack("<f", struct.pack("<I", value))[0] if imm.float == 32 else struct.unpack("<d", struct.pack("<Q", value))[0]
            if kind == "double":
                return float_constant(value if imm.float == 64 else _bits_of(number, "double"), kind)
            if kind == "float":
                return float_constant(value if imm.float == 32 else _bits_of(number, "float"), kind)
            if kind == "half":
                return float_constant(_bits_of(number, "half"), kind)
            if imm.float == 64 and kind == "i32":  # a decimal literal where an f32's bits are taken
                value = single(number)
        elif kind in ("float", "double", "half"):
            return float_constant(_bits_of(float(value), kind), kind)
        if kind == "i1":
            return "true" if value else "false"
        bits = BITS[kind]
        return str((value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1))

    def read(self, reg: Reg, kind: str) -> str:
        own = LLVM_TYPE[reg.type]
        form = self.lanes.known[reg.index]
        if self.width == 1:
            value = self.ins(f"load {own}, ptr %r{reg.index}")
        elif form.varying:
            value = self.load_lanes(reg, own)
        elif form.constant is not None and own[0] == "i" and own != "i1" and not form.scaled:
            value = self.spread(str(_signed(form.constant, reg.bits)), own, form)
        else:
            scalar = self.ins(f"load {own}, ptr %r{reg.index}")
            value = self.spread(scalar, own, form) if own[0] == "i" else self.splat(scalar, own)
        return self.convert(value, own, kind)

    def convert(self, value: str, kind: str, to: str, signed: bool = False) -> str:
        """Bits of one type as another, cut or extended where the sizes differ."""
        if kind == to:
            return value
        if BITS[kind] == BITS[to]:
            return self.bits(value, kind, to)
        whole, wanted = f"i{BITS[kind]}", f"i{BITS[to]}"
        value = self.resize(self.bits(value, kind, whole), whole, wanted, signed)
        return self.bits(value, wanted, to)

    def address_of(self, place: Place, kind: str) -> str:
        """A variable's address in its own space, as a scalar."""
        if place.space == "global":
            address = self.global_address(place)
            with self.shape(1):
                return self.resize(address, "i64", kind)
        return str(self.lanes.address_of(place, 64).constant)

    def global_address(self, place: Place) -> str:
        index = list(self.program.space.globals).index(place.name)
        table = self.at_entry("globals", f"load ptr, ptr {self.launch_field(48)}")
        pointer = self.at_entry(f"global.p {index}", f"getelementptr i64, ptr {table}, i64 {index}")
        start = self.at_entry(f"global {index}", f"load i64, ptr {pointer}")
        return self.at_entry(f"global {index} {place.offset}", f"add i64 {start}, {place.offset}") if place.offset else start

    # ── the runtime's structs (layouts: runtime.ll) ──────────────────────────────────────────────────────────────

    def frame_field(self, offset: int) -> str:
        return self.at_entry(f"frame {offset}", f"getelementptr i8, ptr %frame, i64 {offset}")

    def launch_field(self, offset: int) -> str:
        launch = self.at_entry("launch", f"load ptr, ptr {self.frame_field(32)}")
        return self.at_entry(f"launch {offset}", f"getelementptr i8, ptr {launch}, i64 {offset}")

    def params(self) -> str:
        return self.at_entry("params", "load ptr, ptr %frame")

    def param_address(self) -> str:
        return self.at_entry("params.i", f"ptrtoint ptr {self.params()} to i64")

    def shared_base(self) -> str:
        return self.at_entry("shared", f"load ptr, ptr {self.frame_field(8)}")

    def shared_address(self) -> str:
        return self.at_entry("shared.i", f"ptrtoint ptr {self.shared_base()} to i64")

    def shared_size(self) -> str:
        return self.at_entry("shared.size", f"load i64, ptr {self.frame_field(16)}")

    def local_address(self) -> str:
        return self.at_entry("local.i", f"load i64, ptr {self.frame_field(24)}")

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, op: Op, reg: Arg, value: str, kind: str, width: int, signed: bool = False) -> None:
        """Write a result (`width` 1 or 32 lanes of it), blended with the old value for lanes that do not take part."""
        if not isinstance(reg, Reg):
            return
        own = LLVM_TYPE[reg.type]
        form = self.lanes.known[reg.index]
        guard = op.guard
        if form.varying:
            with self.shape(32):
                if width == 1:
                    with self.shape(1):
                        value = self.convert(value, kind, own, signed)
                    made = self.lanes.result(op, reg)
                    value = self.spread(value, own, made) if not made.uniform else self.splat(value, own)
                else:
                    value = self.convert(value, kind, own, signed)
                if self.mask is not None and (self.lanes.blended(op, reg) or guard is not None):
                    value = self.select(self.mask_vector(), own, value, self.load_lanes(reg, own))
            self.store_lanes(reg, own, value)
            return
        if width != 1:
            raise PtxError(f"internal: a vector for the uniform register {reg.name} in {op.opcode}")
        with self.shape(1):
            value = self.convert(value, kind, own, signed)
            if self.scalar_guard is not None:
                old = self.ins(f"load {own}, ptr %r{reg.index}")
                value = self.select(self.scalar_guard, own, value, old)
        self.do(f"store {own} {value}, ptr %r{reg.index}")

    def load_lanes(self, reg: Reg, kind: str) -> str:
        home = self.homes.get(reg.index)
        return home.load(self) if home is not None else self.ins(f"load <32 x {kind}>, ptr %r{reg.index}")

    def store_lanes(self, reg: Reg, kind: str, value: str) -> None:
        home = self.homes.get(reg.index)
        if home is not None:
            home.store(self, value)
        else:
            self.do(f"store <32 x {kind}> {value}, ptr %r{reg.index}")

    scalar_guard: str | None = None

    def unsupported(self, op: Op, why: str) -> PtxError:
        site = self.program.sites[op.site]
        return PtxError(f"the engine cannot run '{str(site.text).strip()}': {why}", site.line, site.column)

    def fail(self, op: Op, why: str) -> NoReturn:
        raise self.unsupported(op, why)


def _bits_of(value: float, kind: str) -> int:
    if kind == "double":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    if kind == "half":
        return struct.unpack("<H", struct.pack("<e", value))[0]
    try:
        return single(value)
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value
