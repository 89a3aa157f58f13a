"""The virtual GPU: PTX compiled to the host's processor, with a plain interpreter beside it as the oracle."""

from warpwright.cpu.device import Device

__all__ = ["Device"]
