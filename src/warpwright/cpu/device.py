"""`Device("cpu")`: a GPU that is this computer's processor, and `Device("interpreter")`: the same, run word for word by the oracle."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import NamedTuple

from warpwright import ptx
from warpwright.cpu.launch import FastBackend, Kernel, Module
from warpwright.cpu.memory import DeviceBuffer, Extent
from warpwright.cpu.parts import PARTS
from warpwright.cpu.pool import host_threads
from warpwright.errors import LaunchError, PtxError
from warpwright.ptx import tree


class LegalMemory(NamedTuple):
    """ranges: (start, size in bytes, name) of what a launch may touch. symbols: the address of each of its module's variables."""

    ranges: list[tuple[int, int, str]]
    symbols: dict[str, int]

    def merged(self) -> list[int]:
        """Start and end addresses of the ranges in order, those that touch joined: start, end, start, end …"""
        bounds: list[int] = []
        for start, size, _ in sorted(self.ranges):
            if bounds and start <= bounds[-1]:
                bounds[-1] = max(bounds[-1], start + size)
            elif size:
                bounds += (start, start + size)
        return bounds


class Device:
    """A GPU.

    kind: "cpu" (compiled to native code) or "interpreter" (the slow reference). like: the part whose limits it has (see
    `warpwright.cpu.parts`). threads: host threads that run CTAs; by default one a core. late: asynchronous copies and wgmma complete as
    late as the kernel's waits allow, so that a missing wait shows. exact_mma: FP8 matrix products keep what Hopper's tensor cores keep.
    """

    def __init__(self, kind: str = "cpu", like: str = "h800", threads: int | None = None, *, late: bool = False, exact_mma: bool = False):
        if like not in PARTS:
            raise LaunchError(f"there is no part '{like}'; there are: {', '.join(PARTS)}")
        self.kind, self.part, self.late, self.exact_mma = kind, PARTS[like], late, exact_mma
        self.statistics: dict[str, tuple[int, float]] = {}
        self._buffers: weakref.WeakSet[DeviceBuffer] = weakref.WeakSet()
        self.backend: FastBackend | InterpreterBackend
        if kind == "cpu":
            self.backend = FastBackend(self, threads or host_threads())
        elif kind == "interpreter":
            self.backend = InterpreterBackend(self)
        else:
            raise LaunchError(f"there is no device '{kind}'; there are: cpu, interpreter")

    def __repr__(self) -> str:
        return f"Device({self.kind!r}, like={self.part.name!r})"

    def load(self, source: str | Path | tree.Module) -> Module:
        """Load PTX: its text, a path to a file of it, or a parsed module. Raises PtxError where it is malformed or illegal."""
        if isinstance(source, Path):
            module = ptx.parse(source.read_text(), file=str(source))
        elif isinstance(source, str):
            module = ptx.parse(source)
        else:
            module = source
        ptx.verify(module)
        return Module(self, module)

    def alloc(self, nbytes: int, name: str = "buffer") -> DeviceBuffer:
        """Memory of `nbytes` bytes, 256-byte aligned, not initialised; legal in every later launch until it is freed."""
        buffer = DeviceBuffer(nbytes, name)
        self._buffers.add(buffer)
        return buffer

    def count(self, kernel: str, seconds: float) -> None:
        launches, spent = self.statistics.get(kernel, (0, 0.0))
        self.statistics[kernel] = launches + 1, spent + seconds

    def reset_statistics(self) -> None:
        """Forget `statistics`: kernel → (launches, seconds)."""
        self.statistics.clear()

    def legal_memory(self, module: Module, extents: list[Extent | None]) -> LegalMemory:
        """What a launch may touch, given where its pointer arguments lie."""
        ranges = [(extent.start, extent.end - extent.start, f"argument {i}") for i, extent in enumerate(extents) if extent is not None]
        ranges += [(buffer.address, buffer.nbytes, f"variable {name}") for name, buffer in module.variables.items()]
        ranges += [(buffer.address, buffer.nbytes, buffer.name) for buffer in self._buffers if not buffer.freed]
        return LegalMemory(ranges, {name: buffer.address for name, buffer in module.variables.items()})


class InterpreterBackend:
    """Runs kernels through the reference interpreter."""

    def __init__(self, device: Device):
        self.device = device

    def prepare(self, kernel: Kernel, block) -> None:
        """Nothing to do: the interpreter reads the tree."""

    def run(self, kernel: Kernel, grid, block, values: bytes, extents, shared_bytes: int, time_limit: float) -> None:
        from warpwright.cpu import interpreter

        try:
            interpreter.run(kernel.module.tree, kernel.name, grid, block, values, shared_bytes,
                            self.device.legal_memory(kernel.module, extents), time_limit,
                            late=self.device.late, exact_mma=self.device.exact_mma)
        except PtxError as error:
            raise LaunchError(f"kernel {kernel.name} cannot run on the interpreter: {error}") from error
