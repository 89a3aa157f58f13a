"""Barriers and fences: bar, barrier, fence, membar, mbarrier, clusterlaunchcontrol.

bar/barrier: slots cta (a flag), action (sync arrive red), op (popc and or) with T, aligned; warp (a flag) for bar.warp.sync; cluster (a
flag) with action arrive/wait and sem for barrier.cluster. Operands: d (red's result), a the barrier, b the number of threads, c red's
predicate, mask.
fence: slots sem, scope, proxy and what a proxy fence names. membar: slot level (cta gl sys).
mbarrier: slot action (init inval expect_tx complete_tx arrive arrive_drop test_wait try_wait pending_count), expect_tx, noComplete and
parity (flags), sem, scope, space. Operands: d (the state; `_` where it is not wanted; test_wait's predicate), a the address, b (count,
transactions, state or parity), hint (a time limit in ns)."""

from warpwright.ptx.isa.memory import SCOPE
from warpwright.ptx.isa.table import Match, constant, declare
from warpwright.ptx.tree import Integer, Sink


def _check(match: Match) -> str | None:
    barrier, count = match.value("a"), match.value("b")
    if barrier and isinstance(barrier.operand, Integer) and not 0 <= barrier.operand.value <= 15:
        return f"a barrier is numbered 0 to 15, not {barrier.operand.value}"
    if count and isinstance(count.operand, Integer) and count.operand.value % 32:
        return f"a barrier's number of threads is a multiple of 32, not {count.operand.value}"
    if count and isinstance(count.operand, Integer) and not count.operand.value and "arrive" in match.instruction.modifiers:
        return "'.arrive' takes the number of threads that meet at the barrier, and 0 is none"
    return None


def _cta_barrier(aligned: str, needs: str):
    return (
        (f"cta@ptx7.8? action:{{sync}} {aligned}", "a:u32, b:u32?", needs, "", _check),
        (f"cta@ptx7.8? action:{{arrive}} {aligned}", "a:u32, b:u32", needs, "", _check),
        (f"cta@ptx7.8? action:{{red}} op:{{popc}} {aligned} T:{{u32}}", "=d:T, a:u32, c:pred", needs, "", _check),
        (f"cta@ptx7.8? action:{{red}} op:{{popc}} {aligned} T:{{u32}}", "=d:T, a:u32, b:u32, c:pred", needs, "", _check),
        (f"cta@ptx7.8? action:{{red}} op:{{and|or}} {aligned} T:{{pred}}", "=d:T, a:u32, c:pred", needs, "", _check),
        (f"cta@ptx7.8? action:{{red}} op:{{and|or}} {aligned} T:{{pred}}", "=d:T, a:u32, b:u32, c:pred", needs, "", _check),
    )


declare("bar", "wait at, or arrive at, a barrier of the CTA; or a barrier of the lanes in mask",
        *_cta_barrier("", ""),
        ("warp action:{sync}", "mask:u32", "@sm_30@ptx6.0"), effects="barrier")
declare("barrier", "wait at, or arrive at, a barrier of the CTA or of the cluster",
        *_cta_barrier("aligned?", "@ptx6.0"),
        ("cluster action:{arrive} sem:{release@ptx8.0|relaxed@ptx8.0}? aligned?", "", "@sm_90@ptx7.8"),
        ("cluster action:{wait} sem:{acquire@ptx8.0}? aligned?", "", "@sm_90@ptx7.8"), effects="barrier")

declare(
    "fence", "order the memory accesses before and after",
    (f"sem:{{sc|acq_rel|acquire@sm_90@ptx8.6|release@sm_90@ptx8.6}}? {SCOPE}", "", "@sm_70@ptx6.0"),
    ("sem:{acquire} restrict:{sync_restrict::shared::cluster} scope:{cluster}", "", "@sm_90@ptx8.6"),
    ("sem:{release} restrict:{sync_restrict::shared::cta} scope:{cluster}", "", "@sm_90@ptx8.6"),
    ("mbarrier_init sem:{release} scope:{cluster}", "", "@sm_90@ptx8.0"),
    ("proxy:{proxy} kind:{alias}", "", "@sm_70@ptx7.5"),
    ("proxy:{proxy} kind:{async}", "", "@sm_90@ptx8.0"),
    ("proxy:{proxy} kind:{async} space:{global|shared::cta|shared::cluster}", "", "@sm_90@ptx8.0"),
    (f"proxy:{{proxy}} kind:{{tensormap::generic}} sem:{{release}} {SCOPE}", "", "@sm_90@ptx8.3"),
    (f"proxy:{{proxy}} kind:{{tensormap::generic}} sem:{{acquire}} {SCOPE}", "a:addr, size:imm", "@sm_90@ptx8.3", "",
     constant("size", 128)),
    ("proxy:{proxy} kind:{async::generic} sem:{acquire} restrict:{sync_restrict::shared::cluster} scope:{cluster}", "", "@sm_90@ptx8.6"),
    ("proxy:{proxy} kind:{async::generic} sem:{release} restrict:{sync_restrict::shared::cta} scope:{cluster}", "", "@sm_90@ptx8.6"),
    effects="fence",
)
declare("membar", "order the memory accesses before and after (the older fence.sc)",
        ("level:{cta|gl|sys}", ""), ("proxy:{proxy} kind:{alias}", "", "@sm_60@ptx7.5"), effects="fence")

def _check_order(match: Match) -> str | None:
    if (match.get("sem") is None) != (match.get("scope") is None):
        return "a memory order (.acquire, .release, .relaxed) and a scope (.cta, .cluster) go together"
    parity = match.value("b") if match.get("parity") else None
    if parity is not None and isinstance(parity.operand, Integer) and parity.operand.value not in (0, 1):
        return f"a parity is 0 or 1, not {parity.operand.value}"
    result = match.value("d")
    if match["action"].startswith("arrive") and match.get("space") == "shared::cluster" and result and not isinstance(result.operand, Sink):
        return "an arrival at another CTA's barrier (.shared::cluster) gives no state: write '_' for it"
    return None


_SPACE = "space:{shared|shared::cta@ptx7.8}?"
_ANY = "space:{shared|shared::cta@ptx7.8|shared::cluster@sm_90@ptx8.0}?"
_ORDER = "sem:{release|relaxed@sm_90@ptx8.6}? scope:{cta@sm_80@ptx8.0|cluster@sm_90@ptx8.0}?"
_WAIT = "sem:{acquire@sm_80@ptx8.0|relaxed@sm_90@ptx8.6}? scope:{cta@sm_80@ptx8.0|cluster@sm_90@ptx8.0}?"
_ARRIVE = "action:{arrive|arrive_drop}"
declare(
    "mbarrier", "an asynchronous barrier in shared memory: count arrivals and transactions, wait for a phase to complete",
    (f"action:{{init}} {_SPACE} T:{{b64}}", "a:addr, b:u32", "@sm_80@ptx7.0", "", _check_order),
    (f"action:{{inval}} {_SPACE} T:{{b64}}", "a:addr", "@sm_80@ptx7.0"),
    (f"action:{{expect_tx|complete_tx}} sem:{{relaxed}}? scope:{{cta|cluster}}? {_ANY} T:{{b64}}", "a:addr, b:u32", "@sm_90@ptx8.0", "",
     _check_order),
    (f"{_ARRIVE} {_ORDER} {_ANY} T:{{b64}}", "=d:u64, a:addr, b:u32?", "@sm_80@ptx7.0", "", _check_order),
    (f"{_ARRIVE} expect_tx {_ORDER} {_ANY} T:{{b64}}", "=d:u64, a:addr, b:u32", "@sm_90@ptx8.0", "", _check_order),
    (f"{_ARRIVE} noComplete sem:{{release}}? scope:{{cta@sm_80@ptx8.0}}? {_SPACE} T:{{b64}}", "=d:u64, a:addr, b:u32", "@sm_80@ptx7.0", "",
    _check_order),
    (f"action:{{test_wait}} {_WAIT} {_SPACE} T:{{b64}}", "=d:pred, a:addr, b:u64", "@sm_80@ptx7.0", "", _check_order),
    (f"action:{{test_wait}} parity@ptx7.1 {_WAIT} {_SPACE} T:{{b64}}", "=d:pred, a:addr, b:u32", "@sm_80@ptx7.0", "", _check_order),
    (f"action:{{try_wait}} {_WAIT} {_SPACE} T:{{b64}}", "=d:pred, a:addr, b:u64, hint:u32?", "@sm_90@ptx7.8", "", _check_order),
    (f"action:{{try_wait}} parity {_WAIT} {_SPACE} T:{{b64}}", "=d:pred, a:addr, b:u32, hint:u32?", "@sm_90@ptx7.8", "", _check_order),
    ("action:{pending_count} T:{b64}", "=d:u32, a:u64", "@sm_80@ptx7.0"),
    effects="barrier",
)

declare(
    "clusterlaunchcontrol", "take over the work of a cluster that has not started",
    ("action:{try_cancel} async space:{shared::cta}? complete:{mbarrier::complete_tx::bytes}"
     " multicast:{multicast::cluster::all@sm_100f/sm_107f/sm_110f/sm_120f}? "
     "T:{b128}",
     "a:addr, barrier:addr", "@sm_100@ptx8.6"),
    ("action:{query_cancel} query:{is_canceled} D:{pred} T:{b128}", "=d:pred, a:b128", "@sm_100@ptx8.6"),
    ("action:{query_cancel} query:{get_first_ctaid} vec:{v4} D:{b32} T:{b128}", "=d:D*vec, a:b128", "@sm_100@ptx8.6"),
    ("action:{query_cancel} query:{get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z} D:{b32} T:{b128}", "=d:D, a:b128",
     "@sm_100@ptx8.6"),
    effects="barrier",
)
