"""Modules and kernels of the virtual GPU: compile on first use, check a launch, pack its arguments, run it, report what went wrong."""

from __future__ import annotations

import ctypes
import math
import numbers
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from warpwright.cpu import faults, functions, memory, printing, runtime
from warpwright.cpu.analysis import variables
from warpwright.cpu.shape import Dimensions, Shape, Stated, check_block, check_cluster, check_grid, resident_ctas, three
from warpwright.cpu.tensor_map import BYTES, REASONS, TensorMap
from warpwright.errors import KernelError, LaunchError, PtxError
from warpwright.ptx import tree
from warpwright.ptx.isa import TYPE_BITS

if TYPE_CHECKING:
    from warpwright.cpu.device import Device
    from warpwright.cpu.parts import Part
    from warpwright.cpu.pool import Place
    from warpwright.cpu.stream import Event, Stream

_SCALARS = {  # type → (struct letter, smallest, largest); the bit types take either sign
    "u8": ("B", 0, 2**8 - 1), "s8": ("b", -(2**7), 2**7 - 1), "b8": ("B", -(2**7), 2**8 - 1),
    "u16": ("H", 0, 2**16 - 1), "s16": ("h", -(2**15), 2**15 - 1), "b16": ("H", -(2**15), 2**16 - 1),
    "u32": ("I", 0, 2**32 - 1), "s32": ("i", -(2**31), 2**31 - 1), "b32": ("I", -(2**31), 2**32 - 1),
    "u64": ("Q", 0, 2**64 - 1), "s64": ("q", -(2**63), 2**63 - 1), "b64": ("Q", -(2**63), 2**64 - 1),
    "f16": ("e", 0, 0), "f32": ("f", 0, 0), "f64": ("d", 0, 0),
}


class Parameter:
    """One `.param` of a kernel: its name, type, offset and size in the parameter block, and how a Python value is passed for it.

    `letter` is how `struct` packs it. `pass_` turns a value into what `struct` takes, and the Extent of its allocation if it is an array.
    """

    def __init__(self, variable: tree.Variable, end: int):
        self.name, self.type = variable.name, variable.type
        self.size, align = variables.layout_size(variable), variables.layout_align(variable)
        self.offset = -(-end // align) * align
        self.array = bool(variable.dimensions) or variable.vector is not None or variable.type not in _SCALARS
        self.pointer = not self.array and TYPE_BITS[variable.type] == 64 and variable.type != "f64"
        self.letter, self.low, self.high = (f"{self.size}s", 0, 0) if self.array else _SCALARS[variable.type]

    def describe(self) -> str:
        return f".{self.type} {self.name}" + (f" ({self.size} bytes)" if self.array else "")

    def pass_(self, value) -> tuple[int | float | bytes, memory.Extent | None]:
        """Raises LaunchError where the value does not fit."""
        if isinstance(value, TensorMap):
            return self._map(value), value.extent
        if self.pointer:
            extent = memory.locate(value)
            if extent is not None:
                return extent.address, extent
            if value is None:
                return 0, None
        elif self.array:
            return self._bytes(value), None
        elif self.letter in "efd":
            return self._float(value), None
        if type(value) is not int:
            if not isinstance(value, numbers.Integral):
                raise self._refused(value, "an array or a whole number" if self.pointer else "a whole number")
            value = int(value)
        if not self.low <= value <= self.high:
            raise LaunchError(f"{value} does not fit .{self.type} ({self.low} to {self.high})")
        return (value & self.high if value < 0 and self.letter.isupper() else value), None

    def _map(self, value: TensorMap) -> int | bytes:
        if self.pointer:
            return value.address
        if self.array and self.size == BYTES:
            return bytes(value)
        raise self._refused(value, f"no tensor map; a map's bytes go to an array of {BYTES}, its address to a pointer")

    def _float(self, value) -> float:
        if type(value) is not float:
            if not isinstance(value, numbers.Real):
                raise self._refused(value, "a number")
            value = float(value)
        if self.letter != "d":
            try:
                struct.pack(self.letter, value)
            except OverflowError:  # as a conversion on the GPU would
                return math.copysign(math.inf, value)
        return value

    def _bytes(self, value) -> bytes:
        try:
            data = bytes(value) if isinstance(value, ctypes.Structure) else bytes(memoryview(value).cast("B"))
        except TypeError:
            raise self._refused(value, "bytes, an array or a ctypes structure") from None
        if len(data) != self.size:
            raise LaunchError(f"{len(data)} bytes were given; it takes {self.size}")
        return data

    def _refused(self, value, wanted: str) -> LaunchError:
        return LaunchError(f"{type(value).__name__} was given; .{self.type} takes {wanted}")


def parameters_of(function: tree.Function) -> tuple[list[Parameter], struct.Struct]:
    """A kernel's parameters at the offsets that the ABI gives them, and how they are packed into its parameter block."""
    parameters: list[Parameter] = []
    end, layout = 0, "<"
    for variable in function.parameters:
        parameter = Parameter(variable, end)
        layout += "x" * (parameter.offset - end) + parameter.letter
        end = parameter.offset + parameter.size
        parameters.append(parameter)
    return parameters, struct.Struct(layout)


def head_of(module: tree.Module) -> tree.Module:
    """A module without what is in its functions' bodies: enough to place its variables and launch its kernels once they are compiled."""
    return replace(module, items=tuple(replace(item, body=()) if isinstance(item, tree.Function) and item.body is not None else item
                                       for item in module.items))


class Module:
    """A loaded PTX module: `module["name"]` is a kernel, `module.variables` its `.global` and `.const` memory by name.

    head: the module, with or without its functions' bodies (see `head_of`). text: its source, which names it in the object cache. whole:
    gives the module with the bodies.
    """

    def __init__(self, device: Device, head: tree.Module, text: str, whole: Callable[[], tree.Module]):
        self.device, self.head, self.text = device, head, text
        self._whole = whole
        self._tree: tree.Module | None = None
        self.variables = self._place_variables()
        self._kernels: dict[str, Kernel] = {}

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._kernels:
            functions = self.head.kernels
            if name not in functions:
                raise LaunchError(f"the module has no kernel '{name}'; it has: {', '.join(functions) or 'none'}")
            self._kernels[name] = Kernel(self, functions[name])
        return self._kernels[name]

    @property
    def kernels(self) -> list[str]:
        """The names of the kernels."""
        return list(self.head.kernels)

    @property
    def tree(self) -> tree.Module:
        """The module as a tree, parsed when it is first asked for."""
        if self._tree is None:
            self._tree = self._whole()
        return self._tree

    def _place_variables(self) -> dict[str, memory.DeviceBuffer]:
        """Memory for the module's `.global` and `.const` variables, initialised."""
        space = variables.Space(self.head)
        for item in self.head.items:
            if isinstance(item, tree.Variable) and item.space in ("global", "const") and item.linkage != "extern":
                space.module_variable(item.name)
        initial, known = space.initial_globals(), functions.addresses(self.head)
        buffers = {name: memory.DeviceBuffer(size, f"variable {name}") for name, (size, _, _, _) in initial.items()}
        for name, (_, _, data, relocations) in initial.items():
            contents = buffers[name].numpy()
            contents[:] = 0
            contents[:len(data)] = np.frombuffer(bytes(data), np.uint8)
            for offset, target, addend in relocations:
                if target not in buffers and target not in known:
                    raise PtxError(f"variable '{name}' is initialised with the address of '{target}', which the engine does not place")
                address = (buffers[target].address if target in buffers else known[target]) + addend
                contents[offset:offset + 8] = np.frombuffer(struct.pack("<Q", address), np.uint8)[:len(contents) - offset]
        return buffers


class Kernel:
    """A kernel of a loaded module, ready to launch. `parameters` describes its arguments, `stated` what its directives ask of launches."""

    def __init__(self, module: Module, function: tree.Function):
        self.module, self.function, self.name = module, function, function.name
        self.parameters, self.layout = parameters_of(function)
        self.stated = Stated(function)
        self._legal_blocks: set[tuple[int, int, int]] = set()
        self._compiled: dict[tuple[int, int, int], _Compiled] = {}

    def launch(self, grid: Dimensions, block: Dimensions, args: Sequence, shared_bytes: int = 0, time_limit: float = 60.0, *,
               cluster: Dimensions | None = None, non_portable: bool = False, cooperative: bool = False, stream: Stream | None = None
               ) -> Event | None:
        """Run the kernel and wait for its end; on a stream, put it there and return the event of its end.

        grid, block: CTAs and threads, one to three whole numbers each. args: numpy arrays, torch CPU tensors or device buffers for
        pointers, numbers for scalars (which take the type that the `.param` declares), None for a null pointer. shared_bytes: dynamic
        shared memory a CTA. time_limit: seconds. cluster: CTAs a cluster, where the kernel does not state it; it divides the grid.
        non_portable: allow clusters of more CTAs than every part of the architecture takes. cooperative: all CTAs must be resident at once.

        Raises LaunchError (nothing ran), MemoryFault, KernelTrap or KernelTimeout (it stopped half-way; the device stays usable). On a stream
        what is wrong with the launch is raised at once, what goes wrong as it runs by the event.
        """
        device = self.module.device
        if stream is not None and stream.device is not device:
            raise LaunchError(f"kernel {self.name}: the stream is of another device; load the module on that one")
        place = device.place if stream is None else stream.place
        shape = self._shape(three(grid, "grid"), three(block, "block"), len(args), shared_bytes, cluster, non_portable, cooperative)
        values: list[int | float | bytes] = []
        extents: list[memory.Extent | None] = []
        for parameter, argument in zip(self.parameters, args, strict=True):
            try:
                value, extent = parameter.pass_(argument)
            except LaunchError as error:
                raise LaunchError(f"kernel {self.name}, argument {len(values)} ({parameter.describe()}): {error}") from None
            values.append(value)
            extents.append(memory.UNCHECKED if device.unchecked and parameter.pointer else extent)
        extents += [memory.Extent(m.address, m.address, m.address + BYTES, "a tensor map") for m in args if isinstance(m, TensorMap)]
        device.backend.prepare(self, shape.block)  # compiling is not the kernel's time
        if cooperative:
            self._check_cooperative(shape, place.part)
        with device.lock:
            device.launches += 1
            number = device.launches
        packed = self.layout.pack(*values)

        def work() -> None:
            started = time.perf_counter()
            device.backend.run(self, shape, packed, extents, time_limit, place, number)
            device.count(self.name, time.perf_counter() - started)

        if stream is None:
            work()
            return None
        return stream.put(work, self.name, [argument._storage if isinstance(argument, memory.DeviceBuffer) else argument for argument in args])

    def resident_ctas(self, block: Dimensions, shared_bytes: int = 0, cluster: Dimensions | None = None, non_portable: bool = False) -> int:
        """How many CTAs the device holds at once, by its SMs and what an SM has of threads, shared memory and registers.

        Registers are those that `.maxnreg` or `.minnctapersm` state, else an estimate. A launch with `cooperative=True` takes at most so many.
        """
        return self.resident_on(self.module.device.part, block, shared_bytes, cluster, non_portable)

    def resident_on(self, part: Part, block: Dimensions, shared_bytes: int, cluster: Dimensions | None, non_portable: bool) -> int:
        """`resident_ctas` on a part, or on a partition of it."""
        block3 = three(block, "block")
        check_block(self.name, self.stated, part, block3)
        self._check_shared(shared_bytes)
        cluster3, _ = check_cluster(self.name, self.stated, part, cluster, non_portable)
        shared = self.needs[0] + shared_bytes
        if shared > part.shared_per_cta:
            return 0
        return resident_ctas(part, self.stated, math.prod(block3), shared, self.needs[1], math.prod(cluster3))

    @cached_property
    def needs(self) -> tuple[int, int]:
        """(static shared memory a CTA in bytes, registers a thread by estimate)."""
        for compiled in self._compiled.values():
            return compiled.shared, compiled.registers
        from warpwright.cpu.analysis.flow import Flow
        from warpwright.cpu.analysis.pressure import registers
        from warpwright.cpu.analysis.program import flatten

        try:
            program = flatten(self.module.tree, self.name)
        except PtxError as error:
            raise LaunchError(f"how many CTAs of kernel {self.name} are resident cannot be told: {error}") from error
        return (program.space.dynamic_offset if program.space.dynamic else program.space.shared_bytes), registers(Flow(program))

    def _shape(self, grid, block, arguments: int, shared_bytes: int, asked, non_portable: bool, cooperative: bool) -> Shape:
        part, name = self.module.device.part, self.name
        if arguments != len(self.parameters):
            wanted = ", ".join(parameter.describe() for parameter in self.parameters)
            raise LaunchError(f"kernel {name} takes {len(self.parameters)} arguments ({wanted}); {arguments} were given")
        if block not in self._legal_blocks:
            check_block(name, self.stated, part, block)
            self._legal_blocks.add(block)
        cluster, named = check_cluster(name, self.stated, part, asked, non_portable)
        grid = check_grid(name, self.stated, part, grid, cluster)
        self._check_shared(shared_bytes)
        return Shape(grid, block, cluster, named, shared_bytes, cooperative)

    def _check_shared(self, shared_bytes: int) -> None:
        part = self.module.device.part
        if not 0 <= shared_bytes <= part.shared_per_cta:
            raise LaunchError(f"kernel {self.name}: shared_bytes={shared_bytes}; {part.name} has {part.shared_per_cta} a CTA")

    def _check_cooperative(self, shape: Shape, part: Part) -> None:
        most = self.resident_on(part, shape.block, shape.shared_bytes, shape.cluster if shape.named else None, non_portable=True)
        if shape.ctas > most:
            here = "" if part.sms == self.module.device.part.sms else f" on {part.sms} SMs"
            raise LaunchError(f"kernel {self.name}: a cooperative launch of {shape.ctas} CTAs of {shape.threads} threads; {part.name}{here} holds "
                              f"{most} of them at once (kernel.resident_ctas tells)")


class _Compiled:
    """A kernel compiled for one block shape, and the memory of its launches (several may run at once, on several streams)."""

    def __init__(self, kernel: Kernel, block: tuple[int, int, int]):
        device = kernel.module.device
        modes = {"late": device.late, "exact_mma": device.exact_mma}
        key = runtime.cache_key(kernel.module.text, kernel.name, repr(block), repr(modes))
        cached = runtime.load_cached(key)
        if cached is None:
            from warpwright.cpu import codegen

            generated = codegen.compile_kernel(kernel.module.tree, kernel.name, block, codegen.Options(late=device.late, exact_mma=device.exact_mma))
            facts: dict = {
                "sites": [(site.line, site.column, str(site.text)) for site in generated.sites],
                "fibers": generated.uses_barrier, "spins": generated.spins,
                "shared": generated.shared_bytes, "local": generated.local_bytes, "stack": getattr(generated, "stack_bytes", 0),
                "registers": generated.registers, "globals": list(generated.globals), "libraries": generated.libraries,
            }
            cached = runtime.compile_ir(runtime.runtime_ir(bool(facts["fibers"])) + generated.ir), facts
            runtime.store_cached(key, *cached)
        self.code, facts = runtime.Code(cached[0]), cached[1]
        self.sites = facts["sites"]
        self.fibers, self.spins = facts["fibers"], facts["spins"]
        self.shared, self.local, self.registers = facts["shared"], facts["local"], facts["registers"]
        self.stack = -(-max(facts["stack"], 256 * 1024) // 4096) * 4096 + 4096 + 7 * 128
        self.printed = printing.Buffer() if "print" in facts["libraries"] else None
        if self.printed is not None:
            self.code.variable("rt_print_buffer").value = self.printed.address
        if "heap" in facts["libraries"]:
            self.code.variable("rt_heap").value = device.heap.buffer.address
        addresses = [kernel.module.variables[name].address for name in facts["globals"]]
        self.global_table = (ctypes.c_uint64 * max(1, len(addresses)))(*addresses)
        self.kernel = kernel
        self.lock = threading.Lock()
        self._free: list[_Running] = []
        self._running = 0

    def start(self) -> _Running:
        """Memory for one more launch."""
        with self.lock:
            self._running += 1
            return self._free.pop() if self._free else _Running(self)

    def end(self, running: _Running, text_at: Callable[[int], str]) -> str:
        """Take a launch's memory back; what was printed, if no other launch of this kernel may still be printing."""
        with self.lock:
            self._free.append(running)
            self._running -= 1
            return self.printed.take(text_at) if self.printed is not None and not self._running else ""


class _Running:
    """What one launch needs of its own: its struct (`%launch` in runtime.ll), its parameter block, the record of its fault."""

    STRUCT = struct.Struct("<8i QqQQQqqq iiii qq ii Q 6i q Q qq ii")

    def __init__(self, compiled: _Compiled):
        kernel = compiled.kernel
        self.record = (ctypes.c_uint8 * runtime.FRAME_BYTES)()
        self.struct = ctypes.create_string_buffer(self.STRUCT.size)
        self._values = ctypes.create_string_buffer(kernel.layout.size + 256)
        self.values = -(-ctypes.addressof(self._values) // 128) * 128  # the parameter block, aligned for tensor maps
        self.parameter_ranges = (ctypes.c_uint64 * max(1, 2 * len(kernel.parameters)))()
        self.address = ctypes.addressof(self.struct)
        self.tables = ctypes.addressof(compiled.global_table), ctypes.addressof(self.parameter_ranges), self.values
        self.record_address = ctypes.addressof(self.record)


_compiling = threading.Lock()  # of the whole process: LLVM's


class FastBackend:
    """Runs kernels as compiled code on host threads."""

    def __init__(self, device: Device):
        self.device = device

    def prepare(self, kernel: Kernel, block) -> None:
        """Compile a kernel for a block shape, or load its code from the cache, if that has not been done."""
        if block not in kernel._compiled:
            with _compiling:
                try:
                    if block not in kernel._compiled:
                        kernel._compiled[block] = _Compiled(kernel, block)
                except PtxError as error:
                    raise LaunchError(f"kernel {kernel.name} cannot run on the virtual GPU: {error}") from error

    def run(self, kernel: Kernel, shape: Shape, values: bytes, extents, time_limit: float, place: Place, number: int) -> None:
        """Run a launch of a kernel that has been prepared for its block."""
        assert place.pool is not None
        compiled, text = kernel._compiled[shape.block], ""
        try:
            with place.pool.lock:
                running = compiled.start()
                try:
                    self._run(kernel, shape, values, extents, time_limit, place, number, running)
                finally:
                    text = compiled.end(running, self._reader(kernel, extents) if compiled.printed is not None else str)
        finally:
            if text:
                self.device.printf(text)

    def _reader(self, kernel: Kernel, extents) -> Callable[[int], str]:
        """A function address → the zero-terminated string there, of memory that a launch may touch."""
        ranges = self.device.legal_memory(kernel.module, extents).ranges

        def read(address: int) -> str:
            end = next((start + size for start, size, _ in ranges if start <= address < start + size), address)
            return ctypes.string_at(address, end - address).split(b"\0")[0].decode("utf-8", "replace")

        return read

    def _run(self, kernel: Kernel, shape: Shape, values: bytes, extents, time_limit: float, place: Place, number: int, running: _Running) -> None:
        compiled = kernel._compiled[shape.block]
        part, pool = place.part, place.pool
        assert pool is not None
        shared = compiled.shared + shape.shared_bytes
        if shared > part.shared_per_cta:
            raise LaunchError(f"kernel {kernel.name} needs {compiled.shared} static and {shape.shared_bytes} dynamic bytes of shared memory; "
                              f"{part.name} has {part.shared_per_cta} a CTA")
        ctas, ranks, warps = shape.ctas, shape.ranks, shape.warps
        several = pool.threads > 1 and ctas > ranks
        workers = pool.threads if several else 1
        # CTAs that spin on each other must be resident together, as far as the part itself holds them.
        resident, slots = ranks, workers * ranks
        if compiled.spins:
            slots = resident_ctas(part, kernel.stated, shape.threads, shared, compiled.registers, ranks)
            resident = -(-min(ctas, slots) // ranks // workers) * ranks
        fibers = resident * warps if compiled.fibers else 1
        for arena in pool.arenas[:workers]:
            arena.fit(resident, warps, shared, 32 * compiled.local, compiled.stack, fibers)
        legal = self.device.legal_memory(kernel.module, extents)
        workspace = 0
        if shape.cooperative:
            buffer = place.workspace()
            workspace = buffer.address
            legal.ranges.append((buffer.address, buffer.nbytes, buffer.name))
        if kernel.layout.size:  # cvta.param gives generic addresses of it
            legal.ranges.append((running.values, kernel.layout.size, "kernel parameters"))
        bounds = legal.merged()
        ranges = (ctypes.c_uint64 * max(2, len(bounds)))(*bounds)
        if kernel.parameters:
            running.parameter_ranges[:] = [number for extent in extents[:len(kernel.parameters)]
                                            for number in ((extent.start, extent.end - extent.start) if extent is not None else (0, 0))]
        ctypes.memmove(running.values, values, len(values))
        running.STRUCT.pack_into(
            running.struct, 0, *shape.grid, *shape.block, 0, shape.shared_bytes, ctypes.addressof(ranges), len(bounds) // 2, *running.tables,
            shared, 32 * compiled.local, compiled.stack, warps, resident, max(1, min(256, ctas // (4 * workers))), place.sms, ctas, 0, 0,
            compiled.local, running.record_address, *shape.cluster, ranks, shape.named, part.threads_per_sm // part.warp,
            number, workspace, 0, slots, place.first_sm, part.sms)
        pool.run(compiled.code, running.address, running.address + 24, several, time_limit)
        stopped, = struct.unpack_from("<i", running.struct, 24)
        if stopped:
            crowd = faults.too_many(ctas, slots) if compiled.spins and ctas > slots else ""
            raise self._error(kernel, compiled, running, shape, legal.ranges, time_limit, self._reader(kernel, extents), crowd)

    def _error(self, kernel, compiled, running, shape, ranges, time_limit, text_at, crowd) -> KernelError | LaunchError:
        """The exception for the fault that a launch recorded (layout of `%frame` in runtime.ll)."""
        taken, = struct.unpack_from("<i", running.struct, 128)
        if not taken:  # the time ran out between two CTAs
            return faults.error_of(faults.TIMEOUT, kernel=kernel.name, time_limit=time_limit, reason=crowd)
        block = shape.block
        cx, cy, cz, warp, _lanes, _sm, address, site, lane, kind, size = struct.unpack_from("<6iQiiii", running.record, 56)
        line, _column, text = compiled.sites[site] if 0 <= site < len(compiled.sites) else (None, None, "")
        linear = warp * 32 + lane
        cta, thread = (cx, cy, cz), (linear % block[0], linear // block[0] % block[1], linear // (block[0] * block[1]))
        if kind in (faults.MEMORY, faults.MISALIGNED, faults.SHARED, faults.LOCAL):
            owners = [(start, start + size, name) for start, size, name in ranges]
            space = {faults.SHARED: "shared", faults.LOCAL: "local"}.get(kind)
            return faults.memory_fault(kernel.name, text, line, address, size, cta, thread, owners,
                                       misaligned=kind == faults.MISALIGNED, space=space)
        if kind == faults.CLUSTER:
            return faults.cluster_fault(kernel.name, text, line, address, size, cta, thread, shape.ranks, compiled.shared + shape.shared_bytes)
        waiting = _waiting(compiled, running) if kind == faults.DEADLOCK else ()
        reason = crowd if kind == faults.TIMEOUT else ""
        if kind == faults.ASSERT:
            message, file, function, at = struct.unpack_from("<QQQI", running.record, 160)
            reason = f"{text_at(message)} ({text_at(file)}:{at}, {text_at(function)})"
        if kind == faults.TENSOR_MAP:
            reason = REASONS[size]
        return faults.error_of(kind, kernel=kernel.name, instruction=text, line=line, cta=cta, thread=thread, time_limit=time_limit,
                               reason=reason, waiting=waiting)


def _waiting(compiled: _Compiled, running: _Running) -> list[faults.Waiting]:
    """Who waits, on the worker whose frame the record is: read from the frames as the fault left them (runtime.ll has their layout)."""
    worker, = struct.unpack_from("<Q", running.record, 48)
    fibers, = struct.unpack("<i", ctypes.string_at(worker + 12, 4))
    frames, = struct.unpack("<Q", ctypes.string_at(worker + 24, 8))
    found = []
    for number in range(fibers):
        frame = ctypes.string_at(frames + number * runtime.FRAME_BYTES, runtime.FRAME_BYTES)
        shared, cta_state = struct.unpack_from("<Q", frame, 8)[0], struct.unpack_from("<Q", frame, 40)[0]
        x, y, z, warp = struct.unpack_from("<4i", frame, 56)
        site, waits, done = struct.unpack_from("<i", frame, 88)[0], *struct.unpack_from("<i4xi", frame, 112)
        if done or not waits:
            continue
        if waits == 17:
            at, = struct.unpack_from("<Q", frame, 128)
            awaits = faults.describe_mbarrier(at - shared, struct.unpack("<Q", ctypes.string_at(at, 8))[0])
        elif waits == 18:
            leader, = struct.unpack("<Q", ctypes.string_at(cta_state + 344, 8))
            awaits = faults.describe_cluster_barrier(*struct.unpack("<2i", ctypes.string_at(leader + 360, 8)))
        else:
            alive, = struct.unpack("<i", ctypes.string_at(cta_state, 4))
            arrived, expected = struct.unpack("<2i", ctypes.string_at(cta_state + 16 + 20 * (waits - 1), 8))
            awaits = faults.describe_barrier(waits - 1, arrived, expected or 32 * alive)
        line, _, text = compiled.sites[site] if 0 <= site < len(compiled.sites) else (None, None, "")
        found.append(faults.Waiting((x, y, z), warp, line, text, awaits))
    return found
