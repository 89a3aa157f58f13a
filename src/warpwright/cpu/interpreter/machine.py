"""Running a launch: threads in warps, warps in CTAs, CTAs in the grid.

Lanes of a warp that stand at the same instruction run it together, in lane order. Where they have parted, the lanes that are furthest
behind in the program go first, so they meet again where their paths do; every so often the others get a turn, so a lane may wait in a
loop for another. Instructions that end in `.sync` hold a lane until every lane of their member mask has come to one of the same kind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from warpwright.cpu import faults
from warpwright.cpu.functions import STACK
from warpwright.cpu.interpreter import asynchronous
from warpwright.cpu.interpreter.barrier import Barriers
from warpwright.cpu.interpreter.cluster import Cluster
from warpwright.cpu.interpreter.memory import AccessFault, GlobalMemory, Region
from warpwright.cpu.interpreter.program import Code, Place, Program, RegisterName, Step
from warpwright.cpu.interpreter.registry import Trap
from warpwright.cpu.parts import Part
from warpwright.cpu.shape import Shape

WARP = 32
QUANTUM = 2048  # steps that a warp, and so a CTA, runs before the next one gets a turn
TURN = 1024  # steps of a parted warp after which lanes further ahead get a turn, of TURN / 16 steps

_turn = threading.Lock()  # an instruction of one launch is not to be seen half done by another's
_launches: set[Launch] = set()  # those that run

Key = tuple[int, int, int]  # minus the call depth, the function's index, the step's: the least runs first


class Frame:
    """A function's activation: its registers, where its variables lie in local memory, and where it returns to."""

    __slots__ = ("base", "call", "code", "registers", "return_to", "top")

    def __init__(self, code: Code, base: int, call=None, return_to: Key | None = None):
        self.code, self.base, self.call, self.return_to = code, base, call, return_to
        self.top = -(-(base + code.frame_bytes) // 16) * 16  # where the next frame, or what alloca gives, begins
        self.registers = dict(code.registers)


class Thread:
    __slots__ = ("_local", "carry", "cluster_phase", "cta", "frame", "frames", "groups", "index", "lane", "registers", "warp")

    def __init__(self, warp: Warp, lane: int, index: tuple[int, int, int]):
        self.warp, self.cta, self.lane, self.index = warp, warp.cta, lane, index
        self.frame = Frame(warp.cta.launch.program.kernel, 0)
        self.frames = [self.frame]
        self.registers = self.frame.registers
        self.carry = 0  # the CC register's flag
        self.groups: dict[int, int] = {}  # asynchronous groups committed, by kind
        self.cluster_phase: int | None = None  # the phase of the cluster's barrier that it has arrived in
        self._local: Region | None = None

    def local(self) -> Region:
        """This thread's local memory; most kernels never ask for it."""
        if self._local is None:
            self._local = Region.allocate(self.frames[0].code.frame_bytes + STACK, "local memory", 64)
        return self._local

    def stack_end(self) -> int:
        """How far frames and alloca may go, in bytes of local memory."""
        return self.frames[0].code.frame_bytes + STACK

    def set_top(self, top: int) -> None:
        """Move the end of the current frame, for alloca and stackrestore."""
        if top > self.stack_end():
            raise Trap(kind=faults.STACK)
        self.frame.top = top

    def enter(self, code: Code, call, return_to: Key) -> Frame:
        frame = Frame(code, self.frame.top, call, return_to)
        if frame.top > self.stack_end() or len(self.frames) > 4000:
            raise Trap(kind=faults.STACK)
        self.frame = frame
        self.frames.append(self.frame)
        self.registers = self.frame.registers
        return self.frame

    def leave(self) -> Frame:
        """Back to the caller; the frame that was left."""
        left = self.frames.pop()
        self.frame = self.frames[-1]
        self.registers = self.frame.registers
        return left


class Warp:
    def __init__(self, cta: Cta, number: int, first: int, count: int):
        bx, by, _ = cta.launch.block
        self.cta, self.number = cta, number
        self.clock = 0  # steps run
        self.threads = [Thread(self, lane, ((first + lane) % bx, (first + lane) // bx % by, (first + lane) // (bx * by)))
                        for lane in range(count)]
        self.live = (1 << count) - 1  # lanes that have not ended
        self.groups: dict[Key, list[Thread]] = {(-1, 0, 0): list(self.threads)}
        # (instruction's mnemonic, member mask) → lanes that wait there: (thread, step, where it goes on)
        self.waiting: dict[tuple[str, int | None], list[tuple[Thread, Step, Key]]] = {}

    @property
    def finished(self) -> bool:
        return not self.live

    def place(self, threads: list[Thread], key: Key) -> None:
        """Put lanes at an instruction, beside those already there."""
        if threads:
            there = self.groups.get(key)
            self.groups[key] = sorted(there + threads, key=lambda thread: thread.lane) if there else threads

    def choose(self) -> Key:
        if len(self.groups) == 1:
            return next(iter(self.groups))
        turn, step = divmod(self.clock, TURN)
        if step >= TURN - TURN // 16:
            return sorted(self.groups)[turn % len(self.groups)]
        return min(self.groups)

    def run(self, budget: int) -> None:
        """Run until every lane has ended or waits, or the budget of steps is spent."""
        codes = self.cta.launch.program.codes
        end = self.clock + budget
        while self.groups and self.clock < end:
            depth, function, at = key = self.choose()
            threads = self.groups.pop(key)
            steps = codes[function].steps
            alone = not self.groups
            while True:
                step = steps[at]
                self.clock += 1
                active = threads
                if step.guard is not None:
                    register, wanted = step.guard
                    active = [thread for thread in threads if thread.registers[register] == wanted]
                if step.kind == "run":
                    self.execute(step, active)
                    at += 1
                    if alone and self.clock < end:
                        continue
                    self.place(threads, (depth, function, at))
                    break
                follow = (depth, function, at + 1)
                if active is not threads:
                    self.place([thread for thread in threads if thread.registers[register] != wanted], follow)
                if active:
                    self.control(step, active, follow)
                break

    def execute(self, step: Step, threads: list[Thread]) -> None:
        run = step.run
        thread = None
        try:
            for thread in threads:
                run(thread)  # type: ignore[misc]
        except (AccessFault, Trap) as error:
            raise self.error(error, step, thread) from None

    def control(self, step: Step, threads: list[Thread], follow: Key) -> None:
        depth, function, _ = follow
        match step.kind:
            case "branch":
                if step.run is None:
                    self.place(threads, (depth, function, step.target))
                else:
                    for thread in threads:
                        self.place([thread], (depth, function, step.run(thread)))
            case "collective":
                self.collect(step, threads, follow)
            case "barrier":
                self.wait(("barrier", None), step, threads, follow)
            case "cluster":
                for thread in threads:
                    self.cta.cluster.step(thread, step, follow)
            case "call":
                for thread in threads:
                    try:
                        self.place([thread], step.run(thread, follow))  # type: ignore[misc]
                    except (AccessFault, Trap) as error:
                        raise self.error(error, step, thread) from None
            case "return":
                for thread in threads:
                    if len(thread.frames) == 1:
                        self.end([thread])
                    else:
                        left = thread.leave()
                        left.call.finish(thread, left)
                        self.place([thread], left.return_to or follow)
            case "exit":
                self.end(threads)

    def end(self, threads: list[Thread]) -> None:
        for thread in threads:
            self.live &= ~(1 << thread.lane)
        self.cta.cluster.leave(len(threads))
        for key in list(self.waiting):
            self.try_complete(key)
        if not self.live:
            self.cta.barriers.recheck()

    # ── instructions that wait for other lanes ───────────────────────────────────────────────────────────────────

    def collect(self, step: Step, threads: list[Thread], follow: Key) -> None:
        if not step.convergent:
            self.combine([(thread, step, follow) for thread in threads])
            return
        if step.mask is None:
            self.wait((step.instruction.mnemonic, None), step, threads, follow)
            return
        by_mask: dict[int, list[Thread]] = {}
        for thread in threads:
            by_mask.setdefault(step.mask(thread), []).append(thread)
        for mask, members in by_mask.items():
            self.wait((step.instruction.mnemonic, mask), step, members, follow)

    def wait(self, key: tuple[str, int | None], step: Step, threads: list[Thread], follow: Key) -> None:
        self.waiting.setdefault(key, []).extend((thread, step, follow) for thread in threads)
        self.try_complete(key)

    def try_complete(self, key: tuple[str, int | None]) -> None:
        """Let the lanes that wait go on if no member that is still to come is left."""
        arrived = 0
        for thread, _, _ in self.waiting[key]:
            arrived |= 1 << thread.lane
        name, mask = key
        expected = self.live if mask is None else self.live & mask
        if expected & ~arrived:
            return
        members = sorted(self.waiting.pop(key), key=lambda member: member[0].lane)
        if name == "barrier":
            self.cta.barriers.arrive(self, members)
        elif members:
            self.combine(members)

    def combine(self, members: list[tuple[Thread, Step, Key]]) -> None:
        threads = [thread for thread, _, _ in members]
        inputs = [tuple(read(thread) for read in step.readers) for thread, step, _ in members]
        step = members[0][1]
        try:
            outputs = step.run(threads, inputs)  # type: ignore[misc]
        except (AccessFault, Trap) as error:
            raise self.error(error, step, getattr(error, "thread", threads[0])) from None
        for (thread, own_step, follow), values in zip(members, outputs, strict=True):
            for write, value in zip(own_step.writers, values, strict=True):
                write(thread, value)
            self.place([thread], follow)

    def error(self, error: AccessFault | Trap, step: Step, thread: Thread | None) -> Exception:
        launch = self.cta.launch
        where = (launch.program.kernel.name, step.text, step.line)
        index = thread.index if thread else None
        if isinstance(error, AccessFault) and error.space == "shared::cluster":
            return faults.cluster_fault(*where, error.address, error.size, self.cta.index, index, len(self.cta.cluster.ctas), self.cta.shared.size)
        if isinstance(error, AccessFault):
            return faults.memory_fault(*where, error.address, error.size, self.cta.index, index, launch.memory.owners,
                                       misaligned=error.misaligned, space=error.space)
        return faults.error_of(error.kind, kernel=where[0], instruction=where[1], line=where[2], cta=self.cta.index, thread=index,
                               reason=error.reason)


class Cta:
    def __init__(self, launch: Launch, cluster: Cluster, index: tuple[int, int, int], rank: int):
        self.launch, self.cluster, self.index, self.rank = launch, cluster, index, rank
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        program = launch.program
        dynamic = launch.dynamic_shared
        self.shared = Region.allocate(max(1, program.dynamic_offset + dynamic if dynamic else program.static_shared), "shared memory")
        self.barriers = Barriers(self)
        self.warps = [Warp(self, number, first, min(WARP, threads - first)) for number, first in enumerate(range(0, threads, WARP))]

    def run(self) -> bool:
        """Give each warp a turn; whether any of them moved."""
        moved = False
        for warp in self.warps:
            before = warp.clock
            warp.run(QUANTUM)
            moved = moved or warp.clock != before
            if not warp.finished and time.monotonic() > self.launch.deadline:
                raise self.launch.stopped(self, faults.TIMEOUT)
        return moved

    def waiting(self) -> Iterator[faults.Waiting]:
        """The warps that wait at barriers or for lanes of their own."""
        alive = 32 * sum(not warp.finished for warp in self.warps)
        for number, barrier in self.barriers.all.items():
            told = set()
            for warp, _, step, _ in barrier.members:
                if warp.number not in told:
                    told.add(warp.number)
                    awaits = faults.describe_barrier(number, barrier.arrived, barrier.expected or alive)
                    yield faults.Waiting(self.index, warp.number, step.line, step.text, awaits)
        told = set()
        for thread, step, _ in self.cluster.members:
            if thread.cta is self and thread.warp.number not in told:
                told.add(thread.warp.number)
                awaits = faults.describe_cluster_barrier(self.cluster.arrived, self.cluster.live)
                yield faults.Waiting(self.index, thread.warp.number, step.line, step.text, awaits)
        for warp in self.warps:
            for members in warp.waiting.values():
                lanes = ", ".join(str(thread.lane) for thread, _, _ in members)
                yield faults.Waiting(self.index, warp.number, members[0][1].line, members[0][1].text, f"lanes {lanes} wait for the warp's others")

    @property
    def finished(self) -> bool:
        return all(warp.finished for warp in self.warps)


@dataclass(frozen=True)
class Settings:
    """What a launch needs of its device. part: the limits of the GPU, or of the partition of it that the launch runs on. sms: how many SMs the
    whole GPU has. first_sm: the number of the partition's first. device: whose `printf` and heap the kernel uses. number: the launch's.

    workspace: the address of a cooperative launch's, or 0. resident: tells how many CTAs the part holds at once. late, exact_mma: as `Device`
    takes them.
    """

    part: Part
    sms: int
    first_sm: int
    device: Any
    number: int
    workspace: int
    resident: Callable[[], int]
    late: bool = False
    exact_mma: bool = False


class Launch:
    """A grid that runs: what all its threads share."""

    def __init__(self, program: Program, shape: Shape, parameters: bytes, memory: GlobalMemory, time_limit: float, settings: Settings):
        self.program, self.shape, self.settings = program, shape, settings
        self.grid, self.block, self.dynamic_shared = shape.grid, shape.block, shape.shared_bytes
        self.memory, self.time_limit = memory, time_limit
        self.late, self.exact_mma = settings.late, settings.exact_mma
        self.queue: list[asynchronous.Pending] = []  # what is late
        self.resident: list[Cluster] = []
        self.parameters = Region.allocate(max(1, len(parameters)), "kernel parameters", 256)
        self.parameters.bytes[:len(parameters)] = parameters
        self.deadline = time.monotonic() + time_limit
        self.printed: list[str] = []
        self.device = settings.device
        self.constants: list[tuple[int, int]] = []  # [start, end) of each .const variable

    def run(self) -> None:
        """Run to the end. Launches on other streams take turns with this one, a CTA's turn at a time."""
        _launches.add(self)
        try:
            self._run()
        finally:
            _launches.discard(self)

    def _run(self) -> None:
        """Clusters start in order; more than one at a time only where those that run do not end by themselves: they may wait for others. The
        part sets how many can be there at most."""
        (nx, ny, nz), (kx, ky, kz) = self.grid, self.shape.cluster
        pending = ((x, y, z) for z in range(0, nz, kz) for y in range(0, ny, ky) for x in range(0, nx, kx))
        resident = self.resident = []
        wanted, most = 1, 0
        while True:
            while len(resident) < wanted and (first := next(pending, None)) is not None:
                resident.append(Cluster(self, first))
            if not resident:
                return
            moved = False
            for cluster in resident:
                for cta in cluster.ctas:
                    with _turn:
                        moved = cta.run() or moved
                        if self.queue and cta.finished:
                            asynchronous.end_cta(cta)
                    if len(_launches) > 1:
                        time.sleep(1e-5)  # or this thread would have the next turn too
            remaining = [cluster for cluster in resident if not cluster.finished]
            if len(remaining) == len(resident):
                if not moved:
                    waiting = next(cta for cta in resident[0].ctas if not cta.finished)
                    raise self.stopped(waiting, faults.DEADLOCK)
                most = most or self.settings.resident() // self.shape.ranks
                wanted = min(2 * len(resident), most)
            resident = self.resident = remaining

    def stopped(self, cta: Cta, kind: int) -> Exception:
        """The error for a launch that does not end, at one thread that shows it."""
        warp = next(warp for warp in cta.warps if not warp.finished)
        if warp.groups:
            _, function, at = min(warp.groups)
            thread, step = warp.groups[min(warp.groups)][0], self.program.codes[function].steps[at]
        elif warp.waiting:
            thread, step, _ = next(iter(warp.waiting.values()))[0]
        else:
            thread, step, _ = cta.cluster.waiting(warp) or cta.barriers.waiting(warp)
        waiting = [one for each in self.resident for cta in each.ctas for one in cta.waiting()] if kind == faults.DEADLOCK else ()
        ctas, most = self.shape.ctas, self.settings.resident() if kind == faults.TIMEOUT else 0
        return faults.error_of(kind, kernel=self.program.kernel.name, instruction=step.text, line=step.line, cta=cta.index,
                               thread=thread.index, time_limit=self.time_limit, waiting=waiting,
                               reason=faults.too_many(ctas, most) if 0 < most < ctas else "")


def copy_value(thread: Thread, frame: Frame, target: RegisterName | Place, value: int) -> None:
    """Give a function's parameter or result its value, in a frame."""
    if isinstance(target, RegisterName):
        frame.registers[target.key] = value
    else:
        local = thread.local()
        local.store(local.start + frame.base + target.offset, target.size, value)


def value_of(thread: Thread, frame: Frame, source: RegisterName | Place) -> int:
    """The bits of a function's parameter or result, in a frame."""
    if isinstance(source, RegisterName):
        return frame.registers[source.key]
    local = thread.local()
    return local.load(local.start + frame.base + source.offset, source.size)

