"""Comparison and selection: setp, set, selp, slct.

Slots: cmp the comparison; bool (and/or/xor) combines with predicate c; ftz; T the type compared; D the type of set's result;
S the type that slct's c is tested in.
Operands: d, a, b, c; p is setp's second destination, the complement: d = (a cmp b) bool c, p = !(a cmp b) bool c.
"""

from warpwright.ptx.isa.table import declare

ORDER = "eq|ne|lt|le|gt|ge"
UNSIGNED_ORDER = "eq|ne|lt|le|gt|ge|lo|ls|hi|hs"
FLOAT_ORDER = f"{ORDER}|equ|neu|ltu|leu|gtu|geu|num|nan"
BOOL = "bool:{and|or|xor}"
HALF = "f16@sm_53@ptx4.2"
BHALF = "bf16@sm_90@ptx7.8"

# (comparisons, ftz or not, types) of plain values
_COMPARED = (
    ("eq|ne", "", "b16|b32|b64"),
    (ORDER, "", "s16|s32|s64"),
    (UNSIGNED_ORDER, "", "u16|u32|u64"),
    (FLOAT_ORDER, "ftz?", "f32"),
    (FLOAT_ORDER, "", "f64"),
)


def _with_bool(modifiers: str, operands: str, needs: str = ""):
    """A comparison's two forms: alone, and combined with a predicate. `%` stands where the bool goes."""
    return ((modifiers.replace("%", ""), operands, needs), (modifiers.replace("%", BOOL), operands + ", c:pred", needs))


_pair = "=d|p?:pred|pred, a:T, b:T"
_single = "=d:pred, a:T, b:T"
_halves = "=d|p:pred|pred, a:T, b:T"
_value = "=d:D, a:T, b:T"

declare(
    "setp", "d = (a cmp b) bool c; p = !(a cmp b) bool c; for f16x2 and bf16x2 d is of the low halves, p of the high ones",
    *(form for cmp, ftz, types in _COMPARED for form in _with_bool(f"cmp:{{{cmp}}} % {ftz} T:{{{types}}}", _pair)),
    *_with_bool(f"cmp:{{{FLOAT_ORDER}}} % ftz? T:{{f16}}", _single, "@sm_53@ptx4.2"),
    *_with_bool(f"cmp:{{{FLOAT_ORDER}}} % T:{{bf16}}", _single, "@sm_90@ptx7.8"),
    *_with_bool(f"cmp:{{{FLOAT_ORDER}}} % ftz? T:{{f16x2}}", _halves, "@sm_53@ptx4.2"),
    *_with_bool(f"cmp:{{{FLOAT_ORDER}}} % T:{{bf16x2}}", _halves, "@sm_90@ptx7.8"),
)
declare(
    "set", "d = (a cmp b) bool c, as all ones or zeros (u, s) or 1.0 or 0.0 (f)",
    *(form for cmp, ftz, types in _COMPARED for form in _with_bool(f"cmp:{{{cmp}}} % {ftz} D:{{u32|s32|f32}} T:{{{types}}}", _value)),
    *(form for cmp, ftz, types in _COMPARED for form in _with_bool(f"cmp:{{{cmp}}} % {ftz} D:{{{HALF}}} T:{{{types}}}", _value)),
    *(form for cmp, _, types in _COMPARED for form in _with_bool(f"cmp:{{{cmp}}} % D:{{{BHALF}}} T:{{{types}}}", _value)),
    *_with_bool(f"cmp:{{{FLOAT_ORDER}}} % ftz? D:{{f16|u16@ptx6.5|s16@ptx6.5|u32@ptx6.5|s32@ptx6.5}} T:{{{HALF}}}", _value),
    *_with_bool(f"cmp:{{{FLOAT_ORDER}}} % D:{{bf16|u16|s16|u32|s32}} T:{{{BHALF}}}", _value),
    *_with_bool(f"cmp:{{{FLOAT_ORDER}}} % ftz? D:{{f16x2|u32@ptx6.5|s32@ptx6.5}} T:{{f16x2}}", _value, "@sm_53@ptx4.2"),
    *_with_bool(f"cmp:{{{FLOAT_ORDER}}} % D:{{bf16x2|u32|s32}} T:{{bf16x2}}", _value, "@sm_90@ptx7.8"),
)
declare("selp", "d = c ? a : b", ("T:{b16|b32|b64|u16|s16|u32|s32|u64|s64|f32|f64}", "=d:T, a:T, b:T, c:pred"))
declare("slct", "d = (c ≥ 0) ? a : b",
        ("T:{b16|b32|b64|u16|s16|u32|s32|u64|s64|f32|f64} S:{s32}", "=d:T, a:T, b:T, c:S"),
        ("ftz? T:{b16|b32|b64|u16|s16|u32|s32|u64|s64|f32|f64} S:{f32}", "=d:T, a:T, b:T, c:S"))
