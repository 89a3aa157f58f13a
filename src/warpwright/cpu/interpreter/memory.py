"""The memory a launch can see: legal host ranges, each CTA's shared memory, each thread's local memory, the parameter block.

Addresses are the host's. Shared and local addresses are offsets in a window, and the window's base plus the offset is the generic address.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Iterable


class AccessFault(Exception):
    """An access that memory refuses. `space` is None for the global and generic ones, else the window's name."""

    def __init__(self, address: int, size: int, space: str | None = None, misaligned: bool = False):
        super().__init__(address, size)
        self.address, self.size, self.space, self.misaligned = address, size, space, misaligned


class Region:
    """A run of host memory: [start, end)."""

    __slots__ = ("_keep", "bytes", "end", "name", "start")

    def __init__(self, start: int, size: int, name: str, keep: object = None):
        self.start, self.end, self.name, self._keep = start, start + size, name, keep
        self.bytes = memoryview((ctypes.c_uint8 * size).from_address(start)).cast("B")

    @classmethod
    def allocate(cls, size: int, name: str, align: int = 1024) -> Region:
        """Fresh memory, zeroed."""
        storage = ctypes.create_string_buffer(size + align)
        return cls(-(-ctypes.addressof(storage) // align) * align, size, name, storage)

    @property
    def size(self) -> int:
        return self.end - self.start

    def holds(self, address: int, size: int) -> bool:
        return self.start <= address and address + size <= self.end

    def load(self, address: int, size: int) -> int:
        at = address - self.start
        return int.from_bytes(self.bytes[at:at + size], "little")

    def store(self, address: int, size: int, value: int) -> None:
        at = address - self.start
        self.bytes[at:at + size] = value.to_bytes(size, "little")


class GlobalMemory:
    """The legal ranges of a launch. ranges: (start, size in bytes, name)."""

    def __init__(self, ranges: Iterable[tuple[int, int, str]]):
        self.owners = sorted((start, start + size, name) for start, size, name in ranges)
        merged: list[list] = []  # ranges may overlap or touch: views of one array, parts of one storage
        for start, end, name in self.owners:
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            elif end > start:
                merged.append([start, end, name])
        self.regions = [Region(start, end - start, name) for start, end, name in merged]
        self.starts = [region.start for region in self.regions]

    def find(self, address: int, size: int) -> Region | None:
        at = bisect_right(self.starts, address) - 1
        if at >= 0 and self.regions[at].holds(address, size):
            return self.regions[at]
        return None


def plain_space(space: str | None) -> str | None:
    """A state space without its sub-qualifier, but for shared::cluster; None for generic addresses."""
    return space if space == "shared::cluster" or not space else space.split("::")[0]


def locate(thread, space: str | None, address: int, size: int, align: int | None = None) -> tuple[Region, int]:
    """The region and host address of an access. Raises AccessFault where there is none or it is not aligned (to `size` by default).

    space: "global", "const", "shared", "shared::cluster", "local", "param", or None for a generic address.
    """
    if address % (align or size):
        raise AccessFault(address, align or size, space if space in ("shared", "local") else None, misaligned=True)
    launch, cluster = thread.cta.launch, thread.cta.cluster
    if space == "shared::cluster":
        rank = (address >> 24) - 1 if address >> 24 else thread.cta.rank
        offset = address & 0xFFFFFF
        if rank < len(cluster.ctas) and not cluster.ctas[rank].finished and offset + size <= cluster.ctas[rank].shared.size:
            shared = cluster.ctas[rank].shared
            return shared, shared.start + offset
        raise AccessFault(address, size, space)
    if space == "shared":
        shared = thread.cta.shared
        if address >= 0 and address + size <= shared.size:
            return shared, shared.start + address
        raise AccessFault(address, size, "shared")
    if space == "local":
        local = thread.local()
        if address >= 0 and address + size <= local.size:
            return local, local.start + address
        raise AccessFault(address, size, "local")
    if space != "param":
        region = launch.memory.find(address, size)
        if region is not None:
            return region, address
    windows = []
    if space is None:
        windows.append(thread.cta.shared)
    if space in (None, "param"):
        windows += [launch.parameters, thread.local()]
    for window in windows:
        if window.holds(address, size):
            return window, address
    if space is None:
        peer = cluster.window(address)
        if peer is not None:
            return locate(thread, "shared::cluster", peer, size, align)
    raise AccessFault(address, size, "param" if space == "param" else None)
