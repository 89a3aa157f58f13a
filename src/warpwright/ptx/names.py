"""What names mean in a module: scopes of declared registers, variables, functions, labels and lists."""

from __future__ import annotations

from dataclasses import dataclass, field

from warpwright.ptx import tree


@dataclass(frozen=True, slots=True)
class Label:
    name: str


Declared = tree.RegisterDeclaration | tree.Variable | tree.Function | tree.Directive | Label


@dataclass
class Scope:
    """Names between two braces. `ranges` are the `%r<10>` declarations, looked up by prefix and number."""

    outer: Scope | None = None
    names: dict[str, Declared] = field(default_factory=dict)
    ranges: dict[str, tree.RegisterDeclaration | tree.Variable] = field(default_factory=dict)

    def local(self, name: str) -> Declared | None:
        found = self.names.get(name)
        if found is None and self.ranges:
            end = len(name.rstrip("0123456789"))
            while end < len(name):
                declared = self.ranges.get(name[:end])
                number = name[end:]
                if declared is not None and (number == "0" or number[0] != "0") and int(number) < (declared.count or 0):
                    self.names[name] = declared
                    return declared
                end += 1
        return found

    def find(self, name: str) -> Declared | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.local(name)
            if found is not None:
                return found
            scope = scope.outer
        return None


def kind_of(declared: Declared) -> str:
    """What a name is, for a message."""
    match declared:
        case tree.RegisterDeclaration():
            return "a register"
        case tree.Variable(space="reg"):
            return "a register"
        case tree.Variable(space=space):
            return f"a .{space} variable"
        case tree.Function(kernel=True):
            return "a kernel"
        case tree.Function():
            return "a function"
        case Label():
            return "a label"
    return f"a .{declared.name} list"
