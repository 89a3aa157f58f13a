"""Tree to text, in one canonical layout. `parse(print_module(tree)) == tree`."""

from __future__ import annotations

from collections.abc import Iterator

from warpwright.ptx import tree

# Directives that end with a semicolon; the others end with their line.
_TERMINATED = {"pragma", "branchtargets", "calltargets", "callprototype", "alias"}


def print_module(module: tree.Module) -> str:
    """The module's text, ending with a newline."""
    lines = [f".version {module.version[0]}.{module.version[1]}", f".target {', '.join(module.target)}"]
    if module.address_size != 32:
        lines.append(f".address_size {module.address_size}")
    for item in module.items:
        if isinstance(item, tree.Function):
            lines += ["", *_function(item)]
        elif isinstance(item, tree.Variable):
            lines.append(_variable(item) + ";")
        else:
            lines.append(_directive(item))
    return "\n".join(lines) + "\n"


def print_statement(statement: tree.Statement) -> str:
    """One statement without indentation; a block or function over several lines."""
    return "\n".join(_statement(statement, ""))


# ── functions and statements ─────────────────────────────────────────────────────────────────────────────────────


def _function(function: tree.Function) -> Iterator[str]:
    head = f".{function.linkage} " if function.linkage else ""
    head += ".entry " if function.kernel else ".func "
    after = []
    for directive in function.directives:
        if directive.name == "attribute":
            head += f".attribute({', '.join('.' + word for word in directive.words)}) "
        else:
            after.append(_directive(directive))
    if function.results:
        head += f"({', '.join(_variable(result) for result in function.results)}) "
    head += function.name
    if function.parameters:
        yield f"{head}("
        for parameter in function.parameters[:-1]:
            yield f"    {_variable(parameter)},"
        yield f"    {_variable(function.parameters[-1])}"
        head = ")"
    else:
        head += "()"
    if function.body is None and not after:
        yield f"{head};"
        return
    yield head
    yield from after
    if function.body is None:
        yield ";"
        return
    yield "{"
    for statement in function.body:
        yield from _statement(statement, "    ")
    yield "}"


def _statement(statement: tree.Statement, indent: str) -> Iterator[str]:
    match statement:
        case tree.Instruction():
            yield indent + _instruction(statement)
        case tree.Label(name=name):
            yield f"{indent[4:]}{name}:"
        case tree.RegisterDeclaration():
            vector = f".v{statement.vector} " if statement.vector else ""
            count = f"<{statement.count}>" if statement.count is not None else ""
            yield f"{indent}.reg {vector}.{statement.type} {statement.name}{count};"
        case tree.Variable():
            yield f"{indent}{_variable(statement)};"
        case tree.Directive():
            yield indent + _directive(statement)
        case tree.Block(statements=statements):
            yield indent + "{"
            for inner in statements:
                yield from _statement(inner, indent + "    ")
            yield indent + "}"


def _instruction(instruction: tree.Instruction) -> str:
    text = instruction.mnemonic
    if instruction.guard:
        text = f"@{'!' if instruction.guard.negated else ''}{instruction.guard.register.name} {text}"
    if instruction.operands:
        text += " " + ", ".join(print_operand(operand) for operand in instruction.operands)
    return text + ";"


def _variable(variable: tree.Variable) -> str:
    parts = [f".{variable.linkage}"] if variable.linkage else []
    parts.append(f".{variable.space}")
    if variable.attributes:
        parts.append(f".attribute({', '.join('.' + word for word in variable.attributes)})")
    pointer = variable.pointer
    if variable.align is not None:
        parts.append(f".align {variable.align}")
    if variable.vector:
        parts.append(f".v{variable.vector}")
    parts.append(f".{variable.type}")
    if pointer:
        parts.append(".ptr")
        if pointer.space:
            parts.append(f".{pointer.space}")
        if pointer.align is not None:
            parts.append(f".align {pointer.align}")
    name = variable.name + (f"<{variable.count}>" if variable.count is not None else "")
    parts.append(name + "".join(f"[{'' if length is None else length}]" for length in variable.dimensions))
    text = " ".join(parts)
    return text if variable.initializer is None else f"{text} = {_initializer(variable.initializer)}"


def _initializer(value: tree.Initializer) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(_initializer(inner) for inner in value) + "}"
    if isinstance(value, tree.Generic):
        symbol = value.symbol
        text = f"generic({symbol.name}){_offset(symbol.offset)}" if value.generic else print_operand(symbol)
        return text if value.mask is None else f"0x{value.mask:X}({text})"
    return print_operand(value)


def _directive(directive: tree.Directive) -> str:
    name, words = directive.name, directive.words
    if name == "@@DWARF":
        return f"@@DWARF {words[0]}"
    text = f"{directive.label}: .{name}" if directive.label else f".{name}"
    if name == "section":
        return f"{text} {words[0]}\n{_section(words[1:])}"
    if name == "loc":
        text += _loc(words)
    elif name == "callprototype":
        text += " " + _prototype(words)
    elif name == "file":
        text += f" {words[0]} {', '.join(words[1:])}"
    elif words:
        text += " " + ", ".join(words)
    return text + (";" if name in _TERMINATED else "")


def _loc(words: tuple[str, ...]) -> str:
    text = ""
    for word in words:
        if word in ("function_name", "inlined_at"):
            text += ","
        text += word if word.startswith("+") else f" {word}"
    return text


def _prototype(words: tuple[str, ...]) -> str:
    """`(.param .b32 _) _ (.param .b64 _, .param .b32 _)`: a comma before each parameter but the first."""
    text, previous = "", ""
    for word in words:
        if word in (".param", ".reg") and previous != "(":
            text += ","
        glued = word in (")", "[", "]") or previous in ("", "(", "[")
        text += word if glued else f" {word}"
        previous = word
    return text


def _section(words: tuple[str, ...]) -> str:
    """DWARF data, a line each; `words` starts with the opening brace."""
    lines, line = [], ""
    for word in words[1:-1]:
        if word.startswith(".") and line:
            lines.append(line)
            line = ""
        line += word if word in (",", ":", "+", "-") or not line else f" {word}"
        if word == ":":
            lines.append(line)
            line = ""
    return "\n".join(["{", *lines, *([line] if line else []), "}"])


# ── operands ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _offset(offset: int) -> str:
    return f"+{offset}" if offset else ""


def print_operand(operand: tree.Operand) -> str:
    """An operand as it is written."""
    match operand:
        case tree.Register(name=name):
            return name
        case tree.Integer(value=value, unsigned=unsigned):
            return f"{value}{'U' if unsigned else ''}"
        case tree.Float(bits=bits, width=width):
            return f"0f{bits:08X}" if width == 32 else f"0d{bits:016X}"
        case tree.Symbol(name=name, offset=offset):
            return f"{name}{_offset(offset)}"
        case tree.Address(base=base, offset=offset, coordinates=coordinates, more=more):
            text = str(offset) if base is None else f"{print_operand(base)}{_offset(offset)}"
            rest = (*more, coordinates) if coordinates is not None else more
            return f"[{', '.join([text, *(print_operand(part) for part in rest)])}]"
        case tree.Vector(elements=elements):
            return "{" + ", ".join(print_operand(element) for element in elements) + "}"
        case tree.Negated(operand=inner):
            return f"!{print_operand(inner)}"
        case tree.Negative(operand=inner):
            return f"-{print_operand(inner)}"
        case tree.Component(operand=inner, name=name):
            return f"{inner.name}.{name}"
        case tree.Pair(first=first, second=second):
            return f"{print_operand(first)}|{print_operand(second)}"
        case tree.Sink():
            return "_"
        case tree.Arguments(elements=elements):
            return "(" + ", ".join(print_operand(element) for element in elements) + ")"
    raise TypeError(f"no operand of PTX: {operand!r}")


__all__ = ["print_module", "print_operand", "print_statement"]
