"""Moves between registers and between address spaces: mov, cvta, isspacep, mapa, getctarank.

Slots: T; vec (mov.v4.u32 {…}, %tid); space; to (a flag of cvta: from generic to the space).
Operands: d, a; b is mapa's rank. mov's a may be a symbol (its address in its own space) or, for b types, either side may be a vector
whose elements fill the other side from the low bits up.
"""

from warpwright.ptx.isa.table import declare

SPACES = "const|global|local|shared|shared::cta@sm_30@ptx7.8|shared::cluster@sm_90@ptx7.8|param@sm_70@ptx7.7|param::entry@sm_70@ptx8.3"

declare(
    "mov", "d = a",
    ("T:{pred|b16|b32|b64|u16|s16|u32|s32|u64|s64|f32|f64|b128@sm_70@ptx8.3}", "=d:T, a:T"),
    ("vec:{v2|v4} T:{b16|b32|u16|s16|u32|s32|f32}", "=d:T*vec, a:T*vec"),
    ("vec:{v2} T:{b64|u64|s64|f64}", "=d:T*vec, a:T*vec"),
)
declare(
    "cvta", "d = the generic address of a, an address or variable of the space; with to, the space's address of generic address a",
    (f"space:{{{SPACES}}} T:{{u32|u64}}", "=d:T, a:T"),
    (f"to space:{{{SPACES}}} T:{{u32|u64}}", "=d:T, a:T"),
)
declare("isspacep", "d = whether generic address a lies in the space", (f"space:{{{SPACES}}}", "=d:pred, a:u64"))
declare("mapa", "d = the address in cluster CTA b's shared memory that corresponds to a",
        ("space:{shared::cluster}? T:{u32|u64|s32|s64}", "=d:T, a:T, b:u32", "@sm_90@ptx7.8"))
declare("getctarank", "d = the rank in the cluster of the CTA whose shared memory a lies in",
        ("space:{shared::cluster}? T:{u32|u64|s32|s64}", "=d:u32, a:T", "@sm_90@ptx7.8"))
