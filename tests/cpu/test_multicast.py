"""Copies to several CTAs of a cluster: the same offset in each of the mask, whose mbarriers count their bytes."""

import numpy as np
import pytest

from warpwright import Device
from warpwright.cpu.tensor_map import TensorMap
from warpwright.errors import KernelError

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k({parameters}, .param .u64 out) {{
 .reg .b64 %a, %b; .reg .b32 %t, %c, %v, %w; .reg .b16 %m; .reg .pred %q, %first;
 .shared .align 8 .b64 bar; .shared .align 128 .b8 tile[512];
 ld.param.u64 %b, [out];
 mov.u32 %t, %tid.x; mov.u32 %c, %cluster_ctarank; setp.eq.u32 %q, %t, 0;
 mov.u32 %w, tile; mad.lo.u32 %w, %t, 4, %w; st.shared.b32 [%w], -1;
 @%q mbarrier.init.shared.b64 [bar], 1;
 @%q mbarrier.arrive.expect_tx.shared.b64 _, [bar], {bytes};
 fence.proxy.async.shared::cta;
 barrier.cluster.arrive; barrier.cluster.wait;
 setp.eq.and.u32 %first, %c, 1, %q; mov.b16 %m, {mask};
"""
TAIL = """
 setp.eq.u32 %q, {bytes}, 0; @%q bra Done;
Full: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;
 @!%q bra Full;
Done:
 barrier.cluster.arrive; barrier.cluster.wait;
 ld.shared.b32 %v, [%w]; mov.u32 %c, %ctaid.x; mad.lo.u32 %c, %c, 128, %t; mad.wide.u32 %b, %c, 4, %b; st.global.b32 [%b], %v;
}}
"""
BULK = """
 ld.param.u64 %a, [in];
 @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile], [%a], 512, [bar], %m;
"""
TENSOR = """
 mov.u64 %a, map; cvta.param.u64 %a, %a;
 @%first cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile], [%a, {0, 8}], [bar], %m;
"""


def run(kind: str, late: bool, how: str, cluster: int, mask: int, bytes_: int = 512) -> tuple[np.ndarray, np.ndarray]:
    """(the 128 words sent, what each CTA of a cluster has). The second CTA sends."""
    data = np.arange(64 * 32, dtype=np.int32).reshape(64, 32)
    out = np.zeros((cluster, 128), np.int32)
    tensor = how == "tensor"
    parameters = ".param .align 64 .b8 map[128]" if tensor else ".param .u64 in"
    text = HEAD.format(parameters=parameters, bytes=bytes_, mask=mask) + (TENSOR if tensor else BULK) + TAIL.format(bytes=bytes_)
    given = TensorMap.tiled(data, (4, 32)) if tensor else data[8:12].copy()
    Device(kind, late=late).load(text)["k"].launch(cluster, 128, [given, out], cluster=cluster, time_limit=20)
    return data[8:12].ravel(), out


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("how", ["bulk", "tensor"])
@pytest.mark.parametrize("cluster", [2, 4])
def test_every_cta_of_the_mask_gets_it(kind, late, how, cluster):
    sent, out = run(kind, late, how, cluster, (1 << cluster) - 1)
    assert (out == sent).all()


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
@pytest.mark.parametrize("how", ["bulk", "tensor"])
def test_no_other_cta_gets_it(kind, how):
    sent, out = run(kind, False, how, 4, 0b1001, bytes_=0)
    assert (out[[0, 3]] == sent).all() and (out[[1, 2]] == -1).all()


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
@pytest.mark.parametrize("how", ["bulk", "tensor"])
def test_a_cta_that_the_cluster_does_not_have_is_a_fault(kind, how):
    with pytest.raises(KernelError, match="cluster"):
        run(kind, False, how, 2, 0b101)
