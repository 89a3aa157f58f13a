"""Atomic operations on memory: atom (returns the old value), red (does not).

Slots: op; T; sem (relaxed acquire release acq_rel; absent: relaxed), scope (absent: gpu), space (absent: generic); noftz (a flag:
subnormals kept); vec (element by element, each atomic by itself); hint (`L2::cache_hint`: the last operand is a cache policy); async (a
flag of red).
Operands: d the old value, a the address, b, c (cas: b is compared, c is stored), policy; barrier of red.async.
"""

from warpwright.ptx.isa.memory import HINT, SCOPE
from warpwright.ptx.isa.table import Match, declare

ATOMIC_SCOPE = SCOPE.replace("|gpu|sys", "|gpu@sm_60@ptx5.0|sys@sm_60@ptx5.0").replace("{cta|", "{cta@sm_60@ptx5.0|")
SEM = "sem:{relaxed@sm_70@ptx6.0|acquire@sm_70@ptx6.0|release@sm_70@ptx6.0|acq_rel@sm_70@ptx6.0}?"
RED_SEM = "sem:{relaxed@sm_70@ptx6.0|release@sm_70@ptx6.0}?"
SPACE = "space:{global|shared|shared::cta@sm_30@ptx7.8|shared::cluster@sm_90@ptx7.8}?"
ORDER = f"{SEM} {ATOMIC_SCOPE}? {SPACE}"
RED_ORDER = f"{RED_SEM} {ATOMIC_SCOPE}? {SPACE}"
GLOBAL = "space:{global}?"

# (op slot with flags, types, needs)
_SCALAR = (
    ("op:{and|or|xor}", "b32|b64", ""),
    ("op:{add}", "u32|s32|u64|f32|f64@sm_60@ptx5.0", ""),
    ("op:{inc|dec}", "u32", ""),
    ("op:{min|max}", "u32|s32|u64|s64", ""),
    ("op:{add} noftz", "f16@sm_70@ptx6.3|f16x2", "@sm_60@ptx6.2"),
    ("op:{add} noftz", "bf16|bf16x2", "@sm_90@ptx7.8"),
)
_VECTOR = (
    ("op:{add}", "vec:{v2|v4} T:{f32}"),
    ("op:{add|min|max} noftz", "vec:{v2|v4|v8} T:{f16|bf16}"),
    ("op:{add|min|max} noftz", "vec:{v2|v4} T:{f16x2|bf16x2}"),
)


def _check(match: Match) -> str | None:
    if bool(match.get("hint")) != (match.value("policy") is not None):
        return "'.L2::cache_hint' and a cache policy as the last operand go together"
    if match.get("hint") and match.get("space") not in (None, "global"):
        return f"'.L2::cache_hint' is for '.global' and generic addresses, not '.{match['space']}'"
    return None


declare(
    "atom", "d = the value at a; the value at a = that op b, in one step that no other thread can interrupt",
    *((f"{ORDER} {op} {HINT} T:{{{types}}}", "=d:T, a:addr, b:T, policy:u64?", needs, "", _check) for op, types, needs in _SCALAR),
    (f"{ORDER} op:{{exch}} {HINT} T:{{b32|b64|b128@sm_90@ptx8.3}}", "=d:T, a:addr, b:T, policy:u64?", "", "", _check),
    (f"{ORDER} op:{{cas}} T:{{b16@sm_70@ptx6.3|b32|b64|b128@sm_90@ptx8.3}}", "=d:T, a:addr, b:T, c:T"),
    *((f"sem:{{relaxed|acquire|release|acq_rel}}? {SCOPE}? {GLOBAL} {op} {HINT} {types}", "=d:T*vec, a:addr, b:T*vec, policy:u64?",
       "@sm_90@ptx8.1", "", _check) for op, types in _VECTOR),
    effects="load store",
)
declare(
    "red", "the value at a = that op b, in one step that no other thread can interrupt",
    *((f"{RED_ORDER} {op} {HINT} T:{{{types}}}", "a:addr, b:T, policy:u64?", needs, "", _check) for op, types, needs in _SCALAR),
    *((f"sem:{{relaxed|release}}? {SCOPE}? {GLOBAL} {op} {HINT} {types}", "a:addr, b:T*vec, policy:u64?",
       "@sm_90@ptx8.1", "", _check) for op, types in _VECTOR),
    *((f"async sem:{{relaxed}} scope:{{cluster}} space:{{shared::cluster}}? complete:{{mbarrier::complete_tx::bytes}} op:{{{op}}} "
       f"T:{{{types}}}",
       "a:addr, b:T, barrier:addr", "@sm_90@ptx8.1")
      for op, types in (("inc|dec", "u32"), ("min|max", "u32|s32"), ("add", "u32|s32|u64"), ("and|or|xor", "b32"))),
    effects="load store",
)
