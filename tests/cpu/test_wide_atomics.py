"""128-bit exchange and compare-and-swap, in global and shared memory, on both engines."""

import numpy as np
import pytest

from warpwright import Device
from warpwright.errors import LaunchError

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q) {\n"


def pair() -> np.ndarray:
    """Two 64-bit words, together aligned to 16 bytes."""
    words = np.zeros(3, np.uint64)
    start = words.ctypes.data // 8 % 2
    return words[start:start + 2]


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_exchange_hands_every_value_on(kind):
    text = HEAD + """
    .reg .b64 %p, %q, %a, %b; .reg .b32 %t; .reg .b128 %v, %o;
    ld.param.u64 %p, [p]; ld.param.u64 %q, [q];
    mov.u32 %t, %tid.x; cvt.u64.u32 %a, %t; mul.lo.u64 %b, %a, 0x100000001; add.u64 %a, %a, 1;
    mov.b128 %v, {%a, %b};
    atom.global.exch.b128 %o, [%p], %v;
    mad.wide.u32 %q, %t, 16, %q;
    mov.b128 {%a, %b}, %o;
    st.global.v2.b64 [%q], {%a, %b};
}"""
    cell, old = pair(), np.zeros((64, 2), np.uint64)
    Device(kind).load(text)["k"].launch(1, 64, [cell, old])
    everyone = {(i + 1, i * 0x100000001) for i in range(64)} | {(0, 0)}
    assert {tuple(map(int, row)) for row in [*old, cell]} == everyone


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_compare_and_swap_counts_in_shared_memory(kind):
    text = HEAD + """
    .reg .b64 %p, %a, %b, %c; .reg .b32 %t; .reg .b128 %v, %o, %n; .reg .pred %done;
    .shared .align 16 .b8 cell[16];
    ld.param.u64 %p, [p];
    mov.u32 %t, %tid.x; setp.ne.u32 %done, %t, 0;
    mov.u64 %a, 0; mov.b128 %v, {%a, %a};
    @!%done st.shared.b128 [cell], %v;
    bar.sync 0;
Again:
    ld.volatile.shared.b128 %v, [cell];
    mov.b128 {%a, %b}, %v; add.u64 %a, %a, 1; sub.u64 %b, %b, 1;
    mov.b128 %n, {%a, %b};
    atom.shared.cas.b128 %o, [cell], %v, %n;
    mov.b128 {%a, %c}, %o; mov.b128 {%b, %c}, %v;
    setp.ne.u64 %done, %a, %b;
    @%done bra Again;
    bar.sync 0;
    ld.shared.v2.b64 {%a, %b}, [cell];
    st.global.v2.b64 [%p], {%a, %b};
}"""
    out = pair()
    Device(kind).load(text)["k"].launch(1, 64, [out, None])
    assert list(out) == [64, 2**64 - 64]


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_textures_are_refused_by_name(kind):
    text = HEAD.replace(".visible", ".global .texref image;\n.visible") + """
    .reg .b64 %p; .reg .f32 %f<6>;
    mov.f32 %f4, 0f00000000;
    tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [image, {%f4, %f4}];
}"""
    with pytest.raises(LaunchError, match=r"tex\.2d\.v4\.f32\.f32"):
        Device(kind).load(text)["k"].launch(1, 1, [None, None])
