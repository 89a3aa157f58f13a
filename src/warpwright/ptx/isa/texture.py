"""Textures and surfaces: tex, tld4, txq, suld, sust, sured, suq, istypep.

Slots: geom; vec; D and S the types of texels and coordinates; mip (level grad base); clamp; query.
Operands: d, a (`[texture, {x, y}]`, or `[texture, sampler, {x, y}]`), lod, dx, dy; b what sust stores.
"""

from warpwright.ptx.isa.table import declare

GEOM = "geom:{1d|2d|3d|a1d|a2d|cube|acube@sm_20@ptx3.0|2dms@sm_30@ptx3.2|a2dms@sm_30@ptx3.2}"
TEXEL = "vec:{v4} D:{u32|s32|f32} S:{s32|f32}"
HALF = "vec:{v2} D:{f16x2} S:{s32|f32}"
SURFACE = "geom:{1d|2d|3d|a1d|a2d}"
CACHE = "cop:{ca|cg|cs|cv}?"
WRITE = "cop:{wb|cg|cs|wt}?"
CLAMP = "clamp:{trap|clamp|zero}"


def _tex():
    for texel in (TEXEL, HALF):
        for mip, more in (("", ""), ("mip:{base}", ""), ("mip:{level}", ", lod:any"), ("mip:{grad}", ", dx:any, dy:any")):
            yield f"{mip} {GEOM} {texel}", f"=d|p?:D*vec|pred, a:addr{more}"
            yield f"{mip} {GEOM} {texel}", f"=d|p?:D*vec|pred, a:addr{more}, offset:any, depth:f32?"


declare("tex", "d = the texel at coordinates", *_tex(), effects="load")
declare("tld4", "d = one component of the four texels around coordinates",
        ("component:{r|g|b|a} geom:{2d|a2d|cube|acube} vec:{v4} D:{u32|s32|f32} S:{f32}",
         "=d|p?:D*vec|pred, a:addr, offset:any?, depth:f32?"),
        effects="load")
declare("txq", "d = a property of a texture or sampler",
        ("query:{width|height|depth|channel_data_type|channel_order|normalized_coords|array_size|num_mipmap_levels|num_samples} T:{b32}",
         "=d:T, a:addr"),
        ("query:{filter_mode|addr_mode_0|addr_mode_1|addr_mode_2|force_unnormalized_coords} T:{b32}", "=d:T, a:addr"),
        ("level query:{width|height|depth} T:{b32}", "=d:T, a:addr, lod:u32"))
declare("suq", "d = a property of a surface",
        ("query:{width|height|depth|channel_data_type|channel_order|array_size|memory_layout} T:{b32}", "=d:T, a:addr"))
declare("suld", "d = the surface's element at coordinates",
        (f"b {SURFACE} {CACHE} vec:{{v2|v4}}? T:{{b8|b16|b32|b64}} {CLAMP}", "=d:T*vec, a:addr"), effects="load")
declare("sust", "the surface's element at coordinates = b",
        (f"b {SURFACE} {WRITE} vec:{{v2|v4}}? T:{{b8|b16|b32|b64}} {CLAMP}", "a:addr, b:T*vec"),
        (f"p {SURFACE} vec:{{v2|v4}}? T:{{u32|s32|b32|f32}} {CLAMP}", "a:addr, b:T*vec"), effects="store")
declare("sured", "the surface's element at coordinates = that op b, in one step",
        (f"b op:{{add|min|max|and|or}} {SURFACE} T:{{u32|u64|s32|b32|s64|b64}} {CLAMP}", "a:addr, b:T"),
        (f"p op:{{add|min|max|and|or}} {SURFACE} T:{{b32|b64}} {CLAMP}", "a:addr, b:T"), effects="load store")
declare("istypep", "d = whether a points to an object of a type", ("object:{texref|samplerref|surfref}", "=d:pred, a:u64"))
