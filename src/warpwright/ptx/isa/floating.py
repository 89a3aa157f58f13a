"""Floats only: reciprocals, roots, transcendentals, sign copying, classes. Arithmetic proper is in `arithmetic`.

Slots: T; mode:{approx} where the result is approximate, else rnd; ftz; op the class that testp asks for.
Operands: d, a, b. copysign takes a's sign and b's magnitude.
"""

from warpwright.ptx.isa.arithmetic import BINARY, ROUND, UNARY
from warpwright.ptx.isa.table import Form, declare

for _opcode, _meaning in (("rcp", "d = 1 / a"), ("sqrt", "d = √a")):
    declare(
        _opcode, _meaning,
        ("mode:{approx} ftz? T:{f32}", UNARY),
        (f"{ROUND} ftz? T:{{f32}}", UNARY),
        (f"{ROUND} T:{{f64}}", UNARY),
        *([("mode:{approx} ftz T:{f64}", UNARY)] if _opcode == "rcp" else []),
    )
declare("rsqrt", "d = 1 / √a", ("mode:{approx} ftz? T:{f32|f64}", UNARY))
declare("sin", "d = sin a", ("mode:{approx} ftz? T:{f32}", UNARY))
declare("cos", "d = cos a", ("mode:{approx} ftz? T:{f32}", UNARY))
declare("lg2", "d = log₂ a", ("mode:{approx} ftz? T:{f32}", UNARY))
declare(
    "ex2", "d = 2ᵃ",
    ("mode:{approx} ftz? T:{f32}", UNARY),
    ("mode:{approx} T:{f16|f16x2}", UNARY, "@sm_75@ptx7.0"),
    ("mode:{approx} ftz T:{bf16|bf16x2}", UNARY, "@sm_90@ptx7.8"),
)
declare("tanh", "d = tanh a",
        ("mode:{approx} T:{f32@sm_75@ptx7.0|f16@sm_75@ptx7.0|f16x2@sm_75@ptx7.0|bf16@sm_90@ptx7.8|bf16x2@sm_90@ptx7.8}", UNARY))
declare("copysign", "d = b's magnitude with a's sign", ("T:{f32|f64}", BINARY))
declare("testp", "d = whether a is of a class",
        ("op:{finite|infinite|number|notanumber|normal|subnormal} T:{f32|f64}", "=d:pred, a:T"),
        Form("T:{f32|f64}", "=d:pred, a:T", note="accepted by ptxas, not in the manual", runs=False))
