"""Control flow, variables and barriers that take more than one statement: `when`, `loop`, `while_`, shared and local arrays, raw text."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from warpwright.errors import PtxError
from warpwright.ptx import tree
from warpwright.ptx.builder import trace
from warpwright.ptx.builder.types import Not, Pointer, Register, pred, s32, u32
from warpwright.ptx.builder.words import _describe, checked, var, word


@dataclass(frozen=True)
class Label:
    """A place to branch to: `ptx.bra(label, guard=p)`."""

    name: str

    @property
    def operand(self) -> tree.Symbol:
        return tree.Symbol(self.name)

    def place(self) -> None:
        """The label stands here."""
        trace.current().append(tree.Label(self.name))


def label() -> Label:
    """A new label, not yet placed."""
    return Label(trace.current().label())


def _branch(target: Label, condition: pred | Not | None = None) -> None:
    word("bra")(target, guard=condition)


# ── branches ─────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def when(condition: pred | Not) -> Iterator[None]:
    """`with ptx.when(p):` the threads whose predicate holds execute the body; warps may diverge."""
    if not isinstance(condition, (pred, Not)):
        raise trace.error(f"ptx.when takes a predicate, not {_describe(condition)}")
    end = label()
    _branch(end, ~condition)
    yield
    end.place()


@contextmanager
def otherwise() -> Iterator[None]:
    """`with ptx.otherwise():` right after a `when`: the threads whose predicate did not hold."""
    recording = trace.current()
    last = recording.body[-1] if recording.body else None
    if not isinstance(last, tree.Label):
        raise trace.error("ptx.otherwise stands right after the body of ptx.when")
    recording.body.pop()
    recording.places.pop()
    end = label()
    _branch(end)
    Label(last.name).place()
    yield
    end.place()


# ── loops ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Loop:
    next: Label
    end: Label


@contextmanager
def loop(start: Any, stop: Any, step: int | Register = 1, type: type[Register] | None = None) -> Iterator[Any]:
    """`with ptx.loop(0, n, 4) as i:` i runs from start while i < stop (with a negative Python step: while i > stop).

    The test stands at the bottom, after one guard at the top that is left out where Python numbers show the first round to run.
    i's type is `type`, else that of `start` or `stop`, else u32 (s32 for a negative step). stop + step must not overflow it.
    """
    down = isinstance(step, int) and step < 0
    index_type = type or next((cls for cls in map(_register_class, (start, stop)) if cls), s32 if down else u32)
    index = var(index_type, start)
    again, round_ = label(), _Loop(label(), label())
    if not (isinstance(start, int) and isinstance(stop, int)):
        _branch(round_.end, index <= stop if down else index >= stop)
    elif (start <= stop) if down else (start >= stop):
        _branch(round_.end)
    again.place()
    recording = trace.current()
    recording.loops.append(round_)
    yield index
    recording.loops.pop()
    if _used(round_.next):
        round_.next.place()
    word(f"add.{index_type.type_name}")(index, step, out=index)
    _branch(again, index > stop if down else index < stop)
    round_.end.place()


@contextmanager
def while_(condition: Callable[[], pred | Not]) -> Iterator[None]:
    """`with ptx.while_(lambda: i < n):` the condition is emitted before each round."""
    round_ = _Loop(label(), label())
    round_.next.place()
    _branch(round_.end, ~condition())
    recording = trace.current()
    recording.loops.append(round_)
    yield
    recording.loops.pop()
    _branch(round_.next)
    round_.end.place()


def break_(guard: pred | Not | None = None) -> None:
    """Leave the innermost loop (where the guard holds)."""
    _branch(_innermost("break_").end, guard)


def continue_(guard: pred | Not | None = None) -> None:
    """Go to the next round of the innermost loop (where the guard holds)."""
    _branch(_innermost("continue_").next, guard)


def _innermost(what: str) -> _Loop:
    loops = trace.current().loops
    if not loops:
        raise trace.error(f"ptx.{what} stands inside ptx.loop or ptx.while_")
    return loops[-1]


def _register_class(value: Any) -> type[Register] | None:
    return value.__class__ if isinstance(value, Register) else None


def _used(target: Label) -> bool:
    return any(isinstance(statement, tree.Instruction) and target.operand in statement.operands for statement in trace.current().body)


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _array(space: str, element: type[Register], count: int, align: int, name: str | None) -> Pointer:
    recording = trace.current()
    size = element.bits // 8
    if size == 0 or count <= 0:
        raise trace.error(f"a {space} array of {count} × {element.type_name}: give a type of whole bytes and a positive count")
    symbol = recording.name(name or space)
    recording.variables.append(tree.Variable(space, "b8", symbol, (count * size,), align=max(align, size)))
    return Pointer(element, tree.Symbol(symbol), space=space)


def shared(element: type[Register], count: int, align: int = 16, name: str | None = None) -> Pointer:
    """A static array of `count` elements in the CTA's shared memory, aligned to `align` bytes."""
    return _array("shared", element, count, align, name)


def local(element: type[Register], count: int, align: int = 16, name: str | None = None) -> Pointer:
    """An array of `count` elements of each thread's own."""
    return _array("local", element, count, align, name)


def dynamic_shared(element: type[Register], align: int = 16) -> Pointer:
    """The shared memory whose size the launch gives (`shared_bytes=`)."""
    recording = trace.current()
    name = "dynamic_shared"
    if not any(variable.name == name for variable in recording.module_variables):
        recording.module_variables.append(tree.Variable("shared", "b8", name, (None,), align=align, linkage="extern"))
    return Pointer(element, tree.Symbol(name), space="shared")


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def raw(text: str, **operands: Any) -> None:
    """Statements written as PTX text, parsed and checked like all others: `ptx.raw("add.f32 $d, $a, 0f3F800000;", d=d, a=a)`.

    `$name` stands for the register, pointer (as an address register) or number given under that name.
    """
    from warpwright.ptx.builder.words import _plain
    from warpwright.ptx.parser import parse

    recording = trace.current()
    named = {}
    for name, value in operands.items():
        operand = _plain(value)
        if not isinstance(operand, (tree.Register, tree.Symbol, tree.Integer)):
            raise trace.error(f"ptx.raw: ${name} is neither a register, a pointer nor an integer but {_describe(value)}")
        named[name] = str(operand.value) if isinstance(operand, tree.Integer) else operand.name
    try:
        body = string.Template(text).substitute(named)
    except (KeyError, ValueError) as failure:
        raise trace.error(f"ptx.raw: no operand given for {failure}") from None
    try:
        module = parse(".version 8.8\n.target sm_100a\n.address_size 64\n.entry raw() {\n" + body + "\n}\n")
    except PtxError as failure:
        raise trace.error(f"ptx.raw: {failure.message}") from None
    for statement in module.kernels["raw"].body or ():
        if isinstance(statement, tree.Instruction):
            checked(statement)
        recording.append(statement)


