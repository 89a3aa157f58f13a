"""From tree to steps: names resolved, labels turned into indices, operands into functions that read and write a thread's registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from warpwright.cpu import functions
from warpwright.cpu.interpreter import special
from warpwright.cpu.interpreter.registry import COLLECTIVE, PER_THREAD, PURE
from warpwright.cpu.interpreter.words import is_signed, join, mask, signed, width
from warpwright.errors import PtxError
from warpwright.ptx import isa, tree
from warpwright.ptx.isa import Match, Value

Reader = Callable[..., int]  # thread → bit pattern

_PARTS = {"r": "x", "g": "y", "b": "z", "a": "w"}  # colours name the parts of a vector register too


# ── what names stand for ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RegisterName:
    """A declared register: its key in a thread's registers, and its type."""

    key: str
    type: str


@dataclass(frozen=True)
class Place:
    """A variable: its space, its size in bytes, and its `offset` in its window; a global one is found by its name."""

    space: str  # "global", "shared", "local", "param" (a kernel's), "frame" (a function's .param)
    name: str
    size: int
    offset: int = 0
    dynamic: bool = False  # extern .shared: behind all static ones


@dataclass
class Step:
    """One instruction, ready to run. `kind` tells the machine what `run` (and the fields below) mean."""

    instruction: tree.Instruction
    kind: str  # "run", "collective", "branch", "call", "return", "exit", "barrier"
    run: Callable | None = None
    guard: tuple[str, bool] | None = None  # register's key, and the value that lets the instruction execute
    readers: tuple[Callable, ...] = ()
    writers: tuple[Callable, ...] = ()
    mask: Callable | None = None  # collective: the member mask; None: every lane of the warp that has not ended
    target: int = 0  # branch: index of the step; for brx.idx `run` gives it
    convergent: bool = True  # collective: waits for its members; else it works on the lanes that are here

    @property
    def text(self) -> str:
        return str(self.instruction)

    @property
    def line(self) -> int | None:
        return self.instruction.position.line if self.instruction.position else None


@dataclass
class Code:
    """A function, decoded."""

    name: str
    index: int
    steps: list[Step] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)  # key → 0, copied for each frame
    frame_bytes: int = 0
    parameters: list[RegisterName | Place] = field(default_factory=list)
    results: list[RegisterName | Place] = field(default_factory=list)


def size_of(variable: tree.Variable) -> int:
    """Bytes of a variable; an array without a length takes it from its initializer."""
    elements = 1
    for i, dimension in enumerate(variable.dimensions):
        if dimension is None:
            dimension = len(variable.initializer) if i == 0 and isinstance(variable.initializer, tuple) else 0
        elements *= dimension
    return max(1, width(variable.type) // 8) * (variable.vector or 1) * elements


def alignment_of(variable: tree.Variable) -> int:
    return variable.align or max(1, width(variable.type) // 8) * (variable.vector or 1)


class Program:
    """A kernel with all the functions it can reach. `symbols`: name → host address of the module's .global and .const variables."""

    def __init__(self, module: tree.Module, kernel: str, symbols: dict[str, int]):
        self.module, self.symbols = module, symbols
        self.functions = module.functions
        self.codes: list[Code] = []
        self.by_name: dict[str, Code] = {}
        self.static_shared = 0
        self.shared: dict[tuple[str, int], Place] = {}
        self.dynamic_align = 16
        self.parameter_bytes = 0
        self.variables = {item.name: item for item in module.items if isinstance(item, tree.Variable)}
        self.aliases, self.addresses = functions.aliases(module), functions.addresses(module)
        if kernel not in module.kernels:
            raise PtxError(f"the module has no kernel '{kernel}'; it has: {', '.join(module.kernels) or 'none'}", file=module.file)
        self.kernel = self.code(kernel)

    def code(self, name: str) -> Code:
        """The decoded function of a name, decoded now if it was not yet."""
        name = self.aliases.get(name, name)
        if name not in self.by_name:
            code = self.by_name[name] = Code(name, len(self.codes))
            self.codes.append(code)
            Decoder(self, self.functions[name], code).decode()
        return self.by_name[name]

    def place_shared(self, variable: tree.Variable) -> Place:
        """Room for a .shared variable, given on first use."""
        key = (variable.name, id(variable))
        if key not in self.shared:
            if variable.linkage == "extern":
                self.dynamic_align = max(self.dynamic_align, alignment_of(variable))
                self.shared[key] = Place("shared", variable.name, 0, dynamic=True)
            else:
                offset = -(-self.static_shared // alignment_of(variable)) * alignment_of(variable)
                self.static_shared = offset + size_of(variable)
                self.shared[key] = Place("shared", variable.name, size_of(variable), offset)
        return self.shared[key]

    @property
    def has_dynamic(self) -> bool:
        return any(place.dynamic for place in self.shared.values())

    @property
    def dynamic_offset(self) -> int:
        """Where dynamic shared memory begins."""
        return -(-self.static_shared // self.dynamic_align) * self.dynamic_align


class Decoder:
    """Decodes one function. The families' `per_thread` meanings use its `reader`, `writer` and `address`."""

    def __init__(self, program: Program, function: tree.Function, code: Code):
        self.program, self.function, self.code = program, function, code
        self.scopes: list[dict[str, RegisterName | Place]] = [{}]
        self.labels: list[dict[str, int]] = []
        self.targets: dict[str, tuple[str, ...]] = {}  # .branchtargets by label
        self.fixups: list[Callable[[], None]] = []

    def fail(self, instruction: tree.Instruction, message: str) -> PtxError:
        position = instruction.position
        return PtxError(f"{message}: {instruction}", position.line if position else None, position.column if position else None,
                        self.program.module.file)

    # ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────

    def decode(self) -> None:
        offset = 0
        for variable in self.function.results:
            self.code.results.append(self.declare(variable))
        for variable in self.function.parameters:
            if self.function.kernel:
                align = alignment_of(variable)
                offset = -(-offset // align) * align
                place = Place("param", variable.name, size_of(variable), offset)
                self.scopes[-1][variable.name] = place
                self.code.parameters.append(place)
                offset += place.size
            else:
                self.code.parameters.append(self.declare(variable))
        if self.function.kernel:
            self.program.parameter_bytes = offset
        self.block(self.function.body or ())
        end = tree.Instruction("exit" if self.function.kernel else "ret")
        self.code.steps.append(Step(end, "exit" if self.function.kernel else "return"))
        for fixup in self.fixups:
            fixup()

    def block(self, statements: tuple[tree.Statement, ...]) -> None:
        """A pair of braces: its declarations, then its instructions; labels are known throughout it."""
        scope: dict[str, RegisterName | Place] = {}
        self.scopes.append(scope)
        labels: dict[str, int] = {}
        self.labels.append(labels)
        visible = list(self.labels)
        for statement in statements:
            match statement:
                case tree.RegisterDeclaration():
                    self.declare_registers(statement)
                case tree.Variable():
                    if statement.space == "reg":
                        self.declare(statement)
                    else:
                        scope[statement.name] = self.place(statement)
                case tree.Label(name=name):
                    labels[name] = len(self.code.steps)
                case tree.Directive(name="branchtargets", label=label, words=words) if label:
                    self.targets[label] = words
                case tree.Block(statements=inner):
                    self.block(inner)
                case tree.Instruction():
                    self.instruction(statement, visible)
        self.scopes.pop()
        self.labels.pop()

    def declare(self, variable: tree.Variable) -> RegisterName | Place:
        """A function's parameter or result, or a register written as a variable."""
        if variable.space == "reg":
            declared = self.register(variable.name, variable.type)
            self.scopes[-1][variable.name] = declared
            return declared
        place = self.frame_place(variable, "frame")
        self.scopes[-1][variable.name] = place
        return place

    def frame_place(self, variable: tree.Variable, space: str) -> Place:
        align = max(alignment_of(variable), 1)
        offset = -(-self.code.frame_bytes // align) * align
        self.code.frame_bytes = offset + size_of(variable)
        return Place(space, variable.name, size_of(variable), offset)

    def place(self, variable: tree.Variable) -> Place:
        if variable.space == "shared":
            return self.program.place_shared(variable)
        if variable.space in ("local", "param"):
            return self.frame_place(variable, "local" if variable.space == "local" else "frame")
        return Place("global", variable.name, size_of(variable))

    def register(self, name: str, type_: str) -> RegisterName:
        key = name
        while key in self.code.registers:  # the same name in another block
            key += "'"
        self.code.registers[key] = 0
        return RegisterName(key, type_)

    def declare_registers(self, declaration: tree.RegisterDeclaration) -> None:
        names = [declaration.name] if declaration.count is None else [f"{declaration.name}{i}" for i in range(declaration.count)]
        for name in names:
            if declaration.vector:
                for part in "xyzw"[:declaration.vector]:
                    self.scopes[-1][f"{name}.{part}"] = self.register(f"{name}.{part}", declaration.type)
            else:
                self.scopes[-1][name] = self.register(name, declaration.type)

    def find(self, name: str) -> RegisterName | Place | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        variable = self.program.variables.get(name)
        if variable is None:
            return None
        if variable.space == "shared":
            return self.program.place_shared(variable)
        return Place("global", name, size_of(variable))

    # ── operands ─────────────────────────────────────────────────────────────────────────────────────────────────

    def reader(self, operand: tree.Operand, type_: str | None, length: int | None = None) -> Callable:
        """A function thread → the operand's bits, chopped to a type (None: as they are); a tuple of them for a vector of `length`."""
        match operand:
            case tree.Register(name=name):
                declared = self.find(name)
                if isinstance(declared, RegisterName):
                    key = declared.key
                    if type_ is None or type_ == "pred" or width(declared.type) <= width(type_):
                        return lambda thread: thread.registers[key]
                    chop = mask(width(type_))
                    return lambda thread: thread.registers[key] & chop
                return special.reader(name)
            case tree.Integer(value=value):
                constant = value if type_ is None else self.integer_constant(value, type_)
                return lambda thread: constant
            case tree.Float(bits=bits, width=bits_wide):
                literal = float_constant(bits, bits_wide, type_)
                return lambda thread: literal
            case tree.Symbol():
                return self.symbol(operand)
            case tree.Negated(operand=inner):
                read = self.reader(inner, type_)
                return lambda thread: 1 - read(thread)
            case tree.Negative(operand=inner):
                read, wrap = self.reader(inner, type_), mask(width(type_ or "b64"))
                return lambda thread: -read(thread) & wrap
            case tree.Component(operand=tree.Register(name=name), name=part):
                declared = self.find(f"{name}.{_PARTS.get(part, part)}")
                if isinstance(declared, RegisterName):
                    return self.reader_of(declared.key)
            case tree.Sink():
                return lambda thread: 0
            case tree.Address():
                return self.address(operand, None)[0]
            case tree.Vector(elements=elements):
                if length is not None:
                    readers = [self.reader(element, type_) for element in elements]
                    return lambda thread: tuple(read(thread) for read in readers)
                part_bits = width(type_ or "b64") // len(elements)
                readers = [self.reader(element, f"b{part_bits}") for element in elements]
                return lambda thread: join([read(thread) for read in readers], part_bits)
        raise ValueError(f"an operand of kind {type(operand).__name__} cannot be read")

    def is_predicate(self, operand: tree.Operand) -> bool:
        """Whether an operand is a predicate register, or one complemented."""
        register = operand.operand if isinstance(operand, tree.Negated) else operand
        declared = self.find(register.name) if isinstance(register, tree.Register) else None
        return isinstance(declared, RegisterName) and declared.type == "pred"

    def reader_of(self, key: str) -> Reader:
        return lambda thread: thread.registers[key]

    @staticmethod
    def integer_constant(value: int, type_: str) -> int:
        """An integer literal as an operand of a type; of a floating type it is the number, not the bits."""
        if type_ == "pred":
            return int(value != 0)
        return value & mask(width(type_))

    def writer(self, operand: tree.Operand, type_: str | None, length: int | None = None) -> Callable:
        """A function (thread, value): the value, of a type, extended to the register's width: by its sign if the type is signed."""
        match operand:
            case tree.Sink():
                return lambda thread, value: None
            case tree.Register(name=name):
                declared = self.find(name)
                if isinstance(declared, RegisterName):
                    return self.store(declared, type_)
            case tree.Component(operand=tree.Register(name=name), name=part):
                declared = self.find(f"{name}.{_PARTS.get(part, part)}")
                if isinstance(declared, RegisterName):
                    return self.store(declared, type_)
            case tree.Vector(elements=elements):
                if length is not None:
                    writers = [self.writer(element, type_) for element in elements]

                    def write_all(thread, values):
                        for write, value in zip(writers, values, strict=True):
                            write(thread, value)

                    return write_all
                part_bits = width(type_ or "b64") // len(elements)
                writers = [self.writer(element, f"b{part_bits}") for element in elements]
                chop = mask(part_bits)

                def write_parts(thread, value):
                    for i, write in enumerate(writers):
                        write(thread, value >> (i * part_bits) & chop)

                return write_parts
        raise ValueError(f"an operand of kind {type(operand).__name__} cannot be written")

    @staticmethod
    def store(declared: RegisterName, type_: str | None) -> Callable:
        key = declared.key
        if type_ is not None and is_signed(type_) and width(declared.type) > width(type_):
            narrow, wide = width(type_), mask(width(declared.type))

            def write_extended(thread, value):
                thread.registers[key] = signed(value, narrow) & wide

            return write_extended
        chop = mask(width(declared.type)) if declared.type != "pred" else 1

        def write(thread, value):
            thread.registers[key] = value & chop

        return write

    def symbol(self, operand: tree.Symbol) -> Reader:
        """The address that a name stands for, in its own space."""
        place, extra = self.find(operand.name), operand.offset
        if isinstance(place, Place):
            return self.place_address(place, extra)
        name = self.program.aliases.get(operand.name, operand.name)
        if name in self.program.functions:
            address = self.program.addresses[name]
            return lambda thread: address
        raise ValueError(f"'{operand.name}' is not declared")

    def place_address(self, place: Place, extra: int = 0) -> Reader:
        offset, program = place.offset + extra, self.program
        match place.space:
            case "global":
                if place.name not in program.symbols:
                    raise ValueError(f"the variable '{place.name}' has no memory")
                address = program.symbols[place.name] + extra
                return lambda thread: address
            case "shared":
                if place.dynamic:
                    return lambda thread: program.dynamic_offset + extra
                return lambda thread: offset
            case "local":
                return lambda thread: thread.frame.base + offset
            case "param":
                return lambda thread: thread.cta.launch.parameters.start + offset
        return lambda thread: thread.local().start + thread.frame.base + offset  # a function's .param, by its host address

    def address(self, operand: tree.Operand, space: str | None) -> tuple[Reader, str | None]:
        """A function thread → address for `[base + offset]`, and the space it is an address of."""
        if not isinstance(operand, tree.Address):
            raise ValueError("an address in brackets is expected")
        offset = operand.offset
        match operand.base:
            case None:
                return (lambda thread: offset), space
            case tree.Register(name=name):
                declared = self.find(name)
                if not isinstance(declared, RegisterName):
                    raise ValueError(f"the address register '{name}' is not declared")
                key, wrap = declared.key, mask(max(32, width(declared.type)))
                return (lambda thread: thread.registers[key] + offset & wrap), space
            case tree.Symbol(name=name):
                place = self.find(name)
                if isinstance(place, Place):
                    own = {"frame": "param"}.get(place.space, place.space)
                    return self.place_address(place, offset), (space if space in ("global", "const") else own)
                if isinstance(place, RegisterName):
                    key = place.key
                    return (lambda thread: thread.registers[key] + offset), space
        raise ValueError("the address names nothing that is declared")

    # ── instructions ─────────────────────────────────────────────────────────────────────────────────────────────

    def instruction(self, instruction: tree.Instruction, labels: list[dict[str, int]]) -> None:
        try:
            step = self.step(instruction, labels)
        except ValueError as error:
            raise self.fail(instruction, str(error)) from None
        if instruction.guard:
            declared = self.find(instruction.guard.register.name)
            if not isinstance(declared, RegisterName):
                raise self.fail(instruction, f"the guard '{instruction.guard.register.name}' is not declared")
            step.guard = declared.key, not instruction.guard.negated
        self.code.steps.append(step)

    def step(self, instruction: tree.Instruction, labels: list[dict[str, int]]) -> Step:
        opcode = instruction.opcode
        if opcode in ("bra", "brx", "call", "ret", "exit"):
            from warpwright.cpu.interpreter import control

            return control.step(self, instruction, labels)
        match = isa.match(instruction)
        if not match.form.runs:
            raise ValueError("the virtual GPU does not run it")
        meaning = PER_THREAD.get(f"{opcode}.cc" if match.get("cc") else opcode) or PER_THREAD.get(opcode)
        if meaning:
            return self.per_thread(match, meaning(match, self))
        if opcode in PURE:
            function = PURE[opcode](match)
            readers, writers = self.operands(match)
            return Step(instruction, "run", apply(function, readers, writers))
        if opcode in COLLECTIVE:
            return self.collective(match)
        raise ValueError("the interpreter does not know this instruction")

    @staticmethod
    def per_thread(match: Match, run) -> Step:
        return run if isinstance(run, Step) else Step(match.instruction, "run", run)

    def operands(self, match: Match, skip: tuple[str, ...] = ()) -> tuple[tuple[Callable, ...], tuple[Callable, ...]]:
        """Readers of the operands that are read, writers of those that are written, in the order of the form."""
        readers = [self.value_reader(value) for value in match.values if value.read and value.name not in skip]
        writers = [self.writer(value.operand, value.type, value.length) for value in match.values if value.written]
        return tuple(readers), tuple(writers)

    def value_reader(self, value: Value) -> Callable:
        return self.reader(value.operand, value.type, value.length)

    def collective(self, match: Match) -> Step:
        meaning = COLLECTIVE[match.instruction.opcode]
        name = meaning.mask
        member = match.value(name) if name else None
        readers, writers = self.operands(match, skip=(name,) if name else ())
        convergent = name is None or member is not None
        return Step(match.instruction, "collective", meaning.build(match), readers=readers, writers=writers,
                    mask=self.value_reader(member) if member else None, convergent=convergent)


def apply(function: Callable, readers: tuple[Callable, ...], writers: tuple[Callable, ...]) -> Callable:
    """A function of bit patterns as a function on a thread."""
    if len(writers) == 1:
        write = writers[0]
        if len(readers) == 2:
            first, second = readers

            def run_binary(thread):
                write(thread, function(first(thread), second(thread)))

            return run_binary

        def run(thread):
            write(thread, function(*[read(thread) for read in readers]))

        return run

    def run_several(thread):
        for write, value in zip(writers, function(*[read(thread) for read in readers]), strict=True):
            write(thread, value)

    return run_several


def float_constant(bits: int, bits_wide: int, type_: str | None) -> int:
    """A floating literal as an operand: rounded from f64 where the operand is narrower, as the bits where it is not of floating type."""
    if type_ is None or width(type_) == bits_wide:
        return bits
    from warpwright.cpu.interpreter.floats import F32, F64, FORMATS, decode, encode

    number = decode(F64 if bits_wide == 64 else F32, bits)
    if type_ in FORMATS:
        return encode(FORMATS[type_], number)
    return encode({16: FORMATS["f16"], 32: F32, 64: F64}[width(type_)], number)
