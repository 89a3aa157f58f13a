"""What both engines agree on about functions: their addresses, the stack, aliases."""

from __future__ import annotations

from warpwright.ptx import tree

ADDRESSES = 1 << 56  # the "address" of the module's function i is this plus 16·i; no host memory lies there
STACK = 64 * 1024  # bytes of a thread's local memory for frames of recursive functions and for alloca


def aliases(module: tree.Module) -> dict[str, str]:
    """Name → the function it stands for, of the module's `.alias` directives."""
    return {item.words[0]: item.words[-1] if item.words[-1] != ";" else item.words[-2]
            for item in module.items if isinstance(item, tree.Directive) and item.name == "alias"}


def addresses(module: tree.Module) -> dict[str, int]:
    """Function's or alias's name → its address."""
    found = {name: ADDRESSES + 16 * i for i, name in enumerate(module.functions)}
    found |= {name: found[target] for name, target in aliases(module).items() if target in found}
    return found
