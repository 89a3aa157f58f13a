"""Random pieces of PTX from the tables: legal ones, and legal ones with one thing changed, to compare judges with.

`Fuzzer(seed).cases(count)` gives `Case`s. The text of a case stands after `header(case)`; its names do not meet those of other cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from warpwright.ptx import isa, tree
from warpwright.ptx.agreement import agrees
from warpwright.ptx.fuzz_declarations import DECLARATIONS, STATEMENTS, expand
from warpwright.ptx.isa.special import SPECIAL
from warpwright.ptx.isa.table import TYPE_BITS, Form, Need, OperandSpec, resolve_type
from warpwright.ptx.targets import TARGETS, Target

# What all cases may name, and the registers, parameters and variables of each.
COMMON = (
    ".global .align 16 .b8 g[256]; .global .u32 gw; .global .f32 gf[4]; .const .align 16 .b8 c[256]; .shared .align 128 .b8 s[1024]; "
    ".global .texref t; .global .surfref srf; .func (.reg .b32 res) callee (.reg .b32 a) { mov.b32 res, a; ret; } "
    ".func taker (.param .align 8 .b8 a[16], .param .b32 b) { ret; }"
)
_COUNTS = {
    "%p": ("pred", 8), "%hb": ("b16", 8), "%hu": ("u16", 4), "%hs": ("s16", 4), "%hf": ("f16", 4), "%hx": ("f16x2", 4), "%r": ("b32", 260),
    "%u": ("u32", 260), "%i": ("s32", 260), "%f": ("f32", 260), "%rd": ("b64", 70), "%ud": ("u64", 20), "%sd": ("s64", 20), "%d": ("f64", 70),
    "%cb": ("b8", 4), "%cu": ("u8", 4), "%cs": ("s8", 4), "%q": ("b128", 4),
}
_PREFIX = {type_: prefix for prefix, (type_, _) in _COUNTS.items()}
# (target, version) of modules: each version of interest with each target that has instructions of its own.
PROFILES = (
    ("sm_30", "6.0"), ("sm_52", "4.3"), ("sm_60", "5.0"), ("sm_70", "6.3"), ("sm_75", "6.5"), ("sm_80", "7.0"), ("sm_80", "7.8"),
    ("sm_86", "7.2"), ("sm_89", "8.4"), ("sm_90", "7.8"), ("sm_90", "8.3"), ("sm_90a", "8.0"), ("sm_90a", "8.6"), ("sm_90a", "9.3"),
    ("sm_100", "8.6"), ("sm_100", "9.3"), ("sm_100a", "8.6"), ("sm_100a", "9.0"), ("sm_100f", "8.8"), ("sm_103a", "8.8"),
    ("sm_110a", "9.0"), ("sm_120", "8.7"), ("sm_120a", "8.7"), ("sm_120f", "9.2"), ("sm_121a", "9.3"), ("sm_75", "9.5"), ("sm_90a", "9.5"),
    ("sm_100a", "9.5"), ("sm_120a", "9.5"), ("sm_107a", "9.5"),
)
_SKIPPED = {"call", "brx"}  # their operands are names of other things: see the statements of `fuzz_declarations`


@dataclass(frozen=True)
class Case:
    """A piece of PTX: how it was made, the module's target and version, and its text on lines of its own."""

    kind: str
    target: str
    version: str
    text: str

    @property
    def short(self) -> str:
        """What matters of the text, for a report."""
        lines = self.text.strip().split("\n")
        return "\n".join(lines[2:-2]) if lines[0].startswith(".visible .entry k") else "\n".join(lines)


def header(case: Case) -> str:
    """What stands before a case's text in a module: three lines and that of `COMMON`."""
    return f".version {case.version}\n.target {case.target}\n.address_size 64\n{COMMON}\n"


class Fuzzer:
    """Makes cases from a seed, the same ones each time."""

    def __init__(self, seed: int = 0):
        self.random = random.Random(seed)
        self.number = 0
        self.profiles = [(Target.parse(target), target, version, tuple(map(int, version.split("."))))
                         for target, version in PROFILES if target in TARGETS]
        self.forms = [(opcode, form) for opcode, entry in isa.TABLE.items() for form in entry.forms if opcode not in _SKIPPED]
        self.opcodes = sorted({opcode for opcode, _ in self.forms})
        self.by_opcode = {opcode: [form for name, form in self.forms if name == opcode] for opcode in self.opcodes}
        self.words = sorted({choice for _, form in self.forms for slot in form.slots for choice in slot.choices})

    def cases(self, count: int, mutated: bool) -> Iterator[Case]:
        for _ in range(count):
            yield self.mutant() if mutated else self.legal()

    # ── whole cases ──────────────────────────────────────────────────────────────────────────────────────────────

    def legal(self) -> Case:
        """An instruction as the tables have it, in a module whose target and version have it."""
        while True:
            instruction, need = self.instruction()
            profile = self.profile(need)
            if profile is not None:
                return self.case("legal", instruction, *profile)

    def mutant(self) -> Case:
        """An instruction with one thing changed, or a declaration or a group of statements made of random parts."""
        chance = self.random.random()
        if chance < 0.12:
            return self.assembled("declaration", DECLARATIONS)
        if chance < 0.24:
            return self.assembled("statements", STATEMENTS)
        while True:
            instruction, need = self.instruction()
            kind = self.random.choice(list(_MUTATIONS))
            if kind == "target or version":
                _, target, version, _ = self.random.choice(self.profiles)
                return self.case(kind, instruction, target, version)
            profile = self.profile(need)
            change = _MUTATIONS[kind]
            changed = change(self, instruction) if change is not None else None
            if profile is not None and changed is not None and changed != instruction:
                return self.case(kind, changed, *profile)

    def profile(self, need: Need) -> tuple[str, str] | None:
        fitting = [(target, version) for parsed, target, version, numbers in self.profiles if parsed.has(need) and numbers >= need.ptx]
        return self.random.choice(fitting) if fitting else None

    def case(self, kind: str, statement: tree.Instruction | str, target: str, version: str) -> Case:
        self.number += 1
        numbers = tuple(map(int, version.split(".")))
        number = Target.parse(target).number
        absent = {"%hx", "%hf"} if number < 53 or numbers < (4, 2) else set()
        if numbers < (8, 3) or number < 70:
            absent.add("%q")
        registers = " ".join(f".reg .{type_} {name}<{count}>;" for name, (type_, count) in _COUNTS.items() if name not in absent)
        text = (f".visible .entry k{self.number}(.param .u64 pa, .param .u32 pb, .param .align 64 .b8 pm[128]) {{\n{registers} "
                f".reg .v2 .b32 %v; .local .align 16 .b8 l[64];\n{statement}\nDONE: ret;\n}}\n")
        return Case(kind, target, version, text)

    def assembled(self, kind: str, grammar: dict[str, tuple[str, ...]]) -> Case:
        _, target, version, _ = self.random.choice(self.profiles)
        text = expand("case", grammar, self.random)
        if kind == "statements":
            return self.case(kind, text, target, version)
        self.number += 1
        return Case(kind, target, version, text.replace("#", f"n{self.number}") + "\n")

    # ── instructions ─────────────────────────────────────────────────────────────────────────────────────────────

    def instruction(self) -> tuple[tree.Instruction, Need]:
        """A random instruction of a random opcode's random form, and what it needs."""
        opcode = self.random.choice(self.opcodes)
        return self.of_form(opcode, self.random.choice(self.by_opcode[opcode]))

    def of_form(self, opcode: str, form: Form) -> tuple[tree.Instruction, Need]:
        slots: dict = {}
        modifiers, need = [], form.need
        for slot in form.slots:
            if slot.optional and self.random.random() < 0.6:
                slots[slot.name] = False if slot.flag else None
                continue
            choice = self.random.choice(list(slot.choices))
            slots[slot.name] = True if slot.flag else choice
            modifiers.append(choice)
            need = need.join(slot.choices[choice])
        guard = tree.Guard(tree.Register("%p1"), self.random.random() < 0.5) if self.random.random() < 0.05 else None
        for _ in range(12):  # until the form's own check holds
            operands: list[tree.Operand] = []
            for spec in form.specs:
                if spec.optional and self.random.random() < 0.5 and not (spec.name == "policy" and slots.get("hint")):
                    break
                operands.append(self.operand(opcode, spec, slots))
            instruction = tree.Instruction(opcode, tuple(modifiers), tuple(operands), guard)
            try:
                match = isa.match(instruction)
            except isa.table.PtxError:
                continue
            if match.form.check is None or match.form.check(match) is None:
                break
        return instruction, need

    def register(self, type_: str) -> tree.Register:
        prefix = _PREFIX[type_]
        return tree.Register(f"{prefix}{self.random.randrange(min(8, _COUNTS[prefix][1]))}")

    def operand(self, opcode: str, spec: OperandSpec, slots: dict) -> tree.Operand:
        length, type_ = resolve_type(spec.kind, slots)
        if type_ is None:
            first: tree.Operand = self.untyped(opcode, spec, slots)
        elif spec.register and length is None:
            first = self.register(type_ if type_ in _PREFIX and not spec.untyped else f"b{TYPE_BITS[type_]}")
        elif length is None:
            first = self.scalar(opcode, type_, spec)
        else:
            holder = self.holder(opcode, type_, spec.kind) if not opcode.startswith("sp") else "b32"
            count = _COUNTS[_PREFIX[holder]][1]
            start = {"data": 0, "kept": 128, "places": 200}.get(spec.name, 0)  # ptxas wants those apart
            first = tree.Vector(tuple(tree.Register(f"{_PREFIX[holder]}{(i + start) % count}") for i in range(length)))
        if spec.second is not None and (not spec.second.optional or self.random.random() < 0.4):
            second_type = resolve_type(spec.second.kind, slots)[1]
            return tree.Pair(first, self.register(second_type or "pred"))
        return first

    def holder(self, opcode: str, type_: str, kind: str) -> str:
        """A register type that holds an operand type."""
        exact = type_ if type_ in _PREFIX else f"b{max(8, TYPE_BITS[type_])}"
        if "fragment(" in kind or self.random.random() < 0.6:
            return exact if exact in _PREFIX else "b32"
        relaxed = opcode in ("ld", "st", "cvt", "ldu")
        fitting = [register for register in _PREFIX if agrees(register, type_, relaxed)]
        return self.random.choice(fitting) if fitting else "b32"

    def scalar(self, opcode: str, type_: str, spec: OperandSpec) -> tree.Operand:
        read = "w" not in spec.access
        if read and self.random.random() < 0.2:
            if type_ == "pred":
                return tree.Negated(self.register("pred"))
            if type_ in ("f32", "f64"):
                return tree.Float(0x3FC00000, 32) if type_ == "f32" else tree.Float(0x3FF8 << 48, 64)
            if type_[0] in "bus" and type_ != "b128" and not type_.startswith("bf"):
                return tree.Integer(self.random.choice((0, 1, 2, 4, 7, 16, 31, 32, 64)))
        if read and opcode in ("mov", "cvt") and self.random.random() < 0.2:
            fitting = [name for name, one in SPECIAL.items() if agrees(one, type_)]
            if fitting:
                return tree.Register(self.random.choice(fitting))
        if read and opcode == "mov" and type_ in ("u64", "b64", "s64") and self.random.random() < 0.2:
            return tree.Symbol(self.random.choice(("g", "s", "c", "gw", "l")), self.random.choice((0, 4)))
        return self.register(self.holder(opcode, type_, spec.kind))

    def untyped(self, opcode: str, spec: OperandSpec, slots: dict) -> tree.Operand:
        match spec.kind:
            case "addr":
                return self.address(opcode, spec, slots)
            case "label":
                return tree.Symbol("DONE")
            case "imm":
                return tree.Integer(self.random.choice((0, 1, 2, 4, 8, 16, 24, 32, 128, -1, 15, 3)))
        return self.other(spec.name, slots)

    def other(self, name: str, slots: dict) -> tree.Operand:
        """Operands of kind `any`, by name."""
        dim = {"1d": 1, "2d": 2, "3d": 3, "4d": 4, "5d": 5}.get(slots.get("dim") or slots.get("geom") or "", 2)
        match name:
            case "offsets":
                count = 2 if str(slots.get("mode", "")).startswith("im2col::w") else max(dim - 2, 1)
                return tree.Vector(tuple(tree.Register(f"%hb{i}") for i in range(count)))
            case "src_size":
                return self.random.choice((tree.Register("%r1"), tree.Register("%p1"), tree.Integer(4)))
            case "lod":
                return tree.Register("%f1" if slots.get("S") == "f32" else "%i1")
            case "dx" | "dy":
                count = {1: 1, 2: 2}.get(dim, 4)
                return tree.Vector(tuple(tree.Register(f"%f{i}") for i in range(count)))
            case "offset":
                return tree.Vector(tuple(tree.Register(f"%i{i}") for i in range({1: 1, 2: 2}.get(dim, 4))))
            case "mask":
                count = 8 if slots.get("group") == "cta_group::2" else 4
                return tree.Vector(tuple(tree.Register(f"%r{i}") for i in range(count)))
            case "a":  # of tcgen05.mma
                return self.random.choice((tree.Register("%rd1"), tree.Address(tree.Register("%r1"))))
        return tree.Register("%r1")

    def address(self, opcode: str, spec: OperandSpec, slots: dict) -> tree.Address:
        space = slots.get(spec.name if spec.name in ("dst", "src") else "space") or None
        if spec.name == "barrier":
            space = "shared"
        if opcode in ("tex", "tld4", "txq", "suq", "suld", "sust", "sured"):
            return self.texture(opcode, slots)
        if opcode == "tcgen05" and slots["action"] not in ("alloc", "commit"):
            return tree.Address(tree.Register("%r1"))
        if spec.name == "handle":
            return tree.Address(tree.Register("%r1"), 0, tree.Register("%rd1"))
        offset = self.random.choice((0, 0, 0, 16, 32, -16))
        if slots.get("tensor") and spec.name != "barrier" and space == "global":
            dim = 5 if slots.get("mode") in ("tile::gather4", "tile::scatter4") else int(slots["dim"][0])
            return tree.Address(tree.Register("%rd1"), 0, tree.Vector(tuple(tree.Register(f"%r{i}") for i in range(dim))))
        names = {"global": ("g", "gw"), "shared": ("s",), "shared::cta": ("s",), "shared::cluster": ("s",), "const": ("c",), "local": ("l",),
                 "param": ("pm", "pa"), "param::entry": ("pm",)}.get(space or "")
        if names and (self.random.random() < 0.4 or str(space).startswith("param")):
            return tree.Address(tree.Symbol(self.random.choice(names)), max(offset, 0))
        return tree.Address(self.register(self.random.choice(("b64", "b64", "u64", "s64"))), offset)

    def texture(self, opcode: str, slots: dict) -> tree.Address:
        if opcode in ("txq", "suq"):
            return tree.Address(tree.Symbol("srf" if opcode == "suq" else "t"))
        geometry = slots.get("geom") or "2d"
        if opcode in ("tex", "tld4"):
            prefix = "%f" if slots.get("S") == "f32" else "%i"
            count = {"1d": 1, "2d": 2, "a1d": 2}.get(geometry, 4)
            parts = [tree.Register(f"{prefix}{i}") for i in range(count)]
            if geometry.startswith("a") or geometry == "a2dms":
                parts[0] = tree.Register("%r1")
            return tree.Address(tree.Symbol("t"), 0, tree.Vector(tuple(parts)))
        count = {"1d": 1, "2d": 2, "a1d": 2}.get(geometry, 4)
        return tree.Address(tree.Symbol("srf"), 0, tree.Vector(tuple(tree.Register(f"%i{i}") for i in range(count))))

    # ── mutations: each gives another instruction, or None where it does not apply ───────────────────────────────

    def change_type(self, instruction: tree.Instruction) -> tree.Instruction | None:
        places = [i for i, word in enumerate(instruction.modifiers) if word in TYPE_BITS]
        if not places:
            return None
        return self.with_modifier(instruction, self.random.choice(places), self.random.choice(sorted(TYPE_BITS)))

    def with_modifier(self, instruction: tree.Instruction, place: int, word: str) -> tree.Instruction:
        modifiers = list(instruction.modifiers)
        modifiers[place] = word
        return replace(instruction, modifiers=tuple(modifiers))

    def drop_modifier(self, instruction: tree.Instruction) -> tree.Instruction | None:
        if not instruction.modifiers:
            return None
        place = self.random.randrange(len(instruction.modifiers))
        return replace(instruction, modifiers=instruction.modifiers[:place] + instruction.modifiers[place + 1:])

    def add_modifier(self, instruction: tree.Instruction) -> tree.Instruction:
        place = self.random.randint(0, len(instruction.modifiers))
        word = self.random.choice(self.words) if self.random.random() < 0.3 else self.own_word(instruction.opcode)
        return replace(instruction, modifiers=(*instruction.modifiers[:place], word, *instruction.modifiers[place:]))

    def own_word(self, opcode: str) -> str:
        slots = [slot for form in self.by_opcode[opcode] for slot in form.slots]
        return self.random.choice(list(self.random.choice(slots).choices)) if slots else "sync"

    def change_modifier(self, instruction: tree.Instruction) -> tree.Instruction | None:
        if not instruction.modifiers:
            return None
        return self.with_modifier(instruction, self.random.randrange(len(instruction.modifiers)), self.own_word(instruction.opcode))

    def swap_modifiers(self, instruction: tree.Instruction) -> tree.Instruction | None:
        if len(instruction.modifiers) < 2:
            return None
        modifiers = list(instruction.modifiers)
        i, j = self.random.sample(range(len(modifiers)), 2)
        modifiers[i], modifiers[j] = modifiers[j], modifiers[i]
        return replace(instruction, modifiers=tuple(modifiers))

    def change_space(self, instruction: tree.Instruction) -> tree.Instruction | None:
        spaces = ("global", "shared", "shared::cta", "shared::cluster", "const", "local", "param", "param::entry", "param::func")
        places = [i for i, word in enumerate(instruction.modifiers) if word in spaces]
        if not places:
            return None
        return self.with_modifier(instruction, self.random.choice(places), self.random.choice(spaces))

    def change_operand(self, instruction: tree.Instruction, new) -> tree.Instruction | None:
        """`new(operand)` in the place of a random operand."""
        if not instruction.operands:
            return None
        place = self.random.randrange(len(instruction.operands))
        found = new(instruction.operands[place])
        if found is None:
            return None
        return replace(instruction, operands=(*instruction.operands[:place], found, *instruction.operands[place + 1:]))

    def undeclared(self, instruction: tree.Instruction) -> tree.Instruction | None:
        return self.change_operand(instruction, lambda operand: self.inside(operand, lambda _: tree.Register("%nothing")))

    def other_register(self, instruction: tree.Instruction) -> tree.Instruction | None:
        return self.change_operand(instruction, lambda operand: self.inside(operand, lambda _: self.register(self.random.choice(list(_PREFIX)))))

    def inside(self, operand: tree.Operand, new) -> tree.Operand | None:
        """A register of an operand changed."""
        match operand:
            case tree.Register():
                return new(operand)
            case tree.Vector(elements=elements):
                place = self.random.randrange(len(elements))
                inner = self.inside(elements[place], new)
                return inner and tree.Vector((*elements[:place], inner, *elements[place + 1:]))
            case tree.Address(base=tree.Register() as base):
                return replace(operand, base=new(base))
            case tree.Pair(first=first):
                inner = self.inside(first, new)
                return inner and replace(operand, first=inner)
        return None

    def vector_width(self, instruction: tree.Instruction) -> tree.Instruction | None:
        def new(operand):
            if not isinstance(operand, tree.Vector):
                return None
            elements = operand.elements
            return tree.Vector(elements[:-1] if self.random.random() < 0.5 and len(elements) > 1 else (*elements, elements[0]))

        places = [i for i, word in enumerate(instruction.modifiers) if word in ("v2", "v4", "v8")]
        if places and self.random.random() < 0.5:
            return self.with_modifier(instruction, places[0], self.random.choice(("v2", "v4", "v8", "v3", "v16")))
        return self.change_operand(instruction, new)

    def offset(self, instruction: tree.Instruction) -> tree.Instruction | None:
        offsets = (1, 2, 3, 6, 12, 255, 256, 1 << 20, 1 << 31, (1 << 31) - 1, -(1 << 31), -(1 << 31) - 1, 1 << 32, 1 << 40, -1)
        return self.change_operand(
            instruction, lambda operand: replace(operand, offset=self.random.choice(offsets)) if isinstance(operand, tree.Address) else None)

    def immediate(self, instruction: tree.Instruction) -> tree.Instruction | None:
        values = (-1, -2, 5, 17, 33, 65, 100, 127, 128, 255, 256, 257, 1023, 1024, 65535, 65536, -32769, (1 << 31) - 1, 1 << 31, -(1 << 31),
                  -(1 << 31) - 1, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63))
        return self.change_operand(
            instruction, lambda operand: tree.Integer(self.random.choice(values)) if isinstance(operand, tree.Integer | tree.Register) else None)

    def operand_count(self, instruction: tree.Instruction) -> tree.Instruction | None:
        operands = instruction.operands
        if not operands:
            return replace(instruction, operands=(tree.Register("%r1"),))
        place = self.random.randrange(len(operands))
        if self.random.random() < 0.5:
            return replace(instruction, operands=operands[:place] + operands[place + 1:])
        return replace(instruction, operands=(*operands[:place], operands[place], *operands[place:]))

    def swap_operands(self, instruction: tree.Instruction) -> tree.Instruction | None:
        if len(instruction.operands) < 2:
            return None
        operands = list(instruction.operands)
        i, j = self.random.sample(range(len(operands)), 2)
        operands[i], operands[j] = operands[j], operands[i]
        return replace(instruction, operands=tuple(operands))

    def operand_kind(self, instruction: tree.Instruction) -> tree.Instruction | None:
        register = self.register(self.random.choice(list(_PREFIX)))
        others = (register, tree.Integer(4), tree.Float(0x3F800000, 32), tree.Float(0x3FF0 << 48, 64), tree.Address(tree.Register("%rd1")),
                  tree.Sink(), tree.Vector((register, register)), tree.Vector((register,)), tree.Symbol("g"), tree.Symbol("DONE"),
                  tree.Negated(tree.Register("%p1")), tree.Negative(register), tree.Pair(register, tree.Register("%p2")),
                  tree.Register("%tid.x"), tree.Register("%laneid"), tree.Register("%clock64"), tree.Register("%tid"), tree.Symbol("callee"),
                  tree.Component(tree.Register("%v"), "x"), tree.Component(tree.Register("%r1"), "b0"), tree.Symbol("s", 4),
                  tree.Symbol("pa"), tree.Address(tree.Symbol("g"), 4), tree.Address(None, 16), tree.Register("%v"))
        return self.change_operand(instruction, lambda _: self.random.choice(others))

    def vector_element(self, instruction: tree.Instruction) -> tree.Instruction | None:
        new = (tree.Sink(), tree.Integer(1), tree.Float(0x3F800000, 32), tree.Register("%tid.x"), tree.Register("%f1"), tree.Register("%rd1"),
               tree.Register("%hb1"), tree.Register("%p1"))

        def change(operand):
            if not isinstance(operand, tree.Vector):
                return None
            place = self.random.randrange(len(operand.elements))
            return tree.Vector((*operand.elements[:place], self.random.choice(new), *operand.elements[place + 1:]))

        return self.change_operand(instruction, change)

    def guard(self, instruction: tree.Instruction) -> tree.Instruction:
        names = ("%p1", "%r1", "%nothing", "%tid.x", "%f1", "%is_explicit_cluster", "DONE")
        return replace(instruction, guard=tree.Guard(tree.Register(self.random.choice(names)), self.random.random() < 0.5))


_MUTATIONS: dict[str, Callable[[Fuzzer, tree.Instruction], tree.Instruction | None] | None] = {
    "target or version": None, "type": Fuzzer.change_type, "modifier dropped": Fuzzer.drop_modifier, "modifier added": Fuzzer.add_modifier,
    "modifier changed": Fuzzer.change_modifier, "modifiers swapped": Fuzzer.swap_modifiers, "state space": Fuzzer.change_space,
    "undeclared register": Fuzzer.undeclared, "register of another type": Fuzzer.other_register, "vector width": Fuzzer.vector_width,
    "vector element": Fuzzer.vector_element, "address offset": Fuzzer.offset, "immediate": Fuzzer.immediate,
    "operand count": Fuzzer.operand_count, "operands swapped": Fuzzer.swap_operands, "kind of operand": Fuzzer.operand_kind,
    "guard": Fuzzer.guard,
}
