"""The exceptions a launch can end with, and their wording: one voice for the compiled engine and the interpreter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from warpwright.errors import KernelDeadlock, KernelError, KernelTimeout, KernelTrap, LaunchError, MemoryFault

Triple = tuple[int, int, int]
Owner = tuple[int, int, str]  # a legal range: start and end address, and whose it is

# What a stopped warp says of itself in its frame (`fault_kind` in runtime.ll).
MEMORY, MISALIGNED, TRAP, TIMEOUT, SHARED, LOCAL, ASSERT, DEADLOCK, STACK, FUNCTION, HEAP, CLUSTER = range(1, 13)
TENSOR_MAP = 20  # the size in the frame indexes tensor_map.REASONS


def where(kernel: str, instruction: str, line: int | None, cta: Triple | None, thread: Triple | None) -> str:
    """`kernel saxpy, line 12, thread (3, 0, 0) of CTA (1, 0, 0): ld.global.f32 %f1, [%rd4];`"""
    place = f"kernel {kernel}"
    if line is not None:
        place += f", line {line}"
    if thread is not None:
        place += f", thread {thread}"
    if cta is not None:
        place += f" of CTA {cta}" if thread is not None else f", CTA {cta}"
    return f"{place}: {instruction.strip()}" if instruction else place


def nearest_allocation(address: int, size: int, owners: Iterable[Owner]) -> str:
    """A clause that places an access beside the closest legal range."""
    best, best_distance = None, 0
    for start, end, name in owners:
        distance = address - end if address >= end else start - (address + size) if address + size <= start else -1
        if best is None or distance < best_distance:
            best, best_distance = (start, end, name), distance
    if best is None:
        return "this launch was given no memory at all"
    start, end, name = best
    described = f"{name} ({end - start} bytes at {start:#x})"
    if address >= end:
        return f"the nearest allocation is {described}, whose end is {address - end} bytes before it"
    if address < start:
        return f"the nearest allocation is {described}, which begins {start - address} bytes after it"
    return f"it begins inside {described}, at byte {address - start}, and runs over the end"


def access_verb(instruction: str) -> str:
    """What an instruction does to memory, told from its opcode."""
    words = instruction.strip().split()
    opcode = next((word for word in words if not word.startswith("@")), "").split(".")[0]
    return {"ld": "reads", "ldu": "reads", "ldmatrix": "reads", "st": "writes", "stmatrix": "writes",
            "atom": "updates", "red": "updates"}.get(opcode, "accesses")


def describe_memory_fault(kernel: str, instruction: str, line: int | None, address: int, size: int, cta: Triple | None,
                          thread: Triple | None, owners: Iterable[Owner], *, misaligned: bool = False, space: str | None = None) -> str:
    """The message of a MemoryFault.

    address, size: of the access, in bytes. owners: the legal ranges, for naming the nearest. space: "shared", "local" or "param" where
    `address` is an offset in that memory.
    """
    what = f"{where(kernel, instruction, line, cta, thread)} {access_verb(instruction)} {size} bytes at {address:#x}"
    if space:
        what += f" of {space} memory"
    if misaligned:
        return f"{what}, which is not a multiple of {size}: an access must be aligned to its own size"
    if space:
        hint = "; does the launch's shared_bytes cover it?" if space == "shared" else ""
        return f"{what}, outside what the kernel has of it{hint}"
    kind = "a null pointer" if address == 0 else "outside every allocation"
    return f"{what}, {kind}; {nearest_allocation(address, size, owners)}"


def memory_fault(kernel: str, instruction: str, line: int | None, address: int, size: int, cta: Triple | None, thread: Triple | None,
                 owners: Iterable[Owner], **options) -> MemoryFault:
    """A MemoryFault with its message; arguments as `describe_memory_fault`."""
    message = describe_memory_fault(kernel, instruction, line, address, size, cta, thread, owners, **options)
    return MemoryFault(message, address=address, kernel=kernel, instruction=instruction, line=line, cta=cta, thread=thread)


MOST_WAITING = 12  # lines of a deadlock's report


class Waiting(NamedTuple):
    """A warp that waits: at an instruction, for something (`barrier 0: 96 of 128 threads have come`)."""

    cta: Triple
    warp: int
    line: int | None
    instruction: str
    awaits: str


def describe_waiting(waiting: Iterable[Waiting]) -> list[str]:
    """Who waits where for what: a line for the warps of a CTA that wait alike."""
    groups: dict[tuple, list[int]] = {}
    for one in waiting:
        groups.setdefault((one.cta, one.line, one.instruction, one.awaits), []).append(one.warp)
    lines = []
    for (cta, line, instruction, awaits), warps in groups.items():
        who = f"warp {warps[0]}" if len(warps) == 1 else f"warps {', '.join(map(str, warps[:8]))}{' …' if len(warps) > 8 else ''}"
        place = f" at line {line}" if line is not None else ""
        lines.append(f"CTA {cta}, {who}{place} ({instruction.strip()}): {awaits}")
    if len(lines) > MOST_WAITING:
        lines[MOST_WAITING:] = [f"… and {len(lines) - MOST_WAITING} more"]
    return lines


def describe_barrier(number: int, arrived: int, expected: int) -> str:
    return f"barrier {number}, where {arrived} of {expected} threads have come"


def describe_cluster_barrier(arrived: int, live: int) -> str:
    return f"the cluster's barrier, where {arrived} of {live} threads have come"


def describe_mbarrier(offset: int, word: int) -> str:
    """An mbarrier by its offset in shared memory, and what its word says (library/async.ll)."""
    expected, pending, transactions = word & 0xFFFFF, word >> 20 & 0xFFFFF, word >> 40 & 0x1FFFFF
    transactions -= (transactions & 0x100000) << 1
    lacks = [f"{pending} of {expected} arrivals"] * (pending > 0) + [f"{transactions} bytes"] * (transactions != 0)
    return f"the mbarrier at shared memory offset {offset:#x}, whose phase {word >> 61 & 7} lacks {' and '.join(lacks) or 'nothing'}"


def cluster_fault(kernel: str, instruction: str, line: int | None, address: int, size: int, cta: Triple | None, thread: Triple | None,
                  ranks: int, shared: int) -> MemoryFault:
    """The MemoryFault of an access to a shared::cluster address. ranks: CTAs a cluster; shared: bytes of shared memory a CTA."""
    rank, offset = (address >> 24) - 1, address & 0xFFFFFF
    what = f"{where(kernel, instruction, line, cta, thread)} {access_verb(instruction)} {size} bytes at {offset:#x}"
    if rank >= ranks:
        found = f" of the shared memory of a CTA that its cluster does not have; its ranks are 0 to {ranks - 1}"
    elif offset + size > shared:
        found = f" of the shared memory of CTA {rank} of its cluster" if rank >= 0 else " of shared memory"
        found += ", outside what the kernel has of it; does the launch's shared_bytes cover it?"
    else:
        found = (f" of the shared memory of CTA {rank} of its cluster, which has ended: a CTA must not end before the others have "
                 "done with its shared memory (barrier.cluster)")
    return MemoryFault(what + found, address=address, kernel=kernel, instruction=instruction, line=line, cta=cta, thread=thread)


def too_many(ctas: int, resident: int) -> str:
    """What to add where CTAs may wait for others that have not started."""
    return f"the grid has {ctas} CTAs, of which the device holds {resident} at once; one that waits for a CTA that has not started waits for ever"


def error_of(kind: int, *, kernel: str, instruction: str = "", line: int | None = None, cta: Triple | None = None,
             thread: Triple | None = None, time_limit: float = 0.0, reason: str = "", waiting: Iterable[Waiting] = ()) -> KernelError | LaunchError:
    """The exception for any kind but a memory fault. `reason` is added to the message; `waiting` says of a deadlock who waits."""
    place = where(kernel, instruction, line, cta, thread)
    facts: dict[str, Any] = {"kernel": kernel, "instruction": instruction, "line": line, "cta": cta, "thread": thread}
    if kind == TRAP:
        return KernelTrap(f"{place} stopped the kernel{': ' + reason if reason else ''}", **facts)
    if kind == ASSERT:
        return KernelTrap(f"{place} failed an assertion{': ' + reason if reason else ''}", **facts)
    if kind == STACK:
        return KernelTrap(f"{place} filled the stack: is the recursion endless?", **facts)
    if kind == FUNCTION:
        return KernelTrap(f"{place} calls what is not the address of a function that it may be", **facts)
    if kind == HEAP:
        return KernelTrap(f"{place} frees what malloc did not give, or what is free already", **facts)
    if kind == TENSOR_MAP:
        return KernelTrap(f"{place} cannot be done: {reason}", **facts)
    if kind == TIMEOUT:
        more = f"; {reason}" if reason else ""
        return KernelTimeout(f"{place} was still running after {time_limit:g} s; launch(time_limit=…) sets the limit{more}", **facts)
    if kind == DEADLOCK:
        message = f"{place} waits for ever: every thread that has not ended waits for threads that cannot come"
        return KernelDeadlock(message, waiting=describe_waiting(waiting), **facts)
    return LaunchError(f"{place} cannot run here{': ' + reason if reason else ''}")
