"""Typed registers. A type (`f32`, `u32`, `pred` …) is a class and its instances are the registers of a kernel being traced.

Python operators on registers emit the plain instruction: `a + b` is `add`, `a * b` on integers is `mul.lo` and on floats `mul.rn`
(rounded on its own, never fused), `a < b` is `setp.lt`. Python numbers become immediates of the other side's type.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Generic, TypeVar

from warpwright.ptx import tree
from warpwright.ptx.builder import trace


def emit(mnemonic: str, *arguments: Any, **keywords: Any) -> Any:
    """Record one instruction given by its dotted mnemonic; see `words.Word.__call__`."""
    from warpwright.ptx.builder.words import word

    return word(mnemonic)(*arguments, **keywords)


class Register:
    """A register of the kernel being traced. The class says its type; `name` is its PTX name (`%f3`).

    type_name: as PTX writes it. bits: its size. kind: "b" (untyped bits), "u", "s", "f" (scalar or packed float) or "p" (predicate).
    """

    type_name: ClassVar[str] = ""
    bits: ClassVar[int] = 0
    kind: ClassVar[str] = ""

    def __init__(self, name: str):
        self.name = name

    @property
    def operand(self) -> tree.Register:
        return tree.Register(self.name)

    def as_(self, type_: type[Register]) -> Any:
        """The same bits as another type of the same size. Between integer types this names the same register; else it is a `mov`."""
        if type_.bits != self.bits or "p" in (type_.kind, self.kind):
            raise trace.error(f"{self.type_name} register seen as {type_.type_name}: sizes differ; convert with ptx.cvt")
        if storage(type_) == storage(type(self)):
            return type_(self.name)
        moved = emit(f"mov.b{self.bits}", self)
        if storage(type_) == storage(type(moved)):
            return type_(moved.name)
        return emit(f"mov.b{self.bits}", self, out=trace.current().new(type_))

    # Python would otherwise take a register for true, or compare by identity in `in`.
    def __bool__(self) -> bool:
        raise trace.error("a register has no value while the kernel is being traced: branch with ptx.when(p), choose with "
                          "ptx.select(p, a, b)")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    def _arithmetic(self, opcode: str, left: Any, right: Any) -> Any:
        """`opcode` on two operands of which at least one is `self`."""
        for side in (left, right):
            if not isinstance(side, Register) or side.type_name == self.type_name:
                continue
            if side.bits != self.bits or "b" not in (side.kind, self.kind):
                raise trace.error(f"'{opcode}' of {self.type_name} and {side.type_name}: convert one (ptx.cvt), or see its bits as the "
                                  "other's type (.as_)")
        if self.kind == "f":
            opcode += ".rn" if opcode in ("add", "sub", "mul", "div") else ""
        elif opcode == "mul":
            opcode = "mul.lo"
        if self.kind in "usf" and opcode.split(".")[0] in ("add", "sub", "mul", "div", "rem"):
            opcode += f".{self.type_name}"
        return emit(opcode, left, right)

    def _compare(self, comparison: str, other: Any) -> pred:
        if not isinstance(other, (Register, int, float)):
            raise trace.error(f"{self.type_name} register compared with {other!r}")
        return emit(f"setp.{comparison}", self, other)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Pointer):
            return other + self
        return self._arithmetic("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._arithmetic("add", self, other)

    def __sub__(self, other: Any) -> Any:
        return self._arithmetic("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._arithmetic("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._arithmetic("mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if self.kind != "f":
            raise trace.error(f"'/' of {self.type_name}: integers divide with //")
        return self._arithmetic("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        if self.kind != "f":
            raise trace.error(f"'/' of {self.type_name}: integers divide with //")
        return self._arithmetic("div", other, self)

    def __floordiv__(self, other: Any) -> Any:
        if self.kind == "f":
            raise trace.error(f"'//' of {self.type_name}: floats divide with /")
        return self._arithmetic("div", self, other)

    def __mod__(self, other: Any) -> Any:
        return self._arithmetic("rem", self, other)

    def __neg__(self) -> Any:
        return emit(f"neg.s{self.bits}" if self.kind == "u" else "neg", self)

    def __and__(self, other: Any) -> Any:
        return self._arithmetic("and", self, other)

    def __or__(self, other: Any) -> Any:
        return self._arithmetic("or", self, other)

    def __xor__(self, other: Any) -> Any:
        return self._arithmetic("xor", self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Any:
        return emit("not", self)

    def __lshift__(self, other: Any) -> Any:
        return emit("shl", self, other)

    def __rshift__(self, other: Any) -> Any:
        return emit("shr", self, other)

    def __lt__(self, other: Any) -> pred:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> pred:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> pred:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> pred:
        return self._compare("ge", other)

    def __eq__(self, other: Any) -> pred:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: Any) -> pred:  # type: ignore[override]
        return self._compare("neu" if self.kind == "f" else "ne", other)


class pred(Register):
    """A predicate. `~p` costs nothing where it guards (`when(~p)`, `guard=~p`)."""

    type_name, bits, kind = "pred", 1, "p"

    def __invert__(self) -> Not:
        return Not(self)

    def _arithmetic(self, opcode: str, left: Any, right: Any) -> Any:
        left, right = (side.register() if isinstance(side, Not) else side for side in (left, right))
        if not (isinstance(left, pred) and isinstance(right, pred)):
            raise trace.error(f"'{opcode}' of a predicate and something that is none: {left!r}, {right!r}")
        return emit(f"{opcode}.pred", left, right)


class Not:
    """A predicate's complement, not computed until something other than a guard asks for it."""

    def __init__(self, predicate: pred):
        self.predicate = predicate

    def register(self) -> pred:
        return emit("not.pred", self.predicate)

    def __invert__(self) -> pred:
        return self.predicate

    def __and__(self, other: Any) -> Any:
        return self.register() & other

    def __or__(self, other: Any) -> Any:
        return self.register() | other

    def __xor__(self, other: Any) -> Any:
        return self.register() ^ other

    def __bool__(self) -> bool:
        return bool(self.predicate)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__


TYPES: dict[str, type[Register]] = {"pred": pred}




class b8(Register):
    type_name, bits, kind = "b8", 8, "b"


class u8(Register):
    type_name, bits, kind = "u8", 8, "u"


class s8(Register):
    type_name, bits, kind = "s8", 8, "s"


class b16(Register):
    type_name, bits, kind = "b16", 16, "b"


class u16(Register):
    type_name, bits, kind = "u16", 16, "u"


class s16(Register):
    type_name, bits, kind = "s16", 16, "s"


class b32(Register):
    type_name, bits, kind = "b32", 32, "b"


class u32(Register):
    type_name, bits, kind = "u32", 32, "u"


class s32(Register):
    type_name, bits, kind = "s32", 32, "s"


class b64(Register):
    type_name, bits, kind = "b64", 64, "b"


class u64(Register):
    type_name, bits, kind = "u64", 64, "u"


class s64(Register):
    type_name, bits, kind = "s64", 64, "s"


class b128(Register):
    type_name, bits, kind = "b128", 128, "b"


class f16(Register):
    type_name, bits, kind = "f16", 16, "f"


class bf16(Register):
    type_name, bits, kind = "bf16", 16, "f"


class f32(Register):
    type_name, bits, kind = "f32", 32, "f"


class f64(Register):
    type_name, bits, kind = "f64", 64, "f"


class f16x2(Register):
    type_name, bits, kind = "f16x2", 32, "f"


class bf16x2(Register):
    type_name, bits, kind = "bf16x2", 32, "f"


class e4m3(Register):
    """An 8-bit float in memory; a register holds it as bits."""

    type_name, bits, kind = "e4m3", 8, "f"


class e5m2(Register):
    """An 8-bit float in memory; a register holds it as bits."""

    type_name, bits, kind = "e5m2", 8, "f"


_ALL = (b8, u8, s8, b16, u16, s16, b32, u32, s32, b64, u64, s64, b128, f16, bf16, f32, f64, f16x2, bf16x2, e4m3, e5m2)
TYPES |= {cls.type_name: cls for cls in _ALL}

# How the registers of a type are declared, and their names' prefix. Signs live in instructions, so integers are plain bits; as in
# nvcc's output, a byte sits in a 16-bit register. Types that PTX has only as packed bits (tf32, e4m3x2 …) fall back on their size.
_STORAGE = {"pred": ("pred", "%p"), "f32": ("f32", "%f"), "f64": ("f64", "%fd")}
_STORAGE_BY_BITS = {8: ("b16", "%h"), 16: ("b16", "%h"), 32: ("b32", "%r"), 64: ("b64", "%rd"), 128: ("b128", "%rq")}


def storage(type_: type[Register]) -> tuple[str, str]:
    """(type of the .reg declaration, prefix of the names) for a type's registers."""
    return _STORAGE.get(type_.type_name) or _STORAGE_BY_BITS[type_.bits]


def type_named(name: str) -> type[Register]:
    """The class for a PTX type's name; packed types without a class of their own are bits."""
    from warpwright.ptx.isa import TYPE_BITS

    return TYPES.get(name) or TYPES[f"b{TYPE_BITS[name]}"]


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def literal(value: int | float, type_: type[Register]) -> tree.Integer | tree.Float:
    """A Python number as an immediate of a type. 16-bit floats are given by their bits (PTX has no other literal for them)."""
    if type_.kind == "f":
        if type_.type_name == "f64":
            return tree.Float(struct.unpack("<Q", struct.pack("<d", value))[0], 64)
        bits = struct.unpack("<I", struct.pack("<f", value))[0] if abs(value) < 2.0**128 or value != value else _infinity(value)
        if type_.type_name == "f32":
            return tree.Float(bits, 32)
        if type_.bits in (16, 32):
            half = _bf16(bits) if type_.type_name.startswith("bf16") else struct.unpack("<H", struct.pack("<e", value))[0]
            return tree.Integer(half if type_.bits == 16 else half << 16 | half)
        raise trace.error(f"no literal of type {type_.type_name}; give its bits as b{type_.bits}")
    if isinstance(value, float):
        raise trace.error(f"{value!r} is no {type_.type_name}; write an integer, or a float type")
    value = int(value)
    if not -(1 << (type_.bits - 1)) <= value < 1 << type_.bits:
        raise trace.error(f"{value} does not fit {type_.type_name}")
    return tree.Integer(value)


def _infinity(value: float) -> int:
    return 0xFF800000 if value < 0 else 0x7F800000


def _bf16(bits: int) -> int:
    """The upper half of an f32's bits, rounded to nearest even; NaN stays NaN."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


# ── pointers ─────────────────────────────────────────────────────────────────────────────────────────────────────

Element = TypeVar("Element", bound=Register)


class Pointer(Generic[Element]):
    """An address with the type of what it points to: `Pointer[f32]`.

    `p + 3` folds into the instruction's offset, `p + i` (a register) is scaled by the element's size; `p.bytes(n)` moves by bytes,
    `p.as_(T)` points to another type. Addresses in shared memory take 32-bit registers, all others 64-bit ones.
    """

    def __init__(self, element: type[Register], base: tree.Register | tree.Symbol, offset: int = 0, space: str = "global"):
        self.element, self.base, self.offset, self.space = element, base, offset, space

    @property
    def address(self) -> tree.Address:
        """The operand of a load or store."""
        return tree.Address(self.base, self.offset)

    @property
    def register_type(self) -> type[Register]:
        return u32 if self.space == "shared" else u64

    def register(self) -> Any:
        """The address in a register (u32 in shared memory, else u64)."""
        base = self._base()
        return base if not self.offset else emit(f"add.{self._signed}", base, self.offset, out=trace.current().new(self.register_type))

    def as_(self, element: type[Register]) -> Pointer:
        return Pointer(element, self.base, self.offset, self.space)

    def bytes(self, distance: Any) -> Pointer:
        """This pointer moved by `distance` bytes: a Python int or an integer register."""
        return self._move(distance, 1)

    def __add__(self, index: Any) -> Pointer:
        if self.element.bits < 8:
            raise trace.error(f"pointer arithmetic on {self.element.type_name}: use .bytes()")
        return self._move(index, self.element.bits // 8)

    __radd__ = __add__

    def __sub__(self, index: Any) -> Pointer:
        if not isinstance(index, int):
            raise trace.error("a pointer moves back by a Python int only; add a negative register instead")
        return self + -index

    def __repr__(self) -> str:
        return f"Pointer[{self.element.type_name}]({self.space} {self.base.name}{self.offset:+d})"

    @property
    def _signed(self) -> str:
        return f"s{self.register_type.bits}"

    def _base(self) -> Any:
        if isinstance(self.base, tree.Register):
            return self.register_type(self.base.name)
        return trace.current().symbol_address(self.base.name, self.register_type)

    def _move(self, index: Any, scale: int) -> Pointer:
        if isinstance(index, int):
            return Pointer(self.element, self.base, self.offset + index * scale, self.space)
        if not (isinstance(index, Register) and index.kind in "usb" and index.bits in (32, 64)):
            raise trace.error(f"a pointer is indexed by a Python int or a 32- or 64-bit integer register, not {index!r}")
        base, target = self._base(), self.register_type
        if index.bits == target.bits:
            moved = emit(f"add.{self._signed}", base, index, out=trace.current().new(target)) if scale == 1 else \
                emit(f"mad.lo.{self._signed}", index, scale, base, out=trace.current().new(target))
        elif target is u64:
            moved = emit(f"mad.wide.{'s' if index.kind == 's' else 'u'}32", index, scale, base, out=trace.current().new(u64))
        else:
            raise trace.error("shared memory is indexed by 32-bit registers: convert with ptx.cvt.u32(i)")
        return Pointer(self.element, moved.operand, self.offset, self.space)
