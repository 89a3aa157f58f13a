"""Accesses that are misaligned, or outside their variable, whenever they are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warpwright.ptx import tree
from warpwright.ptx.isa.table import Match
from warpwright.ptx.lints.graph import Graph, Node, bytes_of
from warpwright.ptx.lints.registry import Place, lint
from warpwright.ptx.lints.values import Base, Known, Values


@dataclass(frozen=True)
class Access:
    """An instruction's access to memory. size: bytes, 0 where it is not known. align: what the address has to be a multiple of."""

    node: Node
    operand: tree.Address
    known: Known
    size: int
    align: int
    written: bool


def accesses(graph: Graph, values: Values) -> Iterator[Access]:
    """The accesses of the function's reachable instructions whose addresses are written as addresses."""
    for node in graph.nodes:
        if node.index not in graph.reachable:
            continue
        for name, size, align, written in _shapes(node.match):
            value = node.match.value(name)
            if value is not None and isinstance(value.operand, tree.Address):
                yield Access(node, value.operand, values.address(value.operand, node), size, align, written)


def _constant(found: Match, name: str) -> int:
    value = found.value(name)
    return value.operand.value if value is not None and isinstance(value.operand, tree.Integer) else 0


def _shapes(found: Match) -> list[tuple[str, int, int, bool]]:
    """(operand, bytes, alignment, written) of each of an instruction's accesses."""
    opcode = found.instruction.opcode
    if opcode in ("ld", "ldu"):
        size = bytes_of(found.value("d"))  # type: ignore[arg-type]
        return [("a", size, size, False)]
    if opcode in ("st", "red", "atom") and found.value("b") is not None:
        size = bytes_of(found.value("b"))  # type: ignore[arg-type]
        return [("a", size, size, True)] + ([("barrier", 8, 8, True)] if found.value("barrier") else [])
    if opcode in ("ldmatrix", "stmatrix"):
        return [("a", 0, 16, opcode == "stmatrix")]  # a row a lane
    if opcode == "mbarrier" and found["action"] != "pending_count":
        return [("a", 8, 8, True)]
    if opcode == "cp" and not found.get("bulk"):
        size = _constant(found, "size")
        return [("dst", size, size, True), ("src", 0, size, False)] if size else []
    if opcode == "cp" and found.get("tensor"):
        shared = "dst" if str(found.get("dst")).startswith("shared") else "src"
        return [(shared, 0, 128, shared == "dst"), ("barrier", 8, 8, True)]
    if opcode == "cp" and found.value("size") is not None:
        size = _constant(found, "size")
        return [("dst", size, 16, True), ("src", size, 16, False), ("barrier", 8, 8, True)]
    return []


@lint("misaligned-access", "an address is not a multiple of the access's size, whatever the thread")
def misaligned(graph: Graph) -> Iterator[Place]:
    for access in accesses(graph, Values(graph)):
        if access.align <= 1:
            continue
        modulus, residue = access.known.low()
        modulus = access.align if modulus == 0 else min(modulus, access.align)
        off = residue % modulus
        if off:
            yield (f"this access takes an address that is a multiple of {access.align}, and {_shown(access.known)} is not"
                   f" ({off} too much)"), access.operand, access.node
        elif access.known.exact and (base := access.known.base) and _placed_by_alignment(base) and base.align < access.align:
            yield (f"this access takes an address that is a multiple of {access.align}, and '{base.name}' is aligned to {base.align} only: "
                   f"declare it with '.align {access.align}'"), access.operand, access.node


def _placed_by_alignment(base: Base) -> bool:
    """Whether a variable lies where its declared alignment lets it; dynamic shared memory starts at a multiple of 1024 whatever is declared."""
    return base.size is not None and base.space in ("shared", "global", "local", "const")


def _shown(value: Known) -> str:
    name = value.base.name if value.base else ""
    if value.exact:
        return f"'{name}{value.residue:+}'" if name else str(value.residue)
    return f"'{name}' plus {value.residue} plus a multiple of {value.modulus}" if name else f"{value.residue} plus a multiple of {value.modulus}"


@lint("out-of-bounds", "an access lies outside the variable that its address was made from")
def outside(graph: Graph) -> Iterator[Place]:
    for access in accesses(graph, Values(graph)):
        base, offset = access.known.base, access.known.residue
        if base is None or base.size is None or not access.known.exact:
            continue
        if offset < 0 or offset + max(1, access.size) > base.size:
            last = offset + max(1, access.size) - 1
            reach = f"byte {offset}" if last == offset else f"bytes {offset} to {last}"
            yield f"this reaches {reach} of '{base.name}', which has {base.size} bytes", access.operand, access.node
