"""Textures and surfaces: tex, tld4, txq, suld, sust, sured, suq, istypep.

Slots: geom; vec; D and S the types of texels and coordinates; mip (level grad base); clamp; query.
Operands: d, a (`[texture, {x, y}]`, or `[texture, sampler, {x, y}]`), lod, dx, dy, offset, depth (the reference of a comparison); b what sust
stores. `per_axis(X)` is a vector with an element of type X for each axis of the geometry: one, two, or four.
"""

from warpwright.ptx.isa.table import TYPE_FUNCTIONS, Match, declare

# How many coordinates a geometry takes: the array's index and the sample's number too, filled up to two or four.
COORDINATES = {"1d": 1, "2d": 2, "a1d": 2, "3d": 4, "a2d": 4, "cube": 4, "acube": 4, "2dms": 4, "a2dms": 4}
TYPE_FUNCTIONS["per_axis"] = lambda slots, argument: ({"1d": 1, "a1d": 1, "2d": 2, "a2d": 2}.get(slots["geom"], 4), argument)

TEXELS = ("vec:{v4} D:{u32|s32|f32|f16@sm_53@ptx4.2}", "vec:{v2} D:{f16x2@sm_53@ptx4.2}")
SURFACE = "geom:{1d|2d|3d|a1d|a2d}"
CACHE = "cop:{ca|cg|cs|cv}?"
WRITE = "cop:{wb|cg|cs|wt}?"
CLAMP = "clamp:{trap|clamp|zero}"
WIDTHS = (("vec:{v2|v4}?", "b8|b16|b32"), ("vec:{v2}?", "b64"))
# (geometries, types of coordinates, has mipmaps, takes offsets, takes a reference depth with float coordinates)
_GEOMETRIES = (
    ("1d|2d|a1d|a2d", "s32|f32", True, True, True),
    ("3d", "s32|f32", True, True, False),
    ("cube|acube@ptx3.0", "f32", True, False, True),
    ("2dms@ptx3.2|a2dms@ptx3.2", "s32", False, True, False),
)


def _tex():
    for geometries, coordinates, mipmaps, offsets, depth in _GEOMETRIES:
        for texel in TEXELS:
            for mip, more in (("", ""), ("mip:{base}", ""), ("mip:{level}", ", lod:S"), ("mip:{grad}", ", dx:per_axis(f32), dy:per_axis(f32)")):
                if not mipmaps and mip in ("mip:{level}", "mip:{grad}"):
                    continue
                head = f"{mip} geom:{{{geometries}}} {texel}"
                operands = f"=d:D*vec, a:addr{more}"
                yield f"{head} S:{{{coordinates}}}", operands
                if offsets:
                    yield f"{head} S:{{{coordinates}}}", operands + ", offset:per_axis(s32)", "@ptx4.3"
                if depth:
                    yield f"{head} S:{{f32}}", operands + ", depth:f32", "@ptx4.3"
                    if offsets:
                        yield f"{head} S:{{f32}}", operands + ", offset:per_axis(s32), depth:f32", "@ptx4.3"


def _with_residency(forms):
    """Each form, and with a second destination p: whether the texel was in memory."""
    for modifiers, operands, *needs in forms:
        yield modifiers, operands, *needs
        yield modifiers, operands.replace("=d:D*vec", "=d|p:D*vec|pred"), "@sm_60@ptx7.1"


declare("tex", "d = the texel at coordinates", *_with_residency(_tex()), effects="load")
_TLD4 = "component:{r|g|b|a} geom:{%} vec:{v4} D:{u32|s32|f32} S:{f32}"
declare("tld4", "d = one component of the four texels around coordinates", *_with_residency((
        (_TLD4.replace("%", "2d|a2d@ptx4.3|cube@ptx4.3|acube@ptx4.3"), "=d:D*vec, a:addr"),
        (_TLD4.replace("%", "2d|a2d|cube|acube"), "=d:D*vec, a:addr, depth:f32", "@ptx4.3"),
        (_TLD4.replace("%", "2d|a2d"), "=d:D*vec, a:addr, offset:per_axis(s32)", "@ptx4.3"),
        (_TLD4.replace("%", "2d|a2d"), "=d:D*vec, a:addr, offset:per_axis(s32), depth:f32", "@ptx4.3"),
        )), effects="load")


def _check_query(match: Match) -> str | None:
    address = match.value("a")
    asked = getattr(address.operand if address else None, "coordinates", None)
    return None if asked is None else f"{match.instruction.opcode} asks about a whole object: '[object]', without coordinates"


declare("txq", "d = a property of a texture or sampler",
        ("query:{width|height|depth|channel_data_type|channel_order|normalized_coords|array_size@ptx4.1|num_mipmap_levels@ptx4.1|num_samples@ptx4.1} "
         "T:{b32}",
         "=d:T, a:addr", "", "", _check_query),
        ("sampler:{filter_mode|addr_mode_0|addr_mode_1|addr_mode_2} T:{b32}", "=d:T, a:addr", "", "", _check_query),
        ("sampler:{force_unnormalized_coords} T:{b32}", "=d:T, a:addr", "", "", _check_query),
        ("level query:{width|height|depth} T:{b32}", "=d:T, a:addr, lod:u32", "@ptx4.3", "", _check_query))
declare("suq", "d = a property of a surface",
        ("query:{width|height|depth|channel_data_type|channel_order|array_size@ptx4.1|memory_layout@ptx4.2} T:{b32}",
         "=d:T, a:addr", "", "", _check_query))
declare("suld", "d = the surface's element at coordinates",
        *((f"b {SURFACE} {CACHE} {vector} T:{{{types}}} {CLAMP}", "=d:T*vec, a:addr") for vector, types in WIDTHS), effects="load")
declare("sust", "the surface's element at coordinates = b",
        *((f"b {SURFACE} {WRITE} {vector} T:{{{types}}} {CLAMP}", "a:addr, b:T*vec") for vector, types in WIDTHS),
        (f"p {SURFACE.replace('a1d|a2d', 'a1d@ptx4.1|a2d@ptx4.1')} vec:{{v2|v4}}? T:{{b32}} {CLAMP}", "a:addr, b:T*vec"), effects="store")
declare("sured", "the surface's element at coordinates = that op b, in one step",
        *((f"{format_} op:{{{op}}} geom:{{1d|2d|3d}} T:{{{types}}} {CLAMP}", "a:addr, b:T") for format_, op, types in (
            ("b", "add", "u32|s32|u64"), ("b", "min|max", "u32|s32|u64@ptx8.1|s64@ptx8.1"), ("b", "and|or", "b32"),
            ("p", "add|and|or", "b32"), ("p", "min|max", "b32|b64@ptx8.1"))),
        effects="load store")
declare("istypep", "d = whether a points to an object of a type", ("object:{texref|samplerref|surfref}", "=d:pred, a:u64"))
