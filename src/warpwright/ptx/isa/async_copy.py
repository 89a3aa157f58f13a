"""Copies that run beside the thread: cp.async, bulk copies, tensor copies (TMA), reductions by them, and tensor maps.

Slots: async, bulk, tensor, reduce, prefetch (flags), action (commit_group wait_group wait_all), cop, dst and src the spaces, dim (1d … 5d),
mode (tile im2col …), complete (the mechanism of completion), multicast, group (cta_group), hint, fetch, op and T of reductions.
Operands: dst and src (addresses; a tensor's is `[map, {x, y}]`), size, barrier (an address), offsets (im2col), mask (multicast: which
CTAs), byte_mask, policy, n (wait_group). cp.async: src_size is the number of bytes read (the rest is zero-filled) or, if a predicate,
ignore-src."""

from warpwright.ptx.isa.memory import FETCH
from warpwright.ptx.isa.table import TYPE_FUNCTIONS, Match, constant, declare
from warpwright.ptx.tree import Integer, Vector

SHARED = "dst:{shared|shared::cta}"
BYTES = "complete:{mbarrier::complete_tx::bytes}"
HINT = "hint:{L2::cache_hint}"
MULTICAST = "multicast:{multicast::cluster}"
GROUP = "group:{cta_group::1@sm_100f/sm_107f/sm_110f@ptx8.6|cta_group::2@sm_100f/sm_107f/sm_110f@ptx8.6}?"
DIM = "dim:{1d|2d|3d|4d|5d}"
IM2COL_DIM = "dim:{3d|4d|5d}"
# One offset for each spatial axis (all but the images and the channels); the modes along W take two numbers whatever the rank.
TYPE_FUNCTIONS["im2col_offsets"] = lambda slots, mode: (2 if slots[mode].startswith("im2col::w") else int(slots["dim"][0]) - 2, "b16")


def _check_size(match: Match) -> str | None:
    size = match.value("size")
    if size is None or not isinstance(size.operand, Integer):
        return "the size of a cp.async is a constant"
    legal = (16,) if match["cop"] == "cg" else (4, 8, 16)
    if size.operand.value not in legal:
        return f"cp.async.{match['cop']} copies {' or '.join(map(str, legal))} bytes, not {size.operand.value}"
    return None


def _options(modifiers: str, operands: str, needs: str, *options: tuple[str, str, str]):
    """Every combination of options, each a pair of a modifier and the operand that comes with it; `<name>` marks the modifier's place."""
    if not options:
        yield modifiers, operands, needs
        return
    (place, modifier, operand), *rest = options
    yield from _options(modifiers.replace(place, ""), operands, needs, *rest)
    yield from _options(modifiers.replace(place, modifier), f"{operands}, {operand}", needs, *rest)


_POLICY = ("<hint>", HINT, "policy:u64")
_MASK = ("<multicast>", MULTICAST, "mask:u16")


def _cp_async():
    for cop in ("ca", "cg"):
        yield (f"async cop:{{{cop}}} {SHARED} src:{{global}} {FETCH}", "dst:addr, src:addr, size:imm, src_size:any?", "@sm_80@ptx7.0", "",
               _check_size)
        yield (f"async cop:{{{cop}}} {SHARED} src:{{global}} {HINT} {FETCH}", "dst:addr, src:addr, size:imm, policy:u64",
               "@sm_80@ptx7.4", "", _check_size)
        yield (f"async cop:{{{cop}}} {SHARED} src:{{global}} {HINT} {FETCH}", "dst:addr, src:addr, size:imm, src_size:any, policy:u64",
               "@sm_80@ptx7.4", "", _check_size)


def check_bulk_size(match: Match) -> str | None:
    size = match.value("size")
    if size and isinstance(size.operand, Integer) and (size.operand.value % 16 or size.operand.value < 0):
        return f"a bulk copy's size is a multiple of 16, not {size.operand.value}"
    return None


def _check_coordinates(match: Match) -> str | None:
    address = (match.value("src") if match.get("src") == "global" else match.value("dst"))
    coordinates = getattr(address.operand if address else None, "coordinates", None)
    wanted = 5 if match.get("mode") in ("tile::gather4", "tile::scatter4") else int(match["dim"][0])
    if not isinstance(coordinates, Vector):
        return f"a tensor's address is written '[map, {{x, …}}]' with {wanted} coordinates"
    if len(coordinates.elements) != wanted:
        return f"{wanted} coordinates are wanted, not {len(coordinates.elements)}"
    return None


def _tensor_loads():
    for space, needs in (("shared::cluster", "@sm_90@ptx8.0"), ("shared::cta", "@sm_90@ptx8.6")):
        for dim, modes, offsets in (
            (DIM, "mode:{tile}?", ""),
            ("dim:{2d}", f"mode:{{tile::gather4@{'sm_100f/sm_107f/sm_110f' if space == 'shared::cluster' else 'sm_100'}@ptx8.6}}", ""),
            (IM2COL_DIM, "mode:{im2col}", ", offsets:im2col_offsets(mode)"),
            (IM2COL_DIM, f"mode:{{im2col::w@{'sm_100f/sm_107f/sm_110f' if space == 'shared::cluster' else 'sm_100'}@ptx8.6|"
             "im2col::w::128@sm_100f/sm_107f/sm_110f@ptx8.6}", ", offsets:im2col_offsets(mode)"),
        ):
            options = (_MASK, _POLICY) if space == "shared::cluster" else (_POLICY,)
            multicast = "<multicast>" if space == "shared::cluster" else ""
            yield from _options(f"async bulk tensor {dim} dst:{{{space}}} src:{{global}} {modes} {BYTES} {multicast} {GROUP} <hint>",
                                f"dst:addr, src:addr, barrier:addr{offsets}", needs, *options)


def _tensor_rest():
    store = "async bulk tensor {} dst:{{global}} src:{{shared::cta}} {} complete:{{bulk_group}} <hint>"
    for dim, mode in ((DIM, "mode:{tile}?"), (IM2COL_DIM, "mode:{im2col_no_offs}"), ("dim:{2d}",
                                                                                     "mode:{tile::scatter4@sm_100f/sm_107f/sm_110f@ptx8.6}")):
        yield from _options(store.format(dim, mode), "dst:addr, src:addr", "@sm_90@ptx8.0", _POLICY)
    fetch = "async bulk prefetch tensor {} level:{{L2}} src:{{global}} {} <hint>"
    yield from _options(fetch.format(DIM, "mode:{tile}?"), "src:addr", "@sm_90@ptx8.0", _POLICY)
    yield from _options(fetch.format("dim:{2d}", "mode:{tile::gather4@sm_100f/sm_107f/sm_110f@ptx8.6}"), "src:addr", "@sm_90@ptx8.0", _POLICY)
    for modes in ("im2col", "im2col::w@sm_100f/sm_107f/sm_110f@ptx8.6|im2col::w::128@sm_100f/sm_107f/sm_110f@ptx8.6"):
        yield from _options(fetch.format(IM2COL_DIM, f"mode:{{{modes}}}"), "src:addr, offsets:im2col_offsets(mode)", "@sm_90@ptx8.0", _POLICY)
    for dim, mode in ((DIM, "mode:{tile}?"), (IM2COL_DIM, "mode:{im2col_no_offs}")):
        yield from _options(f"reduce async bulk tensor {dim} dst:{{global}} src:{{shared::cta}} op:{{add|min|max|inc|dec|and|or|xor}} "
                            f"{mode} complete:{{bulk_group}} <hint>", "dst:addr, src:addr", "@sm_90@ptx8.0", _POLICY)


def _bulk():
    yield from _options(f"async bulk dst:{{shared::cluster}} src:{{global}} {BYTES} <multicast> <hint>",
                        "dst:addr, src:addr, size:u32, barrier:addr", "@sm_90@ptx8.0", _MASK, _POLICY)
    yield from _options(f"async bulk dst:{{shared::cta}} src:{{global}} {BYTES} <hint>",
                        "dst:addr, src:addr, size:u32, barrier:addr", "@sm_90@ptx8.6", _POLICY)
    yield f"async bulk dst:{{shared::cluster}} src:{{shared::cta}} {BYTES}", "dst:addr, src:addr, size:u32, barrier:addr", "@sm_90@ptx8.0"
    yield from _options("async bulk dst:{global} src:{shared::cta} complete:{bulk_group} <hint> <mask>", "dst:addr, src:addr, size:u32",
                        "@sm_90@ptx8.0", _POLICY, ("<mask>", "cp_mask@sm_100@ptx8.6", "byte_mask:u16"))
    yield from _options("async bulk prefetch level:{L2} src:{global} <hint>", "src:addr, size:u32", "@sm_90@ptx8.0", _POLICY)
    yield "async bulk action:{commit_group}", "", "@sm_90@ptx8.0"
    yield "async bulk action:{wait_group} read?", "n:imm", "@sm_90@ptx8.0"
    for op, types in (("and|or|xor", "b32"), ("add", "u32|s32|u64"), ("inc|dec", "u32"), ("min|max", "u32|s32")):
        yield (f"reduce async bulk dst:{{shared::cluster}} src:{{shared::cta}} {BYTES} op:{{{op}}} T:{{{types}}}",
               "dst:addr, src:addr, size:u32, barrier:addr", "@sm_90@ptx8.0")
    for op, types in (("op:{and|or|xor}", "b32|b64"), ("op:{add}", "u32|s32|u64|f32|f64"), ("op:{inc|dec}", "u32"),
                      ("op:{min|max}", "u32|s32|u64|s64|f16|bf16"), ("op:{add} noftz", "f16|bf16")):
        yield from _options(f"reduce async bulk dst:{{global}} src:{{shared::cta}} complete:{{bulk_group}} <hint> {op} T:{{{types}}}",
                            "dst:addr, src:addr, size:u32", "@sm_90@ptx8.0", _POLICY)


declare(
    "cp", "copy or reduce memory asynchronously, or group and await such copies",
    *_cp_async(),
    ("async action:{commit_group|wait_all}", "", "@sm_80@ptx7.0"),
    ("async action:{wait_group}", "n:imm", "@sm_80@ptx7.0"),
    ("async action:{mbarrier} arrive noinc? space:{shared|shared::cta@ptx7.8}? T:{b64}", "a:addr", "@sm_80@ptx7.0"),
    *((*form, "", check_bulk_size) for form in _bulk()),
    *((*form, "", _check_coordinates) for form in (*_tensor_loads(), *_tensor_rest())),
    effects="load store",
)

def _check_map(match: Match) -> str | None:
    most = {"elemtype": 15, "interleave_layout": 2, "swizzle_mode": 4, "swizzle_atomicity": 3, "fill_mode": 1}.get(match["field"], 4)
    value = match.value("index") or match.value("b")
    if value is not None and isinstance(value.operand, Integer) and not 0 <= value.operand.value <= most:
        return f"{value.name} of .{match['field']} is 0 to {most}, not {value.operand.value}"
    return None


_MAP = "action:{replace} tile"
_MAP_SPACE = "space:{global|shared::cta}? object:{b1024}"
declare(
    "tensormap", "change a field of a tensor map, or copy one from shared to global memory with a fence",
    (f"{_MAP} field:{{global_address}} {_MAP_SPACE} T:{{b64}}", "a:addr, b:u64", "@sm_90a+@ptx8.3"),
    (f"{_MAP} field:{{rank}} {_MAP_SPACE} T:{{b32}}", "a:addr, b:u32", "@sm_90a+@ptx8.3"),
    (f"{_MAP} field:{{box_dim|global_dim|element_stride}} {_MAP_SPACE} T:{{b32}}", "a:addr, index:imm, b:u32", "@sm_90a+@ptx8.3", "",
     _check_map),
    (f"{_MAP} field:{{global_stride}} {_MAP_SPACE} T:{{b64}}", "a:addr, index:imm, b:u64", "@sm_90a+@ptx8.3", "", _check_map),
    (f"{_MAP} field:{{elemtype|interleave_layout|swizzle_mode|swizzle_atomicity@sm_100a+@ptx8.6|fill_mode}} {_MAP_SPACE} T:{{b32}}",
     "a:addr, b:imm", "@sm_90a+@ptx8.3", "", _check_map),
    ("action:{cp_fenceproxy} dst:{global} src:{shared::cta} proxy:{tensormap::generic} sem:{release} "
     "scope:{cta|cluster|gpu|sys} sync aligned",
     "dst:addr, src:addr, size:imm", "@sm_90@ptx8.3", "", constant("size", 128)),
    effects="load store fence",
)
