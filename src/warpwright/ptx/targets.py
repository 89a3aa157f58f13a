"""What a `.version` and a `.target` can do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warpwright.errors import PtxError
from warpwright.ptx.isa.table import Need
from warpwright.ptx.lexer import shorten

# PTX versions ever released: major → last minor.
VERSIONS = {1: 5, 2: 3, 3: 2, 4: 3, 5: 0, 6: 5, 7: 8, 8: 8, 9: 5}
# Target → the first PTX version that takes it, as ptxas 13.5 has it.
TARGETS: dict[str, tuple[int, int]] = {
    "sm_10": (1, 0), "sm_11": (1, 0), "sm_12": (1, 2), "sm_13": (1, 2), "sm_20": (2, 0), "sm_21": (2, 0), "sm_30": (3, 0), "sm_32": (4, 0),
    "sm_35": (3, 1), "sm_37": (4, 1), "sm_50": (4, 0), "sm_52": (4, 1), "sm_53": (4, 2), "sm_60": (5, 0), "sm_61": (5, 0), "sm_62": (5, 0),
    "sm_70": (6, 0), "sm_72": (6, 1), "sm_75": (6, 3), "sm_80": (7, 0), "sm_86": (7, 1), "sm_87": (7, 4), "sm_88": (9, 0), "sm_89": (7, 8),
    "sm_90": (7, 8), "sm_90a": (8, 0), "sm_100": (8, 6), "sm_100a": (8, 6), "sm_100f": (8, 8), "sm_101": (8, 6), "sm_101a": (8, 6),
    "sm_101f": (8, 8), "sm_103": (8, 8), "sm_103a": (8, 8), "sm_103f": (8, 8), "sm_107": (9, 4), "sm_107a": (9, 4), "sm_107f": (9, 4), "sm_110": (9,
    0), "sm_110a": (9, 0), "sm_110f": (9, 0),
    "sm_120": (8, 7), "sm_120a": (8, 7), "sm_120f": (8, 8), "sm_121": (8, 8), "sm_121a": (8, 8), "sm_121f": (8, 8),
}
# Part → its family: the parts that take what `sm_…f` of the first of them takes. sm_101 is the old name of sm_110.
FAMILIES = {100: 100, 103: 100, 107: 107, 101: 110, 110: 110, 120: 120, 121: 120}
OPTIONS = {"texmode_unified", "texmode_independent", "debug", "map_f64_to_f32"}


@dataclass(frozen=True)
class Target:
    """A `.target`: its number and suffix ("", "a": this very part's features, "f": its family's)."""

    number: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """`sm_90a` → Target(90, "a"). Raises PtxError on a name that is no target."""
        if text not in TARGETS:
            import difflib

            close = difflib.get_close_matches(text, TARGETS, 1) if len(text) < 40 else []
            raise PtxError(f"unknown target '{shorten(text)}'" + (f" (did you mean '{close[0]}'?)" if close else ""))
        number, suffix = re.fullmatch(r"sm_(\d+)([af]?)", text).groups()  # type: ignore[union-attr]
        return cls(int(number), suffix)

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"

    @property
    def first_version(self) -> tuple[int, int]:
        """The first PTX version that takes this target."""
        return TARGETS[str(self)]

    def has(self, need: Need) -> bool:
        """Whether the target has what an instruction needs."""
        if not all(any(self.is_one(sm, arch) for sm, arch in choice) for choice in need.among):
            return False
        return self.is_one(need.sm, need.arch)

    def is_one(self, sm: int, arch: str) -> bool:
        """Whether this is the part `sm` or a later one; by `arch`, itself ("a"), of its family ("f"), or specific to any later part ("a+")."""
        if arch == "a":
            return self.suffix == "a" and self.number == sm
        if arch == "f":
            return self.suffix != "" and FAMILIES.get(self.number) == FAMILIES.get(sm) and (self.number >= sm or self.number == 101)
        return self.number >= sm and (arch != "a+" or self.suffix != "")


def describe(need: Need) -> str:
    """A need's target in words: `sm_80 or later`."""
    if need.among:
        names = sorted({f"sm_{sm}{arch}" for choice in need.among for sm, arch in choice if
                        all(any((sm, other) == one for other in ("", "a", "f", "a+") for one in more) for more in need.among)})
        return "one of " + ", ".join(names or (f"sm_{sm}{arch}" for sm, arch in need.among[0])) + " (f: or a later one of that family)"
    if need.arch == "a":
        return f"sm_{need.sm}a"
    if need.arch == "f":
        return f"sm_{need.sm}f, sm_{need.sm}a, or a later one of that family"
    if need.arch == "a+":
        return f"sm_{need.sm}a, or a later target ending in a or f"
    return f"sm_{need.sm} or later"
