"""`warpwright.ptx_run`: PTX, arguments and a shape in; the kernel has run when it returns. For programs with a mock of CUDA of their own."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence

import numpy as np

from warpwright.cpu.device import Device, text_of
from warpwright.cpu.launch import Dimensions, Kernel, Parameter
from warpwright.errors import LaunchError

Ranges = Sequence[tuple[int, int]]


def ptx_run(source, args: Sequence, block: Dimensions, grid: Dimensions = 1, shared_bytes: int = 0, *, kernel: str | None = None,
            memory: str | Ranges = "checked", like: str = "h100", time_limit: float = 60.0) -> None:
    """Run one kernel of a PTX module and wait for its end. Loaded modules are kept, so that running the same text again costs a launch.

    source: whatever `Device.load` takes, or a `ctypes.c_char_p`. kernel: its name; not needed where the module has one. args: numpy arrays,
    torch CPU tensors and numbers as `Kernel.launch` takes them; besides, a whole number may stand for any parameter and is its bits (an
    address, or a float's 32 bits), of which the parameter takes as many as it has. block, grid, shared_bytes: as for `Kernel.launch`.

    memory: what the kernel may touch besides the arrays among the arguments. "checked": nothing. A list of (address, bytes): that too.
    "unchecked": all memory of the process; a stray access then ends the process, as it would in C. like: the part whose limits hold.

    Raises what `Device.load` and `Kernel.launch` raise.
    """
    if isinstance(source, ctypes.c_char_p):
        source = source.value
    device = _device(like, memory == "unchecked")
    module = _module(device, text_of(source))
    if kernel is None:
        if len(module.kernels) != 1:
            raise LaunchError(f"the module has {len(module.kernels)} kernels ({', '.join(module.kernels)}): say which with kernel=")
        kernel = module.kernels[0]
    launched = module[kernel]
    views: list[np.ndarray] = []
    if not isinstance(memory, str):
        views = [np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start)) for start, size in memory if size]
        for view in views:
            device.register(view, "a range given as memory")
    elif memory not in ("checked", "unchecked"):
        raise LaunchError(f"memory={memory!r}: it is 'checked', 'unchecked' or a list of (address, bytes)")
    launched.launch(grid, block, _arguments(launched, args, views), shared_bytes, time_limit)


@functools.lru_cache
def _device(like: str, unchecked: bool) -> Device:
    return Device("cpu", like=like, memory="unchecked" if unchecked else "checked")


@functools.lru_cache(maxsize=1024)
def _module(device: Device, text: str):
    return device.load(text)


def _arguments(kernel: Kernel, args: Sequence, views: list[np.ndarray]) -> list:
    if len(args) != len(kernel.parameters):
        return list(args)  # launch tells
    return [_bits(parameter, value, views) if type(value) is int else value for parameter, value in zip(kernel.parameters, args, strict=True)]


def _bits(parameter: Parameter, value: int, views: list[np.ndarray]):
    """A whole number as `Kernel.launch` takes it for the parameter whose bits it is; addresses in known memory as views of it."""
    if parameter.pointer:
        for view in views:
            start = view.__array_interface__["data"][0]
            if start <= value < start + view.nbytes:
                return view[value - start:]
        return value & (2**64 - 1)
    raw = (value & (256**parameter.size - 1)).to_bytes(parameter.size, "little")
    return raw if parameter.array else struct.unpack("<" + parameter.letter, raw)[0]
