"""Loads, stores, prefetches and cache policies: ld, ldu, st, prefetch, prefetchu, applypriority, discard, createpolicy, multimem.

Slots: T; vec (v2 v4 v8); space (absent: generic); sem (weak volatile relaxed acquire release); scope; mmio and nc (flags); cop the cache operator;
l1 and l2 the eviction priorities (`L1::evict_last`); hint (`L2::cache_hint`: the last operand is a cache policy); fetch the prefetch size (`L2::128B`).
Operands: ld: d, a (the address), policy. st: a (the address), b, policy. Addresses are of kind addr: `tree.Address`.
"""

from warpwright.ptx.isa.table import Match, declare

TYPES = "b8|b16|b32|b64|b128@sm_70@ptx8.3|u8|s8|u16|s16|u32|s32|u64|s64|f32|f64"
SPACES = ("const|global|local|param|param::entry@ptx8.3|param::func@ptx8.3|shared|shared::cta@sm_30@ptx7.8|shared::cluster@sm_90@ptx7.8")
SCOPE = "scope:{cta|cluster@sm_90@ptx7.8|gpu|sys}"
SPACE = f"space:{{{SPACES}}}?"
STORED = "space:{global|local|param|param::func@ptx8.3|shared|shared::cta@sm_30@ptx7.8|shared::cluster@sm_90@ptx7.8}?"
L1 = "l1:{L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate}?"
L2 = "l2:{L2::evict_normal|L2::evict_first|L2::evict_last}?"
HINT = "hint:{L2::cache_hint@sm_80@ptx7.4}?"
FETCH = "fetch:{L2::64B@sm_75@ptx7.4|L2::128B@sm_75@ptx7.4|L2::256B@sm_80@ptx7.4}?"
VECTOR = "vec:{v2|v4|v8@sm_100@ptx8.8}?"
TAIL = f"{L1} {L2} {HINT} {FETCH} {VECTOR} T:{{{TYPES}}}"
LOADED = "=d:T*vec, a:addr, policy:b64?"
GIVEN = "a:addr, b:T*vec, policy:b64?"


def _check(match: Match) -> str | None:
    """What holds between an access's modifiers and its operands."""
    if bool(match.get("hint")) != (match.value("policy") is not None):
        return "'.L2::cache_hint' and a cache policy as the last operand go together"
    space = match.get("space")
    if match.get("cop") and (match.get("l1") or match.get("l2")):
        return f"a cache operator (.{match['cop']}) and an eviction priority (.{match.get('l1') or match.get('l2')}) do not go together"
    if (match.get("l1") or match.get("l2") or match.get("fetch") or match.get("hint")) and space not in (None, "global"):
        return f"cache hints are for '.global' and generic addresses, not '.{space}'"
    if match.get("sem") in ("relaxed", "acquire", "release") and space not in (None, "global", "shared", "shared::cta", "shared::cluster"):
        return f"'.{match['sem']}' is for '.global', '.shared' and generic addresses, not '.{space}'"
    return None


_weak_load = f"sem:{{weak}}? {SPACE} cop:{{ca|cg|cs|lu|cv}}? {TAIL}"
declare(
    "ld", "d = the value at address a",
    (_weak_load, LOADED, "", "", _check),
    (f"sem:{{volatile}} {SPACE} {FETCH} {VECTOR} T:{{{TYPES}}}", "=d:T*vec, a:addr"),
    (f"sem:{{relaxed|acquire}} {SCOPE} {SPACE} {TAIL}", LOADED, "@sm_70@ptx6.0", "", _check),
    (f"mmio sem:{{relaxed}}? scope:{{sys}} space:{{global}}? T:{{{TYPES}}}", "=d:T, a:addr", "@sm_70@ptx8.2"),
    (f"sem:{{weak}}? space:{{global}} cop:{{ca|cg|cs}}? nc {TAIL}", LOADED, "@sm_32@ptx3.1", "", _check),
    effects="load",
)
declare("ldu", "d = the value at address a, the same for all lanes", (f"space:{{global}}? vec:{{v2|v4}}? T:{{{TYPES}}}", "=d:T*vec, a:addr"),
        effects="load")
declare(
    "st", "the value at address a = b",
    (f"sem:{{weak}}? {STORED} cop:{{wb|cg|cs|wt}}? {TAIL}", GIVEN, "", "", _check),
    (f"sem:{{volatile}} {STORED} {VECTOR} T:{{{TYPES}}}", "a:addr, b:T*vec"),
    (f"sem:{{relaxed|release}} {SCOPE} {STORED} {TAIL}", GIVEN, "@sm_70@ptx6.0", "", _check),
    (f"mmio sem:{{relaxed}}? scope:{{sys}} space:{{global}}? T:{{{TYPES}}}", "a:addr, b:T", "@sm_70@ptx8.2"),
    ("async sem:{weak}? space:{shared::cluster}? complete:{mbarrier::complete_tx::bytes} vec:{v2|v4}? T:{b32|b64|u32|u64|s32|s64|f32|f64}",
     "a:addr, b:T*vec, barrier:addr", "@sm_90@ptx8.1"),
    ("async mmio? sem:{release} scope:{gpu|sys} space:{global}? T:{b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64}",
     "a:addr, b:T", "@sm_100@ptx8.7"),
    ("bulk sem:{weak}? space:{shared::cta}?", "a:addr, size:u64, b:imm", "@sm_100@ptx8.6"),
    effects="store",
)

declare(
    "prefetch", "bring the cache line of address a to a cache",
    ("space:{global|local}? level:{L1|L2}", "a:addr"),
    ("space:{global} level:{L2::evict_last@sm_80@ptx7.4|L2::evict_normal@sm_80@ptx7.4}", "a:addr"),
    ("space:{const|param}? tensormap", "a:addr", "@sm_90@ptx8.0"),
    effects="nop",
)
declare("prefetchu", "bring the cache line of generic address a to the uniform cache", ("level:{L1}", "a:addr"), effects="nop")
declare("applypriority", "give the cache lines from address a on a priority",
        ("space:{global}? level:{L2::evict_normal}", "a:addr, size:imm", "@sm_80@ptx7.4"), effects="nop")
declare("discard", "drop the cache lines from address a on without writing them back",
        ("space:{global}? level:{L2}", "a:addr, size:imm", "@sm_80@ptx7.4"), effects="store")

_PRIMARY = "primary:{L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged}"
_SECONDARY = "secondary:{L2::evict_first|L2::evict_unchanged}?"
declare(
    "createpolicy", "d = a cache policy",
    (f"fractional {_PRIMARY} {_SECONDARY} T:{{b64}}", "=d:T, a:f32?", "@sm_80@ptx7.4"),
    (f"range space:{{global}}? {_PRIMARY} {_SECONDARY} T:{{b64}}", "=d:T, a:addr, b:u32, c:u32", "@sm_80@ptx7.4"),
    ("cvt level:{L2} T:{b64}", "=d:T, a:b64", "@sm_80@ptx7.4"),
    effects="nop",
)

_MULTIMEM_SEM = f"sem:{{weak|relaxed|acquire}}? {SCOPE}? space:{{global}}?"
declare(
    "multimem", "read and reduce, write, or reduce to all the replicas behind a multimem address",
    (f"action:{{ld_reduce}} {_MULTIMEM_SEM} op:{{min|max|add|and|or|xor}} T:{{b32|b64|u32|u64|s32|s64|f32|f64}}", "=d:T, a:addr",
     "@sm_90@ptx8.1"),
    (f"action:{{ld_reduce}} {_MULTIMEM_SEM} op:{{min|max|add}} acc:{{acc::f32|acc::f16}}? vec:{{v2|v4|v8}}? "
     "T:{f32|f16|f16x2|bf16|bf16x2|e4m3|e4m3x2|e4m3x4|e5m2|e5m2x2|e5m2x4}", "=d:T*vec, a:addr", "@sm_90@ptx8.1"),
    (f"action:{{st}} sem:{{weak|relaxed|release}}? {SCOPE}? space:{{global}}? vec:{{v2|v4|v8}}? "
     "T:{b32|b64|u32|u64|s32|s64|f32|f64|f16|f16x2|bf16|bf16x2|e4m3|e4m3x2|e4m3x4|e5m2|e5m2x2|e5m2x4}", "a:addr, b:T*vec", "@sm_90@ptx8.1"),
    (f"action:{{red}} sem:{{relaxed|release}}? {SCOPE}? space:{{global}}? op:{{min|max|add|and|or|xor}} vec:{{v2|v4|v8}}? "
     "T:{b32|b64|u32|u64|s32|s64|f32|f64|f16|f16x2|bf16|bf16x2|e4m3|e4m3x2|e4m3x4|e5m2|e5m2x2|e5m2x4}", "a:addr, b:T*vec", "@sm_90@ptx8.1"),
    effects="load store",
)
