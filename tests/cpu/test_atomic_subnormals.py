"""f32 additions of atom and red flush subnormals to zeros of the same sign in global memory, and keep them in shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from warpwright import Device

KERNEL = """
.version 8.3
.target sm_90
.address_size 64
.visible .entry k(.param .u64 global, .param .u64 values, .param .u64 shared_out) {{
  .reg .b64 %g, %v, %o, %s, %at; .reg .f32 %f, %x, %y; .reg .b32 %t; .reg .b64 %off;
  .shared .align 16 .b8 memory[512];
  ld.param.u64 %g, [global]; ld.param.u64 %v, [values]; ld.param.u64 %o, [shared_out];
  mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 4;
  add.s64 %g, %g, %off; add.s64 %v, %v, %off; add.s64 %o, %o, %off;
  mov.u64 %s, memory; add.s64 %s, %s, %off;
  ld.global.f32 %x, [%g]; st.shared.f32 [%s], %x; ld.global.f32 %f, [%v];
  {to_global}
  {to_shared}
  ld.shared.f32 %y, [%s]; st.global.f32 [%o], %y; ret;
}}
"""

FORMS = {
    "red": ("red.global.add.f32 [%g], %f;", "red.shared.add.f32 [%s], %f;"),
    "atom": ("atom.global.add.f32 %y, [%g], %f;", "atom.shared.add.f32 %y, [%s], %f;"),
    "generic": ("cvta.global.u64 %at, %g; red.add.f32 [%at], %f;", "cvta.shared.u64 %at, %s; red.add.f32 [%at], %f;"),
    "vector": ("{ .reg .b64 %w; and.b64 %w, %g, -8; red.global.add.v2.f32 [%w], {%f, %f}; }", "red.shared.add.f32 [%s], %f;"),
}


def _flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_additions_flush_in_global_memory_only(device, form):
    least, tiny = np.float32(2.0**-126), np.float32(2.0**-149)
    memory = np.array([tiny, -tiny, 0, least, 1, -least, 1.5 * least, -0.0] * 4, np.float32)
    values = np.array([tiny, -tiny, tiny, -tiny, tiny, tiny, -least, -tiny] * 4, np.float32)
    given, kept = memory.copy(), np.zeros_like(memory)
    to_global, to_shared = FORMS[form]
    Device(device).load(KERNEL.format(to_global=to_global, to_shared=to_shared))["k"].launch(grid=1, block=32, args=[given, values, kept])
    if form == "vector":  # both lanes of a pair add to both elements
        expected = memory
        for lane in (0, 1):
            expected = _flush(_flush(expected) + _flush(np.repeat(values.reshape(-1, 2)[:, lane], 2)))
    else:
        expected = _flush(_flush(memory) + _flush(values))
    assert np.array_equal(given.view(np.uint32), expected.view(np.uint32))
    assert np.array_equal(kept.view(np.uint32), (memory + values).view(np.uint32))
