"""Conversions: cvt, and cvt.pack.

Slots: D the destination's type, S the source's; rnd (rn rz rm rp to a float; rni rzi rmi rpi to an integer value; rna for tf32; rs
stochastic); ftz, sat, satfinite, relu; for `cvt.pack`: pack, sat, D, S, and C the type of c.
Operands: d, a; b for conversions of a pair (a goes to the high half of d, b to the low half); bits the random bits of rs;
c of cvt.pack holds what is shifted in above: d = c << 2·size | a << size | b. For x4 types a is a vector of four f32, the first highest.
"""

from warpwright.ptx.isa.table import Match, declare

INTEGERS = "u8|s8|u16|s16|u32|s32|u64|s64"
FLOAT_ROUND = "rnd:{rn|rz|rm|rp}"
INTEGER_ROUND = "rnd:{rni|rzi|rmi|rpi}"
TINY_PAIRS = "e2m1x2|e2m3x2|e3m2x2"
ONE = "=d:D, a:S"
TWO = "=d:D, a:S, b:S"
BF16 = "@sm_90@ptx7.8"


def _check_sat(match: Match) -> str | None:
    """`.sat` is refused where every value of S fits in D."""
    to, from_ = match["D"], match["S"]
    wider = int(to[1:]) - int(from_[1:])
    if match.get("sat") and (wider >= 0 if to[0] == from_[0] else to[0] == "s" and wider > 0):
        return f"'.sat' does nothing here, as every .{from_} fits in .{to}: leave it out"
    return None


declare(
    "cvt", "d = a converted",
    # integers
    (f"sat? D:{{{INTEGERS}}} S:{{{INTEGERS}}}", ONE, "", "", _check_sat),
    (f"{INTEGER_ROUND} ftz? sat? D:{{{INTEGERS}}} S:{{f32}}", ONE),
    (f"{INTEGER_ROUND} sat? D:{{{INTEGERS}}} S:{{f16|f64}}", ONE),
    (f"{INTEGER_ROUND} D:{{{INTEGERS}}} S:{{bf16}}", ONE, BF16),
    (f"{FLOAT_ROUND} ftz? sat? D:{{f32}} S:{{{INTEGERS}}}", ONE),
    (f"{FLOAT_ROUND} sat? D:{{f16|f64}} S:{{{INTEGERS}}}", ONE),
    (f"{FLOAT_ROUND} D:{{bf16}} S:{{{INTEGERS}}}", ONE, BF16),
    # narrower floats
    (f"{FLOAT_ROUND} ftz? sat? D:{{f16}} S:{{f32}}", ONE),
    (f"{FLOAT_ROUND} sat? D:{{f16}} S:{{f64}}", ONE),
    (f"{FLOAT_ROUND} ftz? sat? D:{{f32}} S:{{f64}}", ONE),
    ("rnd:{rn|rz} relu? satfinite@sm_80@ptx8.1? D:{f16} S:{f32}", ONE, "@sm_80@ptx7.0"),
    ("rnd:{rn|rz} satfinite D:{f16} S:{f32}", ONE, "@sm_70@ptx8.1"),
    ("rnd:{rn|rz} relu? satfinite@sm_80@ptx8.1? D:{bf16} S:{f32}", ONE, "@sm_80@ptx7.0"),
    (f"{FLOAT_ROUND} D:{{bf16}} S:{{f32}}", ONE, "@sm_80@ptx7.0"),
    (f"{FLOAT_ROUND} ftz D:{{bf16}} S:{{f32}}", ONE, "@sm_80@ptx7.0"),
    (f"{FLOAT_ROUND} D:{{bf16}} S:{{f64}}", ONE, BF16),
    (f"{FLOAT_ROUND}? D:{{bf16}} S:{{f16}}", ONE, BF16),
    (f"{FLOAT_ROUND}? D:{{f16}} S:{{bf16}}", ONE, BF16),
    ("rnd:{rna} satfinite@sm_80@ptx8.1? D:{tf32} S:{f32}", ONE, "@sm_80@ptx7.0"),
    ("rnd:{rn|rz} relu? satfinite@sm_100@ptx8.6? D:{tf32} S:{f32}", ONE, "@sm_90@ptx7.8"),
    # wider floats
    ("ftz? sat? D:{f32} S:{f16}", ONE),
    ("sat? D:{f64} S:{f16}", ONE),
    ("ftz? sat? D:{f64} S:{f32}", ONE),
    ("D:{f32} S:{bf16}", ONE, "@sm_80@ptx7.1"),
    (f"{FLOAT_ROUND} D:{{f32}} S:{{bf16}}", ONE, "@sm_80@ptx7.1"),
    (f"{FLOAT_ROUND}? ftz D:{{f32}} S:{{bf16}}", ONE, BF16),
    (f"{FLOAT_ROUND}? D:{{f64}} S:{{bf16}}", ONE, BF16),
    # to an integer value in the same format
    (f"{INTEGER_ROUND}? ftz? sat? D:{{f32}} S:{{f32}}", ONE),
    (f"{INTEGER_ROUND}? sat? D:{{f16}} S:{{f16}}", ONE),
    (f"{INTEGER_ROUND}? sat? D:{{f64}} S:{{f64}}", ONE),
    (f"{INTEGER_ROUND}? D:{{bf16}} S:{{bf16}}", ONE, BF16),
    # two at once
    ("rnd:{rn|rz} relu? satfinite@sm_80@ptx8.1? D:{f16x2|bf16x2} S:{f32}", TWO, "@sm_80@ptx7.0"),
    ("rnd:{rs} relu? satfinite? D:{f16x2|bf16x2} S:{f32}", "=d:D, a:S, b:S, bits!!:b32", "@sm_100a/sm_103a/sm_107a@ptx8.7"),
    ("rnd:{rn} satfinite relu? D:{e4m3x2|e5m2x2} S:{f32}", TWO, "@sm_89@ptx8.1"),
    ("rnd:{rn} satfinite relu? D:{e4m3x2|e5m2x2} S:{f16x2}", ONE, "@sm_89@ptx8.1"),
    ("rnd:{rn} satfinite relu? D:{e4m3x2|e5m2x2} S:{bf16x2}", ONE, "@sm_100f/sm_107f/sm_110f/sm_120f@ptx9.1"),
    ("rnd:{rn} relu? D:{f16x2} S:{e4m3x2|e5m2x2}", ONE, "@sm_89@ptx8.1"),
    (f"rnd:{{rn}} satfinite relu? D:{{{TINY_PAIRS}}} S:{{f32}}", TWO, "@sm_100f/sm_107f/sm_110f/sm_120f@ptx8.6"),
    (f"rnd:{{rn}} relu? D:{{f16x2}} S:{{{TINY_PAIRS}}}", ONE, "@sm_100f/sm_107f/sm_110f/sm_120f@ptx8.6"),
    ("rnd:{rz|rp} satfinite? D:{ue8m0x2} S:{f32}", TWO, "@sm_100f/sm_107f/sm_110f/sm_120f@ptx8.6"),
    ("rnd:{rz|rp} satfinite? D:{ue8m0x2} S:{bf16x2}", ONE, "@sm_100f/sm_107f/sm_110f/sm_120f@ptx8.6"),
    ("rnd:{rn} D:{bf16x2} S:{ue8m0x2}", ONE, "@sm_100f/sm_107f/sm_110f/sm_120f@ptx8.6"),
    ("rnd:{rs} relu? satfinite D:{e4m3x4|e5m2x4|e2m3x4|e3m2x4} S:{f32}", "=d:D, a:4*f32, bits!!:b32", "@sm_100a/sm_103a/sm_107a@ptx8.7"),
    ("rnd:{rs} relu? satfinite D:{e2m1x4} S:{f32}", "=d:D, a:4*f32, bits!!:b32", "@sm_100a/sm_103a/sm_107a@ptx8.7"),
    # integers packed side by side
    ("pack sat D:{u16|s16} S:{s32}", "=d:b32, a:S, b:S", "@sm_72@ptx6.5"),
    ("pack sat D:{u8|s8|u4@sm_75|s4@sm_75|u2@sm_75|s2@sm_75} S:{s32} C:{b32}", "=d:b32, a:S, b:S, c:C", "@sm_72@ptx6.5"),
)
