"""Matrix products by a warp or warp group: mma, ldmatrix, stmatrix, movmatrix, wmma, wgmma.

Slots: shape (m16n8k16 …), alayout and blayout (row, col), A, B, C, D the element types, op (xor, and: the product of bits), satfinite;
for ldmatrix and stmatrix num (x1 x2 x4), trans (a flag), space, T. wmma and wgmma have an action slot (load_a … mma; mma_async fence …).
Operands: d, a, b, c are vectors of registers, one warp's fragments; mma.sp adds e (metadata) and f (its selector); ldmatrix: d, a (the
address); stmatrix: a (the address), b.
wgmma: d, a and b (descriptors, or a four registers), metadata and selector where it is sparse, scale_d, scale_a, scale_b, trans_a, trans_b.

The type function `fragment(X)` gives the length and register type of operand X: a lane holds (elements · bits) / (32 · 32) registers of
b32, several elements packed in each; f32, s32 and f64 accumulators are one element a register of that type. `rows(T)` does so for
ldmatrix."""

import re
from collections.abc import Callable, Iterator

from warpwright.ptx.isa.table import TYPE_FUNCTIONS, Match, declare

_ELEMENT_BITS = {
    "f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8,
    "e3m2": 8, "e2m3": 8, "e2m1": 8, "s4": 4, "u4": 4, "b1": 1,
}
_WHOLE = ("f64", "f32", "s32")


def shape_of(text: str) -> tuple[int, int, int]:
    """`m16n8k16` → (16, 8, 16)."""
    found = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", text)
    if not found:
        raise ValueError(f"{text!r} is no mma shape")
    return int(found[1]), int(found[2]), int(found[3])


def fragment(slots: dict, operand: str) -> tuple[int | None, str]:
    """(registers a lane, their type) of operand A, B, C or D of mma.sync and mma.sp."""
    m, n, k = shape_of(slots["shape"])
    type_ = slots[operand]
    if (m, n, k) == (8, 8, 4) and slots["A"] == "f16":  # four products at once, one a quarter of the warp
        return (2, "b32") if operand in "AB" else (4, "b32") if type_ == "f16" else (8, "f32")
    bits = _ELEMENT_BITS[type_]
    if operand in "AB" and slots.get("kind") in ("kind::mxf4", "kind::mxf4nvf4"):
        bits = 4
    elements = {"A": m * k, "B": k * n}.get(operand, m * n)
    if operand == "A" and (slots.get("sp") or slots.get("sp::ordered_metadata")):
        elements //= 2
    register = 64 if type_ == "f64" else 32
    return elements * bits // (32 * register), type_ if type_ in _WHOLE else "b32"


def wmma_fragment(slots: dict, operand: str) -> tuple[int | None, str]:
    """(registers a lane, their type) of operand A, B, C or D of wmma. f16 operands are held twice over."""
    m, n, k = shape_of(slots["shape"])
    type_ = slots.get(operand) or "f16"
    if operand in "AB" and type_ == "f16":
        return 8, "b32"
    elements = {"A": m * k, "B": k * n}.get(operand, m * n)
    register = 64 if type_ == "f64" else 32
    return elements * _ELEMENT_BITS[type_] // (32 * register), type_ if type_ in _WHOLE else "b32"


def wgmma_fragment(slots: dict, operand: str) -> tuple[int | None, str]:
    """(registers a lane, their type) of the accumulator of wgmma, held by 128 lanes."""
    m, n, _ = shape_of(slots["shape"])
    type_ = slots[operand]
    return m * n * _ELEMENT_BITS[type_] // (128 * 32), type_ if type_ in _WHOLE else "b32"


def rows(slots: dict, argument: str) -> tuple[int | None, str]:
    """Registers of ldmatrix's and stmatrix's vector: one b32 for each 8×8 matrix of 16-bit elements, or as large."""
    return int(slots["num"][1:]) * (2 if slots["shape"] == "m16n16" else 1), "b32"


# The most that the selector of mma.sp's metadata may be: bits of A and k decide how many lanes of four hold them.
_SELECTORS = {
    ("tf32", 16): 1, ("s8", 32): 1, ("u8", 32): 1, ("s8", 64): 0, ("u8", 64): 0, ("s4", 64): 1, ("u4", 64): 1, ("s4", 128): 0, ("u4", 128): 0,
    ("e4m3", 64): 0, ("e5m2", 64): 0,
}


def _check_selector(match: Match) -> str | None:
    value = match.value("f")
    number = getattr(value.operand, "value", 0) if value else 0
    most = _SELECTORS.get((match["A"], shape_of(match["shape"])[2]), 3)
    if (match["A"] == "bf16" or match.get("sp::ordered_metadata")) and match["A"] in ("f16", "bf16") and shape_of(match["shape"])[2] == 32:
        most = 1
    return None if 0 <= number <= most else f"f says which lanes hold the metadata, 0 to {most}, not {number}"


TYPE_FUNCTIONS.update(fragment=fragment, wmma_fragment=wmma_fragment, wgmma_fragment=wgmma_fragment, rows=rows)

_FRAGMENTS = "=d:fragment(D), a:fragment(A), b:fragment(B), c:fragment(C)"
_SPARSE = _FRAGMENTS + ", e!:b32, f:imm"
_ROWCOL = "alayout:{row} blayout:{col}"
_FP8 = "e4m3|e5m2"
_TINY = "e4m3|e5m2|e3m2|e2m3|e2m1"


declare(
    "mma", "d = a · b + c, matrices held by the lanes of a warp",
    # f16, bf16, tf32, f64
    ("sync aligned shape:{m8n8k4} alayout:{row|col} blayout:{row|col} D:{f16|f32} A:{f16} B:{f16} C:{f16}", _FRAGMENTS, "@sm_70@ptx6.4"),
    ("sync aligned shape:{m8n8k4} alayout:{row|col} blayout:{row|col} D:{f32} A:{f16} B:{f16} C:{f32}", _FRAGMENTS, "@sm_70@ptx6.4"),
    (f"sync aligned shape:{{m16n8k8@sm_75@ptx6.5|m16n8k16@sm_80@ptx7.0}} {_ROWCOL} D:{{f16}} A:{{f16}} B:{{f16}} C:{{f16}}", _FRAGMENTS),
    (f"sync aligned shape:{{m16n8k8@sm_75@ptx6.5|m16n8k16@sm_80@ptx7.0}} {_ROWCOL} D:{{f32}} A:{{f16}} B:{{f16}} C:{{f32}}", _FRAGMENTS),
    (f"sync aligned shape:{{m16n8k8|m16n8k16}} {_ROWCOL} D:{{f32}} A:{{bf16}} B:{{bf16}} C:{{f32}}", _FRAGMENTS, "@sm_80@ptx7.0"),
    (f"sync aligned shape:{{m16n8k4|m16n8k8}} {_ROWCOL} D:{{f32}} A:{{tf32}} B:{{tf32}} C:{{f32}}", _FRAGMENTS, "@sm_80@ptx7.0"),
    (f"sync aligned shape:{{m8n8k4|m16n8k4@sm_90@ptx7.8|m16n8k8@sm_90@ptx7.8|m16n8k16@sm_90@ptx7.8}} {_ROWCOL} "
     "D:{f64} A:{f64} B:{f64} C:{f64}", _FRAGMENTS, "@sm_80@ptx7.0"),
    # fp8 and smaller
    *((f"sync aligned shape:{{m16n8k16@sm_89@ptx8.7|m16n8k32}} {_ROWCOL} D:{{{acc}}} A:{{{_FP8}}} B:{{{_FP8}}} C:{{{acc}}}",
       _FRAGMENTS, needs) for acc, needs in (("f32", "@sm_89@ptx8.4"), ("f16", "@sm_89@ptx8.7"))),
    *((f"sync aligned shape:{{m16n8k32}} {_ROWCOL} kind:{{kind::f8f6f4}} D:{{{acc}}} A:{{{_FP8}}} B:{{{_FP8}}} C:{{{acc}}}",
       _FRAGMENTS, "@sm_100a+@ptx8.6") for acc in ("f16", "f32")),
    *((f"sync aligned shape:{{m16n8k32}} {_ROWCOL} kind:{{kind::f8f6f4}} D:{{{acc}}} A:{{{_TINY}}} B:{{{_TINY}}} C:{{{acc}}}",
       _FRAGMENTS, "@sm_120f@ptx8.7") for acc in ("f16", "f32")),
    (f"sync aligned shape:{{m16n8k32}} {_ROWCOL} kind:{{kind::mxf8f6f4}} block_scale scale_vec:{{scale_vec::1X}}? "
     f"D:{{f32}} A:{{{_TINY}}} B:{{{_TINY}}} C:{{f32}} scale:{{ue8m0}}",
     _FRAGMENTS + ", scale_a!:b32, id_a:2*u16, scale_b!:b32, id_b:2*u16", "@sm_120f@ptx8.7"),
    (f"sync aligned shape:{{m16n8k64}} {_ROWCOL} kind:{{kind::mxf4}} block_scale scale_vec:{{scale_vec::2X}}? "
     "D:{f32} A:{e2m1} B:{e2m1} C:{f32} scale:{ue8m0}",
     _FRAGMENTS + ", scale_a!:b32, id_a:2*u16, scale_b!:b32, id_b:2*u16", "@sm_120f@ptx8.7"),
    (f"sync aligned shape:{{m16n8k64}} {_ROWCOL} kind:{{kind::mxf4nvf4}} block_scale scale_vec:{{scale_vec::2X}} "
     "D:{f32} A:{e2m1} B:{e2m1} C:{f32} scale:{ue8m0}",
     _FRAGMENTS + ", scale_a!:b32, id_a:2*u16, scale_b!:b32, id_b:2*u16", "@sm_120f@ptx8.7"),
    (f"sync aligned shape:{{m16n8k64}} {_ROWCOL} kind:{{kind::mxf4nvf4}} block_scale scale_vec:{{scale_vec::4X}} "
     "D:{f32} A:{e2m1} B:{e2m1} C:{f32} scale:{ue8m0@ptx9.1|ue4m3}",
     _FRAGMENTS + ", scale_a!:b32, id_a:2*u16, scale_b!:b32, id_b:2*u16", "@sm_120f@ptx8.7"),
    # integers and bits
    (f"sync aligned shape:{{m8n8k16|m16n8k16@sm_80@ptx7.0|m16n8k32@sm_80@ptx7.0}} {_ROWCOL} satfinite? "
     "D:{s32} A:{u8|s8} B:{u8|s8} C:{s32}",
     _FRAGMENTS, "@sm_75@ptx6.5"),
    (f"sync aligned shape:{{m8n8k32|m16n8k32@sm_80@ptx7.0|m16n8k64@sm_80@ptx7.0}} {_ROWCOL} satfinite? "
     "D:{s32} A:{u4|s4} B:{u4|s4} C:{s32}",
     _FRAGMENTS, "@sm_75@ptx6.5"),
    (f"sync aligned shape:{{m8n8k128|m16n8k128@sm_80@ptx7.0|m16n8k256@sm_80@ptx7.0}} {_ROWCOL} D:{{s32}} A:{{b1}} B:{{b1}} C:{{s32}} "
     "op:{xor|and@sm_80@ptx7.1} popc", _FRAGMENTS, "@sm_75@ptx7.0"),
    # sparse a: of each four (of f16 …) two are kept, e says which
    *((*form, "", _check_selector) for sp in ("sp", "sp::ordered_metadata@ptx8.5") for form in (
        *((f"{sp} sync aligned shape:{{m16n8k16|m16n8k32}} {_ROWCOL} D:{{{acc}}} A:{{f16}} B:{{f16}} C:{{{acc}}}", _SPARSE, "@sm_80@ptx7.1")
          for acc in ("f16", "f32")),
        (f"{sp} sync aligned shape:{{m16n8k16|m16n8k32}} {_ROWCOL} D:{{f32}} A:{{bf16}} B:{{bf16}} C:{{f32}}", _SPARSE, "@sm_80@ptx7.1"),
        (f"{sp} sync aligned shape:{{m16n8k8|m16n8k16}} {_ROWCOL} D:{{f32}} A:{{tf32}} B:{{tf32}} C:{{f32}}", _SPARSE, "@sm_80@ptx7.1"),
        *((f"{sp} sync aligned shape:{{m16n8k64}} {_ROWCOL} D:{{{acc}}} A:{{{_FP8}}} B:{{{_FP8}}} C:{{{acc}}}", _SPARSE, needs)
          for acc, needs in (("f32", "@sm_89@ptx8.4"), ("f16", "@sm_120f@ptx8.7")) if acc == "f32" or sp != "sp"),
        (f"{sp} sync aligned shape:{{m16n8k32|m16n8k64}} {_ROWCOL} satfinite? D:{{s32}} A:{{u8|s8}} B:{{u8|s8}} C:{{s32}}", _SPARSE,
         "@sm_80@ptx7.1"),
        (f"{sp} sync aligned shape:{{m16n8k64|m16n8k128}} {_ROWCOL} satfinite? D:{{s32}} A:{{u4|s4}} B:{{u4|s4}} C:{{s32}}", _SPARSE,
         "@sm_80@ptx7.1"),
    )),
    effects="warp",
)

_SHARED = "space:{shared|shared::cta@ptx7.8}?"
declare(
    "ldmatrix", "d = matrices from shared memory, each row at the address that one lane gives",
    (f"sync aligned shape:{{m8n8}} num:{{x1|x2|x4}} trans? {_SHARED} T:{{b16}}", "=d:rows(T), a:addr", "@sm_75@ptx6.5"),
    (f"sync aligned shape:{{m16n16}} num:{{x1|x2}} trans {_SHARED} T:{{b8}}", "=d:rows(T), a:addr", "@sm_100a+@ptx8.6"),
    (f"sync aligned shape:{{m16n16}} num:{{x1|x2}} trans {_SHARED} T:{{b8x16}} S:{{b6x16_p32|b4x16_p64}}", "=d:rows(T), a:addr",
     "@sm_100a+@ptx8.6"),
    (f"sync aligned shape:{{m8n16}} num:{{x1|x2|x4}} {_SHARED} T:{{b8x16}} S:{{b6x16_p32|b4x16_p64}}", "=d:rows(T), a:addr",
     "@sm_100a+@ptx8.6"),
    effects="load warp",
)
declare(
    "stmatrix", "store matrices to shared memory, each row at the address that one lane gives",
    (f"sync aligned shape:{{m8n8}} num:{{x1|x2|x4}} trans? {_SHARED} T:{{b16}}", "a:addr, b:rows(T)", "@sm_90@ptx7.8"),
    (f"sync aligned shape:{{m16n8}} num:{{x1|x2|x4}} trans {_SHARED} T:{{b8}}", "a:addr, b:rows(T)", "@sm_100a+@ptx8.6"),
    effects="store warp",
)
declare("movmatrix", "d = the 8×8 matrix a of the warp, transposed",
        ("sync aligned shape:{m8n8} trans T:{b16}", "=d:b32, a!:b32", "@sm_75@ptx7.8"),
        effects="warp")

# ── wmma ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_F16_SHAPES = "m16n16k16|m8n32k16@ptx6.1|m32n8k16@ptx6.1"
_INT_SHAPES = "m16n16k16|m8n32k16|m32n8k16"
_LAYOUT = "layout:{row|col}"
_WMMA_SPACE = "space:{global|shared|shared::cta@ptx7.8}?"
# (shapes, types of A and B, types of C, needs)
_WMMA = (
    (_F16_SHAPES, "f16", "f16|f32", "@sm_70@ptx6.0"),
    (_INT_SHAPES, "bf16", "f32", "@sm_80@ptx7.0"),
    (_INT_SHAPES, "u8|s8", "s32", "@sm_72@ptx6.3"),
    ("m16n16k8", "tf32", "f32", "@sm_80@ptx7.0"),
    ("m8n8k4", "f64", "f64", "@sm_80@ptx7.0"),
    ("m8n8k32", "u4|s4", "s32", "@sm_75@ptx6.3"),
    ("m8n8k128", "b1", "s32", "@sm_75@ptx6.3"),
)


def _wmma_moves():
    for shapes, ab, c, needs in _WMMA:
        for operand, types in (("a", ab), ("b", ab), ("c", c)):
            layout = {"a": "layout:{row}", "b": "layout:{col}"}.get(operand, _LAYOUT) if shapes in ("m8n8k32", "m8n8k128") else _LAYOUT
            yield (f"action:{{load}} operand:{{{operand}}} sync aligned@ptx6.3 {layout} shape:{{{shapes}}} {_WMMA_SPACE} "
                   f"{operand.upper()}:{{{types}}}",
                   f"=d:wmma_fragment({operand.upper()}), a:addr, stride:u32?", needs)
        yield (f"action:{{store}} operand:{{d}} sync aligned@ptx6.3 {_LAYOUT} shape:{{{shapes}}} {_WMMA_SPACE} D:{{{c}}}",
               "a:addr, b:wmma_fragment(D), stride:u32?", needs)


_WMMA_FRAGMENTS = "=d:wmma_fragment(D), a:wmma_fragment(A), b:wmma_fragment(B), c:wmma_fragment(C)"
_WMMA_MMA = "action:{mma} sync aligned@ptx6.3 alayout:{row|col} blayout:{row|col}"
declare(
    "wmma", "load, multiply or store matrix fragments whose layout over the lanes is not told",
    *_wmma_moves(),
    (f"{_WMMA_MMA} shape:{{{_F16_SHAPES}}} D:{{f16|f32}} C:{{f16|f32}}", _WMMA_FRAGMENTS, "@sm_70@ptx6.0"),
    (f"{_WMMA_MMA} shape:{{{_F16_SHAPES}}} D:{{f16|f32}} C:{{f16|f32}} satfinite", _WMMA_FRAGMENTS, "@sm_70@ptx6.0", "", None,
     "@sm_70@ptx6.5"),
    (f"{_WMMA_MMA} shape:{{{_INT_SHAPES}}} D:{{f32}} A:{{bf16}} B:{{bf16}} C:{{f32}}", _WMMA_FRAGMENTS, "@sm_80@ptx7.0"),
    *((f"{_WMMA_MMA} shape:{{{_INT_SHAPES}}} D:{{s32}} A:{{{ab}}} B:{{{ab}}} C:{{s32}} satfinite?", _WMMA_FRAGMENTS, "@sm_72@ptx6.3")
      for ab in ("u8", "s8")),
    (f"{_WMMA_MMA} shape:{{m16n16k8}} D:{{f32}} A:{{tf32}} B:{{tf32}} C:{{f32}}", _WMMA_FRAGMENTS, "@sm_80@ptx7.0"),
    (f"{_WMMA_MMA} shape:{{m8n8k4}} D:{{f64}} A:{{f64}} B:{{f64}} C:{{f64}} rnd:{{rn|rz|rm|rp}}?", _WMMA_FRAGMENTS, "@sm_80@ptx7.0"),
    *((f"action:{{mma}} sync aligned@ptx6.3 alayout:{{row}} blayout:{{col}} shape:{{m8n8k32}} D:{{s32}} A:{{{ab}}} B:{{{ab}}} "
       "C:{s32} satfinite?",
       _WMMA_FRAGMENTS, "@sm_75@ptx6.3") for ab in ("u4", "s4")),
    ("action:{mma} op:{xor|and@sm_80@ptx7.1} popc sync aligned@ptx6.3 alayout:{row} blayout:{col} shape:{m8n8k128} D:{s32} A:{b1} B:{b1} C:{s32}",
     _WMMA_FRAGMENTS, "@sm_75@ptx6.3"),
    effects="warp load store",
)

# ── wgmma ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _n(k: int, step: int = 8, last: int = 256) -> str:
    return "|".join(f"m64n{n}k{k}" for n in range(step, last + 1, step))


def _int_n(k: int) -> str:
    return "|".join(f"m64n{n}k{k}" for n in (8, 16, 24, *range(32, 257, 16)))


_TRANSPOSED = "scale_d:pred, scale_a:imm, scale_b:imm"


def _check_wgmma(match: Match) -> str | None:
    wide = match.get("A") in ("f16", "bf16", "tf32")  # a row's metadata come from two lanes of four, not from all
    for value in match.values:
        number = getattr(value.operand, "value", None)
        if value.name in ("scale_a", "scale_b") and number not in (1, -1):
            return f"{value.name} is 1 or -1, not {number}"
        if value.name in ("trans_a", "trans_b") and number not in (0, 1):
            return f"{value.name} is 0 or 1, not {number}"
        if value.name == "selector" and number not in ((0, 1) if wide else (0,)):
            return f"the selector says which lanes hold the metadata, {'0 or 1' if wide else 'here 0'}, not {number}"
    return None


def _wgmma(step: int, shapes: Callable[[int], str], rest: str, more: str, trans: bool = False) -> Iterator[tuple]:
    """The forms of one line of types: dense with `step` values of k, sparse with twice as many; a from registers or from shared memory."""
    accumulator = "+d:wgmma_fragment(D)"  # read where scale_d is true
    words = "u32" if "D:{s32}" in rest else "b32"
    for sparse in (False, True):
        modifiers = f"action:{{mma_async}} {'sp ' if sparse else ''}sync aligned shape:{{{shapes(2 * step if sparse else step)}}} {rest}"
        extra = ", metadata:b32, selector:imm, " if sparse else ", "
        needs = "@sm_90a@ptx8.2" if sparse else "@sm_90a@ptx8.0"
        yield modifiers, f"{accumulator}, a:4*{words}, b:u64{extra}{more}" + (", trans_b:imm" if trans else ""), needs, "", _check_wgmma
        yield (modifiers, f"{accumulator}, a:u64, b:u64{extra}{more}" + (", trans_a:imm, trans_b:imm" if trans else ""), needs, "",
               _check_wgmma)


declare(
    "wgmma", "d = a · b (+ d if scale_d) by a warp group of 128 threads, asynchronously; "
    "a and b are descriptors of shared memory, or a registers",
    *_wgmma(16, _n, "D:{f16|f32} A:{f16} B:{f16}", _TRANSPOSED, trans=True),
    *_wgmma(16, _n, "D:{f32} A:{bf16} B:{bf16}", _TRANSPOSED, trans=True),
    *_wgmma(8, _n, "D:{f32} A:{tf32} B:{tf32}", _TRANSPOSED),
    *_wgmma(32, _n, "D:{f16|f32} A:{e4m3|e5m2} B:{e4m3|e5m2}", _TRANSPOSED),
    *_wgmma(32, _int_n, "satfinite? D:{s32} A:{u8} B:{u8|s8@ptx8.4}", "scale_d:pred"),
    *_wgmma(32, _int_n, "satfinite? D:{s32} A:{s8} B:{s8|u8@ptx8.4}", "scale_d:pred"),
    *list(_wgmma(256, _int_n, "D:{s32} A:{b1} B:{b1} op:{and} popc", "scale_d:pred"))[:2],
    ("action:{fence|commit_group} sync aligned", "", "@sm_90a@ptx8.0"),
    ("action:{wait_group} sync aligned", "n:imm", "@sm_90a@ptx8.0"),
    effects="warp barrier",
)
