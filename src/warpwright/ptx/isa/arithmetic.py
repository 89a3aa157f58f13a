"""Arithmetic that integers and floats share: add, sub, mul, mad, fma, div, rem, abs, neg, min, max, and the carry chains.

Slots: T the type; rnd, ftz, sat, relu; mode: lo/hi/wide of mul and mad, approx/full of div; cc (a flag: also writes the carry);
S the narrow type of mixed-precision add, sub and fma; NaN, xorsign and abs (flags) of min and max.
Operands: d, a, b, c.
"""

from warpwright.ptx.isa.table import declare

INTEGERS = "u16|s16|u32|s32|u64|s64"
CARRY = "u32|s32|u64@ptx4.3|s64@ptx4.3"
ROUND = "rnd:{rn|rz|rm|rp}"
HALF = "f16@sm_53@ptx4.2|f16x2@sm_53@ptx4.2"
BHALF = "bf16@sm_90@ptx7.8|bf16x2@sm_90@ptx7.8"
PACKED = "f32x2@sm_100@ptx8.6"
NARROW = "S:{f16|bf16}"

UNARY = "=d:T, a:T"
BINARY = "=d:T, a:T, b:T"
TERNARY = "=d:T, a:T, b:T, c:T"

for _opcode, _meaning in (("add", "d = a + b"), ("sub", "d = a - b")):
    declare(
        _opcode, _meaning,
        (f"T:{{{INTEGERS}}}", BINARY),
        *((("T:{u16x2|s16x2}", BINARY, "@sm_90@ptx8.0"), ("sat T:{u16x2|s16x2}", BINARY, "@sm_107f/sm_120f@ptx9.2")) if _opcode == "add" else ()),
        ("sat T:{s32}", BINARY),
        (f"cc T:{{{CARRY}}}", BINARY),
        (f"{ROUND}? ftz? sat? T:{{f32}}", BINARY),
        (f"{ROUND}? T:{{f64}}", BINARY),
        (f"rnd:{{rn}}? ftz? sat? T:{{{HALF}}}", BINARY),
        (f"rnd:{{rn}}? T:{{{BHALF}}}", BINARY),
        (f"{ROUND}? ftz? T:{{{PACKED}}}", BINARY),
        (f"{ROUND}? sat? T:{{f32}} {NARROW}", "=d:T, a:S, b:T", "@sm_100@ptx8.6"),
    )

declare("addc", "d = a + b + carry", ("T:{u32|s32|u64|s64}", BINARY), (f"cc T:{{{CARRY}}}", BINARY))
declare("subc", "d = a - b - 1 + carry", ("T:{u32|s32|u64|s64}", BINARY), (f"cc T:{{{CARRY}}}", BINARY))

declare(
    "mul", "d = a · b: the low or high half of the product, or all of it (wide)",
    (f"mode:{{lo|hi}} T:{{{INTEGERS}}}", BINARY),
    ("mode:{wide} T:{u16|s16|u32|s32}", "=d:wide(T), a:T, b:T"),
    (f"{ROUND}? ftz? sat? T:{{f32}}", BINARY),
    (f"{ROUND}? T:{{f64}}", BINARY),
    (f"rnd:{{rn}}? ftz? sat? T:{{{HALF}}}", BINARY),
    (f"rnd:{{rn}}? T:{{{BHALF}}}", BINARY),
    (f"{ROUND}? ftz? T:{{{PACKED}}}", BINARY),
)
declare("mul24", "d = a · b of the low 24 bits", ("mode:{lo|hi} T:{u32|s32}", BINARY))

declare(
    "mad", "d = a · b + c: of the product its low or high half, or all of it (wide); for floats, fma",
    (f"mode:{{lo|hi}} T:{{{INTEGERS}}}", TERNARY),
    ("mode:{wide} T:{u16|s16|u32|s32}", "=d:wide(T), a:T, b:T, c:wide(T)"),
    ("mode:{hi} sat T:{s32}", TERNARY),
    (f"mode:{{lo|hi}} cc T:{{{CARRY}}}", TERNARY),
    (f"{ROUND} ftz? sat? T:{{f32}}", TERNARY),
    (f"{ROUND} T:{{f64}}", TERNARY),
)
declare("madc", "d = a · b + c + carry, the low or high half of the product", ("mode:{lo|hi} T:{u32|s32|u64|s64}", TERNARY),
        (f"mode:{{lo|hi}} cc T:{{{CARRY}}}", TERNARY))
declare("mad24", "d = a · b + c of the low 24 bits", ("mode:{lo|hi} T:{u32|s32}", TERNARY), ("mode:{hi} sat T:{s32}", TERNARY))

declare(
    "fma", "d = a · b + c, rounded once",
    (f"{ROUND} ftz? sat? T:{{f32}}", TERNARY),
    (f"{ROUND} T:{{f64}}", TERNARY),
    (f"rnd:{{rn}} ftz? sat? T:{{{HALF}}}", TERNARY),
    ("rnd:{rn} ftz? relu T:{f16|f16x2}", TERNARY, "@sm_80@ptx7.0"),
    ("rnd:{rn} relu? T:{bf16|bf16x2}", TERNARY, "@sm_80@ptx7.0"),
    ("rnd:{rn} oob relu? T:{f16|f16x2|bf16|bf16x2}", TERNARY, "@sm_90@ptx8.1"),
    (f"{ROUND} ftz? T:{{{PACKED}}}", TERNARY),
    (f"{ROUND} sat? T:{{f32}} {NARROW}", "=d:T, a:S, b:S, c:T", "@sm_100@ptx8.6"),
)

declare(
    "div", "d = a / b",
    (f"T:{{{INTEGERS}}}", BINARY),
    ("mode:{approx|full} ftz? T:{f32}", BINARY),
    (f"{ROUND} ftz? T:{{f32}}", BINARY),
    (f"{ROUND} T:{{f64}}", BINARY),
)
declare("rem", "d = a mod b, with the sign of a", (f"T:{{{INTEGERS}}}", BINARY))

for _opcode, _meaning in (("abs", "d = |a|"), ("neg", "d = -a")):
    declare(
        _opcode, _meaning,
        ("T:{s16|s32|s64}", UNARY),
        ("ftz? T:{f32}", UNARY),
        ("T:{f64}", UNARY),
        ("ftz? T:{f16|f16x2}", UNARY, "@sm_53@ptx6.5" if _opcode == "abs" else "@sm_53@ptx6.0"),
        ("T:{bf16|bf16x2}", UNARY, "@sm_80@ptx7.0"),
    )

for _opcode, _meaning in (("min", "d = the least of a and b (and c)"), ("max", "d = the greatest of a and b (and c)")):
    declare(
        _opcode, _meaning,
        (f"T:{{{INTEGERS}|u16x2@sm_90@ptx8.0|s16x2@sm_90@ptx8.0}}", BINARY),
        ("relu T:{s16x2|s32}", BINARY, "@sm_90@ptx8.0"),
        ("ftz? NaN@sm_80@ptx7.0? T:{f32}", BINARY),
        ("ftz? NaN? xorsign abs T:{f32}", BINARY, "@sm_86@ptx7.2"),
        ("T:{f64}", BINARY),
        ("ftz? NaN? T:{f16|f16x2}", BINARY, "@sm_80@ptx7.0"),
        ("ftz? NaN? xorsign abs T:{f16|f16x2}", BINARY, "@sm_86@ptx7.2"),
        ("NaN? T:{bf16|bf16x2}", BINARY, "@sm_80@ptx7.0"),
        ("NaN? xorsign abs T:{bf16|bf16x2}", BINARY, "@sm_86@ptx7.2"),
        ("ftz? NaN? abs? T:{f32}", TERNARY, "@sm_100@ptx8.8"),
    )
