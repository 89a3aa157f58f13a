"""What device code prints with printf, for both engines."""

from __future__ import annotations

import ctypes
import mmap
import re
import struct
from collections.abc import Callable

_CONVERSION = re.compile(r"%(?P<flags>[-+ #0]*)(?P<width>\d*|\*)(?P<precision>(?:\.(?:\d*|\*))?)(?P<size>hh|h|ll|l|z|t|j|)"
                         r"(?P<kind>[diuxXocfFeEgGaAps%])")


def formatted(layout: str, value: Callable[[int, int], int], text_at: Callable[[int], str]) -> tuple[str, int]:
    """A format with its values, and how many there were.

    value(offset, size): the bits of what lies at an offset in the values, each aligned to its own size as C promotes them: 4 bytes for int,
    8 for long, pointers and double. text_at(address): a zero-terminated string.
    """
    offset = count = 0

    def take(size: int) -> int:
        nonlocal offset, count
        offset = -(-offset // size) * size
        found = value(offset, size)
        offset, count = offset + size, count + 1
        return found

    def signed(bits: int, size: int) -> int:
        return bits - (1 << 8 * size) if bits >> 8 * size - 1 else bits

    def replace(match: re.Match) -> str:
        kind, flags = match["kind"], match["flags"]
        if kind == "%":
            return "%"
        width, precision = match["width"], match["precision"]
        if width == "*":
            given = signed(take(4), 4)
            width, flags = str(abs(given)), flags + "-" * (given < 0)
        if precision == ".*":
            precision = f".{max(0, signed(take(4), 4))}"
        long = match["size"] in ("l", "ll", "z", "t", "j")
        if kind in "fFeEgGaA":
            number = struct.unpack("<d", take(8).to_bytes(8, "little"))[0]
            if kind in "aA":
                return f"{number.hex() if kind == 'a' else number.hex().upper():>{width or 0}}"
            return f"%{flags}{width}{precision}{kind}" % number
        if kind == "s":
            return f"%{flags}{width}{precision}s" % text_at(take(8))
        if kind == "p":
            return f"%{flags}{width}s" % f"{take(8):#x}"
        if kind == "c":
            return f"%{flags}{width}s" % chr(take(4) & 0xFF)
        size = 8 if long else 4
        bits = take(size)
        bits &= {"hh": 0xFF, "h": 0xFFFF}.get(match["size"], -1)
        number = signed(bits, {"hh": 1, "h": 2}.get(match["size"], size)) if kind in "di" else bits
        return f"%{flags}{width}{precision}{'d' if kind == 'u' else kind}" % number

    return _CONVERSION.sub(replace, layout), count


def _reader(values: bytes) -> Callable[[int, int], int]:
    return lambda offset, size: int.from_bytes(values[offset:offset + size], "little")


class Buffer:
    """Where compiled kernels leave what they print (`codegen/library/print.ll`)."""

    BYTES = 64 << 20  # untouched pages cost nothing

    def __init__(self):
        self._map = mmap.mmap(-1, self.BYTES)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._clear()

    def _clear(self) -> None:
        struct.pack_into("<QQ", self._map, 0, 16, self.BYTES)

    def take(self, text_at: Callable[[int], str]) -> str:
        """What was printed since the last time."""
        used, at, texts = struct.unpack_from("<Q", self._map)[0], 16, []
        while at < min(used, self.BYTES - 16):
            layout, count = struct.unpack_from("<QQ", self._map, at)
            if layout == 0:  # from here on there was no room
                break
            values = self._map[at + 16:at + 16 + 8 * count]
            texts.append(formatted(text_at(layout), _reader(values), text_at)[0])
            struct.pack_into("<Q", self._map, at, 0)
            at += 16 + 8 * count
        if used > self.BYTES:
            texts.append(f"\n[the kernel printed more than the {self.BYTES >> 20} MiB that are kept]\n")
        self._clear()
        return "".join(texts)
