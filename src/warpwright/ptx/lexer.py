"""Text to tokens: one compiled regular expression, one pass, time and memory linear in the text."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right

from warpwright.errors import PtxError
from warpwright.ptx.tree import Position

# A word takes the modifiers that touch it along (`ld.global.f32`, `%tid.x`): half as many tokens, and the parser splits each spelling once.
# Blanks and comments are matched possessively, so that no text, however odd, makes the expression try twice.
_TOKEN = re.compile(
    r"""(?>\s++|//[^\n]*+|/\*.*?\*/|\#[ \t]*(?:line[ \t]+)?\d+[^\n]*+)*+  # blanks, comments, line marks of a preprocessor
    (?:(?P<word>(?:[A-Za-z][\w$]*|[$%][\w$]+|_[\w$]*)(?:\.\w+(?:::\w+(?::\d+)?)*)*)
    |(?P<dot>\.[A-Za-z0-9_]\w*(?:::\w+(?::\d+)?)*)
    |(?P<number>0[fF][0-9a-fA-F]{8}(?![\w$])|0[dD][0-9a-fA-F]{16}(?![\w$])
        |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+(?![\w$])|\d[\w$]*)
    |(?P<string>"[^"\n]*")
    |(?P<mark><<|>>|<=|>=|==|!=|&&|\|\||@@(?i:DWARF)[^\n]*|[{}()\[\];,:@!|&^~+\-*%<>=?]|/(?!\*))
    |(?P<end>\Z)
    |(?P<bad>.))""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_SHOWN = 60  # characters of a token that a message quotes


def shorten(text: str, most: int = _SHOWN) -> str:
    """A text for a message: its start and end where it is long."""
    return text if len(text) <= most else f"{text[: most - 15]}…{text[-10:]}"


class Tokens:
    """Parallel lists, one entry a token: `kinds` ("word", "dot", "number", "string", "end", "bad", or the mark itself), `texts`, `starts`."""

    __slots__ = ("_line", "file", "kinds", "lines", "problems", "starts", "texts")

    def __init__(self, lines: list[int], file: str | None):
        self.kinds: list[str] = []
        self.texts: list[str] = []
        self.starts = array("Q")
        self.lines, self.file = lines, file
        self.problems: list[PtxError] = []
        self._line = 1  # that of the last position asked for: mostly the next one is there too

    def position(self, index: int) -> Position:
        start, lines, line = self.starts[index], self.lines, self._line
        if start < lines[line - 1] or (line < len(lines) and start >= lines[line]):
            line = self._line = bisect_right(lines, start)
        return Position(line, start - lines[line - 1] + 1)

    def first_on_line(self, index: int) -> bool:
        return index == 0 or self.position(index).line != self.position(index - 1).line

    def error(self, message: str, index: int) -> PtxError:
        place = self.position(index)
        return PtxError(message, place.line, place.column, self.file)


def tokenize(text: str, file: str | None = None, recover: bool = False) -> Tokens:
    """All tokens of a text, with an "end" token last.

    A character that starts no token raises PtxError; where `recover` is set it is a token of kind "bad", and the error goes to `problems`.
    """
    tokens = Tokens([0, *(found.end() for found in re.finditer("\n", text))], file)
    kinds, texts, starts = tokens.kinds, tokens.texts, tokens.starts
    known: dict[str, str] = {}  # one string for each spelling: a program repeats its words
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "end"
        token = found[kind]
        token = known.setdefault(token, token)
        kinds.append(token if kind == "mark" else kind)
        texts.append(token)
        starts.append(found.start(kind))
        if kind == "bad":
            problem = tokens.error(_complaint(text, token, starts[-1]), len(starts) - 1)
            if not recover:
                raise problem
            tokens.problems.append(problem)
            if text.startswith("/*", starts[-1]):  # all the rest is comment
                kinds.append("end")
                texts.append("")
                starts.append(len(text))
                break
        if kind == "end":
            break
    return tokens


def _complaint(text: str, token: str, start: int) -> str:
    if text.startswith("/*", start):
        return "this comment is never closed with '*/'"
    if token == '"':
        return "this string is never closed with '\"' on its line"
    if token.isascii():
        return f"a stray {token!r}"
    return f"a stray {token!r} (U+{ord(token):04X}): outside comments and strings PTX is ASCII"
