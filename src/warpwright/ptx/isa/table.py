"""How an instruction is declared, and how an instruction in a program is matched to its declaration.

An `Entry` is one opcode; each of its `Form`s is one line of syntax. A form is two strings:

* its modifiers in order: `sat` (must be there), `ftz?` (may be there), `T:{f32|f64}` (one of), `rnd:{rn|rz}?` (at most one of).
  A slot's name (`T`, `rnd`) is how the rest of the program asks for it. A choice can name what it needs: `bf16@sm_90@ptx7.8`.
* its operands: `=d:T, a:T, b:T`. `=` is written, `+` read and written, nothing read. After the colon stands the type:
  a slot (`T`), a type (`u32`, `pred`), `wide(T)` (twice as wide), `T*vec` (a vector as long as slot `vec` says: none, v2, v4, v8),
  `4*b32` (always a vector of four), `name(…)` (a function in `TYPE_FUNCTIONS`, for matrix fragments),
  or a kind without a type: `addr` (an address), `label`, `imm` (an integer constant), `symbol`, `arguments`, `any`.
  `a!:T` takes no constant. `?` after an operand makes it optional; optional operands stand last. `d|p` operands are declared as `=d|p?:T|pred`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import takewhile

from warpwright.errors import PtxError
from warpwright.ptx import tree
from warpwright.ptx.lexer import shorten

# Size in bits of each fundamental and packed type, and its kind: b(its) u s f p(redicate).
TYPE_BITS = {
    "pred": 1, "b1": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "b32": 32, "u32": 32, "s32": 32,
    "b64": 64, "u64": 64, "s64": 64, "b128": 128, "f16": 16, "bf16": 16, "f32": 32, "tf32": 32, "f64": 64,
    "f16x2": 32, "bf16x2": 32, "f32x2": 64, "u16x2": 32, "s16x2": 32,
    "e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16, "e4m3x4": 32, "e5m2x4": 32,
    "e2m1": 4, "e2m3": 6, "e3m2": 6, "u4": 4, "s4": 4, "ue8m0x2": 16, "e2m1x2": 8, "e2m3x2": 16, "e3m2x2": 16, "e2m1x4": 16,
    "e2m3x4": 32, "e3m2x4": 32, "u8x4": 32, "s8x4": 32, "s2f6x2": 16, "ue5m3x2": 16,
}
_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64", "b16": "b32", "b32": "b64", "u8": "u16", "s8": "s16"}

# name → function(slots, argument) giving (vector length or None, type)
TYPE_FUNCTIONS: dict[str, Callable[[dict, str], tuple[int | None, str]]] = {}


@dataclass(frozen=True)
class Need:
    """The oldest PTX version and target that take something.

    `arch` says what else the target must be: "a" this very part's sm_90a, "f" one of this part's family (sm_100f, sm_100a, sm_103a …),
    "a+" an architecture-specific target (suffix a or f) of this part or any later one. `among` holds choices of such targets, (sm, arch)
    each: the target must be one of every choice.
    """

    ptx: tuple[int, int] = (1, 0)
    sm: int = 10
    arch: str = ""
    among: tuple[tuple[tuple[int, str], ...], ...] = ()

    def join(self, other: Need) -> Need:
        among = self.among + tuple(choice for choice in other.among if choice not in self.among)
        return Need(max(self.ptx, other.ptx), max(self.sm, other.sm), other.arch or self.arch, among)


def _need(text: str) -> Need:
    need = Need()
    for word in text.split("@"):
        if word.startswith("ptx"):
            major, minor = word[3:].split(".")
            need = need.join(Need(ptx=(int(major), int(minor))))
        elif "/" in word:
            choice = tuple((int(one[3:].rstrip("af+")), one[3:].lstrip("0123456789")) for one in word.split("/"))
            need = need.join(Need(sm=min(number for number, _ in choice), among=(choice,)))
        elif word.startswith("sm_"):
            number, arch = re.fullmatch(r"sm_(\d+)(.*)", word).groups()  # type: ignore[union-attr]
            need = need.join(Need(sm=int(number), arch=arch))
        elif word:
            raise ValueError(f"unknown requirement {word!r}")
    return need


@dataclass(frozen=True)
class Slot:
    """One place among the modifiers. A flag has one choice, its own name."""

    name: str
    choices: dict[str, Need] = field(hash=False)
    optional: bool
    flag: bool


@dataclass(frozen=True)
class OperandSpec:
    """One operand of a form. access: "r", "w" or "rw". `second` is set for `d|p`. `register`: it may be no constant; `untyped`: its register is of
    untyped bits."""

    name: str
    kind: str
    access: str = "r"
    optional: bool = False
    second: OperandSpec | None = None
    register: bool = False
    untyped: bool = False


KINDS = ("addr", "label", "imm", "symbol", "arguments", "any")


def _slots(text: str) -> tuple[Slot, ...]:
    slots = []
    for word in text.split():
        optional, word = word.endswith("?"), word.rstrip("?")
        name, colon, rest = word.partition(":{")
        if not colon and word.startswith("{"):
            name, rest = word, word[1:]
            colon = "{"
        if colon:
            choices = {}
            for choice in rest.rstrip("}").split("|"):
                value, _, needs = choice.partition("@")
                choices[value] = _need(needs)
            slots.append(Slot(name, choices, optional, flag=False))
        else:
            value, _, needs = word.partition("@")
            slots.append(Slot(value, {value: _need(needs)}, optional, flag=True))
    return tuple(slots)


def _split(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part.strip() for part in (*parts, current) if part.strip()]


def _operand(word: str) -> OperandSpec:
    optional = word.endswith("?")
    word = word.rstrip("?")
    access = {"=": "w", "+": "rw"}.get(word[0], "r")
    name, _, kind = word.lstrip("=+").partition(":")
    if "|" in name:
        (name, second), (kind, second_kind) = name.split("|"), kind.split("|")
        return OperandSpec(name, kind, access, optional,
                           OperandSpec(second.rstrip("?"), second_kind, access, second.endswith("?")))
    return OperandSpec(name.rstrip("!"), kind or "any", access, optional, register=name.endswith("!"), untyped=name.endswith("!!"))


# Slots whose modifier is part of the instruction's name, and cannot move.
_NAMING = {"cta", "cvt", "dir", "level", "mip", "red", "b", "p", "sp", "sp::ordered_metadata", "action", "operand", "warp", "cluster", "async",
           "bulk",
           "tensor", "reduce", "prefetch", "to", "pack",
           "dst", "src", "proxy",
           "fractional", "range"}


def _names(slot: Slot) -> bool:
    return slot.name in _NAMING or (slot.name != "cmp" and not {"lo", "hi", "wide"}.isdisjoint(slot.choices))


def _ordered_group(modifier: str) -> str:
    """The modifiers among which one keeps its place: types, layouts, spaces; "" for none."""
    if modifier in TYPE_BITS:
        return "type"
    return "layout" if modifier in ("row", "col") else "space" if modifier in ("global", "shared", "shared::cta", "shared::cluster") else ""


# Modifiers that ptxas takes more than once for the same as once.
_REPEATABLE = {"cc", "sat", "uni", "relu", "approx", "sync"}
# Modifiers of a few opcodes that ptxas passes over on all others, behind what names the instruction.
_PASSED_OVER = frozenset({
    "finite", "infinite", "number", "notanumber", "normal", "subnormal", "global_address", "rank", "box_dim", "global_dim", "global_stride",
    "element_stride", "elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode", "b8x16", "b4x16_p64", "b6x16_p32",
    "acc::f16", "acc::f32",
})


@dataclass(frozen=True)
class Form:
    """One line of syntax of an opcode. `modifiers` and `operands` as the module's text says; `need` for the whole form, `@sm_80@ptx7.0`.

    `until` names the version and target from which on, both reached, the form is gone.
    `check(match)` may return a sentence that says what is wrong beyond syntax and types (immediates' ranges and the like).
    `runs`: the virtual GPU runs it; else both engines refuse it.
    """

    modifiers: str
    operands: str = ""
    needs: str = ""
    note: str = ""
    check: Callable[[Match], str | None] | None = field(default=None, compare=False)
    until: str = ""
    runs: bool = True

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return _slots(self.modifiers)

    @cached_property
    def specs(self) -> tuple[OperandSpec, ...]:
        return tuple(_operand(word) for word in _split(self.operands))

    @cached_property
    def need(self) -> Need:
        return _need(self.needs)

    @cached_property
    def gone(self) -> Need | None:
        return _need(self.until) if self.until else None

    def named(self, slots: dict) -> int:
        """How many of the modifiers in front are part of the instruction's name."""
        return sum(bool(slots[slot.name]) for slot in takewhile(_names, self.slots))

    def assign(self, modifiers: tuple[str, ...]) -> dict[str, str | bool | None] | None:
        """Slot name → what the modifiers say of it (None or False where absent); None if they do not fit this form."""

        def fit(i: int, j: int) -> dict | None:
            if i == len(self.slots):
                return {} if j == len(modifiers) else None
            slot = self.slots[i]
            if j < len(modifiers) and modifiers[j] in slot.choices:
                rest = fit(i + 1, j + 1)
                if rest is not None:
                    return {slot.name: True if slot.flag else modifiers[j], **rest}
            if slot.optional:
                rest = fit(i + 1, j)
                if rest is not None:
                    return {slot.name: False if slot.flag else None, **rest}
            return None

        return fit(0, 0)

    def assign_unordered(self, modifiers: tuple[str, ...]) -> dict[str, str | bool | None] | None:
        """The same with the modifiers in any order, as ptxas takes them: `ld.global.acquire.gpu`, `setp.ftz.eq.f32`.

        Those that are part of the instruction's name (`cp.async`, `mbarrier.init`, `mul.wide`) stay in front, and types, layouts and state
        spaces keep their order.
        """
        slots = self.slots
        filled: dict[int, str] = {}
        if len(modifiers) > len(slots):
            return None
        for i, slot in enumerate(slots):
            if not _names(slot):
                break
            if len(filled) < len(modifiers) and modifiers[len(filled)] in slot.choices:
                filled[i] = modifiers[len(filled)]
            elif not slot.optional:
                return None
        named = len(filled)

        def fit(j: int, last: dict[str, int]) -> bool:
            if j == len(modifiers):
                return all(slot.optional or i in filled for i, slot in enumerate(slots))
            group = _ordered_group(modifiers[j])
            for i, slot in enumerate(slots):
                if i not in filled and modifiers[j] in slot.choices and not (group and i < last.get(group, 0)):
                    filled[i] = modifiers[j]
                    if fit(j + 1, {**last, group: i} if group else last):
                        return True
                    del filled[i]
            return False

        if not fit(named, {}):
            return None
        return {slot.name: (i in filled) if slot.flag else filled.get(i) for i, slot in enumerate(slots)}


@dataclass(frozen=True)
class Entry:
    """One opcode: what it does in one line, its forms, and its effects.

    effects: any of "load", "store" (memory), "branch", "exit", "barrier" (waits for other threads), "warp" (reads other lanes),
    "fence", "call", "nop".
    """

    opcode: str
    meaning: str
    forms: tuple[Form, ...]
    effects: frozenset[str] = frozenset()

    @cached_property
    def words(self) -> frozenset[str]:
        """All modifiers that some form takes."""
        return frozenset(choice for form in self.forms for slot in form.slots for choice in slot.choices)


TABLE: dict[str, Entry] = {}


def constant(name: str, *legal: int) -> Callable[[Match], str | None]:
    """A form's check that an operand, if it is an integer constant, is one of a few."""

    def check(match: Match) -> str | None:
        value = match.value(name)
        if value is None or not isinstance(value.operand, tree.Integer) or value.operand.value in legal:
            return None
        return f"{name} is {' or '.join(map(str, legal))}, not {value.operand.value}"

    return check


def declare(opcode: str, meaning: str, *forms: Form | tuple, effects: str = "", runs: bool = True) -> None:
    """Add an opcode to the table. A form may be given as the tuple of Form's arguments."""
    if opcode in TABLE:
        raise ValueError(f"{opcode} is declared twice")
    made = tuple(form if isinstance(form, Form) else Form(*form) for form in forms)
    TABLE[opcode] = Entry(opcode, meaning, made if runs else tuple(replace(form, runs=False) for form in made), frozenset(effects.split()))


def extend(opcode: str, *forms: tuple) -> None:
    """Add forms that the virtual GPU does not run to a declared opcode."""
    entry = TABLE[opcode]
    TABLE[opcode] = replace(entry, forms=entry.forms + tuple(replace(Form(*form), runs=False) for form in forms))


# ── matching ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Value:
    """An operand as a form sees it. `type` is None for the kinds without one; `length` is None for a scalar, else the vector's."""

    spec: OperandSpec
    operand: tree.Operand
    kind: str
    type: str | None
    length: int | None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def written(self) -> bool:
        return "w" in self.spec.access

    @property
    def read(self) -> bool:
        return "r" in self.spec.access


@dataclass(frozen=True)
class Match:
    """An instruction with the form it fits. `match["T"]` is a slot, `match.value("a")` an operand.

    `need` is what the form and each chosen modifier ask of version and target, joined.
    """

    instruction: tree.Instruction
    entry: Entry
    form: Form
    slots: dict
    values: tuple[Value, ...]
    need: Need

    def __getitem__(self, slot: str):
        return self.slots[slot]

    def get(self, slot: str, default=None):
        found = self.slots.get(slot)
        return default if found is None or found is False else found

    def value(self, name: str) -> Value | None:
        return next((value for value in self.values if value.name == name), None)

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Names of the registers written, in order."""
        return tuple(name for value in self.values if value.written for name in registers(value.operand, written=True))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Names of the registers read, the guard's and those inside addresses too."""
        names = [self.instruction.guard.register.name] if self.instruction.guard else []
        for value in self.values:
            if value.read:
                names += registers(value.operand)
            elif value.written:
                names += registers(value.operand, written=False)
        return tuple(names)


def registers(operand: tree.Operand | None, written: bool | None = None) -> Iterator[str]:
    """Names of the registers in an operand. written=True: without those in addresses; False: only those; None: all."""
    match operand:
        case tree.Register(name=name):
            if written is not False:
                yield name
        case tree.Negated(operand=inner) | tree.Negative(operand=inner) | tree.Component(operand=inner):
            yield from registers(inner, written)
        case tree.Pair(first=first, second=second):
            yield from registers(first, written)
            yield from registers(second, written)
        case tree.Vector(elements=elements) | tree.Arguments(elements=elements):
            for element in elements:
                yield from registers(element, written)
        case tree.Address(base=base, coordinates=coordinates, more=more):
            if written is not True:
                for part in (base, coordinates, *more):
                    if part is not None:
                        yield from registers(part)


def resolve_type(kind: str, slots: dict) -> tuple[int | None, str | None]:
    """(vector length or None, type or None) of an operand's kind under chosen slots."""
    if kind in KINDS:
        return None, None
    if "*" in kind:
        left, right = kind.split("*")
        if left.isdigit():
            return int(left), resolve_type(right, slots)[1]
        vector = slots.get(right)
        return (int(vector[1:]) if vector else None), resolve_type(left, slots)[1]
    if kind.endswith(")"):
        function, argument = kind[:-1].split("(")
        if function == "wide":
            return None, _WIDER[slots[argument]]
        return TYPE_FUNCTIONS[function](slots, argument)
    return None, slots.get(kind) or kind


@lru_cache(maxsize=4096)
def forms_for(opcode: str, modifiers: tuple[str, ...]) -> tuple[tuple[Form, dict], ...]:
    """The forms that a mnemonic fits, with their slots: those in the manual's order, or if none does, those in any order."""
    entry = TABLE.get(opcode)
    forms = entry.forms if entry is not None else ()
    found = [(form, slots) for form in forms if (slots := form.assign(modifiers)) is not None]
    if not found:
        found = [(form, slots) for form in forms if (slots := form.assign_unordered(modifiers)) is not None]
    if not found and entry is not None and not entry.words >= _PASSED_OVER.intersection(modifiers):
        passed = [i for i, word in enumerate(modifiers) if word in _PASSED_OVER and word not in entry.words]
        rest = tuple(word for i, word in enumerate(modifiers) if i not in passed)
        return tuple((form, slots) for form, slots in forms_for(opcode, rest) if passed[0] >= form.named(slots))
    if not found and len(set(modifiers)) < len(modifiers):
        once = tuple(word for i, word in enumerate(modifiers) if word not in _REPEATABLE or word not in modifiers[:i])
        return forms_for(opcode, once) if once != modifiers else ()
    return tuple(found)


@dataclass(frozen=True)
class _Fit:
    """A form that a mnemonic fits, with all that follows from the two alone. places: (spec, kind, type, length) of each operand."""

    form: Form
    slots: dict
    need: Need
    least: int
    places: tuple[tuple[OperandSpec, str, str | None, int | None], ...]
    seconds: tuple[tuple[OperandSpec, str, str | None, int | None] | None, ...]

    def takes(self, operands: tuple[tree.Operand, ...], exactly: bool) -> bool:
        """Whether there are as many operands, with parentheses and vectors of a fixed length where they belong:
        `call (r), f` is not `call f, (a)`. exactly: addresses and vectors too stand where they belong, and nowhere else."""
        if not self.least <= len(operands) <= len(self.places):
            return False
        for (spec, kind, _, length), operand in zip(self.places, operands, strict=False):
            if (spec.kind == "arguments") != isinstance(operand, tree.Arguments):
                return False
            if spec.kind[0].isdigit() and not isinstance(operand, tree.Vector):
                return False
            if spec.second is not None and not spec.second.optional and not isinstance(operand, tree.Pair):
                return False
            if exactly and spec.second is None and isinstance(operand, tree.Pair):
                return False
            whole = operand.first if isinstance(operand, tree.Pair) else operand
            if exactly and kind == "addr" and not isinstance(operand, tree.Address):
                return False
            if exactly and kind == "value" and (isinstance(whole, tree.Address) or (length is None and isinstance(whole, tree.Vector))
                                                or (length is not None and not isinstance(whole, tree.Vector))):
                return False
        return True


@lru_cache(maxsize=4096)
def _fits(opcode: str, modifiers: tuple[str, ...]) -> tuple[_Fit, ...]:
    def place(spec: OperandSpec, slots: dict):
        length, type_ = resolve_type(spec.kind, slots)
        return spec, spec.kind if type_ is None else "value", type_, length

    fits = []
    for form, slots in forms_for(opcode, modifiers):
        need = form.need
        for slot in form.slots:
            chosen = slots[slot.name]
            if chosen:
                need = need.join(slot.choices[slot.name if chosen is True else chosen])
        fits.append(_Fit(form, slots, need, sum(not spec.optional for spec in form.specs), tuple(place(spec, slots) for spec in form.specs),
                         tuple(place(spec.second, slots) if spec.second else None for spec in form.specs)))
    return tuple(fits)


def match(instruction: tree.Instruction) -> Match:
    """The form that an instruction's modifiers and number of operands fit. Types of registers are the verifier's business.

    Raises PtxError where no form fits, naming what would.
    """
    operands = instruction.operands
    candidates = _fits(instruction.opcode, instruction.modifiers)
    for fit in candidates if len(candidates) < 2 else (*(fit for fit in candidates if fit.takes(operands, True)), *candidates):
        if not fit.takes(operands, False):
            continue
        values = []
        for (spec, kind, type_, length), second, operand in zip(fit.places, fit.seconds, operands, strict=False):
            if second is not None and isinstance(operand, tree.Pair):
                values.append(Value(spec, operand.first, kind, type_, length))
                values.append(Value(second[0], operand.second, *second[1:]))
            else:
                values.append(Value(spec, operand, kind, type_, length))
        return Match(instruction, TABLE[instruction.opcode], fit.form, fit.slots, tuple(values), fit.need)
    line, column = (instruction.position.line, instruction.position.column) if instruction.position else (None, None)
    entry = TABLE.get(instruction.opcode)
    if entry is None:
        raise PtxError(f"unknown instruction '{shorten(instruction.opcode)}'{_suggest(instruction.opcode, TABLE)}", line, column)
    if not candidates:
        raise PtxError(explain_modifiers(entry, instruction.modifiers), line, column)
    wanted = " or ".join(sorted({operands_text(fit.form) for fit in candidates}))
    raise PtxError(f"'{shorten(instruction.mnemonic, 120)}' takes operands {wanted}; here are {len(operands)}", line, column)


def operands_text(form: Form) -> str:
    """A form's operands as the manual writes them: `d, a, b{, policy}`."""
    text = ""
    for spec in form.specs:
        name = f"{spec.name}|{spec.second.name}" if spec.second else spec.name
        name = f"[{name}]" if spec.kind == "addr" else f"({name})" if spec.kind == "arguments" else name
        name = f", {name}" if text else name
        text += "{" + name + "}" if spec.optional else name
    return text or "(none)"


def explain_modifiers(entry: Entry, modifiers: tuple[str, ...]) -> str:
    """Why no form of an entry takes these modifiers, in a sentence that names what would."""
    written = shorten(".".join((entry.opcode, *modifiers)), 120)
    known = {choice for form in entry.forms for slot in form.slots for choice in slot.choices}
    for modifier in modifiers:
        if modifier not in known:
            return f"'{entry.opcode}' has no modifier '.{shorten(modifier)}'{_suggest(modifier, known)} in '{written}'"
    if len(modifiers) > max(len(form.slots) for form in entry.forms):
        return f"'{written}' has more modifiers than any form of '{entry.opcode}'"
    for form in entry.forms:
        for slot in form.slots:
            for i in range(len(modifiers) + 1):
                fitting = [choice for choice in slot.choices if form.assign((*modifiers[:i], choice, *modifiers[i:])) is not None]
                if fitting:
                    example = ".".join((entry.opcode, *modifiers[:i], fitting[0], *modifiers[i:]))
                    return f"'{written}' lacks {'one of ' if len(fitting) > 1 else ''}.{' .'.join(fitting)}, as in '{example}'"
    for i, modifier in enumerate(modifiers):
        shorter = modifiers[:i] + modifiers[i + 1:]
        if forms_for(entry.opcode, shorter):
            return f"'.{modifier}' does not belong in '{written}'; '{'.'.join((entry.opcode, *shorter))}' is legal"
    near = sorted(entry.forms, key=lambda form: -len({choice for slot in form.slots for choice in slot.choices} & set(modifiers)))
    return f"the modifiers of '{written}' do not go together; legal: {'; '.join(syntax(entry.opcode, form) for form in near[:4])}"


def syntax(opcode: str, form: Form) -> str:
    """A form's modifiers as the manual writes them: `add{.rnd}{.ftz}.f32`."""
    text = opcode
    for slot in form.slots:
        choices = [slot.name] if slot.flag else list(slot.choices)
        word = "." + (choices[0] if len(choices) == 1 else "(" + "|".join(choices) + ")")
        text += "{" + word + "}" if slot.optional else word
    return text


def _suggest(word: str, known) -> str:
    import difflib

    close = difflib.get_close_matches(word, list(known), 1) if len(word) <= 40 else []
    return f" (did you mean '{close[0]}'?)" if close else ""
