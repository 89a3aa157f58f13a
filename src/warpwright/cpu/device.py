"""`Device("cpu")`: a GPU that is this computer's processor, and `Device("interpreter")`: the same, run word for word by the oracle."""

from __future__ import annotations

import pickle
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from warpwright import ptx
from warpwright.cpu import runtime
from warpwright.cpu.launch import FastBackend, Kernel, Module, head_of
from warpwright.cpu.memory import UNCHECKED, DeviceBuffer, Extent, Heap, locate
from warpwright.cpu.parts import PARTS
from warpwright.cpu.pool import Place, Pool, host_threads
from warpwright.cpu.shape import Shape
from warpwright.cpu.stream import Partitions, SmPartition, Stream
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


_MACHINE_CODE = {b"\x7fELF": "a cubin", b"\x50\xed\x55\xba": "a fatbin", b"BC\xc0\xde": "LLVM bitcode", b"\xed\x43\x4e\x7f": "LTO-IR"}


def text_of(source) -> str:
    """The PTX text in what a compiler gave: see `Device.load`."""
    if isinstance(source, tuple) and len(source) == 2:
        source = source[0]
    if hasattr(source, "code") and hasattr(source, "code_type"):
        source = source.code
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
        for magic, what in _MACHINE_CODE.items():
            if data.startswith(magic):
                raise PtxError(f"this is {what}, not PTX: have the compiler stop at PTX (nvcc -ptx, Program.compile('ptx'), cuda.compile_ptx)")
        try:
            source = data.decode()
        except UnicodeDecodeError as error:
            raise PtxError(f"this is not PTX: byte {error.start} is {data[error.start]:#04x}, which is not text") from None
    if not isinstance(source, str):
        raise PtxError(f"{type(source).__name__} was given; PTX comes as text, bytes, a pathlib.Path, a parsed module or what a compiler returned")
    return source.rstrip("\0")


class Device:
    """A GPU.

    kind: "cpu" (compiled to native code) or "interpreter" (the slow reference). like: the part whose limits it has (see
    `warpwright.cpu.parts`). threads: host threads that run CTAs; by default one a core. late: asynchronous copies and wgmma complete as
    late as the kernel's waits allow, so that a missing wait shows. exact_mma: FP8 matrix products keep what Hopper's tensor cores keep
    (`interpreter.exact`). memory: "checked", or "unchecked": all of the process's memory is legal, for callers whose arguments are bare
    addresses. A stray access then ends the process, as it would in C.

    printf: a function that is given what kernels print, after each launch; by default it goes to the standard output.
    """

    HEAP_BYTES = 8 << 20  # of malloc in device code, as CUDA's default

    def __init__(self, kind: str = "cpu", like: str = "h800", threads: int | None = None, *, late: bool = False, exact_mma: bool = False,
                 memory: str = "checked"):
        if like not in PARTS:
            raise LaunchError(f"there is no part '{like}'; there are: {', '.join(PARTS)}")
        self.kind, self.part, self.late, self.exact_mma = kind, PARTS[like], late, exact_mma
        if memory not in ("checked", "unchecked"):
            raise LaunchError(f"memory={memory!r}: it is 'checked' or 'unchecked'")
        self.unchecked = memory == "unchecked"
        self.launches = 0  # so far; a launch's number is its %gridid
        self.lock = threading.Lock()  # of what streams share: statistics, the list of buffers
        self.statistics: dict[str, tuple[int, float]] = {}
        self._registered: dict[int, tuple[Extent, str]] = {}  # by id of the object, until it dies
        self._buffers: weakref.WeakSet[DeviceBuffer] = weakref.WeakSet()
        self.printf: Callable[[str], object] = _to_standard_output
        self._heap: Heap | None = None
        self.backend: FastBackend | InterpreterBackend
        self.threads = threads or host_threads()
        self.streams: set[Stream] = set()  # that are busy, or have an error to tell
        if kind == "cpu":
            self.backend = FastBackend(self)
        elif kind == "interpreter":
            self.backend = InterpreterBackend(self)
        else:
            raise LaunchError(f"there is no device '{kind}'; there are: cpu, interpreter")
        self.place = self.place_on(0, self.part.sms, self.threads)  # of launches on no stream

    def __repr__(self) -> str:
        return f"Device({self.kind!r}, like={self.part.name!r})"

    def place_on(self, first_sm: int, sms: int, threads: int) -> Place:
        """A place for launches on some of the SMs, with host threads of its own."""
        return Place(self.part, first_sm, sms, Pool(threads) if self.kind == "cpu" else None)

    def load(self, source: str | bytes | Path | tree.Module | Any) -> Module:
        """Load PTX and give its module. Raises PtxError where it is malformed or illegal.

        source: text, bytes (a NUL may end them, as NVRTC's do), a path, a parsed module, a `cuda.core.ObjectCode`, or the (PTX, return type)
        of Numba's `cuda.compile_ptx`.
        """
        if isinstance(source, tree.Module):
            ptx.verify(source)
            return Module(self, source, str(source), lambda: source)
        file = str(source) if isinstance(source, Path) else None
        text = text_of(source.read_bytes() if isinstance(source, Path) else source)
        key = runtime.cache_key("head", text, file or "")
        cached = runtime.load_cached(key)
        if cached is not None:  # seen, and judged legal, before
            return Module(self, pickle.loads(cached[0]), text, lambda: ptx.parse(text, file=file))
        module = ptx.parse(text, file=file)
        ptx.verify(module)
        runtime.store_cached(key, pickle.dumps(head_of(module)), {})
        return Module(self, module, text, lambda: module)

    def alloc(self, nbytes: int, name: str = "buffer") -> DeviceBuffer:
        """Memory of `nbytes` bytes, 256-byte aligned, not initialised; legal in every later launch until it is freed."""
        buffer = DeviceBuffer(nbytes, name)
        with self.lock:
            self._buffers.add(buffer)
        return buffer

    @property
    def heap(self) -> Heap:
        """What malloc in device code gives out; it lasts as long as the device."""
        if self._heap is None:
            self._heap = Heap(self.alloc(self.HEAP_BYTES, "the heap"))
        return self._heap

    def register(self, array, name: str = "registered memory") -> None:
        """Make the memory of a numpy array, torch tensor or buffer legal in every later launch, for as long as the object lives.

        For kernels that find addresses in memory (arrays of pointers): what is passed to a launch itself is legal there anyway.
        """
        extent = locate(array)
        if extent is None:
            raise LaunchError(f"{type(array).__name__} was given; register takes a numpy array, a torch tensor or a buffer")
        key = id(array)
        self._registered[key] = extent, name
        weakref.finalize(array, self._registered.pop, key, None)

    def stream(self, threads: int | None = None, name: str = "") -> Stream:
        """A new stream on all SMs of the device: see `warpwright.cpu.stream`."""
        return SmPartition(self, 0, self.part.sms, "device").stream(threads, name)

    def partition(self, comm: int) -> Partitions:
        """Split the SMs: the first `comm` for communication, the rest for computing. See `warpwright.cpu.stream`."""
        return Partitions.split(self, comm)

    def synchronize(self) -> None:
        """Wait until all streams of the device are idle; raises the first error that nobody has been told of."""
        for stream in list(self.streams):
            stream.synchronize()

    def count(self, kernel: str, seconds: float) -> None:
        with self.lock:
            launches, spent = self.statistics.get(kernel, (0, 0.0))
            self.statistics[kernel] = launches + 1, spent + seconds

    def reset_statistics(self) -> None:
        """Forget `statistics`: kernel → (launches, seconds)."""
        self.statistics.clear()

    def legal_memory(self, module: Module, extents: list[Extent | None]) -> LegalMemory:
        """What a launch may touch, given where its pointer arguments lie."""
        ranges = [(extent.start, extent.end - extent.start, extent.name or f"argument {i}") for i, extent in enumerate(extents)
                  if extent is not None]
        ranges += [(buffer.address, buffer.nbytes, f"variable {name}") for name, buffer in module.variables.items()]
        with self.lock:
            buffers = list(self._buffers)
        ranges += [(buffer.address, buffer.nbytes, buffer.name) for buffer in buffers if not buffer.freed]
        ranges += [(extent.start, extent.end - extent.start, name) for extent, name in list(self._registered.values())]
        if self.unchecked:
            ranges.append((UNCHECKED.start, UNCHECKED.end - UNCHECKED.start, "the process"))
        return LegalMemory(ranges, {name: buffer.address for name, buffer in module.variables.items()})


def _to_standard_output(text: str) -> None:
    print(text, end="", flush=True)


class InterpreterBackend:
    """Runs kernels through the reference interpreter."""

    def __init__(self, device: Device):
        self.device = device

    def prepare(self, kernel: Kernel, block) -> None:
        """Nothing to do: the interpreter reads the tree."""

    def run(self, kernel: Kernel, shape: Shape, values: bytes, extents, time_limit: float, place: Place, number: int) -> None:
        from warpwright.cpu import interpreter

        device = self.device
        if "malloc" in kernel.module.head.functions:
            _ = device.heap  # before it is asked what memory is legal
        legal = device.legal_memory(kernel.module, extents)
        workspace = 0
        if shape.cooperative:
            buffer = place.workspace()
            workspace = buffer.address
            legal.ranges.append((buffer.address, buffer.nbytes, buffer.name))

        def resident() -> int:
            try:
                return kernel.resident_on(place.part, shape.block, shape.shared_bytes, shape.cluster if shape.named else None, non_portable=True)
            except LaunchError:  # a kernel that only the interpreter can read
                return place.part.sms // shape.ranks * shape.ranks

        settings = interpreter.Settings(place.part, place.sms, place.first_sm, device, number, workspace, resident, late=device.late,
                                        exact_mma=device.exact_mma)
        try:
            interpreter.run(kernel.module.tree, kernel.name, shape, values, legal, time_limit, settings)
        except PtxError as error:
            raise LaunchError(f"kernel {kernel.name} cannot run on the interpreter: {error}") from error
