"""The fifth-generation tensor cores (sm_100 and up): tcgen05.

Slots: action (alloc dealloc relinquish_alloc_permit ld st cp shift mma mma.ws commit wait fence); group (cta_group); shape; num (x1 …
x128); kind; block_scale and its vector size; and what else each form names.
Operands: d and a (tensor memory addresses are of kind addr where bracketed), b the descriptor of the other matrix, desc the instruction's
descriptor, enable whether d is added to, mask the lanes of d that stay as they are (`lanes(X)`: four words, or eight with cta_group::2)."""

from warpwright.ptx.isa.table import TYPE_FUNCTIONS, Match, declare
from warpwright.ptx.tree import Integer

_PER_ROW = {"16x64b": 1, "16x128b": 2, "16x256b": 4, "32x32b": 1, "16x32bx2": 1}


def tensor_columns(slots: dict, argument: str) -> tuple[int | None, str]:
    """Registers of tcgen05.ld and st."""
    return int(slots["num"][1:]) * _PER_ROW[slots["shape"]], argument


def _compressed(slots: dict, argument: str) -> tuple[int | None, str]:
    """Registers of tcgen05.ld.spcompress: two words of each four, or, for the argument `meta`, where they stood, two bits each."""
    num = int(slots["num"][1:])
    return (-(-num // 32) if argument == "meta" else num // 2), "b32"


TYPE_FUNCTIONS.update(tensor_columns=tensor_columns, compressed=_compressed,
                      lanes=lambda slots, argument: (8 if slots["group"] == "cta_group::2" else 4, argument))
NEED = "@sm_100f/sm_107f/sm_110f@ptx8.6"
EXACT = "sm_100a/sm_103a/sm_107a/sm_110a"
GROUP = "group:{cta_group::1|cta_group::2}"
_NUM = {"16x64b": 128, "16x128b": 64, "16x256b": 32, "32x32b": 128}


def _num(most: int, least: int = 1) -> str:
    return "num:{" + "|".join(f"x{1 << i}" for i in range(most.bit_length()) if 1 << i >= least) + "}"


def _moves():
    for shape, most in _NUM.items():
        yield (f"action:{{ld}} sync aligned shape:{{{shape}}} {_num(most)} pack:{{pack::16b}}? T:{{b32}}", "=d:tensor_columns(b32), a:addr",
               NEED)
        yield (f"action:{{st}} sync aligned shape:{{{shape}}} {_num(most)} unpack:{{unpack::16b}}? T:{{b32}}",
               "a:addr, b!:tensor_columns(b32)", NEED)
    yield (f"action:{{ld}} sync aligned shape:{{16x32bx2}} {_num(128)} pack:{{pack::16b}}? T:{{b32}}",
           "=d:tensor_columns(b32), a:addr, split:imm", NEED)
    yield (f"action:{{st}} sync aligned shape:{{16x32bx2}} {_num(128)} unpack:{{unpack::16b}}? T:{{b32}}",
           "a:addr, split:imm, b!:tensor_columns(b32)", NEED)
    for op in ("op:{min|max} abs? NaN? T:{f32}", "op:{min|max} T:{u32|s32}"):
        needs = "@sm_103f/sm_107f/sm_110f@ptx8.8"
        yield f"action:{{ld}} red sync aligned shape:{{32x32b}} {_num(128, 2)} {op}", "=d:tensor_columns(b32), =r:T, a:addr", needs
        yield (f"action:{{ld}} red sync aligned shape:{{16x32bx2}} {_num(128, 2)} {op}", "=d:tensor_columns(b32), =r:T, a:addr, split:imm",
               needs)


_KINDS = f"kind::f16|kind::tf32|kind::f8f6f4|kind::i8@{EXACT.replace('/sm_103a', '').replace('/sm_107a', '')}|kind::ti16@sm_107f@ptx9.4"
_COLLECT = "collector:{collector::a::fill|collector::a::use|collector::a::lastuse|collector::a::discard}?"
_SHIFT = "ashift collector:{collector::a::lastuse|collector::a::discard}?"
_BUFFERS = "|".join(f"collector::b{i}::{use}" for i in range(4) for use in ("fill", "use", "lastuse", "discard"))
# (kind, the sizes of the vectors that share a scale, whether one must be named)
_SCALED = (
    ("mxf8f6f4", f"scale_vec::1X@{EXACT}|block32@ptx8.8", "?"),
    ("mxf4", f"scale_vec::2X@{EXACT}|block32@ptx8.8", "?"),
    ("mxf4nvf4", f"scale_vec::2X@{EXACT}|scale_vec::4X@{EXACT}|block16@ptx8.8|block32@ptx8.8", ""),
)


def _check_scale(match: Match) -> str | None:
    value = match.value("scale_d")
    if value is not None and isinstance(value.operand, Integer) and not 0 <= value.operand.value <= 15:
        return f"scale_d is 0 to 15, not {value.operand.value}"
    return None


def _products():
    for sparse, meta in (("", ""), ("sp", "meta:addr, ")):
        for a, words in (("a:u64", _COLLECT), ("a:addr", _COLLECT), ("a:addr", _SHIFT)):
            for mask in ("", "mask!:lanes(b32), "):
                head = f"action:{{mma}} {sparse} {GROUP}"
                operands = f"d:addr, {a}, b:u64, {meta}desc:u32, {mask}enable:pred"
                yield f"{head} kind:{{{_KINDS}}} {words}", operands, NEED
                yield f"{head} kind:{{kind::f16|kind::tf32}} {words}", operands + ", scale_d:imm", "@sm_100f/sm_107f@ptx8.6", "", _check_scale
                if not sparse:
                    yield f"{head} kind:{{kind::i8}} {words}", operands + ", scale_d:imm", "@sm_100a/sm_110a@ptx8.6", "", _check_scale
        for a in ("a:u64", "a:addr"):
            for kind, sizes, optional in _SCALED:
                needs = NEED + (f"@{EXACT}" if sparse and kind != "mxf8f6f4" else "") + ("@ptx8.7" if kind == "mxf4nvf4" else "")
                yield (f"action:{{mma}} {sparse} {GROUP} kind:{{kind::{kind}}} block_scale scale_vec:{{{sizes}}}{optional} {_COLLECT}",
                       f"d:addr, {a}, b:u64, {meta}desc:u32, scale_a:addr, scale_b:addr, enable:pred", needs)
            yield (f"action:{{mma}} ws {sparse} group:{{cta_group::1}} kind:{{{_KINDS}}} collector:{{{_BUFFERS}}}?",
                   f"d:addr, {a}, b:u64, {meta}desc:u32, enable:pred, zero_mask:u64?", NEED)


def _check_columns(match: Match) -> str | None:
    value = match.value("b")
    number = value.operand.value if value is not None and isinstance(value.operand, Integer) else 32
    return None if number % 32 == 0 and 32 <= number <= 512 else f"the number of columns is a multiple of 32 from 32 to 512, not {number}"


_MULTICAST = "multicast:{multicast::cluster|multicast::cluster::16b@ptx9.4}"
declare(
    "tcgen05", "work with tensor memory: allocate, move, multiply, wait",
    (f"action:{{alloc}} {GROUP} sync aligned space:{{shared::cta}}? T:{{b32}}", "a:addr, b:u32", NEED, "", _check_columns),
    (f"action:{{dealloc}} {GROUP} sync aligned T:{{b32}}", "a:u32, b:u32", NEED, "", _check_columns),
    (f"action:{{relinquish_alloc_permit}} {GROUP} sync aligned", "", NEED),
    *_moves(),
    ("action:{wait::ld|wait::st} sync aligned", "", NEED),
    *((f"action:{{cp}} {GROUP} {shape} {format_}", "d:addr, b:u64", NEED)
      for shape in ("shape:{128x256b|4x256b|128x128b}", "shape:{64x128b} multicast:{warpx2::02_13|warpx2::01_23}",
                    "shape:{32x128b} multicast:{warpx4}")
      for format_ in ("", "D:{b8x16} S:{b6x16_p32|b4x16_p64}")),
    (f"action:{{shift}} {GROUP} down", "a:addr", f"@{EXACT}@ptx8.6"),
    *_products(),
    (f"action:{{commit}} {GROUP} complete:{{mbarrier::arrive::one}} space:{{shared::cluster}}? T:{{b64}}", "a:addr", NEED),
    (f"action:{{commit}} {GROUP} complete:{{mbarrier::arrive::one}} space:{{shared::cluster}}? {_MULTICAST} T:{{b64}}",
     "a:addr, mask:u16", NEED),
    ("action:{fence::before_thread_sync|fence::after_thread_sync}", "", NEED),
    effects="load store barrier",
)
