"""What PTX 9.1 to 9.5 added to the language and the virtual GPU does not run: both engines refuse these forms by name.

A form moves from here to its family's module when an engine learns it.
"""

from warpwright.ptx.isa import async_copy, atomics, convert, floating, matrix, memory, synchronise  # noqa: F401  they are extended here
from warpwright.ptx.isa.arithmetic import BINARY, TERNARY, UNARY
from warpwright.ptx.isa.async_copy import check_bulk_size
from warpwright.ptx.isa.memory import SCOPE, WIDTHS
from warpwright.ptx.isa.table import TYPE_FUNCTIONS, Match, declare, extend
from warpwright.ptx.isa.tensor_memory import EXACT, GROUP, NEED
from warpwright.ptx.tree import Integer, Sink

_FAMILIES = "@sm_100f/sm_107f/sm_110f/sm_120f"
_RUBIN = "@sm_107f@ptx9.4"

# ── arithmetic ───────────────────────────────────────────────────────────────────────────────────────────────────

for _opcode in ("add", "sub", "min", "max"):
    _sat = "sat? " if _opcode in ("add", "sub") else ""
    extend(_opcode, (f"{_sat}T:{{u8x4|s8x4}}", BINARY, "@sm_107f/sm_120f@ptx9.2"))
extend("neg", ("T:{s8x4}", UNARY, "@sm_107f/sm_120f@ptx9.2"))
extend("add", ("sat T:{u32}", BINARY, "@sm_107f/sm_120f@ptx9.2"))
declare("clmad", "d = a · b + c without carries, the low or high half of the product", ("mode:{lo|hi} T:{u64}", TERNARY, "@sm_80@ptx9.3"), runs=False)
for _opcode in ("sin", "cos"):
    extend(_opcode, ("mode:{approx} ftz cycles:{2pi} T:{f32}", UNARY, "@ptx9.5"))

# ── conversions ──────────────────────────────────────────────────────────────────────────────────────────────────

_ONE, _TWO = "=d:D, a:S", "=d:D, a:S, b:S"
_F8 = "e4m3x2|e5m2x2"
_F6F4 = "e2m1x2|e2m3x2|e3m2x2"
_SMALL = f"{_F8}|{_F6F4}"
_N1, _N2 = "scaled:{scaled::n1::ue8m0}", "scaled:{scaled::n2::ue8m0}"
extend(
    "cvt",
    (f"rnd:{{rn}} satfinite relu? D:{{{_F6F4}}} S:{{f16x2|bf16x2}}", _ONE, f"{_FAMILIES}@ptx9.1"),
    (f"rnd:{{rn}} satfinite? relu? D:{{bf16x2}} S:{{{_SMALL}}}", _ONE, f"{_FAMILIES}@ptx9.2"),
    (f"rnd:{{rn}} satfinite? relu? {_N2} D:{{bf16x2}} S:{{{_SMALL}}}", _ONE + ", scale!:b16", f"{_FAMILIES}@ptx9.2"),
    ("rnd:{rn|rz@sm_107a@ptx9.4} satfinite relu? D:{s2f6x2} S:{f32}", _TWO, f"@{EXACT}/sm_120a/sm_121a@ptx9.1"),
    ("rnd:{rn|rz@sm_107a@ptx9.4} satfinite relu? D:{s2f6x2} S:{bf16x2}", _ONE, f"@{EXACT}/sm_120a/sm_121a@ptx9.1"),
    ("rnd:{rn} satfinite? relu? D:{bf16x2} S:{s2f6x2}", _ONE, f"@{EXACT}/sm_120a/sm_121a@ptx9.1"),
    (f"rnd:{{rn|rz@sm_107a@ptx9.4}} satfinite relu? {_N2} D:{{s2f6x2}} S:{{f32}}", _TWO + ", scale!:b16", f"@{EXACT}/sm_120a/sm_121a@ptx9.1"),
    (f"rnd:{{rn|rz@sm_107a@ptx9.4}} satfinite relu? {_N2} D:{{s2f6x2}} S:{{bf16x2}}", _ONE + ", scale!:b16", f"@{EXACT}/sm_120a/sm_121a@ptx9.1"),
    (f"rnd:{{rn}} satfinite? relu? {_N2} D:{{bf16x2}} S:{{s2f6x2}}", _ONE + ", scale!:b16", f"@{EXACT}/sm_120a/sm_121a@ptx9.1"),
    # sm_107: toward zero, without negative zeros, scaled
    (f"rnd:{{rz}} satfinite relu? pzo? D:{{{_SMALL}}} S:{{f32}}", _TWO, _RUBIN),
    (f"rnd:{{rz}} satfinite relu? pzo? D:{{{_SMALL}}} S:{{f16x2|bf16x2}}", _ONE, _RUBIN),
    (f"rnd:{{rn}} satfinite relu? pzo D:{{{_SMALL}}} S:{{f32}}", _TWO, _RUBIN),
    (f"rnd:{{rn}} satfinite relu? pzo D:{{{_SMALL}}} S:{{f16x2|bf16x2}}", _ONE, _RUBIN),
    (f"rnd:{{rn|rz}} satfinite relu? pzo? {_N1} D:{{{_SMALL}}} S:{{f32}}", _TWO + ", scale!:b8", _RUBIN),
    (f"rnd:{{rn|rz}} satfinite relu? pzo? {_N1} D:{{{_SMALL}}} S:{{f16x2|bf16x2}}", _ONE + ", scale!:b8", _RUBIN),
    ("rnd:{rn|rz} relu? satfinite? pzo D:{f16|bf16|tf32} S:{f32}", _ONE, _RUBIN),
    ("rnd:{rn|rz} relu? satfinite? pzo D:{f16x2|bf16x2} S:{f32}", _TWO, _RUBIN),
    ("rnd:{rn|rz|rp} satfinite? D:{ue5m3x2} S:{f32}", _TWO, _RUBIN),
    ("rnd:{rn|rz|rp} satfinite? D:{ue5m3x2} S:{f16x2|bf16x2}", _ONE, _RUBIN),
    (f"rnd:{{rn|rz}} satfinite? {_N1} D:{{ue5m3x2}} S:{{f32}}", _TWO + ", scale!:b8", _RUBIN),
    (f"rnd:{{rn|rz}} satfinite? {_N1} D:{{ue5m3x2}} S:{{f16x2|bf16x2}}", _ONE + ", scale!:b8", _RUBIN),
    ("rnd:{rn} D:{f16x2} S:{ue5m3x2}", _ONE, _RUBIN),
    ("rnd:{rn} satfinite? D:{bf16x2} S:{ue5m3x2}", _ONE, _RUBIN),
    (f"rnd:{{rn}} satfinite? {_N2} D:{{bf16x2}} S:{{ue5m3x2}}", _ONE + ", scale!:b16", _RUBIN),
)

# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────

extend("ld", *((f"space:{{global}}? proxy:{{proxy::readonly}} {vector} T:{{{types}}}", "=d:T*vec, a:addr" if vector else
                "=d:T, a:addr", f"{needs}@sm_90@ptx9.4") for vector, types, needs in WIDTHS if vector))
extend("prefetch", ("space:{global}? level:{L1::32B} valid_addr", "a:addr", "@sm_90@ptx9.4"))
_ATOM = "space:{global|shared|shared::cta|shared::cluster@sm_90}? op:{add} noftz T:{f32}"
extend("atom", (f"sem:{{relaxed|acquire|release|acq_rel}}? {SCOPE}? {_ATOM}", "=d:T, a:addr, b:T", "@sm_90@ptx9.4"))
extend("red", (f"sem:{{relaxed|release}}? {SCOPE}? {_ATOM}", "a:addr, b:T", "@sm_90@ptx9.4"))
extend("st", ("async sem:{weak}? space:{shared::cluster}? complete:{mbarrier::complete_tx::bytes} T:{b128}", "a:addr, b:T, barrier:addr",
              "@sm_90@ptx9.2"))
_PLAIN = "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
extend(
    "multimem",
    (f"action:{{st}} async sem:{{release}} scope:{{gpu|sys}} space:{{global}}? T:{{{_PLAIN}}}", "a:addr, b:T", "@sm_100@ptx9.3"),
    *((f"action:{{red}} async sem:{{release}} scope:{{gpu|sys}} space:{{global}}? op:{{{op}}} T:{{{types}}}", "a:addr, b:T", "@sm_100@ptx9.3")
      for op, types in (("add", "u32|s32|u64"),)),
    *((f"action:{{cp}} async bulk {order} dst:{{global}} src:{{shared::cta}} complete:{{bulk_group}} {mask} {type_}",
       "dst:addr, src:addr, size:u32" + (", byte_mask:u16" if mask else ""), needs, "", check_bulk_size)
      for order, type_, needs in (("", "", "@sm_90@ptx9.1"), ("sem:{weak}", "", "@sm_90@ptx9.3"),
                                  (f"sem:{{relaxed}} {SCOPE}", "T:{b128}", "@sm_90a/sm_100f/sm_107f/sm_110f@ptx9.3"))
      for mask in ("", "cp_mask@sm_100")),
    *((f"action:{{cp}} reduce async bulk {order} dst:{{global}} src:{{shared::cta}} complete:{{bulk_group}} {op} T:{{{types}}}",
       "dst:addr, src:addr, size:u32", needs, "", check_bulk_size)
      for order, needs in (("", "@sm_90@ptx9.1"), (f"sem:{{relaxed}} {SCOPE}", "@sm_90@ptx9.3"))
      for op, types in (("op:{and|or|xor}", "b32|b64"), ("op:{add}", "u32|s32|u64|f32|f64"), ("op:{inc|dec}", "u32"),
                        ("op:{min|max}", "u32|s32|u64|s64|f16|bf16"), ("op:{add} noftz", "f16|bf16|f32@ptx9.4"))),
)
extend("applypriority", ("async bulk space:{global}? complete:{bulk_group} level:{L2::evict_normal}", "a:addr, size:u32", _RUBIN, "",
                         check_bulk_size))

# ── asynchronous copies ──────────────────────────────────────────────────────────────────────────────────────────

_DONE = "complete:{mbarrier::complete_tx::bytes}"
_STRONG = "@sm_90a/sm_100f/sm_107f/sm_110f@ptx9.3"
_REPORT = "report:{mbarrier::report::disabled|mbarrier::report::validity::per_element::ff|" + "|".join(
    f"mbarrier::report::validity::per_16bytes::{pattern}" for pattern in ("80000000", "8000", "80", "8")) + "}"


def _check_ends(match: Match) -> str | None:
    for name in ("left", "right"):
        value = match.value(name)
        if value is not None and isinstance(value.operand, Integer) and not 0 <= value.operand.value <= 15:
            return f"{name} is 0 to 15 bytes, not {value.operand.value}"
    return None


def _bulk():
    for dst, src in (("shared::cta", "global"), ("shared::cluster", "global"), ("shared::cluster", "shared::cta"), ("global", "shared::cta")):
        done = "complete:{bulk_group}" if dst == "global" else _DONE
        operands = "dst:addr, src:addr, size:u32" + ("" if dst == "global" else ", barrier:addr")
        scopes = "scope:{cta|cluster}" if (dst, src) == ("shared::cluster", "shared::cta") else SCOPE
        for hint, policy in (("", ""), ("hint:{L2::cache_hint}", ", policy:u64")):
            if hint and src == "shared::cta" and dst == "shared::cluster":
                continue
            masks = [("", "")]
            if (dst, src) == ("shared::cluster", "global"):
                masks += [("multicast:{multicast::cluster}", ", mask:u16"), ("multicast:{multicast::cluster::16b@ptx9.4}", ", mask:u16"),
                          ("multicast:{multicast::cluster::32b@sm_107f@ptx9.4}", ", mask:u32")]
            for multicast, mask in masks:
                tail = f"dst:{{{dst}}} src:{{{src}}} {done} {multicast} {hint}"
                yield f"async bulk sem:{{weak}} {tail}", operands + mask + policy, "@sm_90@ptx9.3"
                yield f"async bulk sem:{{relaxed}} {scopes} {tail} T:{{b128}}", operands + mask + policy, _STRONG
                if "::16b" in multicast or "::32b" in multicast:
                    yield f"async bulk {tail}", operands + mask + policy, "@sm_90@ptx9.4"
                if src == "global":
                    yield f"async bulk {tail.replace(_DONE, _DONE + ' ' + _REPORT)}", operands + mask + policy, _RUBIN
    for hint, policy in (("", ""), ("hint:{L2::cache_hint}", ", policy:u64")):
        yield (f"async bulk dst:{{shared::cta}} src:{{global}} {_DONE} ignore_oob {hint}",
               f"dst:addr, src:addr, size:u32, left:u32, right:u32, barrier:addr{policy}", "@sm_90@ptx9.2", "", _check_ends)
    yield "async bulk action:{wait_group} restrict:{sync_restrict::proxy::async}", "n:imm", "@sm_90@ptx9.5"
    yield "async bulk prefetch level:{L2} src:{global} priority:{L2::evict_last}", "src:addr, size:u32", _RUBIN, "", check_bulk_size
    for op, types in (("and|or|xor", "b32"), ("add", "u32|s32|u64"), ("inc|dec", "u32"), ("min|max", "u32|s32")):
        yield (f"reduce async bulk sem:{{relaxed}} scope:{{cta|cluster}} dst:{{shared::cluster}} src:{{shared::cta}} {_DONE} op:{{{op}}} "
               f"T:{{{types}}}", "dst:addr, src:addr, size:u32, barrier:addr", "@sm_90@ptx9.3")
    group = "dst:{global} src:{shared::cta} complete:{bulk_group}"
    for hint, policy in (("", ""), ("hint:{L2::cache_hint}", ", policy:u64")):
        for op, types in (("op:{and|or|xor}", "b32|b64"), ("op:{add}", "u32|s32|u64|f32|f64"), ("op:{inc|dec}", "u32"),
                          ("op:{min|max}", "u32|s32|u64|s64|f16|bf16"), ("op:{add} noftz", "f16|bf16|f32@ptx9.4")):
            yield (f"reduce async bulk sem:{{relaxed}} {SCOPE} {group} {hint} {op} T:{{{types}}}", f"dst:addr, src:addr, size:u32{policy}",
                   "@sm_90@ptx9.3")
        yield f"reduce async bulk {group} {hint} op:{{add}} noftz T:{{f32}}", f"dst:addr, src:addr, size:u32{policy}", "@sm_90@ptx9.4"


extend("cp", *((*form, *(["", check_bulk_size] if len(form) == 3 else [])) for form in _bulk()))
extend("tensormap", ("action:{query} field:{alloc_class_large} space:{global|shared::cta}? object:{b1024}", "=d:pred, a:addr",
                     "@sm_90a/sm_100f/sm_107f/sm_110f/sm_120f@ptx9.5"))
extend("ldmatrix", ("sync aligned shape:{m8n16} num:{x1|x2|x4} space:{shared|shared::cta}? T:{s8} S:{s4}", "=d:rows(T), a:addr",
                    "@sm_90a/sm_100f/sm_107f/sm_110f/sm_120f@ptx9.4"))

# ── synchronisation ──────────────────────────────────────────────────────────────────────────────────────────────

extend(
    "fence",
    ("proxy:{proxy} kind:{alias} sem:{acquire|release} scope:{sys}", "", "@sm_90@ptx9.4"),
    ("proxy:{proxy} kind:{generic::fabric|fabric::generic|fabric::fabric} alias sem:{acquire|release} scope:{sys}", "", "@sm_100@ptx9.3"),
    ("proxy:{proxy} kind:{async::generic} sem:{release} restrict:{sync_restrict::shared::cluster::read} scope:{cluster}", "", "@sm_90@ptx9.4"),
    ("kind:{alias} restrict:{sync_restrict::read} sem:{release} scope:{sys}", "", "@sm_90@ptx9.5"),
)
_SPACE = "space:{shared|shared::cta}?"
_WAIT = f"sem:{{acquire|relaxed}}? scope:{{cta|cluster}}? {_SPACE} T:{{b64}}"
_ALL = "multicast:{multicast::cluster::32b}"


def _check_order(match: Match) -> str | None:
    if (match.get("sem") is None) != (match.get("scope") is None):
        return "a memory order (.acquire, .release, .relaxed) and a scope (.cta, .cluster) go together"
    return None


def _check_remote(match: Match) -> str | None:
    result = match.value("d")
    if result is not None and not isinstance(result.operand, Sink):
        return "an arrival at other CTAs' barriers gives no state: write '_' for it"
    return _check_order(match)


def _waits():
    for action, needs, hint in (("test_wait", "@sm_90@ptx9.3", ""), ("try_wait", "@sm_90@ptx9.3", ", hint:u32?")):
        for parity, state, phases in (("", "u64", "phase_type::primary"), ("parity", "u32", "phase_type::primary|phase_type::conditional")):
            head = f"action:{{{action}}} {parity}"
            yield f"{head} phase:{{{phases}}} {_WAIT}", f"=d:pred, a:addr, b:{state}{hint}", needs, "", _check_order
            primary = f"{head} phase:{{phase_type::primary}} {_WAIT}"
            yield primary, f"=d|report:pred|pred, a:addr, b:{state}{hint}", needs, "", _check_order
            yield primary, f"=d|report:pred|pred, =value:b8, a:addr, b:{state}{hint}", needs, "", _check_order


extend(
    "mbarrier",
    (f"action:{{init}} layout:{{layout::v0|layout::v1}} {_SPACE} T:{{b64}}", "a:addr, b:u32", "@sm_90@ptx9.3"),
    (f"action:{{check_layout}} layout:{{layout::v0|layout::v1}} {_SPACE} T:{{b64}}", "=d:pred, a:addr", "@sm_90@ptx9.3"),
    *_waits(),
    (f"action:{{expect_tx|complete_tx}} sem:{{relaxed}}? scope:{{cta|cluster}}? space:{{shared::cluster}} {_ALL} T:{{b64}}",
     "a:addr, b:u32, mask:u32", _RUBIN, "", _check_order),
    (f"action:{{arrive|arrive_drop}} sem:{{release|relaxed}}? scope:{{cta|cluster}}? space:{{shared::cluster}} {_ALL} T:{{b64}}",
     "=d:u64, a:addr, b:u32, mask:u32", _RUBIN, "", _check_remote),
)

# ── fabric: copies between the memories of many GPUs ─────────────────────────────────────────────────────────────

def _check_members(match: Match) -> str | None:
    value = match.value("members")
    if value is not None and isinstance(value.operand, Integer) and value.operand.value & 0xFFFFFFFF != 0xFFFFFFFF:
        return "members is all lanes, 0xFFFFFFFF"
    return None


_16B = "complete:{mbarrier::complete_tx::16B} report:{mbarrier::report::fabric}"
_BYTES = "complete:{mbarrier::complete_tx::bytes} report:{mbarrier::report::fabric}"
_REDUCTIONS = (("and|or|xor", "b32|b64"), ("min|max", "u32|s32|u64|s64|f16|bf16"), ("add", "u32|u64|f16|bf16|f32"))
declare(
    "fabric", "copy or reduce between this CTA's shared memory and memory behind a fabric handle [endpoint, offset]; submit; wait",
    (f"action:{{try_get}} async space:{{shared::cta}} {_BYTES} sem:{{relaxed}} scope:{{sys}} T:{{b128}}",
     "dst:addr, handle:addr, size:u32, barrier:addr", "@sm_100@ptx9.3"),
    (f"action:{{try_put}} async multimem? space:{{shared::cta}} {_16B} sem:{{relaxed}} scope:{{sys}} T:{{b128}}",
     "handle:addr, src:addr, size:u32, barrier:addr", "@sm_100@ptx9.3"),
    (f"action:{{try_put}} async multimem? space:{{shared::cta}} {_16B} cp_mask sem:{{relaxed}} scope:{{sys}} T:{{b128}}",
     "handle:addr, src:addr, size:u32, barrier:addr, byte_mask:u16", "@sm_100@ptx9.3"),
    *((f"action:{{try_red}} async multimem? space:{{shared::cta}} {_16B} sem:{{relaxed}} scope:{{sys}} op:{{{op}}} T:{{{types}}}",
       "handle:addr, src:addr, size:u32, barrier:addr", "@sm_100@ptx9.3") for op, types in _REDUCTIONS),
    *((f"action:{{try_pullred}} async multimem space:{{shared::cta}} {_BYTES} sem:{{relaxed}} scope:{{sys}} op:{{{op}}} T:{{{types}}} sync",
       "dst:addr, handle:addr, size:u32, barrier:addr, members:imm", "@sm_100@ptx9.3", "", _check_members) for op, types in _REDUCTIONS),
    ("action:{submit} restrict:{op_restrict::fetching}?", "", "@sm_100@ptx9.3"),
    ("action:{submit} commit_group", "", "@sm_100@ptx9.5"),
    ("action:{wait} restrict:{sync_restrict::reads}", "", "@sm_100@ptx9.3"),
    ("action:{wait} restrict:{sync_restrict::read}", "n:imm", "@sm_100@ptx9.5"),
    effects="load store fence", runs=False,
)

# ── structured sparsity ──────────────────────────────────────────────────────────────────────────────────────────


def _sparse_words(slots: dict, operand: str) -> tuple[int | None, str]:
    """Registers of spcompress's and spdecompress's operands: data, kept (the elements that stay), and where they stood (places)."""
    kept, of = (int(number) for number in slots["factor"].removeprefix("sp::").split(":"))
    count, element, place = int(slots["num"][1:]), int(slots["element"][1:]), int(slots["place"][1:])
    if slots.get("compress"):  # num counts registers of kept elements
        return {"data": 2 * count, "kept": count, "places": -(-count * place // element)}[operand], "b32"
    bits = {"data": of * element, "kept": kept * element, "places": kept * place}[operand] * count
    return -(-bits // 32), "b32"


def _check_sparse(match: Match) -> str | None:
    kept, of = (int(number) for number in match["factor"].removeprefix("sp::").split(":"))
    count, element = int(match["num"][1:]), int(match["element"][1:])
    if kept * element > 32:
        return f"{kept} elements of {element} bits do not fit in a register"
    if match["place"] == "b2" and of > 4:
        return f"a place among {of} takes .b4"
    if not 32 <= of * element * count <= 4096:
        return f"the data has 1 to 128 registers, not {of * element * count / 32:g}"
    return None


TYPE_FUNCTIONS["sparse"] = _sparse_words
TYPE_FUNCTIONS["compressed_words"] = lambda slots, operand: _sparse_words(slots | {"compress": True}, operand)
declare("spcompress", "keep two of each four elements of data, chosen by the descriptor; places says which",
        ("element:{b8|b16} place:{b2|b4} factor:{sp::2:4} num:{x1|x2|x4|x8|x16|x32|x64}",
         "=places:compressed_words(places), =kept:compressed_words(kept), data!:compressed_words(data), desc!:b32", "@sm_107a@ptx9.4"),
        runs=False)
declare("spdecompress", "put the kept elements where places says, with zeros between",
        ("element:{b8|b16} place:{b2|b4} factor:{sp::1:2|sp::1:4|sp::1:8|sp::1:16|sp::2:4|sp::2:8|sp::2:16|sp::4:8|sp::4:16} "
         "num:{x1|x2|x4|x8|x16|x32|x64}", "=data:sparse(data), places!:sparse(places), kept!:sparse(kept)", "@sm_107a@ptx9.4", "", _check_sparse),
        runs=False)

# ── tensor memory ────────────────────────────────────────────────────────────────────────────────────────────────

_COLLECT_A = "collector:{collector::a::fill|collector::a::use|collector::a::lastuse|collector::a::discard}?"
_COLLECT_B = "collector_b:{collector::b::fill|collector::b::use|collector::b::lastuse|collector::b::discard}"


def _tensor():
    for sparse, meta in (("", ""), ("sp", "meta:addr, ")):
        for a in ("a:u64", "a:addr"):
            for mask in ("", "mask!:lanes(b32), "):
                yield (f"action:{{mma}} {sparse} {GROUP} kind:{{kind::f16|kind::tf32|kind::f8f6f4|kind::ti16}} {_COLLECT_A} {_COLLECT_B}",
                       f"d:addr, {a}, b:u64, {meta}desc:u32, {mask}enable:pred", _RUBIN)
            for kind, sizes, optional in (("mxf8f6f4", "block32", "?"), ("mxf4", "block32", "?"), ("mxf4nvf4", "block16|block32", "")):
                needs = _RUBIN + ("@sm_107a" if sparse and kind != "mxf8f6f4" else "")
                yield (f"action:{{mma}} {sparse} {GROUP} kind:{{kind::{kind}}} block_scale scale_vec:{{{sizes}}}{optional} {_COLLECT_A} {_COLLECT_B}",
                       f"d:addr, {a}, b:u64, {meta}desc:u32, scale_a:addr, scale_b:addr, enable:pred", needs)
    for a in ("a:u64", "a:addr"):
        for mask in ("", "mask!:lanes(b32), "):
            yield (f"action:{{mma}} {GROUP} kind:{{kind::f8f6f4}} {_COLLECT_A} {_COLLECT_B}? decompress:{{decompress::lut::b}}",
                   f"d:addr, {a}, b:u64, table:addr, desc:u32, {mask}enable:pred", _RUBIN)
        yield (f"action:{{mma}} {GROUP} kind:{{kind::mxf8f6f4}} block_scale decompress:{{decompress::lut::b}} scale_vec:{{block32}}? "
               f"{_COLLECT_A} {_COLLECT_B}?", f"d:addr, {a}, b:u64, table:addr, desc:u32, scale_a:addr, scale_b:addr, enable:pred", _RUBIN)


extend(
    "tcgen05",
    (f"action:{{alloc}} {GROUP} sync aligned exclusive space:{{shared::cta}}? T:{{b32}}", "a:addr, b:u32", f"{NEED}@ptx9.4"),
    (f"action:{{dealloc}} {GROUP} sync aligned exclusive T:{{b32}}", "a:u32, b:u32", f"{NEED}@ptx9.4"),
    (f"action:{{commit}} {GROUP} complete:{{mbarrier::arrive::one}} restrict:{{sync_restrict::shared::read::mma::a}} space:{{shared::cluster}}? "
     "T:{b64}", "a:addr", _RUBIN),
    *((f"action:{{commit}} {GROUP} complete:{{mbarrier::arrive::one}} {restrict} space:{{shared::cluster}}? "
       f"multicast:{{{multicast}}} T:{{b64}}", f"a:addr, mask:{mask}", _RUBIN)
      for restrict in ("", "restrict:{sync_restrict::shared::read::mma::a}")
      for multicast, mask in (("multicast::cluster|multicast::cluster::16b", "u16"), ("multicast::cluster::32b", "u32"))
      if restrict or mask == "u32"),
    ("action:{ld} spcompress sync aligned shape:{32x32b} num:{x4|x8|x16|x32|x64|x128} factor:{sp::2:4} op:{min|max} abs? T:{f32} place:{b2}",
     "=places:compressed(meta), =d:compressed(kept), a:addr", "@sm_107a@ptx9.4"),
    *_tensor(),
)
