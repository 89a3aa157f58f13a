"""`Device("cpu")`: a GPU that is this computer's processor, and `Device("interpreter")`: the same, run word for word by the oracle."""

from __future__ import annotations

import ctypes
import weakref
from pathlib import Path

from warpwright import ptx
from warpwright.cpu.launch import FastBackend, Module
from warpwright.cpu.memory import DeviceBuffer, Extent
from warpwright.cpu.parts import PARTS
from warpwright.cpu.pool import host_threads
from warpwright.errors import LaunchError
from warpwright.ptx import tree


class Device:
    """A GPU.

    kind: "cpu" (compiled to native code) or "interpreter" (the slow reference). like: the part whose limits it has (see
    `warpwright.cpu.parts`). threads: host threads that run CTAs; by default one a core.
    """

    def __init__(self, kind: str = "cpu", like: str = "h800", threads: int | None = None):
        if like not in PARTS:
            raise LaunchError(f"there is no part '{like}'; there are: {', '.join(PARTS)}")
        self.kind, self.part = kind, PARTS[like]
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

    def legal_ranges(self, module: Module, extents: list[Extent | None]) -> tuple[int, ctypes.Array, list[tuple[int, int, str]]]:
        """What a launch may touch: (number of ranges, sorted array of start and end addresses, (start, size, name) of each for messages)."""
        owners = [(extent.start, extent.end - extent.start, f"argument {i}") for i, extent in enumerate(extents) if extent is not None]
        owners += [(buffer.address, buffer.nbytes, f"variable {name}") for name, buffer in module.variables.items()]
        owners += [(buffer.address, buffer.nbytes, buffer.name) for buffer in self._buffers if not buffer.freed]
        owners.sort()
        merged: list[int] = []
        for start, size, _ in owners:
            if merged and start <= merged[-1]:
                merged[-1] = max(merged[-1], start + size)
            elif size:
                merged += (start, start + size)
        return len(merged) // 2, (ctypes.c_uint64 * max(2, len(merged)))(*merged), owners


class InterpreterBackend:
    """Runs kernels through the reference interpreter."""

    def __init__(self, device: Device):
        self.device = device

    def run(self, kernel, grid, block, values, extents, shared_bytes, time_limit) -> None:
        raise LaunchError("not wired yet")
