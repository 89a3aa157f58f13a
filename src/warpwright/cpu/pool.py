"""The host threads that work on launches, their arenas (stacks, shared and local memory), and the watch on the time limit."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
import weakref
from dataclasses import replace

from warpwright.cpu import runtime
from warpwright.cpu.memory import DeviceBuffer
from warpwright.cpu.parts import Part

# How often an idle thread looks for work before it sleeps. Long enough to bridge the gap between two launches of a training step, short
# enough not to take the core from torch's own threads, which alternate with ours.
SPINS = 400

_live_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


class Arena:
    """One host thread's memory: frames, CTA states, shared memory, local memory and stacks, behind a `%worker` struct (runtime.ll)."""

    def __init__(self):
        self._map: mmap.mmap | None = None
        self._last: tuple[int, ...] = ()
        self._fit: tuple[int, ...] = (-1,) * 5
        self.worker = (ctypes.c_uint64 * (runtime.WORKER_BYTES // 8))()
        self.address = ctypes.addressof(self.worker)
        self.frames = 0

    def fit(self, ctas: int, warps: int, shared: int, local: int, stack: int, fibers: int) -> None:
        """Make room for `ctas` resident CTAs of `warps` warps on `fibers` fibers; `shared` bytes a CTA, `local` a warp, `stack` a fiber.

        Parts are offset by odd multiples of a cache line so that equal offsets in two fibers do not fall into one cache set.
        """
        key = ctas, warps, shared, local, stack, fibers
        if key == self._last:
            return
        self._last = key
        asked: tuple[int, ...] = (ctas * warps, ctas, ctas * (-(-shared // 256) * 256 + 256), fibers * local, fibers * stack)
        if all(new <= old for new, old in zip(asked, self._fit, strict=True)):
            return
        asked = tuple(max(new, old) for new, old in zip(asked, self._fit, strict=True))
        sizes = (asked[0] * runtime.FRAME_BYTES, asked[1] * runtime.CTA_BYTES, *asked[2:])
        starts, end = [], 0
        for size in sizes:
            starts.append(end)
            end += -(-size // 4096) * 4096 + 4096
        memory = mmap.mmap(-1, end)  # untouched pages cost nothing
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._map, self._fit = memory, asked
        self.frames = base + starts[0]
        for slot, start in zip((3, 4, 5, 6, 7), starts, strict=True):
            self.worker[slot] = base + start


class Pool:
    """`threads` host threads, this one included. `run` works one launch; one launch at a time."""

    def __init__(self, threads: int):
        if not 1 <= threads <= 64:
            raise ValueError(f"{threads} host threads were asked for; 1 to 64 are possible")
        self.threads = threads
        self.code = runtime.pool_code()
        self.lock = threading.Lock()
        self._reset()
        _live_pools.add(self)

    def _reset(self) -> None:
        self.arenas = [Arena() for _ in range(self.threads)]
        self._struct = (ctypes.c_uint64 * (4 + 64 + 1))()
        self._address = ctypes.addressof(self._struct)
        ctypes.c_uint32.from_address(self._address + 24).value = self.threads
        for index, arena in enumerate(self.arenas):
            self._struct[4 + index] = arena.address
        self._started = False
        self._deadline: tuple[float, int] | None = None
        self._watching: threading.Thread | None = None

    def _start(self) -> None:
        self._started = True
        for index in range(1, self.threads):
            threading.Thread(target=self.code.serve, args=(self._address, index, 0, SPINS), name=f"warpwright-{index}", daemon=True).start()

    def run(self, code: runtime.Code, launch: int, stop: int, several: bool, time_limit: float) -> None:
        """Run a launch (addresses of the code's `run`, the launch struct and its stop flag). The caller holds `lock`."""
        if several and not self._started:
            self._start()
        self._deadline = (time.monotonic() + time_limit, stop)
        if self._watching is None:
            self._watching = threading.Thread(target=_watch, args=(weakref.ref(self),), name="warpwright-watch", daemon=True)
            self._watching.start()
        try:
            self.code.launch(self._address, code.address, launch, 1 if several else 0, SPINS)
        finally:
            self._deadline = None

    def __del__(self):
        if getattr(self, "_started", False):
            self.code.close(self._address)
            _closed.append(self._struct)  # a thread on its way out still reads it


class Place:
    """Where launches run one after another: SMs of a device, and the host threads that stand for them.

    part: the device's, with as many SMs as there are here. first_sm: the number of the first. sms: how many the device has. pool: None on the
    interpreter.
    """

    def __init__(self, part: Part, first_sm: int, sms: int, pool: Pool | None):
        self.part, self.first_sm, self.sms, self.pool = replace(part, sms=sms), first_sm, part.sms, pool
        self._workspace: DeviceBuffer | None = None

    def workspace(self) -> DeviceBuffer:
        """Zeroed memory for a cooperative launch's own barriers; kernels find it in %envreg1 and %envreg2."""
        if self._workspace is None:
            self._workspace = DeviceBuffer(4096, "the cooperative launch's workspace")
        self._workspace.numpy()[:] = 0
        return self._workspace


_closed: list = []


def _watch(pool_reference) -> None:
    """Set the stop flag of a launch that outlives its time limit. Kernels read the flag at the back edges of their loops."""
    while True:
        time.sleep(0.02)
        pool = pool_reference()
        if pool is None:
            return
        deadline = pool._deadline
        if deadline is not None and time.monotonic() > deadline[0]:
            ctypes.c_int32.from_address(deadline[1]).value = 1
        del pool


def _after_fork() -> None:
    for pool in list(_live_pools):  # the child has none of the parent's threads
        pool.lock = threading.Lock()
        pool._reset()


os.register_at_fork(after_in_child=_after_fork)


def host_threads() -> int:
    """How many cores this process may use."""
    return max(1, min(64, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))
