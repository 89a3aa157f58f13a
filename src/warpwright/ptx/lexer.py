"""Text to tokens: one compiled regular expression, one pass."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from warpwright.errors import PtxError
from warpwright.ptx.tree import Position

# A word takes the modifiers that touch it along (`ld.global.f32`, `%tid.x`): half as many tokens, and the parser splits each spelling once.
_TOKEN = re.compile(
    r"""(?:\s+|//[^\n]*|/\*.*?\*/)*               # blanks and comments
    (?:(?P<word>(?:[A-Za-z][\w$]*|[$%][\w$]+|_[\w$]*)(?:\.\w+(?:::\w+)*)*)
    |(?P<dot>\.[A-Za-z0-9_]\w*(?:::\w+)*)
    |(?P<number>0[fF][0-9a-fA-F]{8}(?![\w$])|0[dD][0-9a-fA-F]{16}(?![\w$])
        |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+(?![\w$])|\d[\w$]*)
    |(?P<string>"[^"\n]*")
    |(?P<mark><<|>>|<=|>=|==|!=|&&|\|\||@@DWARF[^\n]*|[{}()\[\];,:@!|&^~+\-*%<>=?]|/(?!\*))
    |(?P<end>\Z)
    |(?P<bad>.))""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Parallel lists, one entry a token: `kinds` ("word", "dot", "number", "string", "end", or the mark itself), `texts`, `starts`."""

    kinds: list[str]
    texts: list[str]
    starts: list[int]
    lines: list[int]
    file: str | None

    def position(self, index: int) -> Position:
        start = self.starts[index]
        line = bisect_right(self.lines, start)
        return Position(line, start - self.lines[line - 1] + 1)

    def error(self, message: str, index: int) -> PtxError:
        place = self.position(index)
        return PtxError(message, place.line, place.column, self.file)


def tokenize(text: str, file: str | None = None) -> Tokens:
    """All tokens of a text, with an "end" token last. Raises PtxError at a character that starts no token."""
    kinds: list[str] = []
    texts: list[str] = []
    starts: list[int] = []
    lines = [0, *(found.end() for found in re.finditer("\n", text))]
    tokens = Tokens(kinds, texts, starts, lines, file)
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "end"
        token = found[kind]
        kinds.append(token if kind == "mark" else kind)
        texts.append(token)
        starts.append(found.start(kind))
        if kind == "bad":
            if text.startswith("/*", starts[-1]):
                raise tokens.error("this comment is never closed with '*/'", len(starts) - 1)
            if token == '"':
                raise tokens.error("this string is never closed with '\"' on its line", len(starts) - 1)
            raise tokens.error(f"a stray {token!r}", len(starts) - 1)
        if kind == "end":
            break
    return tokens
