"""Device memory: the buffers a device gives out, and where the arrays passed to a launch lie.

The virtual GPU's addresses are the host's. A kernel may touch what was passed to its launch, what the device allocated or had
registered, and the variables of its module, and nothing else; unless the device was made with `memory="unchecked"`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpwright.errors import LaunchError

ALIGNMENT = 256  # bytes, as cudaMalloc gives


class Extent(NamedTuple):
    """A pointer argument: the address passed, and the allocation [start, end) that it lies in. name: of it, if not the argument's."""

    address: int
    start: int
    end: int
    name: str = ""


UNCHECKED = Extent(0, 1 << 16, 1 << 47)  # every address a process can have; null pointers and small numbers still fault


class DeviceBuffer:
    """Memory of a device, 256-byte aligned. `numpy(dtype)` is a view of it; `free` gives it back."""

    def __init__(self, nbytes: int, name: str = "buffer"):
        if nbytes < 0:
            raise LaunchError(f"a buffer of {nbytes} bytes was asked for; the size must be at least 0")
        self.nbytes, self.name = nbytes, name
        self._storage: np.ndarray | None = np.empty(nbytes + ALIGNMENT, np.uint8)
        self.address = -(-self._storage.ctypes.data // ALIGNMENT) * ALIGNMENT

    def numpy(self, dtype=np.uint8) -> np.ndarray:
        """The whole buffer as a one-dimensional array of `dtype`; a view, not a copy."""
        if self._storage is None:
            raise LaunchError(f"{self.name} has been freed")
        offset = self.address - self._storage.ctypes.data
        return self._storage[offset:offset + self.nbytes].view(dtype)

    def free(self) -> None:
        self._storage = None

    @property
    def freed(self) -> bool:
        return self._storage is None


class Heap:
    """What device code's malloc gives out: a buffer with the lists that `codegen/library/heap.ll` describes, which works on them too."""

    MARK = 0x656C62697373656C  # of a block in use

    def __init__(self, buffer: DeviceBuffer):
        self.buffer, self.words = buffer, buffer.numpy(np.uint64)
        self.words[:67] = 0
        self.words[1], self.words[2] = buffer.address + 1024, buffer.address + buffer.nbytes

    def allocate(self, size: int) -> int:
        """The address of a fresh `size` bytes, 16-byte aligned; 0 where there is no room."""
        log = max(5, (size + 15).bit_length())
        block = int(self.words[3 + log])
        if block:
            self.words[3 + log] = self._at(block)[2]
        else:
            block = int(self.words[1])
            if block + (1 << log) > int(self.words[2]):
                return 0
            self.words[1] = block + (1 << log)
        header = self._at(block)
        header[0], header[1] = log, self.MARK
        return block + 16

    def release(self, address: int) -> bool:
        """Take a block back; whether it was one in use (or the null pointer)."""
        if address == 0:
            return True
        block = address - 16
        if not self.buffer.address < block < int(self.words[1]) or block % 16 or int(self._at(block)[1]) != self.MARK:
            return False
        header = self._at(block)
        log = int(header[0])
        header[1], header[2] = 0, self.words[3 + log]
        self.words[3 + log] = block
        return True

    def _at(self, block: int) -> np.ndarray:
        return self.words[(block - self.buffer.address) // 8:]


def locate(argument) -> Extent | None:
    """Where a numpy array, torch tensor or DeviceBuffer lies; None for anything else. Raises LaunchError for one out of the device's reach."""
    if hasattr(argument, "untyped_storage"):
        return _locate_tensor(argument)
    if isinstance(argument, np.ndarray):
        return _locate_array(argument)
    if isinstance(argument, DeviceBuffer):
        if argument.freed:
            raise LaunchError(f"{argument.name} ({argument.nbytes} bytes at {argument.address:#x}) was freed before this launch")
        return Extent(argument.address, argument.address, argument.address + argument.nbytes)
    return None


def _locate_tensor(tensor) -> Extent:
    if tensor.is_cpu:
        try:
            storage = tensor.untyped_storage()
            start = storage.data_ptr()
            return Extent(tensor.data_ptr(), start, start + storage.nbytes())
        except (NotImplementedError, RuntimeError):
            pass
    raise LaunchError(f"a tensor on {tensor.device} ({tensor.layout}) was passed; the virtual GPU takes dense CPU tensors: use .cpu()")


def _locate_array(array: np.ndarray) -> Extent:
    if array.dtype.hasobject:
        raise LaunchError(f"an array of Python objects (dtype {array.dtype}) was passed; use a numeric dtype")
    if not array.flags.writeable:
        raise LaunchError("a read-only array was passed; a kernel could write to it: pass a copy (array.copy())")
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    address = array.ctypes.data
    if root is array and array.flags.c_contiguous:
        return Extent(address, address, address + array.nbytes)
    start, end = np.lib.array_utils.byte_bounds(root)
    return Extent(address, start, end)
