"""What a module's kernels use and need: registers, memory, parameters, the mix of instructions, features, the oldest target that takes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from warpwright.errors import PtxError
from warpwright.ptx import tree
from warpwright.ptx.isa.table import Need
from warpwright.ptx.layout import layout_align, layout_size
from warpwright.ptx.lints.graph import Graph, Node
from warpwright.ptx.targets import TARGETS, VERSIONS, Target
from warpwright.ptx.verifier import check

OLDEST = 75  # sm_75: the oldest target that the assemblers of CUDA 13 still know; older ones are not asked for

Test = Callable[[str, tuple[str, ...]], bool]


def _opcodes(*names: str) -> Test:
    return lambda opcode, modifiers: opcode in names


def _narrow(opcode: str, modifiers: tuple[str, ...]) -> bool:
    return any(word.startswith(("e4m3", "e5m2", "e2m1", "e2m3", "e3m2", "ue8m0", "kind::f8", "kind::mx")) for word in modifiers)


# What a reader wants to know that a kernel uses → which instructions (opcode, modifiers) show it.
FEATURES: dict[str, Test] = {
    "cp.async": lambda opcode, modifiers: opcode == "cp" and "bulk" not in modifiers,
    "bulk copies": lambda opcode, modifiers: opcode == "cp" and "bulk" in modifiers and "tensor" not in modifiers,
    "tensor copies (TMA)": lambda opcode, modifiers: opcode == "cp" and "tensor" in modifiers,
    "multicast": lambda opcode, modifiers: "multicast::cluster" in modifiers,
    "mbarrier": _opcodes("mbarrier"),
    "mma": lambda opcode, modifiers: opcode == "mma" and "sp" not in modifiers,
    "sparse mma": lambda opcode, modifiers: opcode in ("mma", "wgmma") and any(word.startswith("sp") for word in modifiers),
    "wmma": _opcodes("wmma"),
    "wgmma": _opcodes("wgmma"),
    "tcgen05": _opcodes("tcgen05"),
    "ldmatrix": _opcodes("ldmatrix", "stmatrix", "movmatrix"),
    "FP8 and narrower": _narrow,
    "clusters": lambda opcode, modifiers: opcode in ("mapa", "getctarank") or "cluster" in modifiers or ("shared::cluster" in modifiers
    and opcode != "cp"),
    "setmaxnreg": _opcodes("setmaxnreg"),
    "warp shuffles": _opcodes("shfl"),
    "warp votes": _opcodes("vote", "match", "redux", "elect", "activemask"),
    "CTA barriers": _opcodes("bar", "barrier"),
    "atomics": _opcodes("atom", "red"),
    "multimem": _opcodes("multimem"),
    "fences": _opcodes("membar", "fence"),
    "f64": lambda opcode, modifiers: "f64" in modifiers and opcode not in ("ld", "st", "mov"),
    "textures": _opcodes("tex", "tld4", "txq", "suld", "sust", "sured", "suq"),
    "dependent launch": _opcodes("griddepcontrol"),
}


@dataclass(frozen=True)
class FunctionInfo:
    """A kernel or function with a body. Sizes in bytes; memory counts what its callees by name declare too.

    registers: how many of each type its instructions name. pressure: the most 32-bit registers (predicates apart) that hold values at once;
    an assembler adds a few. dynamic_shared: it uses an `.extern .shared` array, whose size the launch gives. parameters: (name, type, size,
    alignment). instructions: by opcode. block: the threads of a CTA that `.reqntid` or, as the most, `.maxntid` says.
    """

    name: str
    kernel: bool
    parameters: tuple[tuple[str, str, int, int], ...]
    registers: dict[str, int]
    pressure: int
    shared: int
    dynamic_shared: bool
    local: int
    constant: int
    instructions: dict[str, int]
    features: tuple[str, ...]
    calls: tuple[str, ...]
    block: tuple[str, tuple[int, ...]] | None = None

    @property
    def count(self) -> int:
        return sum(self.instructions.values())


@dataclass(frozen=True)
class ModuleInfo:
    """A module. least_target, least_version: the oldest (of sm_75 and later) that take it as it stands."""

    version: tuple[int, int]
    target: str
    least_version: tuple[int, int]
    least_target: str
    global_bytes: int
    functions: tuple[FunctionInfo, ...]


def describe(module: tree.Module) -> ModuleInfo:
    """What the module's kernels and functions use and need. Raises PtxError where the module is not legal PTX."""
    if problems := check(module):
        raise problems[0]
    graphs = {name: Graph(module, function) for name, function in module.functions.items() if function.body is not None}
    least_target, least_version = _oldest(module, graphs)
    variables = [item for item in module.items if isinstance(item, tree.Variable)]
    return ModuleInfo(module.version, module.target[0], least_version, least_target,
                      sum(layout_size(one) for one in variables if one.space == "global" and one.linkage != "extern"),
                      tuple(_function(graph, graphs) for graph in graphs.values()))


def _function(graph: Graph, graphs: dict[str, Graph]) -> FunctionInfo:
    function = graph.function
    called = _called(function.name, graphs)
    memory = _memory([graph, *(graphs[name] for name in called if name in graphs)])
    limits = {directive.name: tuple(int(word) for word in directive.words) for directive in function.directives
              if directive.name in ("reqntid", "maxntid")}
    spelled = [(node.opcode, node.instruction.modifiers) for node in graph.nodes]
    return FunctionInfo(
        function.name, function.kernel,
        tuple((one.name, one.type, layout_size(one), layout_align(one)) for one in function.parameters),
        dict(Counter(graph.types)), _pressure(graph),
        sum(layout_size(one) for one in memory if one.space == "shared" and one.linkage != "extern"),
        any(one.space == "shared" and one.linkage == "extern" for one in memory),
        sum(layout_size(one) for one in memory if one.space == "local"),
        sum(layout_size(one) for one in memory if one.space == "const"),
        dict(Counter(node.opcode for node in graph.nodes).most_common()),
        tuple(name for name, test in FEATURES.items() if any(test(*one) for one in spelled)),
        tuple(called), next(iter(limits.items()), None))


def _called(name: str, graphs: dict[str, Graph]) -> list[str]:
    """The functions that one calls by name, and those that they call, in the order met."""
    found: dict[str, None] = {}
    open_ = [name]
    while open_:
        graph = graphs.get(open_.pop())
        for node in graph.nodes if graph else ():
            callee = node.match.value("func") if node.opcode == "call" else None
            if callee is not None and isinstance(callee.operand, tree.Symbol) and callee.operand.name not in found:
                found[callee.operand.name] = None
                open_.append(callee.operand.name)
    return list(found)


def _memory(graphs: list[Graph]) -> list[tree.Variable]:
    """The variables that functions declare or name, each once."""
    found: dict[int, tree.Variable] = {}
    for graph in graphs:
        for declared in _declared(graph.function.body or ()):
            found[id(declared)] = declared
        for node in graph.nodes:
            for name in _symbols(node):
                variable = graph.variable(name, node.scope)
                if isinstance(variable, tree.Variable):
                    found[id(variable)] = variable
    return list(found.values())


def _declared(statements: tuple[tree.Statement, ...]) -> Iterator[tree.Variable]:
    for statement in statements:
        if isinstance(statement, tree.Variable):
            yield statement
        elif isinstance(statement, tree.Block):
            yield from _declared(statement.statements)


def _symbols(node: Node) -> Iterator[str]:
    for operand in node.instruction.operands:
        match operand:
            case tree.Symbol(name=name) | tree.Address(base=tree.Symbol(name=name)):
                yield name


def _pressure(graph: Graph) -> int:
    words = [0 if one == "pred" else -(-(int(one[1:]) if one[1:].isdigit() else 32) // 32) for one in graph.types]
    sizes: dict[int, int] = {}  # bit sets of registers by their size in words
    for number, size in enumerate(words):
        sizes[size] = sizes.get(size, 0) | 1 << number

    def live_before(live: int, node: Node) -> int:
        if node.instruction.guard is None:  # a guarded write may leave the old value
            for number, _ in node.writes:
                live &= ~(1 << number)
        for number, _ in node.reads:
            live |= 1 << number
        return live

    most = 0
    after = graph.solve(False, live_before)
    for first, last in graph.blocks:
        live = after[first]
        for node in reversed(graph.nodes[first:last]):
            written = 0
            for number, _ in node.writes:
                written |= 1 << number
            most = max(most, sum(size * ((live | written) & members).bit_count() for size, members in sizes.items()))
            live = live_before(live, node)
        most = max(most, sum(size * (live & members).bit_count() for size, members in sizes.items()))
    return most


def _oldest(module: tree.Module, graphs: dict[str, Graph]) -> tuple[str, tuple[int, int]]:
    """The oldest target that takes the module, in its version or the target's first, and the oldest version that takes it for that target.

    The instructions' own needs give a lower bound; from there on the verifier is asked, which knows about declarations and directives too.
    """
    need = Need()
    for graph in graphs.values():
        for node in graph.nodes:
            need = need.join(node.match.need)
    own = Target.parse(module.target[0])
    candidates = sorted((target for target in map(Target.parse, TARGETS) if target.number >= OLDEST and target.has(need)),
                        key=lambda one: (one.number, one.suffix))
    target = next((one for one in candidates if _takes(module, one, max(module.version, one.first_version))), own)
    versions = [(major, minor) for major, last in VERSIONS.items() for minor in range(last + 1)]
    version = next((one for one in versions if one >= max(need.ptx, target.first_version) and _takes(module, target, one)), module.version)
    return str(target), version


def _takes(module: tree.Module, target: Target, version: tuple[int, int]) -> bool:
    try:
        return not check(replace(module, version=version, target=(str(target), *module.target[1:])))
    except PtxError:
        return False
