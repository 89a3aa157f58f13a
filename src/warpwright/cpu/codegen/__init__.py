"""From a PTX kernel to LLVM IR: `compile_kernel`. One warp is one function; a register is one value, or 32.

The IR defines `void @warp(ptr %frame)`, which runs one warp of one CTA to its end, and calls the run-time system of `runtime.ll`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from warpwright.cpu.analysis import pressure, turns
from warpwright.cpu.analysis.flow import Flow
from warpwright.cpu.analysis.lanes import Lanes
from warpwright.cpu.analysis.program import Imm, Op, Program, Site, flatten
from warpwright.cpu.codegen import (  # noqa: F401  each registers its lowerings
    atomic,
    calls,
    cluster,
    control,
    convert,
    copy,
    floating,
    integer,
    matrix,
    mbarrier,
    memory,
    mma_group,
    move,
    synchronise,
    tensor,
    video,
    warp,
    wgmma,
)
from warpwright.cpu.codegen.emitter import LLVM_TYPE, Emitter, Host
from warpwright.ptx import tree
from warpwright.ptx.isa.table import TYPE_BITS

__all__ = ["Generated", "Options", "Site", "compile_kernel"]


@dataclass(frozen=True)
class Options:
    """host: what of the instruction set may be used; None asks LLVM about this machine. late, exact_mma: as `Device` takes them."""

    host: Host | None = None
    late: bool = False
    exact_mma: bool = False


@dataclass
class Generated:
    """A compiled kernel, for the runtime to link and launch. All sizes are in bytes.

    sites: the instructions that a fault may name, by number. uses_barrier: warps of a cluster wait for each other, so each needs a fiber.
    spins: a loop waits for other CTAs, so all must be resident. registers: 32-bit ones a thread, by estimate. globals: name → (size, align, initial
    bytes, relocations). libraries: which files of `library/` are in it.
    """

    ir: str
    sites: list[Site]
    uses_barrier: bool
    spins: bool
    registers: int
    shared_bytes: int
    local_bytes: int
    stack_bytes: int
    libraries: list[str] = field(default_factory=list)
    globals: dict[str, tuple[int, int, bytes, list[tuple[int, str, int]]]] = field(default_factory=dict)


def detect_host() -> Host:
    """What the lowerings use of this machine."""
    import llvmlite.binding as llvm

    from warpwright.cpu import runtime

    features = llvm.get_host_cpu_features()

    def has(*names: str) -> bool:
        return all(features.get(name) for name in names)

    avx512 = has("avx512f", "avx512bw", "avx512vl", "avx512dq")
    vbmi = avx512 and has("avx512vbmi")
    return Host(avx512=avx512, fp16=avx512 and has("avx512fp16"), vbmi=vbmi, vnni=avx512 and has("avx512vnni"),
                amx=vbmi and has("amx-tile", "amx-bf16") and runtime.amx_permitted())


def compile_kernel(module: tree.Module, kernel: str, block: tuple[int, int, int], options: Options = Options()) -> Generated:
    """LLVM IR for one kernel and one block shape. Raises PtxError, with the line, for what the engine cannot run."""
    program = flatten(module, kernel)
    space = program.space
    space.local_bytes = -(-space.local_bytes // 16) * 16
    flow, lanes = analysed(program, block)
    e = Emitter(program, flow, lanes, options.host or detect_host(), late=options.late, exact_mma=options.exact_mma)
    spinning = _spins(flow, _waits)
    groups = mma_group.plan(e)
    wgmma.plan(e)
    control.registers(e)
    control.Control(e, spinning, groups).write()
    if e.late and "async" in e.helpers:
        e.do("call void @rt_late_end(ptr %frame)")
    body = [*e.entry, "  br label %start", *e.lines, "  ret void"]
    text = ["define internal void @warp(ptr noalias %frame) {", "entry:", *body, "}"]
    parts = [_with_attributes("\n".join(text)), *(_with_attributes(helper) for helper in e.helpers.values()), *e.declarations.values(),
             'attributes #0 = { nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }',
             '!0 = !{!"branch_weights", i32 100000, i32 1}',
             '!1 = !{!"branch_weights", i32 1, i32 100000}']
    threads = block[0] * block[1] * block[2]
    ops = [op for block in flow.blocks for op in block.ops]
    waiting = bool(spinning) or any(op.opcode == "mbarrier" and op.slots["action"] in ("test_wait", "try_wait") for op in ops)
    barriers = waiting or (threads > 32 and any(op.opcode in ("bar", "barrier") for op in ops)) or "async" in e.helpers
    barriers = barriers or any(cluster.uses_cluster(op) for op in ops)
    initial = space.initial_globals()
    return Generated(
        ir="\n".join(parts) + "\n", sites=program.sites, uses_barrier=barriers, spins=bool(_spins(flow, _waits_elsewhere)),
        registers=pressure.registers(flow),
        shared_bytes=space.dynamic_offset if space.dynamic else space.shared_bytes,
        local_bytes=space.local_bytes, stack_bytes=_stack(program), globals=initial,
        libraries=[name for name in e.helpers if not name.startswith("@")])


def analysed(program: Program, block: tuple[int, int, int]) -> tuple[Flow, Lanes]:
    """The control flow, with blocks that begin where lanes have to meet, and what lanes have in common."""
    split: set[int] = set()
    while True:
        flow = Flow(program)
        found = turns.find(flow, _spins(flow, _waits), split)
        lanes = Lanes(program, flow, block, found)
        if not turns.meet(program, flow, lanes.frontier, found, split):
            return flow, lanes


def _with_attributes(text: str) -> str:
    return "\n".join(line[:-1] + "#0 {" if line.startswith("define") else line for line in text.split("\n"))


def _spins(flow: Flow, waits: Callable[[Op], bool]) -> set[int]:
    """Blocks of loops that wait for other threads: they load strongly, try to take a lock, or look at an mbarrier."""
    waiting = [False] * len(flow.order)
    for position, block in enumerate(flow.blocks):
        waiting[position] = flow.cyclic[position] and any(waits(op) for op in block.ops)
    found: set[int] = set()
    for position, successors in enumerate(flow.successors):
        for target in successors:
            if target <= position and any(waiting[target:position + 1]):
                found.update(range(target, position + 1))
    return found


def _waits(op: Op) -> bool:
    """Whether it may look at what another thread is to write."""
    if op.opcode == "ld":
        return op.get("sem") in ("volatile", "relaxed", "acquire") or op.get("cop") == "cv" or bool(op.get("mmio"))
    if op.opcode == "atom":
        b = op.args.get("b")
        fixed = isinstance(b, Imm)
        return op.get("op") == "exch" or (fixed and (op.get("op") == "cas" or b.value == 0))  # type: ignore[union-attr]
    return op.opcode in ("nanosleep", "mbarrier")


def _waits_elsewhere(op: Op) -> bool:
    """Whether that may be a thread of another cluster, which then has to be resident: what it looks at is not shared memory for certain."""
    return _waits(op) and op.opcode != "mbarrier" and not str(op.get("space") or "").startswith("shared")


def _stack(program: Program) -> int:
    """A generous estimate of a warp's stack: every register at once, twice."""
    total = sum(32 * max(1, TYPE_BITS[reg.type] // 8) for reg in program.registers if reg.type in LLVM_TYPE)
    return 64 * 1024 + 2 * total
