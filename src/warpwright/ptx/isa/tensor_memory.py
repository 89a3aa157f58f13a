"""The fifth-generation tensor cores (sm_100 and up): tcgen05.

Slots: action (alloc dealloc relinquish_alloc_permit ld st cp shift mma mma.ws commit wait fence); group (cta_group); shape; num (x1 …
x128); kind; block_scale and its vector size; and what else each form names.
Operands: d and a (tensor memory addresses are of kind addr where bracketed), b the descriptor of the other matrix, desc the instruction's
descriptor, enable whether d is added to, mask."""

from warpwright.ptx.isa.table import TYPE_FUNCTIONS, declare

_PER_ROW = {"16x64b": 1, "16x128b": 2, "16x256b": 4, "32x32b": 1, "16x32bx2": 1}


def tensor_columns(slots: dict, argument: str) -> tuple[int | None, str]:
    """Registers of tcgen05.ld and st."""
    return int(slots["num"][1:]) * _PER_ROW[slots["shape"]], "b32"


TYPE_FUNCTIONS["tensor_columns"] = tensor_columns
NEED = "@sm_100f@ptx8.6"
GROUP = "group:{cta_group::1|cta_group::2}"
_NUM = {"16x64b": 128, "16x128b": 64, "16x256b": 32, "32x32b": 128}


def _num(most: int) -> str:
    return "num:{" + "|".join(f"x{1 << i}" for i in range(most.bit_length())) + "}"


def _moves():
    for shape, most in _NUM.items():
        yield (f"action:{{ld}} sync aligned shape:{{{shape}}} {_num(most)} pack:{{pack::16b}}? T:{{b32}}", "=d:tensor_columns(T), a:addr",
               NEED)
        yield (f"action:{{st}} sync aligned shape:{{{shape}}} {_num(most)} unpack:{{unpack::16b}}? T:{{b32}}",
               "a:addr, b:tensor_columns(T)", NEED)
    yield (f"action:{{ld}} sync aligned shape:{{16x32bx2}} {_num(128)} pack:{{pack::16b}}? T:{{b32}}",
           "=d:tensor_columns(T), a:addr, split:imm", NEED)
    yield (f"action:{{st}} sync aligned shape:{{16x32bx2}} {_num(128)} unpack:{{unpack::16b}}? T:{{b32}}",
           "a:addr, split:imm, b:tensor_columns(T)", NEED)


_KIND = "kind:{kind::f16|kind::tf32|kind::f8f6f4|kind::i8}"
_COLLECT = "collector:{collector::a::fill|collector::a::use|collector::a::lastuse|collector::a::discard}?"
_BUFFERS = "|".join(f"collector::b{i}::{use}" for i in range(4) for use in ("fill", "use", "lastuse", "discard"))


def _products():
    yield f"action:{{mma}} {GROUP} {_KIND} ashift? {_COLLECT}", "d:addr, a:any, b:b64, desc:b32, enable:pred", NEED
    yield f"action:{{mma}} {GROUP} {_KIND} ashift? {_COLLECT}", "d:addr, a:any, b:b64, desc:b32, mask:any, enable:pred", NEED
    yield f"action:{{mma}} {GROUP} {_KIND} ashift? {_COLLECT}", "d:addr, a:any, b:b64, desc:b32, mask:any, enable:pred, scale_d:imm", NEED
    scaled = ("kind:{kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4} block_scale "
              "scale_vec:{scale_vec::1X|scale_vec::2X|scale_vec::4X|block16|block32}?")
    yield f"action:{{mma}} {GROUP} {scaled} {_COLLECT}", "d:addr, a:any, b:b64, desc:b32, scale_a:addr, scale_b:addr, enable:pred", NEED
    yield f"action:{{mma}} sp {GROUP} {_KIND} ashift? {_COLLECT}", "d:addr, a:any, b:b64, meta:addr, desc:b32, enable:pred", NEED
    yield f"action:{{mma}} sp {GROUP} {_KIND} ashift? {_COLLECT}", "d:addr, a:any, b:b64, meta:addr, desc:b32, mask:any, enable:pred", NEED
    yield (f"action:{{mma}} sp {GROUP} {scaled} {_COLLECT}",
           "d:addr, a:any, b:b64, meta:addr, desc:b32, scale_a:addr, scale_b:addr, enable:pred", NEED)
    ws = f"action:{{mma}} ws group:{{cta_group::1}} {_KIND} collector:{{{_BUFFERS}}}?"
    yield ws, "d:addr, a:any, b:b64, desc:b32, enable:pred, zero_mask:b64?", NEED
    yield ws.replace(" ws ", " ws sp "), "d:addr, a:any, b:b64, meta:addr, desc:b32, enable:pred, zero_mask:b64?", NEED


declare(
    "tcgen05", "work with tensor memory: allocate, move, multiply, wait",
    (f"action:{{alloc}} {GROUP} sync aligned space:{{shared::cta}}? T:{{b32}}", "a:addr, b:u32", NEED),
    (f"action:{{dealloc}} {GROUP} sync aligned T:{{b32}}", "a:b32, b:u32", NEED),
    (f"action:{{relinquish_alloc_permit}} {GROUP} sync aligned", "", NEED),
    *_moves(),
    ("action:{wait::ld|wait::st} sync aligned", "", NEED),
    (f"action:{{cp}} {GROUP} shape:{{128x256b|4x256b|128x128b}} pack:{{b8x16.b6x16_p32}}?", "d:addr, b:b64", NEED),
    (f"action:{{cp}} {GROUP} shape:{{128x256b|4x256b|128x128b}} D:{{b8x16}} S:{{b6x16_p32|b4x16_p64}}", "d:addr, b:b64", NEED),
    (f"action:{{cp}} {GROUP} shape:{{64x128b}} multicast:{{warpx2::02_13|warpx2::01_23}} D:{{b8x16}}? S:{{b6x16_p32|b4x16_p64}}?",
     "d:addr, b:b64", NEED),
    (f"action:{{cp}} {GROUP} shape:{{32x128b}} multicast:{{warpx4}} D:{{b8x16}}? S:{{b6x16_p32|b4x16_p64}}?", "d:addr, b:b64", NEED),
    (f"action:{{shift}} {GROUP} down", "a:addr", NEED),
    *_products(),
    (f"action:{{commit}} {GROUP} complete:{{mbarrier::arrive::one}} space:{{shared::cluster}}? T:{{b64}}", "a:addr", NEED),
    (f"action:{{commit}} {GROUP} complete:{{mbarrier::arrive::one}} space:{{shared::cluster}}? multicast:{{multicast::cluster}} T:{{b64}}",
     "a:addr, mask:u16", NEED),
    ("action:{fence::before_thread_sync|fence::after_thread_sync}", "", NEED),
    effects="load store barrier",
)
