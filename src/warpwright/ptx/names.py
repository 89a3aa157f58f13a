"""What names mean in a module: scopes of declared registers, variables, functions, labels and lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

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
            end = max(len(name.rstrip("0123456789")), len(name) - 10)  # a count has at most ten digits
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


def prototype(directive: tree.Directive) -> tuple[tuple[tree.Variable, ...], tuple[tree.Variable, ...]]:
    """(results, parameters) of a `.callprototype (.param .b32 _) _ (.param .b64 _, …)`."""
    lists: list[list[list[str]]] = []
    closed = False
    for word in directive.words:
        if word == "(":
            lists.append([])
            closed = False
        elif word in (".param", ".reg"):
            lists[-1].append([word])
        elif word == ")":
            closed = True
        elif lists and lists[-1] and not closed:
            lists[-1][-1].append(word)
        elif word == "_" and not lists:  # the function's own place: no results
            lists.append([])
    results, parameters = ([_formal(words) for words in one] for one in (*lists, [], [])[:2])
    return tuple(results), tuple(parameters)


def _formal(words: list[str]) -> tree.Variable:
    """`.param .align 16 .b8 _[16]` as a Variable."""
    align: int | None = None
    dimensions: list[int | None] = []
    type_ = ""
    for before, word in pairwise(words):
        if before == ".align":
            align = int(word)
        elif before == "[":
            dimensions.append(None if word == "]" else int(word))
        elif word.startswith(".") and word != ".align":
            type_ = word[1:]
    return tree.Variable(words[0][1:], type_, "_", tuple(dimensions), align)
