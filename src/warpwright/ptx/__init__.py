"""PTX: parse it, check it, print it, and write it from Python.

`parse(text)` gives a tree (`ptx.tree`); `str(tree)` prints it; `verify` and `check` judge it; `lint` looks for what
ptxas lets through; `isa.match` says what an instruction means.
Every name below is loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib

from warpwright.errors import PtxError

# name → module that defines it
_LANGUAGE = {
    "parse": "parser",
    "verify": "verifier",
    "check": "verifier",
    "lint": "lints",
    "diagnose": "verifier",
    "Target": "targets",
}
# The builder's words: each name here is read from `ptx.builder`.
_BUILDER = "builder"

_MODULES = ("builder", "isa", "lexer", "lints", "parser", "printer", "targets", "tree", "verifier")


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_LANGUAGE.get(name, _BUILDER)}")
    try:
        value = getattr(module, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = value
    return value


__all__ = ["PtxError", "check", "diagnose", "lint", "parse", "verify"]
