"""A legal module for every form of the instruction table: the instruction with registers, addresses and constants that fit it.

`samples(opcode)` varies one slot of modifiers at a time, so that each choice of each slot occurs. What a form's check refuses is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from warpwright.errors import PtxError
from warpwright.ptx.isa.table import TABLE, TYPE_BITS, Form, Need, OperandSpec, resolve_type
from warpwright.ptx.parser import parse
from warpwright.ptx.targets import VERSIONS, Target
from warpwright.ptx.tree import Module
from warpwright.ptx.verifier import check

NEWEST = max(VERSIONS), VERSIONS[max(VERSIONS)]
_MOST_CHOICES = 12  # of a slot with more (wgmma's shapes), only some are tried
_CONSTANTS = ("0", "1", "2", "16", "128", "4", "8", "32", "24", "0x80", "-1")

_OBJECTS = {"texture": "texref", "surface": "surfref", "sampler": "samplerref"}
_HEAD = """.version {version}
.target {target}
.address_size 64
.global .align 128 .b8 memory[4096];
{objects}
.func (.reg .b32 r) callee(.reg .b32 a) {{ mov.b32 r, a; ret; }}
.func (.reg .b32 r) result() {{ mov.b32 r, 1; ret; }}
.func taker(.reg .b32 a) {{ ret; }}
.func empty() {{ ret; }}
.visible .entry k(.param .b64 in, .param .align 16 .b8 block[64]) {{
  .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<600>; .reg .b64 %d<80>; .reg .f32 %f<9>;{wide}
  .reg .b8 %o<9>;
  .shared .align 128 .b8 shared[4096]; .local .align 16 .b8 local[64];
  targets: .branchtargets L;
  takes_and_gives: .callprototype (.reg .b32 _) _ (.reg .b32 _); takes: .callprototype _ (.reg .b32 _);
  gives: .callprototype (.reg .b32 _) _ (); neither: .callprototype _ ();
  {instruction}
L:
  ret;
}}
"""


@dataclass(frozen=True)
class Sample:
    """opcode's form number `form` with some modifiers: one instruction as text, in a legal module for `target`."""

    opcode: str
    form: int
    instruction: str
    target: str
    version: tuple[int, int]

    @property
    def text(self) -> str:
        return _text(self.instruction, self.target, self.version)

    @property
    def mnemonic(self) -> str:
        return self.instruction.split(" ", 1)[0].rstrip(";")


def _text(instruction: str, target: str, version: tuple[int, int]) -> str:
    objects = [f".global .{kind} {name};" for name, kind in _OBJECTS.items() if name in instruction]
    mode = ", texmode_independent" if "sampler" in instruction else ""
    wide = " .reg .b128 %q<9>;" if "%q" in instruction else ""  # the oldest versions have no such registers
    return _HEAD.format(wide=wide, version=".".join(map(str, version)), target=target + mode, instruction=instruction, objects=" ".join(objects))


def samples(opcode: str) -> Iterator[Sample]:
    """Samples of each of an opcode's forms, in the table's order. A form of which none is legal yields nothing."""
    for number, form in enumerate(TABLE[opcode].forms):
        for chosen in _choices(form):
            found = _legal(opcode, number, form, chosen)
            if found is not None:
                yield found


def _choices(form: Form) -> Iterator[dict[str, str | bool | None]]:
    """Slots as the table's `assign` gives them: the plainest, then with one slot changed at a time, then with two of the optional ones."""
    plain: dict[str, str | bool | None] = {}
    for slot in form.slots:
        first = True if slot.flag else next(iter(slot.choices))
        plain[slot.name] = first if not slot.optional else (False if slot.flag else None)
    yield plain
    changes = [(slot.name, choice) for slot in form.slots for choice in ((True,) if slot.flag else _some(tuple(slot.choices)))
               if choice != plain[slot.name]]
    for name, choice in changes:
        yield plain | {name: choice}
    optional = {slot.name for slot in form.slots if slot.optional}
    for (a, x), (b, y) in itertools.combinations([change for change in changes if change[0] in optional], 2):
        if a != b:
            yield plain | {a: x, b: y}


def _some(choices: tuple[str, ...]) -> tuple[str, ...]:
    step = -(-len(choices) // _MOST_CHOICES)
    return (*choices[:-1:step], choices[-1])


def _legal(opcode: str, number: int, form: Form, slots: dict) -> Sample | None:
    """The first choice of operands that the verifier takes."""
    need = form.need
    words = []
    for slot in form.slots:
        if slots[slot.name]:
            word = slot.name if slot.flag else str(slots[slot.name])
            words.append(word)
            need = need.join(slot.choices[word])
    target, version = _target(need, form.gone)
    mnemonic = ".".join((opcode, *words))
    least = sum(not spec.optional for spec in form.specs)
    for count in range(least, len(form.specs) + 1):
        operands = [_operands(spec, i, slots, opcode) for i, spec in enumerate(form.specs[:count])]
        for given in itertools.islice(itertools.product(*operands), 400):
            sample = Sample(opcode, number, f"{mnemonic} {', '.join(given)}".strip() + ";", target, version)
            if not problems(sample.text):
                return sample
    return None


def problems(text: str) -> list[PtxError]:
    """What the parser or the verifier says of a text."""
    try:
        return check(parse(text))
    except PtxError as error:
        return [error]


def module(sample: Sample) -> Module:
    return parse(sample.text)


_TARGETS = tuple(Target.parse(name) for name in (
    "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a", "sm_103f", "sm_103a", "sm_107", "sm_107f", "sm_107a", "sm_110f", "sm_110a", "sm_120",
    "sm_120f", "sm_120a", "sm_121a"))


def _target(need: Need, gone: Need | None) -> tuple[str, tuple[int, int]]:
    """A target that has what is needed, Hopper where that is enough, and the newest version (old ones for what is gone)."""
    if gone is not None:
        return f"sm_{max(need.sm, 75)}", max(need.ptx, (6, 3))
    return next((str(target) for target in _TARGETS if target.has(need)), f"sm_{need.sm}a"), NEWEST


def _operands(spec: OperandSpec, place: int, slots: dict, opcode: str) -> list[str]:
    """Ways to write an operand, the likeliest first."""
    ways = _ways(spec, place, slots, opcode)
    if spec.second is None:
        return ways
    return ways[:1] + [f"{one}|{two}" for one in ways for two in _ways(spec.second, place + 4, slots, opcode)]


def _ways(spec: OperandSpec, place: int, slots: dict, opcode: str) -> list[str]:
    length, type_ = resolve_type(spec.kind, slots)
    if type_ is not None and spec.kind not in ("addr", "label", "imm", "symbol", "arguments", "any"):
        return _registers(type_, length, place) + (["_"] if spec.access == "w" and opcode == "mbarrier" else [])
    match spec.kind:
        case "addr":
            return _addresses(spec.name, slots, opcode)
        case "label":
            return ["L"]
        case "imm":
            return ["1", "-1"] if spec.name.startswith("scale_") else list(_CONSTANTS)
        case "symbol":
            return ["targets", "takes_and_gives", "takes", "gives", "neither", "texture", "surface", "sampler"]
        case "arguments":
            return [f"(%r{place})"]
        case _ if opcode == "call":
            return ["callee", "result", "taker", "empty", "%d5"]
        case _:
            halves = ["{" + ", ".join(f"%h{i}" for i in range(n)) + "}" for n in (1, 2, 3)]
            vectors = ["{" + ", ".join(f"%r{10 + i}" for i in range(n)) + "}" for n in (1, 2, 3, 4)]
            return ["%r1", "%d1", "%p1", "%f1", *_CONSTANTS, *halves, *vectors, "callee", "texture", "surface"]


def _registers(type_: str, length: int | None, place: int) -> list[str]:
    bits = TYPE_BITS[type_]
    pool = "p" if type_ == "pred" else next(pool for pool, size in (("h", 16), ("r", 32), ("d", 64), ("q", 128)) if bits <= size)
    if length is None:
        return [f"%{pool}{place}"] + ([f"%f{place}"] if type_ == "f32" else [f"%o{place}"] if bits == 8 else [])
    first = 20 * (place % 2) if pool == "d" else 8 + 64 * place if pool == "r" else 0
    return ["{" + ", ".join(f"%{pool}{first + i}" for i in range(length)) + "}"]


def _addresses(name: str, slots: dict, opcode: str) -> list[str]:
    space = next((str(slots.get(slot)) for slot in ((name, "space") if name in ("dst", "src") else ("space",)) if slots.get(slot)), "")
    if name == "barrier":
        space = "shared"
    base = {"p": "block", "c": "%d1", "l": "local"}.get(space[:1], "%d1")
    if space.startswith("shared"):
        base = "shared" if space != "shared::cluster" or opcode == "cp" else "%r1"
    if name == "handle":
        return ["[%r1, %d1]"]
    dim = slots.get("dim")
    coordinates = ["{" + ", ".join(f"%r{i}" for i in range(1, n + 1)) + "}" for n in (1, 2, 3, 4, 5)]
    if opcode == "tcgen05":
        base = "%r1"
    plain = [f"[{base}]", "[%d1]", "[%r1]", "[shared]"]
    if opcode in ("tex", "tld4", "suld", "sust", "sured", "txq", "suq"):
        object_ = "surface" if opcode[0] == "s" else "texture"
        return [f"[{object_}, {c}]" for c in coordinates] + [f"[{object_}]", *plain]
    if dim and (base == "%d1" or space == "global"):
        count = 5 if "4" in str(slots.get("mode") or "") else int(str(dim)[0])
        return [f"[%d1, {coordinates[count - 1]}]", *plain]
    return plain
