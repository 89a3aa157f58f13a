"""Warpwright: train DeepSeek-V3-style models with kernels written in PTX from Python, on any CPU or NVIDIA GPU."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Device", "__version__"]

if TYPE_CHECKING:
    from warpwright.cpu.device import Device


def __getattr__(name: str):
    if name == "Device":  # loaded on first use: LLVM is not needed to read a configuration
        from warpwright.cpu.device import Device

        return Device
    raise AttributeError(f"module 'warpwright' has no attribute {name!r}")
