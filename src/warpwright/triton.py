"""Triton on the virtual GPU: after `import warpwright.triton`, `@triton.jit` kernels launch on CPU tensors.

    import torch, triton
    import warpwright.triton                        # an H100 from here on; no driver and no GPU is looked for

    with warpwright.triton.virtual_gpu("a100"):     # or one part for a while
        kernel[grid](x, y, n, BLOCK=1024)

Triton compiles as it would for the real part, down to PTX, and the PTX runs here; nothing is assembled. Memory is checked: a kernel may
touch the tensors it is given, and what the device had registered (`device.register(tensor)`, for pointers kept in memory).
"""

from __future__ import annotations

import contextlib
import itertools
import re
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from triton.backends import Backend, backends
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase, decompose_descriptor
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import _allocation
from triton.runtime.driver import driver as triton_drivers

from warpwright.cpu.device import Device
from warpwright.cpu.launch import Kernel, Parameter
from warpwright.cpu.memory import locate
from warpwright.cpu.tensor_map import TYPES, TensorMap
from warpwright.errors import KernelError, LaunchError

__all__ = ["VirtualDriver", "activate", "deactivate", "virtual_gpu"]

_device_numbers = itertools.count(1 << 20)  # Triton keeps kernels by device number: no two virtual GPUs, and no real one, share one


# ── what Triton asks a driver for ────────────────────────────────────────────────────────────────────────────────


class _Compiler(CUDABackend):
    """Triton's compiler for NVIDIA GPUs, less its last stage: the image that is loaded is the PTX."""

    def add_stages(self, stages, options, language):
        super().add_stages(stages, options, language)
        stages[self.binary_ext] = lambda source, metadata: source.encode()

    def hash(self):
        return f"warpwright-{super().hash()}"


class VirtualDriver(DriverBase):
    """A driver whose GPU is a `Device`. `utils` answers what Triton and its tutorials ask about the GPU."""

    def __init__(self, device: Device):
        super().__init__()
        self.device, self.number = device, next(_device_numbers)
        self.utils = _Utilities(device)
        self.launcher_cls = _Launcher

    @classmethod
    def is_active(cls) -> bool:
        return False  # it is never found, only set

    def map_python_to_cpp_type(self, ty: str) -> str:
        from triton.backends.nvidia.driver import ty_to_cpp

        return ty_to_cpp(ty)

    def get_current_target(self) -> GPUTarget:
        major, minor = self.device.part.capability
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_current_device(self) -> int:
        return self.number

    def set_current_device(self, device) -> None:
        if device != self.number:
            raise LaunchError(f"there is no device {device}; the virtual GPU is device {self.number}")

    def get_current_stream(self, device=None) -> int:
        return 0

    def get_device_capability(self, device=None) -> tuple[int, int]:
        return self.device.part.capability

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self):
        return _DeviceInterface

    def get_benchmarker(self) -> Callable:
        return benchmark

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1, dtype=torch.int32)  # a processor's cache is not flushed by what a GPU's is

    def clear_cache(self, cache) -> None:
        cache.zero_()

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.int8)


class _Utilities:
    """`driver.active.utils`."""

    def __init__(self, device: Device):
        self.device = device

    def load_binary(self, name: str, image: bytes, shared: int, device: int) -> tuple:
        """(module, function, registers, spills, most threads a CTA). Registers are as many as the part gives a full SM: nothing is assembled."""
        kernel = _Function(self.device.load(image)[name], image)
        part = self.device.part
        return kernel.kernel.module, kernel, part.registers_per_sm // part.threads_per_sm, 0, part.threads_per_cta

    def unload_module(self, module) -> None:
        """Nothing to do: Python frees it."""

    def get_device_properties(self, device=None) -> dict[str, int]:
        part = self.device.part
        return {"max_shared_mem": part.shared_per_cta, "max_num_regs": part.registers_per_sm, "multiprocessor_count": part.sms,
                "warpSize": part.warp, "sm_clock_rate": 1_500_000, "mem_clock_rate": 1_500_000, "mem_bus_width": 4096}

    def set_printf_fifo_size(self, size: int) -> None:
        """Nothing to do: printed lines are not buffered."""

    def cuOccupancyMaxActiveClusters(self, function, shared: int, ctas: int) -> int:
        return self.device.part.sms // ctas

    def is_stream_capturing(self, stream) -> bool:
        return False


class _Event:
    """`torch.cuda.Event` by the processor's clock: launches have ended when they return."""

    def __init__(self, enable_timing: bool = False, **_):
        self.time = 0.0

    def record(self, stream=None) -> None:
        self.time = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        """Milliseconds from this event to `end`."""
        return 1e3 * (end.time - self.time)

    def synchronize(self) -> None:
        pass


class _DeviceInterface:
    """What `triton.testing.do_bench` uses of `torch.cuda`."""

    Event = _Event

    @staticmethod
    def synchronize(device=None) -> None:
        pass

    @staticmethod
    def current_device() -> int:
        return triton_drivers.active.get_current_device()


def benchmark(kernel_call: Callable, *, quantiles: Sequence[float] = (0.5, 0.2, 0.8), budget: float = 0.02, **_) -> list[float]:
    """Milliseconds of a call at the quantiles asked for. The first call, which compiles, is not timed; then calls fill `budget` seconds."""
    kernel_call()
    times: list[float] = []
    while not times or sum(times) < 1e3 * budget:
        started = time.perf_counter()
        kernel_call()
        times.append(1e3 * (time.perf_counter() - started))
    times.sort()
    return [times[round(q * (len(times) - 1))] for q in quantiles]


# ── launches ─────────────────────────────────────────────────────────────────────────────────────────────────────

_PACKED = {"i1": "<B", "u1": "<B", "i8": "<B", "u8": "<B", "i16": "<H", "u16": "<H", "i32": "<I", "u32": "<I", "i64": "<Q", "u64": "<Q",
           "fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"}


class _Function:
    """A loaded kernel, with the places in Python that its PTX lines come from."""

    def __init__(self, kernel: Kernel, image: bytes):
        self.kernel, self.image = kernel, image

    def source(self, line: int | None) -> str | None:
        """`file:line` of the Python statement that a line of the PTX was compiled from, after its `.loc` directives."""
        lines = self.image.decode().splitlines()
        files = {m[1]: m[2] for m in map(re.compile(r'\s*\.file\s+(\d+)\s+"(.*?)"').match, lines) if m}
        before = lines[:line or 0]
        opened = [i for i, text in enumerate(before) if text.strip().startswith(("// begin inline asm", "// end inline asm"))]
        if opened and "begin" in before[opened[-1]]:
            before = before[:opened[-1]]  # LLVM counts lines on inside inline assembly: what came before it is right
        for text in reversed(before):
            if found := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", text):
                return f"{files.get(found[1], '?')}:{found[2]}" if found[2] != "0" else None
        return None


class _Launcher:
    """Made once for each compiled kernel; a call is one launch."""

    def __init__(self, source, metadata):
        self.signature = tuple(source.signature.values())
        self.metadata = metadata
        self.descriptors = getattr(metadata, "tensordesc_meta", None) or None
        self.cooperative = bool(getattr(metadata, "launch_cooperative_grid", False))

    def __call__(self, grid_x, grid_y, grid_z, stream, function: _Function, kernel_metadata, launch_metadata, enter_hook, exit_hook, *args):
        warps, ctas, shared = kernel_metadata
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if grid_x * grid_y * grid_z > 0:
            kernel = function.kernel
            values = self._values(kernel, args, grid_x * grid_y * grid_z * ctas, stream)
            try:
                kernel.launch((grid_x * ctas, grid_y, grid_z), 32 * warps, values, shared, cluster=ctas if ctas > 1 else None,
                              non_portable=ctas > 8, cooperative=self.cooperative)
            except KernelError as error:
                if place := function.source(error.line):
                    error.args = (f"{error.args[0]}; compiled from {place}",)
                raise
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _values(self, kernel: Kernel, args: Sequence, ctas: int, stream) -> list:
        """The PTX kernel's arguments: what is left of Triton's after constexprs, tuples and descriptors are taken apart, then its scratch."""
        flat = list(_flatten(self.signature, args, iter(self.descriptors) if self.descriptors else None))
        parameters = kernel.parameters
        scratch = len(parameters) - len(flat)
        if not 0 <= scratch <= 2:
            raise LaunchError(f"Triton kernel {kernel.name}: its PTX has {len(parameters)} parameters, for {len(flat)} arguments and 2 scratch areas")
        values = [_value(kernel, parameter, kind, value) for parameter, (kind, value) in zip(parameters, flat, strict=False)]
        return [*values, self._scratch("global", ctas, stream), self._scratch("profile", ctas, stream)][:len(parameters)]

    def _scratch(self, kind: str, ctas: int, stream):
        """A buffer from the allocator that Triton was given for this kind of scratch memory; None where the kernel needs none."""
        size, align = getattr(self.metadata, f"{kind}_scratch_size", 0), getattr(self.metadata, f"{kind}_scratch_align", 1)
        if not size:
            return None
        total = ctas * size + align  # a CPU allocator's alignment is smaller than a GPU's
        if kind == "global":
            buffer: Any = _allocation._allocator.get()(total, align, stream)
        elif _allocation.has_profile_allocator():
            buffer = _allocation._profile_allocator.get()(total, align, stream)
        else:
            buffer = torch.zeros(total, dtype=torch.int8)
        return buffer.view(torch.int8).flatten()[-buffer.data_ptr() % align:]


def _flatten(signature: Sequence, args: Sequence, descriptors: Iterator | None) -> Iterator[tuple[str, Any]]:
    """(Triton type, value) of each argument that the compiled kernel takes."""
    for kind, value in zip(signature, args, strict=True):
        if isinstance(kind, tuple):
            yield from _flatten(kind, value, descriptors)
        elif kind.startswith("tensordesc"):
            yield from _descriptor(value, next(descriptors) if descriptors else None)
        elif kind != "constexpr":
            yield kind, value


def _descriptor(descriptor, metadata: dict | None) -> Iterator[tuple[str, Any]]:
    """A host-side TensorDescriptor: a tensor map where the part has TMA, else base, shape, strides and padding; shape and strides again."""
    rank = len(descriptor.shape)
    if metadata is None:
        kinds = ["*i8", *["i64"] * (2 * rank), "i1", "i1", *["i32"] * rank, *["i64"] * rank]
        yield from zip(kinds, decompose_descriptor(descriptor), strict=True)
        return
    kinds = ["nvTmaDesc", *["i32"] * rank, *["i64"] * rank]
    yield from zip(kinds, (_tensor_map(descriptor, metadata), *descriptor.shape, *descriptor.strides), strict=True)


def _tensor_map(descriptor, metadata: dict) -> TensorMap:
    """What Triton's own driver encodes for a TensorDescriptor, from what the compiler says of its element type, box and swizzle."""
    shape, strides = list(descriptor.shape), [metadata["elem_size"] * stride for stride in descriptor.strides]
    if metadata["fp4_padded"]:
        shape[-1] *= 2
    name = "tf32" if descriptor.round_f32_to_tf32 else next(one.name for one in TYPES if one.ptx == metadata["elem_type"])
    common = {"swizzle": metadata["swizzle"], "l2_promotion": "128B", "fill": "nan" if descriptor.padding == "nan" else "zero",
              "extent": locate(descriptor.base)}
    place = name, descriptor.base.data_ptr(), shape[::-1], strides[-2::-1]
    if not metadata.get("is_im2col", False):
        return TensorMap.encode_tiled(*place, metadata["block_size"][::-1], [1] * len(shape), **common)
    pixels, channels = metadata["block_size"]
    return TensorMap.encode_im2col(*place, descriptor.pixel_box_lower_corner[::-1], descriptor.pixel_box_upper_corner[::-1], channels, pixels,
                                   (descriptor.element_strides or [1] * len(shape))[::-1], **common)


def _value(kernel: Kernel, parameter: Parameter, kind: str, value):
    """A Triton argument as `Kernel.launch` takes it for the parameter that it became."""
    if kind.startswith("*"):
        return getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
    if kind == "nvTmaDesc":
        return value
    if kind in ("fp16", "bf16", "fp32", "f32", "fp64"):
        try:
            raw = struct.pack("<f", value)[2:] if kind == "bf16" else struct.pack(_PACKED[kind], value)  # bf16: cut off, as Triton's launcher does
        except OverflowError:
            raw = struct.pack(_PACKED[kind], float("inf") if value > 0 else float("-inf"))
    else:
        code = _PACKED[kind]
        raw = struct.pack(code, int(value) & (256 ** struct.calcsize(code) - 1))
    return raw if parameter.array else struct.unpack("<" + parameter.letter, raw)[0]


# ── activation ───────────────────────────────────────────────────────────────────────────────────────────────────

_original = backends["nvidia"]
_virtual = Backend(_Compiler, VirtualDriver)


def _set(driver: DriverBase | None) -> None:
    backends["nvidia"] = _virtual if isinstance(driver, VirtualDriver) else _original
    triton_drivers._active = driver  # None: Triton looks for a driver when it next needs one


def activate(device: Device | str = "h100") -> Device:
    """Make a device (or a new one like the part named) what Triton kernels launch on, until `deactivate()`; returns it."""
    if isinstance(device, str):
        device = Device("cpu", like=device)
    _set(VirtualDriver(device))
    return device


def deactivate() -> None:
    """Give Triton its own drivers back."""
    _set(None)


@contextlib.contextmanager
def virtual_gpu(device: Device | str = "h100") -> Iterator[Device]:
    """Within this block Triton kernels launch on `device`, or on a new one like the part named; what was active comes back after it."""
    before = triton_drivers._active
    try:
        yield activate(device)
    finally:
        _set(before)


activate()
