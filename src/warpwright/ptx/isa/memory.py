"""Loads, stores, prefetches and cache policies: ld, ldu, st, prefetch, prefetchu, applypriority, discard, createpolicy, multimem.

Slots: T; vec (v2 v4 v8); space (absent: generic); sem (weak volatile relaxed acquire release); scope; mmio and nc (flags); cop the cache
operator; l1 and l2 the eviction priorities (`L1::evict_last`); hint (`L2::cache_hint`: the last operand is a cache policy); fetch the
prefetch size (`L2::128B`).
Operands: ld: d, a (the address), policy. st: a (the address), b, policy. Addresses are of kind addr: `tree.Address`.
"""

import struct

from warpwright.ptx.isa.table import Match, constant, declare
from warpwright.ptx.tree import Float

TYPES = "b8|b16|b32|b64|b128@sm_70@ptx8.3|u8|s8|u16|s16|u32|s32|u64|s64|f32|f64"
SPACES = ("const|global|local|param|param::entry@ptx8.3|param::func@ptx8.3|shared|shared::cta@sm_30@ptx7.8|shared::cluster@sm_90@ptx7.8")
SCOPE = "scope:{cta|cluster@sm_90@ptx7.8|gpu|sys}"
SPACE = f"space:{{{SPACES}}}?"
STORED = "space:{global|local|param|param::func@ptx8.3|shared|shared::cta@sm_30@ptx7.8|shared::cluster@sm_90@ptx7.8}?"
VOLATILE = "space:{global|local@ptx9.1|shared|shared::cta@sm_30@ptx7.8|shared::cluster@sm_90@ptx7.8}?"
L1 = "l1:{" + "|".join(f"L1::{word}@sm_70@ptx7.4" for word in ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")) + "}?"
L2 = "l2:{L2::evict_normal|L2::evict_first|L2::evict_last}?"
HINT = "hint:{L2::cache_hint@sm_80@ptx7.4}?"
FETCH = "fetch:{L2::64B@sm_75@ptx7.4|L2::128B@sm_75@ptx7.4|L2::256B@sm_80@ptx7.4}?"
LOAD_HINTS = f"{L1} <l2> {HINT} {FETCH}"
STORE_HINTS = f"{L1} <l2> {HINT}"
# (vector lengths, types, needs): at most 16 bytes at once; from sm_100 on 32 in global memory, with an L2 eviction priority if wanted.
WIDTHS = (
    ("vec:{v2|v4}?", "b8|b16|b32|u8|s8|u16|s16|u32|s32|f32", ""),
    ("vec:{v2}?", "b64|u64|s64|f64", ""),
    ("", "b128", "@sm_70@ptx8.3"),
)
WIDE = (("vec:{v4}", "b64|u64|s64|f64", "@sm_100@ptx8.8"), ("vec:{v8}", "b32|u32|s32|f32", "@sm_100@ptx8.8"))
LOADED = "=d:T*vec, a:addr, policy:u64?"
GIVEN = "a:addr, b:T*vec, policy:u64?"


def _check(match: Match) -> str | None:
    """What holds between an access's modifiers and its operands."""
    if bool(match.get("hint")) != (match.value("policy") is not None):
        return "'.L2::cache_hint' and a cache policy as the last operand go together"
    space = match.get("space")
    if match.get("cop") and match.get("l1"):
        return f"a cache operator (.{match['cop']}) and an eviction priority (.{match['l1']}) do not go together"
    if (match.get("l1") or match.get("l2") or match.get("fetch") or match.get("hint")) and space not in (None, "global"):
        return f"cache hints are for '.global' and generic addresses, not '.{space}'"
    if match.get("sem") in ("relaxed", "acquire", "release") and space not in (None, "global", "shared", "shared::cta", "shared::cluster"):
        return f"'.{match['sem']}' is for '.global', '.shared' and generic addresses, not '.{space}'"
    return None


def _widths(modifiers: str, space: str, hints: str, operands: str, needs: str = ""):
    """An access once for each kind of width."""
    for vector, types, more in WIDTHS:
        if types == "b128":
            modifiers = modifiers.replace("|sys}", "|sys@ptx8.4}")
        yield (f"{modifiers.replace('<space>', space)} {hints.replace('<l2>', '')} {vector} T:{{{types}}}",
               operands if vector else operands.replace("*vec", ""), needs + more, "", _check)
    for vector, types, more in WIDE:
        wide_space = space if space == "space:{global}" else "space:{global}?"
        yield (f"{modifiers.replace('<space>', wide_space)} {hints.replace('<l2>', L2)} {vector} T:{{{types}}}", operands, needs + more,
               "", _check)


declare(
    "ld", "d = the value at address a",
    *_widths("sem:{weak@sm_70@ptx6.0}? <space> cop:{ca|cg|cs|lu|cv}?", SPACE, LOAD_HINTS, LOADED),
    *_widths("sem:{volatile} <space>", VOLATILE, FETCH, "=d:T*vec, a:addr"),
    *_widths(f"sem:{{relaxed|acquire}} {SCOPE} <space>", SPACE, LOAD_HINTS, LOADED, "@sm_70@ptx6.0"),
    (f"mmio sem:{{relaxed|acquire@ptx9.3}} scope:{{sys}} space:{{global}}? T:{{{TYPES}}}", "=d:T, a:addr", "@sm_70@ptx8.2"),
    *_widths("<space> cop:{ca|cg|cs}? nc", "space:{global}", LOAD_HINTS, LOADED, "@sm_32@ptx3.1"),
    effects="load",
)
declare("ldu", "d = the value at address a, the same for all lanes",
        *((f"space:{{global}}? {vector} T:{{{types}}}", "=d:T*vec, a:addr" if vector else "=d:T, a:addr", needs) for vector, types,
          needs in WIDTHS),
        effects="load")
declare(
    "st", "the value at address a = b",
    *_widths("sem:{weak@sm_70@ptx6.0}? <space> cop:{wb|cg|cs|wt}?", STORED, STORE_HINTS, GIVEN),
    *_widths("sem:{volatile} <space>", VOLATILE, "", "a:addr, b:T*vec"),
    *_widths(f"sem:{{relaxed|release}} {SCOPE} <space>", STORED, STORE_HINTS, GIVEN, "@sm_70@ptx6.0"),
    (f"mmio sem:{{relaxed|release@ptx9.3}} scope:{{sys}} space:{{global}}? T:{{{TYPES}}}", "a:addr, b:T", "@sm_70@ptx8.2"),
    *((f"async sem:{{weak}}? space:{{shared::cluster}}? complete:{{mbarrier::complete_tx::bytes}} {vector} T:{{{types}}}",
       "a:addr, b:T*vec, barrier:addr", "@sm_90@ptx8.1")
      for vector, types in (("vec:{v2|v4}?", "b32|u32|s32|f32"), ("vec:{v2}?", "b64|u64|s64|f64"))),
    ("async mmio sem:{release} scope:{sys} space:{global}? T:{b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64}",
     "a:addr, b:T", "@sm_100@ptx8.7"),
    ("async sem:{release} scope:{gpu|sys} space:{global}? T:{b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64}",
     "a:addr, b:T", "@sm_100@ptx8.7"),
    ("bulk sem:{weak}? space:{shared::cta}?", "a:addr, size:u64, b:imm", "@sm_100@ptx8.6", "", constant("b", 0)),
    effects="store",
)

declare(
    "prefetch", "bring the cache line of address a to a cache",
    ("space:{global|local}? level:{L1|L2}", "a:addr"),
    ("space:{global}? level:{L2::evict_last@sm_80@ptx7.4|L2::evict_normal@sm_80@ptx7.4}", "a:addr"),
    ("space:{const|param}? tensormap", "a:addr", "@sm_90@ptx8.0"),
    effects="nop",
)
declare("prefetchu", "bring the cache line of generic address a to the uniform cache", ("level:{L1}", "a:addr"), effects="nop")
declare("applypriority", "give the cache lines from address a on a priority",
        ("space:{global}? level:{L2::evict_normal}", "a:addr, size:imm", "@sm_80@ptx7.4", "", constant("size", 128)), effects="nop")
declare("discard", "drop the cache lines from address a on without writing them back",
        ("space:{global}? level:{L2}", "a:addr, size:imm", "@sm_80@ptx7.4", "", constant("size", 128)), effects="store")

_PRIMARY = "primary:{L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged}"
_SECONDARY = "secondary:{L2::evict_first|L2::evict_unchanged}?"
def _check_range(match: Match) -> str | None:
    sizes = [getattr(match.values[i].operand, "value", None) for i in (2, 3)]
    if isinstance(sizes[0], int) and isinstance(sizes[1], int) and sizes[0] > sizes[1]:
        return f"the primary size, {sizes[0]}, is at most the total size, {sizes[1]}"
    return None


def _check_fraction(match: Match) -> str | None:
    value = match.value("a")
    if value is None or not isinstance(value.operand, Float):
        return None
    bits = value.operand.bits
    number = struct.unpack("<d", struct.pack("<Q", bits))[0] if value.operand.width == 64 else struct.unpack("<f", struct.pack("<I", bits))[0]
    return None if 0 < number <= 1 else f"the fraction is above 0 and at most 1, not {number}"


declare(
    "createpolicy", "d = a cache policy",
    (f"fractional {_PRIMARY} {_SECONDARY} T:{{b64}}", "=d:u64, a:f32?", "@sm_80@ptx7.4", "", _check_fraction),
    (f"range space:{{global}}? {_PRIMARY} {_SECONDARY} T:{{b64}}", "=d:u64, a:addr, b:u32, c:u32", "@sm_80@ptx7.4", "", _check_range),
    ("cvt level:{L2} T:{b64}", "=d:u64, a:u64", "@sm_80@ptx7.4"),
    effects="nop",
)


def _check_order(match: Match) -> str | None:
    if (match.get("sem") in (None, "weak")) != (match.get("scope") is None):
        return "a memory order (.relaxed, .acquire, .release) and a scope go together"
    return None


def _multimem():
    load, reduce = (f"sem:{{weak|relaxed|{order}}}? {SCOPE}? space:{{global}}?" for order in ("acquire", "release"))
    specific = "sm_100f/sm_107f/sm_110f/sm_120a/sm_121a"
    tiny = f"e4m3x4@{specific}@ptx8.6|e5m2x4@{specific}@ptx8.6"
    for action, order, operands in (("ld_reduce", load, "=d:T*vec, a:addr"), ("red", reduce.replace("weak|", ""), "a:addr, b:T*vec")):
        head = f"action:{{{action}}} {order}"
        for op, types in (("min|max", "u32|s32|u64|s64"), ("and|or|xor", "b32|b64"), ("add", "u32|s32|u64|f32|f64")):
            yield f"{head} op:{{{op}}} T:{{{types}}}", operands.replace("*vec", ""), "@sm_90@ptx8.1", "", _check_order
        yield f"{head} op:{{add}} vec:{{v2|v4}} T:{{f32}}", operands, "@sm_90@ptx8.1", "", _check_order
        accumulate = "acc:{acc::f32@ptx8.2}?" if action == "ld_reduce" else ""
        for op, acc in (("add", accumulate), ("min|max", "")):
            if action == "red" and op != "add":
                continue
            yield f"{head} op:{{{op}}} {acc} vec:{{v2|v4|v8}} T:{{f16|bf16}}", operands, "@sm_90@ptx8.1", "", _check_order
            yield f"{head} op:{{{op}}} {acc} vec:{{v2|v4}}? T:{{f16x2|bf16x2}}", operands, "@sm_90@ptx8.1", "", _check_order
            if action == "ld_reduce":
                yield (f"{head} op:{{{op}}} {'acc:{acc::f16}?' if op == 'add' else ''} vec:{{v2|v4}}? T:{{{tiny}}}", operands,
                       f"@{specific}@ptx8.6", "", _check_order)
    store = f"action:{{st}} {reduce}"
    yield f"{store} T:{{b32|b64|u32|u64|s32|s64|f32|f64}}", "a:addr, b:T", "@sm_90@ptx8.1", "", _check_order
    yield f"{store} vec:{{v2|v4}} T:{{f32}}", "a:addr, b:T*vec", "@sm_90@ptx8.1", "", _check_order
    yield f"{store} vec:{{v2|v4|v8}} T:{{f16|bf16}}", "a:addr, b:T*vec", "@sm_90@ptx8.1", "", _check_order
    yield f"{store} vec:{{v2|v4}}? T:{{f16x2|bf16x2|{tiny}}}", "a:addr, b:T*vec", "@sm_90@ptx8.1", "", _check_order


declare("multimem", "read and reduce, write, or reduce to all the replicas behind a multimem address", *_multimem(), effects="load store")
