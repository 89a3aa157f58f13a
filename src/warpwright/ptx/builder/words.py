"""Instructions as Python words. `ptx.fma.rn(a, b, c)` is one `fma.rn.f32`: modifiers are attributes, sources are arguments, and the
destination is returned. A type modifier left out is inferred from the operands; everything else is written as PTX writes it.

Words that Python reserves take a trailing underscore (`ptx.ld.global_`, `ptx.and_`), and `::` is written as two (`shared__cta`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from warpwright.errors import PtxError
from warpwright.ptx import tree
from warpwright.ptx.builder import trace
from warpwright.ptx.builder.types import Not, Pointer, Register, literal, pred, type_named
from warpwright.ptx.isa import TABLE, TYPE_BITS, Form, Match, match
from warpwright.ptx.isa.table import OperandSpec, Slot, explain_modifiers, resolve_type


class Word:
    """An opcode with the modifiers written so far. Attributes add modifiers; a call emits the instruction."""

    __slots__ = ("_modifiers", "_opcode")

    def __init__(self, opcode: str, modifiers: tuple[str, ...] = ()):
        self._opcode, self._modifiers = opcode, modifiers

    def __getattr__(self, modifier: str) -> Word:
        if modifier.startswith("__"):
            raise AttributeError(modifier)
        return Word(self._opcode, (*self._modifiers, modifier.rstrip("_").replace("__", "::")))

    def __repr__(self) -> str:
        return "ptx." + ".".join((self._opcode, *self._modifiers))

    def __call__(self, *sources: Any, out: Any = None, guard: pred | Not | None = None, pair: bool = False, unchecked: bool = False) -> Any:
        """Emit the instruction and return its destination: a register, a list of registers (vectors), or None.

        sources: the operands after the destinations, in PTX's order: registers, pointers (addresses), Python numbers, lists (vectors),
        None (`_`). out: write here instead of a new register (a list for vectors, a tuple `(d, p)` for `d|p`).
        guard: a predicate under which it executes. pair: also return the second destination of `d|p`.
        unchecked: emit exactly what is written, without looking at the instruction table (then nothing is inferred and `out` is needed).
        Raises PtxError at the caller's line for modifiers or operands that no form of the instruction takes.
        """
        recording = trace.current()
        if unchecked:
            operands = ([] if out is None else [_plain(out)]) + [_plain(source) for source in sources]
            recording.unchecked.add(len(recording.body))
            recording.append(tree.Instruction(self._opcode, self._modifiers, tuple(operands), _guard(guard)))
            return out
        form, modifiers, chosen = self._resolve(sources, out)
        slots = form.assign(modifiers)
        assert slots is not None
        operands, results = [], []
        arguments = iter(sources)
        for spec in form.specs:
            if spec.access == "w":
                if guard is not None and out is None:
                    raise trace.error(f"'{self._text(modifiers)}' under a guard leaves a new register undefined where the guard is false: "
                                      "say which register it writes with out=")
                operand, result = _destination(spec, slots, chosen, out, pair)
                results.append(result)
                operands.append(operand)
            else:
                try:
                    source = next(arguments)
                except StopIteration:
                    break
                operands.append(_source(spec, slots, source, self._text(modifiers)))
        instruction = tree.Instruction(self._opcode, modifiers, tuple(operands), _guard(guard))
        checked(instruction)
        recording.append(instruction)
        return results[0] if len(results) == 1 else results or None

    def _text(self, modifiers: tuple[str, ...]) -> str:
        return ".".join((self._opcode, *modifiers))

    def _resolve(self, sources: Sequence[Any], out: Any) -> tuple[Form, tuple[str, ...], dict[str, type[Register]]]:
        """The form that fits, all its modifiers, and the type of the operand each left-out slot was inferred from."""
        completions = _completions(self._opcode, self._modifiers)
        if not completions:
            entry = TABLE.get(self._opcode)
            raise trace.error(explain_modifiers(entry, self._modifiers) if entry else f"unknown instruction '{self._opcode}'")
        fitting = []
        for form, filled in completions:
            readable = [spec for spec in form.specs if spec.access != "w"]
            if sum(not spec.optional for spec in readable) <= len(sources) <= len(readable):
                fitting.append((form, filled, readable))
        if not fitting:
            wanted = sorted({len([spec for spec in form.specs if spec.access != "w"]) for form, _ in completions})
            shown = completions[0][0].operands
            raise trace.error(f"'{self._text(self._modifiers)}' takes {' or '.join(map(str, wanted))} operands after its destination "
                              f"({shown.replace('=', '')}), not {len(sources)}")
        best: tuple[tuple[int, int, int], Form, tuple[str, ...], dict[str, type[Register]]] | None = None
        for form, filled, readable in fitting:
            told = _told(form, readable, sources, out)
            chosen: dict[str, type[Register]] = {}
            names: dict[str, str] = {}
            distance = 0
            for slot, value in filled:
                if value is None:
                    found = _infer(slot, told)
                    if found is None:
                        break
                    value, chosen[slot.name], far = found
                    distance += far
                names[slot.name] = value
            else:
                rank = sum(not _agrees(kind, source, names) for kind, source in told), sum(value is None for _, value in filled), distance
                if best is None or rank < best[0]:
                    best = rank, form, tuple(name for name in names.values() if name), chosen
        if best is not None:
            return best[1:]
        kinds = ", ".join(_describe(source) for source in sources)
        options = sorted({choice for form, filled, _ in fitting for slot, value in filled if value is None for choice in slot.choices})
        raise trace.error(f"'{self._text(self._modifiers)}' of ({kinds}) needs its type written: .{', .'.join(options)}")


def word(mnemonic: str) -> Word:
    """The word for a mnemonic written as PTX writes it: `word("ld.global.nc")`."""
    opcode, *modifiers = mnemonic.split(".")
    return Word(opcode, tuple(modifiers))


def checked(instruction: tree.Instruction) -> Match:
    """The instruction's match in the table; PtxError at the Python line where it has none."""
    try:
        return match(instruction)
    except PtxError as failure:
        raise trace.error(failure.message) from None


# ── inference of types ───────────────────────────────────────────────────────────────────────────────────────────

Filled = tuple[tuple[Slot, str | None], ...]


def _is_type(slot: Slot) -> bool:
    return not slot.flag and not slot.optional and all(choice in TYPE_BITS for choice in slot.choices)


@lru_cache(maxsize=4096)
def _completions(opcode: str, modifiers: tuple[str, ...]) -> tuple[tuple[Form, Filled], ...]:
    """The forms that the modifiers fit if type slots may be left out, fewest left out first.

    Each with its slots in order and what is written there: a modifier, "" (absent and optional), or None (a type to infer).
    """
    found: list[tuple[Form, Filled]] = []
    entry = TABLE.get(opcode)
    for form in entry.forms if entry else ():

        def fit(i: int, j: int, slots: tuple[Slot, ...] = form.slots) -> list[Filled]:
            if i == len(slots):
                return [()] if j == len(modifiers) else []
            slot, ways = slots[i], []
            if j < len(modifiers) and modifiers[j] in slot.choices:
                ways += [((slot, modifiers[j]), *rest) for rest in fit(i + 1, j + 1, slots)]
            if slot.optional:
                ways += [((slot, ""), *rest) for rest in fit(i + 1, j, slots)]
            elif _is_type(slot):
                ways += [((slot, None), *rest) for rest in fit(i + 1, j, slots)]
            return ways

        found += [(form, filled) for filled in fit(0, 0)]
    return tuple(sorted(found, key=lambda pair: sum(value is None for _, value in pair[1])))


def _told(form: Form, readable: list[OperandSpec], sources: Sequence[Any], out: Any) -> list[tuple[str, Any]]:
    """(kind in the form, Python value) of the operands that are given."""
    told = [(spec.kind, source) for spec, source in zip(readable, sources, strict=False)]
    return told + [(spec.kind, out[0] if isinstance(out, tuple) else out) for spec in form.specs if spec.access == "w" and out is not None]


def _infer(slot: Slot, told: list[tuple[str, Any]]) -> tuple[str, type[Register], int] | None:
    """(choice, operand's type, how far they are apart) for a type slot left out, from the first operand that tells, else the pointer's."""
    for kind, source in told:
        if kind == slot.name or kind.startswith(f"{slot.name}*"):
            type_ = _type_of(source)
            if type_ is not None:
                return _choose(slot, type_)
    for kind, source in told:
        if kind == "addr" and isinstance(source, Pointer):
            found = _choose(slot, source.element)
            if found is not None:
                return found
    if len(slot.choices) == 1:
        (choice,) = slot.choices
        return choice, type_named(choice), 3
    return None


def _agrees(kind: str, source: Any, names: dict[str, str]) -> bool:
    """Whether an operand's type can stand where the form, with its slots so filled, has that kind."""
    written, type_ = names.get(kind.split("*")[0]), _type_of(source)
    if not written or type_ is None:
        return True
    return _stands(type_, type_named(written))


def _stands(type_: type[Register], wanted: type[Register]) -> bool:
    """Whether a register of a type can be an operand of type `wanted`: same size and kind or plain bits; wider where only its low part
    counts."""
    if (wanted.kind == "p") != (type_.kind == "p"):
        return False
    if wanted.bits != type_.bits:
        return (wanted.bits < type_.bits and "f" not in (wanted.kind, type_.kind)) or wanted.bits == 8
    return "b" in (wanted.kind, type_.kind) or ((wanted.kind == "f") == (type_.kind == "f") and (wanted.kind != "f" or wanted is type_))


def _type_of(source: Any) -> type[Register] | None:
    if isinstance(source, (list, tuple)):
        return next((found for found in map(_type_of, source) if found), None)
    if isinstance(source, Not):
        return pred
    if isinstance(source, Pointer):
        return source.register_type
    return type(source) if isinstance(source, Register) else None


def _choose(slot: Slot, type_: type[Register]) -> tuple[str, type[Register], int] | None:
    """The choice for a register's type: itself, the bits of its size, or (for plain bits) the only one of its size."""
    if type_.type_name in slot.choices:
        return type_.type_name, type_, 0
    if f"b{type_.bits}" in slot.choices and type_.kind != "p":
        return f"b{type_.bits}", type_, 1
    if type_.kind == "b":
        sized = [choice for choice in slot.choices if TYPE_BITS[choice] == type_.bits]
        return (sized[0], type_, 2) if len(sized) == 1 else None
    return None


# ── operands ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _destination(spec: OperandSpec, slots: dict, chosen: dict[str, type[Register]], out: Any, pair: bool) -> tuple[tree.Operand, Any]:
    """(operand, what the call returns) of a written operand."""
    if out is not None:
        if isinstance(out, tuple):
            return tree.Pair(_plain(out[0]), _plain(out[1])), list(out)
        return _plain(out), out
    length, type_ = resolve_type(spec.kind, slots)
    if type_ is None:
        raise trace.error(f"operand '{spec.name}' needs out=")
    slot = spec.kind.split("*")[0]
    cls = chosen.get(slot) or type_named(type_)
    recording = trace.current()
    if length is None:
        register = recording.new(cls)
        if pair and spec.second is not None:
            _, second_type = resolve_type(spec.second.kind, slots)
            second = recording.new(type_named(second_type or "pred"))
            return tree.Pair(register.operand, second.operand), [register, second]
        return register.operand, register
    registers = [recording.new(cls) for _ in range(length)]
    return tree.Vector(tuple(register.operand for register in registers)), registers


def _source(spec: OperandSpec, slots: dict, source: Any, text: str) -> tree.Operand:
    """A Python value as the operand that the form asks for."""
    kind = spec.kind
    if kind == "addr":
        if isinstance(source, Pointer):
            return source.address
        if isinstance(source, Register):
            return tree.Address(source.operand)
        raise trace.error(f"operand '{spec.name}' of '{text}' is an address: a pointer or an integer register, not {_describe(source)}")
    if kind == "imm":
        if not isinstance(source, int):
            raise trace.error(f"operand '{spec.name}' of '{text}' is a constant: a Python int, not {_describe(source)}")
        return tree.Integer(int(source))
    length, name = resolve_type(kind, slots)
    if name is None or (length is None and isinstance(source, (list, tuple))):  # the latter packs: mov.b32 d, {a, b}
        return _plain(source)
    return _typed(source, type_named(name), name, spec, text)


def _typed(source: Any, type_: type[Register], name: str, spec: OperandSpec, text: str) -> tree.Operand:
    if isinstance(source, bool):
        source = int(source)
    if isinstance(source, (int, float)):
        if type_.kind == "p":
            raise trace.error(f"operand '{spec.name}' of '{text}' is a predicate, not {source!r}")
        if type_.kind == "f" and type_.bits in (16, 32) and type_.type_name != "f32":  # PTX has no immediates of these
            return trace.current().constant(f"{type_.type_name} {source!r}", type_named(f"b{type_.bits}"), literal(source, type_)).operand
        return literal(source, type_)
    if isinstance(source, (list, tuple)):
        return tree.Vector(tuple(_typed(part, type_, name, spec, text) for part in source))
    found = _type_of(source)
    if found is not None and not _stands(found, type_):
        raise trace.error(f"operand '{spec.name}' of '{text}' is {name}, not {found.type_name}")
    return _plain(source)


def _plain(source: Any) -> tree.Operand:
    """A Python value as an operand, whatever the instruction."""
    if isinstance(source, Register):
        return source.operand
    if isinstance(source, Pointer):
        return source.register().operand
    if isinstance(source, Not):
        return source.register().operand
    if isinstance(source, (list, tuple)):
        return tree.Vector(tuple(_plain(part) for part in source))
    if source is None:
        return tree.Sink()
    if isinstance(source, (bool, int)):
        return tree.Integer(int(source))
    if isinstance(source, float):
        return literal(source, type_named("f64"))
    if isinstance(source, str):
        return tree.Symbol(source)
    if hasattr(source, "operand"):
        return source.operand
    raise trace.error(f"{source!r} cannot be an operand")


def _guard(guard: pred | Not | None) -> tree.Guard | None:
    if guard is None:
        return None
    if isinstance(guard, Not):
        return tree.Guard(guard.predicate.operand, negated=True)
    if isinstance(guard, pred):
        return tree.Guard(guard.operand)
    raise trace.error(f"a guard is a predicate, not {_describe(guard)}")


def _describe(source: Any) -> str:
    if isinstance(source, (list, tuple)):
        return "[" + ", ".join(map(_describe, source)) + "]"
    found = _type_of(source)
    if isinstance(source, Pointer):
        return f"Pointer[{source.element.type_name}]"
    return found.type_name if found else repr(source)


# ── words that are more than an opcode ───────────────────────────────────────────────────────────────────────────


def var(type_: type[Register], value: Any = None) -> Any:
    """A register to be assigned later, and first set to `value` (a number, register or nothing)."""
    register = trace.current().new(type_)
    if value is not None:
        assign(register, value)
    return register


def assign(register: Register, value: Any, guard: pred | Not | None = None) -> None:
    """`mov` a number or a register of the same size into a register."""
    if isinstance(value, Not):
        value = value.register()
    type_ = "pred" if register.kind == "p" else register.type_name if register.type_name in ("f32", "f64") else f"b{max(register.bits, 16)}"
    if isinstance(value, (int, float)) and register.kind == "f" and register.type_name not in ("f32", "f64"):
        value = literal(value, type(register)).value  # type: ignore[union-attr]
    if register.kind == "p" and isinstance(value, (bool, int)):  # mov.pred takes no literal
        word("setp.ne.u32")(int(value), 0, out=register, guard=guard)
        return
    word(f"mov.{type_}")(value, out=register, guard=guard)


def select(condition: pred | Not, a: Any, b: Any) -> Any:
    """`selp`: a where the predicate is true, else b."""
    if isinstance(condition, Not):
        condition, a, b = condition.predicate, b, a
    return word("selp")(a, b, condition)


@dataclass(frozen=True)
class _Special:
    """The x, y, z of a special register such as %tid, each read once at the kernel's start."""

    name: str

    def _part(self, axis: str) -> Any:
        return special(f"%{self.name}.{axis}")

    @property
    def x(self) -> Any:
        return self._part("x")

    @property
    def y(self) -> Any:
        return self._part("y")

    @property
    def z(self) -> Any:
        return self._part("z")


tid, ntid, ctaid, nctaid = _Special("tid"), _Special("ntid"), _Special("ctaid"), _Special("nctaid")
_VOLATILE = ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi", "%smid", "%warpid", "%activemask")


def laneid() -> Any:
    """The thread's lane in its warp."""
    return special("%laneid")


def special(name: str) -> Any:
    """A special register's value (`ptx.special("%laneid")`): read once at the start, or here if it changes while the kernel runs."""
    from warpwright.ptx.isa.special import SPECIAL

    if name not in SPECIAL:
        raise trace.error(f"no special register {name}")
    type_ = type_named(SPECIAL[name])
    if name in _VOLATILE:
        return word(f"mov.{type_.type_name}")(type_(name))
    return trace.current().constant(name, type_, tree.Register(name))


def warpid() -> Any:
    """The warp's index in its CTA: the linear thread index over 32 (not %warpid, which may change)."""
    return linear_thread_index() >> 5


def linear_thread_index() -> Any:
    """The thread's index in its CTA, x fastest."""
    width, height, depth = trace.current().block
    if height * depth == 1:
        return tid.x
    row = tid.y if depth == 1 else word("mad.lo.u32")(tid.z, height, tid.y)
    return word("mad.lo.u32")(row, width, tid.x)


def global_thread_index() -> Any:
    """ctaid.x · ntid.x + tid.x."""
    return word("mad.lo.u32")(ctaid.x, trace.current().block[0], tid.x)
