"""Where a kernel's variables lie: parameters, shared and local memory, module globals and constants."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from warpwright.errors import PtxError
from warpwright.ptx import tree
from warpwright.ptx.isa.table import TYPE_BITS
from warpwright.ptx.layout import layout_align, layout_size


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a variable. space: param, shared, local, global (const too) or slot (a parameter between functions).

    `offset` counts from the start of the space for param, shared and local, from the variable's own start for global and slot.
    `size` is the variable's, in bytes; `start` its own offset in the space.
    """

    space: str
    name: str
    offset: int
    size: int
    align: int

    def moved(self, by: int) -> Place:
        return replace(self, offset=self.offset + by) if by else self


def names_of(variable: tree.Variable) -> list[str]:
    """What a declaration inside a function declares: `name<4>` declares several."""
    return [variable.name] if variable.count is None else [f"{variable.name}{i}" for i in range(variable.count)]


def _up(value: int, align: int) -> int:
    return -(-value // align) * align


class Space:
    """The variables a kernel uses, with their places; filled while the kernel is flattened."""

    def __init__(self, module: tree.Module):
        self.declared = {item.name: item for item in module.items if isinstance(item, tree.Variable)}
        self.parameters: dict[str, Place] = {}
        self.parameter_bytes = 0
        self.places: dict[str, Place] = {}
        self.shared_bytes = self.local_bytes = 0
        self.dynamic: list[str] = []
        self.globals: dict[str, tree.Variable] = {}
        self.slots: dict[str, tuple[int, int]] = {}
        self._unique = 0

    def add_parameters(self, function: tree.Function) -> None:
        end = 0
        for variable in function.parameters:
            size, align = layout_size(variable), layout_align(variable)
            offset = _up(end, align)
            self.parameters[variable.name] = Place("param", variable.name, offset, size, align)
            end = offset + size
        self.parameter_bytes = end

    def module_variable(self, name: str) -> Place | None:
        if name not in self.places and name in self.declared:
            self.places[name] = self._place(self.declared[name], name)
        return self.places.get(name)

    def local_variable(self, variable: tree.Variable, name: str) -> Place:
        """A place for what a declaration inside a function declares."""
        unique = name
        while unique in self.places or unique in self.globals or (unique != name and unique in self.declared):
            self._unique += 1
            unique = f"{name}.{self._unique}"
        self.places[unique] = self._place(variable, unique)
        return self.places[unique]

    def _place(self, variable: tree.Variable, name: str) -> Place:
        size, align = layout_size(variable), layout_align(variable)
        match variable.space:
            case "shared":
                if None in variable.dimensions or (variable.linkage == "extern" and size == 0):
                    self.dynamic.append(name)
                    return Place("dynamic", name, 0, 0, max(align, 16))
                offset = _up(self.shared_bytes, align)
                self.shared_bytes = offset + size
                return Place("shared", name, offset, size, align)
            case "local":
                offset = _up(self.local_bytes, align)
                self.local_bytes = offset + size
                return Place("local", name, offset, size, align)
            case "global" | "const":
                if variable.linkage == "extern":
                    raise PtxError(f"variable '{name}' is extern: no module defines it", *_at(variable))
                self.globals[name] = variable
                return Place("global", name, 0, size, align)
            case other:
                raise PtxError(f"the engine has no '.{other}' variables ('{name}')", *_at(variable))

    # parameters between functions

    def slot(self, variable: tree.Variable) -> Place:
        self._unique += 1
        name = f"{variable.name}#{self._unique}"
        size, align = layout_size(variable), layout_align(variable)
        self.slots[name] = (size, align)
        return Place("slot", name, 0, size, align)

    def spill_slot(self, name: str) -> None:
        size, align = self.slots[name]
        offset = _up(self.local_bytes, align)
        self.local_bytes = offset + size
        self.places[name] = Place("local", name, offset, size, align)

    def spilled(self, place: Place) -> Place:
        return self.places[place.name].moved(place.offset)

    # the finished layout

    @property
    def dynamic_offset(self) -> int:
        """Where dynamic shared memory begins: after the static part, on a 16-byte boundary (or a stricter one that is asked for)."""
        return _up(self.shared_bytes, max([16] + [self.places[name].align for name in self.dynamic]))

    def initial_globals(self) -> dict[str, tuple[int, int, bytes, list[tuple[int, str, int]]]]:
        """name → (size, align, initial bytes, relocations [(offset, name, addend)]), those that relocations reach too."""
        found: dict[str, tuple[int, int, bytes, list[tuple[int, str, int]]]] = {}
        waiting = list(self.globals.items())
        while waiting:
            name, variable = waiting.pop(0)
            if name in found:
                continue
            data, relocations = _initial(variable)
            found[name] = (layout_size(variable), layout_align(variable), data, relocations)
            waiting += [(target, self.declared[target]) for _, target, _ in relocations if target in self.declared]
        return found


def _at(variable: tree.Variable) -> tuple[int | None, int | None]:
    return (variable.position.line, variable.position.column) if variable.position else (None, None)


def _initial(variable: tree.Variable) -> tuple[bytes, list[tuple[int, str, int]]]:
    if variable.initializer is None:
        return b"", []
    width = max(1, TYPE_BITS[variable.type] // 8)
    data, relocations = bytearray(layout_size(variable)), []
    inner = variable.vector or 1

    def put(value, offset: int, dimensions: tuple[int, ...]) -> None:
        if isinstance(value, tuple):
            step = width
            for dimension in dimensions[1:]:
                step *= dimension
            for i, part in enumerate(value):
                put(part, offset + i * step, dimensions[1:])
            return
        match value:
            case tree.Integer(value=number):
                if variable.type in ("f16", "bf16", "f32", "f64"):
                    data[offset:offset + width] = _float_bytes(float(number), variable.type)
                else:
                    data[offset:offset + width] = (number & (1 << 8 * width) - 1).to_bytes(width, "little")
            case tree.Float(bits=bits, width=size):
                number = struct.unpack("<d", struct.pack("<Q", bits))[0] if size == 64 else struct.unpack("<f", struct.pack("<I", bits))[0]
                data[offset:offset + width] = _float_bytes(number, variable.type)
            case tree.Symbol(name=name, offset=addend):
                relocations.append((offset, name, addend))
            case tree.Generic(symbol=symbol, mask=None):
                relocations.append((offset, symbol.name, symbol.offset))
            case _:
                raise PtxError(f"the engine cannot initialise '{variable.name}' with this value", *_at(variable))

    dimensions = [d if d is not None else 0 for d in variable.dimensions]
    put(variable.initializer, 0, (*dimensions, inner) if inner > 1 else tuple(dimensions))
    return bytes(data), relocations


def _float_bytes(number: float, type_: str) -> bytes:
    if type_ == "f64":
        return struct.pack("<d", number)
    if type_ == "f16":
        return struct.pack("<e", number)
    single = struct.pack("<f", number) if abs(number) <= 3.4028234663852886e38 or number != number or number in (float("inf"), -float("inf")) \
        else struct.pack("<f", float("inf") if number > 0 else -float("inf"))
    if type_ == "bf16":
        bits = int.from_bytes(single, "little")
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).to_bytes(2, "little")
    return single
