"""Warpwright: train DeepSeek-V3-style models with kernels written in PTX from Python, on any CPU or NVIDIA GPU."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Device", "VirtualCluster", "__version__", "ptx_run"]

if TYPE_CHECKING:
    from warpwright.cpu.cluster import VirtualCluster
    from warpwright.cpu.device import Device
    from warpwright.cpu.one_call import ptx_run


def __getattr__(name: str):  # loaded on first use: LLVM is not needed to read a configuration
    if name == "Device":
        from warpwright.cpu.device import Device

        return Device
    if name == "VirtualCluster":
        from warpwright.cpu.cluster import VirtualCluster

        return VirtualCluster
    if name == "ptx_run":
        from warpwright.cpu.one_call import ptx_run

        return ptx_run
    raise AttributeError(f"module 'warpwright' has no attribute {name!r}")
