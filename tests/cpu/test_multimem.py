"""multimem: on one device a multimem address has one replica, so reading and reducing is a load, and the rest is what it says."""

import numpy as np
import pytest
import torch

from warpwright import Device


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_one_replica(kind):
    text = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b) {
 .reg .b64 %a, %b; .reg .b32 %t, %r<4>; .reg .f32 %f<4>;
 ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; mov.u32 %t, %tid.x;
 mad.wide.u32 %a, %t, 16, %a; mad.wide.u32 %b, %t, 16, %b;
 multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%f0, %f1, %f2, %f3}, [%a];
 add.f32 %f0, %f0, 0f3F800000;
 multimem.st.relaxed.sys.global.v4.f32 [%b], {%f0, %f1, %f2, %f3};
 multimem.red.relaxed.sys.global.add.v4.f32 [%b], {%f0, %f1, %f2, %f3};
 multimem.ld_reduce.weak.global.add.acc::f32.v4.f16x2 {%r0, %r1, %r2, %r3}, [%a];
 multimem.red.relaxed.gpu.global.max.s32 [%b], 2139095040;
}"""
    a, b = torch.rand(64, 4), torch.zeros(64, 4)
    Device(kind).load(text)["k"].launch(1, 64, [a, b])
    wanted = 2 * torch.stack([a[:, 0] + 1, *a[:, 1:].unbind(1)], 1)
    wanted[:, 0] = torch.inf
    assert np.array_equal(b, wanted)
