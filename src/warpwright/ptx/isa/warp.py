"""Between the lanes of a warp: shfl, vote, match, redux, activemask, elect.

Slots: sync (a flag); mode (shfl: up down bfly idx; vote: all any uni ballot; match: any all); op (redux); T.
Operands: d; p the second destination (shfl: the source lane was in range; match.all: all agree; elect: this lane is the one);
a; b and c (shfl: the lane or distance, and segment mask and clamp); mask the lanes taking part.
"""

from warpwright.ptx.isa.table import declare

_GONE = "@sm_70@ptx6.4"  # the forms without .sync

declare(
    "shfl", "d = a of another lane, chosen by b inside the segment that c describes",
    ("sync mode:{up|down|bfly|idx} T:{b32}", "=d|p?:T|pred, a:T, b:u32, c:u32, mask:u32", "@sm_30@ptx6.0"),
    ("mode:{up|down|bfly|idx} T:{b32}", "=d|p?:T|pred, a:T, b:u32, c:u32", "@sm_30@ptx3.0", "", None, _GONE),
    effects="warp",
)
declare(
    "vote", "d = whether predicate a holds in all, any, or alike in all lanes; ballot: which lanes it holds in",
    ("sync mode:{all|any|uni} T:{pred}", "=d:T, a:pred, mask:u32", "@sm_30@ptx6.0"),
    ("sync mode:{ballot} T:{b32}", "=d:T, a:pred, mask:u32", "@sm_30@ptx6.0"),
    ("mode:{all|any|uni} T:{pred}", "=d:T, a:pred", "", "", None, _GONE),
    ("mode:{ballot} T:{b32}", "=d:T, a:pred", "", "", None, _GONE),
    effects="warp",
)
declare(
    "match", "any: d = the lanes whose a equals this lane's; all: d = mask if all agree, else 0",
    ("mode:{any} sync T:{b32|b64}", "=d:u32, a:T, mask:u32", "@sm_70@ptx6.0"),
    ("mode:{all} sync T:{b32|b64}", "=d|p?:u32|pred, a:T, mask:u32", "@sm_70@ptx6.0"),
    effects="warp",
)
declare(
    "redux", "d = all lanes' a, reduced",
    ("sync op:{add|min|max} T:{u32|s32}", "=d:T, a:T, mask:u32", "@sm_80@ptx7.0"),
    ("sync op:{and|or|xor} T:{b32}", "=d:u32, a:u32, mask:u32", "@sm_80@ptx7.0"),
    ("sync op:{min|max} abs? NaN? T:{f32}", "=d:T, a:T, mask:u32", "@sm_100f/sm_107f@ptx8.6"),
    effects="warp",
)
declare("activemask", "d = the lanes that run now", ("T:{b32}", "=d:T", "@sm_30@ptx6.2"), effects="warp")
declare("elect", "p = whether this lane is the elected one of mask; d = the elected lane",
        ("sync", "=d|p:u32|pred, mask:u32", "@sm_90@ptx8.0"),
        effects="warp")
