"""`@ptx.kernel`: a Python function becomes a PTX kernel. The function runs once, on registers that stand for its parameters, and is
recorded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, get_args, get_origin
from weakref import WeakKeyDictionary

from warpwright.errors import KernelError, PtxError
from warpwright.ptx import tree
from warpwright.ptx.builder.trace import Trace
from warpwright.ptx.builder.types import Pointer, Register, type_named
from warpwright.ptx.builder.words import word
from warpwright.ptx.isa import match

Block = int | tuple[int, ...]


def kernel(function: Callable | None = None, *, block: Block, name: str | None = None, min_target: str = "sm_80",
           maxnreg: int | None = None, min_ctas: int | None = None) -> Any:
    """Decorator: a kernel from a function whose parameters are annotated with `Pointer[type]` or a type.

    block: threads in a CTA (x, or (x, y, z)), part of the kernel (`.reqntid`). name: the PTX name, if not the function's.
    min_target: the oldest target it is for, and the one used where none is named. maxnreg: registers a thread. min_ctas: CTAs that must
    fit on an SM.
    """
    if function is None:
        return lambda decorated: Kernel(decorated, block, name, min_target, maxnreg, min_ctas)
    return Kernel(function, block, name, min_target, maxnreg, min_ctas)


class Kernel:
    """A kernel written in Python. It is traced when first needed; errors in it are PtxErrors at their Python line."""

    def __init__(self, function: Callable, block: Block, name: str | None, min_target: str, maxnreg: int | None, min_ctas: int | None):
        sizes = (block,) if isinstance(block, int) else tuple(block)
        self.function = function
        self.block: tuple[int, int, int] = (*sizes, 1, 1)[:3]  # type: ignore[assignment]
        self.name = name or function.__name__
        self.min_target, self.maxnreg, self.min_ctas = min_target, maxnreg, min_ctas
        self.__doc__ = function.__doc__
        self._modules: dict[str, tree.Module] = {}
        self._loaded: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<ptx.kernel {self.name} block={self.block}>"

    def ptx(self, target: str | None = None) -> str:
        """The module's text for a target, verified."""
        return str(self.module(target))

    def module(self, target: str | None = None) -> tree.Module:
        """The module for a target (default: the kernel's min_target), verified. Raises PtxError at the Python line of what the target
        lacks."""
        from warpwright.ptx.parser import parse

        target = target or self.min_target
        if target not in self._modules:
            module = parse(str(self._build(target)), file=f"{self.name}.ptx")
            self._verify(module)
            self._modules[target] = module
        return self._modules[target]

    def launch(self, device: Any, *, grid: Block, args: Sequence[Any], shared_bytes: int = 0, **options: Any) -> None:
        """Run on a device. args: tensors, arrays, numbers in the parameters' order. A KernelError also names the Python line."""
        loaded = self._loaded.get(device)
        if loaded is None:
            loaded = self._loaded[device] = device.load(self.module())[self.name]
        try:
            sizes = (grid,) if isinstance(grid, int) else grid
            loaded.launch(grid=sizes, block=self.block, args=args, shared_bytes=shared_bytes, **options)
        except KernelError as failure:
            source = self.source_lines.get(failure.line or -1)
            if source:
                failure.add_note(f"at {source} of kernel {self.name}")
            raise

    @cached_property
    def source_lines(self) -> dict[int, str]:
        """PTX line of each statement (in `ptx()`'s text, for any target) → "file:line" of the Python that emitted it."""
        body = self.module().kernels[self.name].body or ()
        places = [*self._trace.prologue_places, *self._trace.places]
        lines = {}
        for statement, (file, line) in zip(body[len(body) - len(places):], places, strict=True):
            if statement.position is not None:
                lines[statement.position.line] = f"{file}:{line}"
        return lines

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Name → `Pointer[type]` or a type, in order."""
        try:
            hints = inspect.get_annotations(self.function, eval_str=True)
        except NameError as failure:
            raise self._error(f"{failure}: annotate with types that the function's module imports") from None
        found = {}
        for name in inspect.signature(self.function).parameters:
            hint = hints.get(name)
            element = get_args(hint)[0] if get_origin(hint) is Pointer else hint
            if not (isinstance(element, type) and issubclass(element, Register)):
                raise self._error(f"parameter '{name}' is annotated {hint!r}: write Pointer[f32], u32 or another of ptx's types")
            found[name] = hint
        return found

    def _error(self, message: str) -> PtxError:
        code = self.function.__code__
        return PtxError(f"kernel '{self.name}': {message}", code.co_firstlineno, file=code.co_filename)

    @cached_property
    def _trace(self) -> Trace:
        with Trace(self.block) as recording:
            arguments: list[Any] = []
            for name, hint in self.parameters.items():
                pointer = get_origin(hint) is Pointer
                type_ = type_named("u64") if pointer else hint
                loaded = recording.new(type_)
                memory_type = "u64" if pointer else _parameter_type(hint)
                recording.begin(tree.Instruction("ld", ("param", memory_type), (loaded.operand, tree.Address(tree.Symbol(name)))))
                if pointer:
                    generic, loaded = loaded, recording.new(type_)
                    recording.begin(tree.Instruction("cvta", ("to", "global", "u64"), (loaded.operand, generic.operand)))
                    arguments.append(Pointer(get_args(hint)[0], loaded.operand))
                else:
                    arguments.append(loaded)
            self.function(*arguments)
            last = recording.body[-1] if recording.body else None
            if not (isinstance(last, tree.Instruction) and last.opcode in ("ret", "exit") and last.guard is None):
                word("ret")()
        return recording

    def _build(self, target: str) -> tree.Module:
        from warpwright.ptx.targets import Target

        recording = self._trace
        parameters = []
        for name, hint in self.parameters.items():
            if get_origin(hint) is Pointer:
                element = get_args(hint)[0]
                parameters.append(tree.Variable("param", "u64", name, pointer=tree.PointerHint("global", max(element.bits // 8, 1))))
            else:
                parameters.append(tree.Variable("param", _parameter_type(hint), name))
        directives = [tree.Directive("reqntid", tuple(map(str, self.block)))]
        if self.maxnreg:
            directives.append(tree.Directive("maxnreg", (str(self.maxnreg),)))
        if self.min_ctas:
            directives.append(tree.Directive("minnctapersm", (str(self.min_ctas),)))
        body = (*recording.declarations(), *recording.prologue, *recording.body)
        function = tree.Function(self.name, kernel=True, parameters=tuple(parameters), body=body, directives=tuple(directives),
                                 linkage="visible")
        version = Target.parse(target).first_version
        for index, statement in enumerate(body):
            if isinstance(statement, tree.Instruction) and index - len(body) + len(recording.body) not in recording.unchecked:
                version = max(version, match(statement).need.ptx)
        return tree.Module(version, (target,), 64, (*recording.module_variables, function))

    def _verify(self, module: tree.Module) -> None:
        from warpwright.ptx.verifier import check

        body = module.kernels[self.name].body or ()
        places = [*self._trace.prologue_places, *self._trace.places]
        emitted = body[len(body) - len(places):]
        by_line = {statement.position.line: place for statement, place in zip(emitted, places, strict=True) if statement.position}
        unchecked = {statement.position.line for index, statement in enumerate(emitted[len(self._trace.prologue):])
                     if index in self._trace.unchecked and statement.position}
        for problem in check(module):
            if problem.line in unchecked:
                continue
            file, line = by_line.get(problem.line or -1, (problem.file, problem.line))
            raise PtxError(f"kernel '{self.name}' for {module.target[0]}: {problem.message}", line, file=file)


def _parameter_type(type_: type[Register]) -> str:
    """The .param type of a scalar: 16-bit floats are passed as bits."""
    return type_.type_name if type_.type_name not in ("f16", "bf16", "f16x2", "bf16x2", "e4m3", "e5m2") else f"b{type_.bits}"
