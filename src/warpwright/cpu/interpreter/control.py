"""Branches, calls and ends: PTX ISA 9.7.12. Also the few functions of the CUDA runtime that device code calls by name."""

from __future__ import annotations

from collections.abc import Callable

from warpwright.cpu import faults
from warpwright.cpu.interpreter import machine
from warpwright.cpu.interpreter.memory import locate
from warpwright.cpu.interpreter.program import Code, Decoder, Place, RegisterName, Step
from warpwright.cpu.interpreter.registry import Trap
from warpwright.cpu.printing import formatted
from warpwright.ptx import tree


def step(decoder: Decoder, instruction: tree.Instruction, labels: list[dict[str, int]]) -> Step:
    match instruction.opcode:
        case "bra":
            return branch(decoder, instruction, labels)
        case "brx":
            return indexed_branch(decoder, instruction, labels)
        case "call":
            return call(decoder, instruction)
        case "ret":
            return Step(instruction, "return")
    return Step(instruction, "exit")


def find_label(name: str, labels: list[dict[str, int]]) -> int:
    for scope in reversed(labels):
        if name in scope:
            return scope[name]
    raise ValueError(f"there is no label '{name}'")


def branch(decoder: Decoder, instruction: tree.Instruction, labels) -> Step:
    step = Step(instruction, "branch")
    target = instruction.operands[0]

    def fix() -> None:
        try:
            step.target = find_label(getattr(target, "name", str(target)), labels)
        except ValueError as error:
            raise decoder.fail(instruction, str(error)) from None

    decoder.fixups.append(fix)
    return step


def indexed_branch(decoder: Decoder, instruction: tree.Instruction, labels) -> Step:
    index = decoder.reader(instruction.operands[0], "u32")
    listed = instruction.operands[1]
    if not isinstance(listed, tree.Symbol):
        raise ValueError("brx.idx names a list of branch targets")
    step = Step(instruction, "branch")

    def fix() -> None:
        names = decoder.targets[listed.name]
        targets = [find_label(name, labels) for name in names]
        step.run = lambda thread: targets[min(index(thread), len(targets) - 1)]

    decoder.fixups.append(fix)
    return step


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Call:
    """A call instruction: how its arguments are read and where its results go."""

    def __init__(self, arguments: list[Callable], results: list[tuple[RegisterName | Place | None, Callable | None]]):
        self.arguments, self.results = arguments, results

    def begin(self, thread, code: Code, follow):
        """Enter a function; where the thread goes on."""
        values = [read(thread) for read in self.arguments]
        frame = thread.enter(code, self, follow)
        for target, value in zip(code.parameters, values, strict=False):
            machine.copy_value(thread, frame, target, value)
        return (-len(thread.frames), code.index, 0)

    def finish(self, thread, left) -> None:
        """Copy the results of the frame that was left to the caller's destinations."""
        for source, (target, write) in zip(left.code.results, self.results, strict=False):
            value = machine.value_of(thread, left, source)
            if write is not None:
                write(thread, value)
            elif target is not None:
                machine.copy_value(thread, thread.frame, target, value)


def call(decoder: Decoder, instruction: tree.Instruction) -> Step:
    operands = list(instruction.operands)
    where = next(i for i, operand in enumerate(operands) if not isinstance(operand, tree.Arguments))
    target = operands[where]
    results, arguments = elements(operands[:where]), elements(operands[where + 1:])
    described = Call([argument_reader(decoder, argument) for argument in arguments], [destination(decoder, result) for result in results])
    program = decoder.program
    name = program.aliases.get(target.name, target.name) if isinstance(target, tree.Symbol) else None
    if name is not None and name in program.functions:
        if program.functions[name].body is None:
            if name not in BUILTINS:
                raise ValueError(f"the function '{name}' has no body here")
            return Step(instruction, "run", builtin(described, BUILTINS[name]))
        return Step(instruction, "call", lambda thread, follow: described.begin(thread, program.code(name), follow))
    if name is not None:
        raise ValueError(f"there is no function '{name}'")
    pointer = decoder.reader(target, "u64")
    named = {address: name for name, address in program.addresses.items()}

    def indirect(thread, follow):
        called = program.functions.get(named.get(pointer(thread), ""))
        if called is None or called.body is None or len(called.parameters) != len(described.arguments):
            raise Trap(kind=faults.FUNCTION)
        return described.begin(thread, program.code(called.name), follow)

    return Step(instruction, "call", indirect)


def elements(operands: list[tree.Operand]) -> tuple[tree.Operand, ...]:
    """What stands in the parentheses that come first, if any."""
    return operands[0].elements if operands and isinstance(operands[0], tree.Arguments) else ()


def argument_reader(decoder: Decoder, argument: tree.Operand) -> Callable:
    if isinstance(argument, tree.Symbol):
        place = decoder.find(argument.name)
        if isinstance(place, Place) and place.space in ("frame", "local"):
            return lambda thread: machine.value_of(thread, thread.frame, place)
        if isinstance(place, RegisterName):
            return decoder.reader_of(place.key)
    return decoder.reader(argument, None)


def destination(decoder: Decoder, result: tree.Operand) -> tuple[RegisterName | Place | None, Callable | None]:
    if isinstance(result, tree.Symbol):
        place = decoder.find(result.name)
        if place is not None:
            return place, None
    return None, decoder.writer(result, None)


# ── functions without a body ─────────────────────────────────────────────────────────────────────────────────────


def builtin(described: Call, function: Callable) -> Callable:
    def run(thread) -> None:
        value = function(thread, *[read(thread) for read in described.arguments])
        for target, write in described.results:
            if write is not None:
                write(thread, value)
            elif target is not None:
                machine.copy_value(thread, thread.frame, target, value)

    return run


def text_at(thread, address: int) -> str:
    """The zero-terminated string at a generic address."""
    found = bytearray()
    while True:
        region, place = locate(thread, None, address + len(found), 1)
        byte = region.load(place, 1)
        if byte == 0:
            return found.decode("utf-8", "replace")
        found.append(byte)


def assert_fail(thread, message: int, file: int, line: int, function: int, _size: int) -> int:
    raise Trap(f"{text_at(thread, message)} ({text_at(thread, file)}:{line & 0xFFFFFFFF}, {text_at(thread, function)})", faults.ASSERT)


def print_formatted(thread, layout: int, values: int) -> int:
    """vprintf. The text appears when the launch has ended."""

    def value(offset: int, size: int) -> int:
        region, place = locate(thread, None, values + offset, size)
        return region.load(place, size)

    thread.cta.launch.printed.append(formatted(text_at(thread, layout), value, lambda address: text_at(thread, address))[0])
    return 0


def allocate(thread, size: int) -> int:
    return thread.cta.launch.device.heap.allocate(size)


def release(thread, address: int) -> int:
    if not thread.cta.launch.device.heap.release(address):
        raise Trap(kind=faults.HEAP)
    return 0


BUILTINS: dict[str, Callable] = {"__assertfail": assert_fail, "vprintf": print_formatted, "malloc": allocate, "free": release}
