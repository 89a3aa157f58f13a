"""Instructions that tell the hardware something, order memory, or pass time: a kernel runs on behind them, with nothing changed."""

import numpy as np
import pytest

import warpwright

HINTS = """
setmaxnreg.inc.sync.aligned.u32 232;
setmaxnreg.dec.sync.aligned.u32 40;
griddepcontrol.launch_dependents;
griddepcontrol.wait;
applypriority.global.L2::evict_normal [%rd1], 128;
prefetch.global.L1 [%rd1];
prefetch.L2 [%rd1];
prefetch.global.L2::evict_last [%rd1];
prefetch.tensormap [%rd1];
prefetchu.L1 [%rd1];
createpolicy.fractional.L2::evict_last.b64 %rd3, 0.5;
createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %rd3, [%rd1], 65536, 131072;
createpolicy.cvt.L2.b64 %rd3, 0x18F0000000000000;
pmevent 3;
pmevent.mask 7;
nanosleep.u32 100;
nanosleep.u32 %r1;
brkpt;
fence.sc.cluster;
fence.acq_rel.gpu;
fence.acquire.sys;
fence.release.cta;
fence.acquire.sync_restrict::shared::cluster.cluster;
fence.release.sync_restrict::shared::cta.cluster;
fence.mbarrier_init.release.cluster;
fence.proxy.alias;
fence.proxy.async;
fence.proxy.async.shared::cluster;
fence.proxy.tensormap::generic.release.sys;
fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;
fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;
membar.gl;
membar.sys;
membar.proxy.alias;
barrier.cluster.arrive.release.aligned;
""".strip().splitlines()


def run(kind: str, lines: str, threads: int = 32) -> np.ndarray:
    out = np.full(2048, 9, np.uint32)
    text = f""".version 8.7\n.target sm_90a\n.address_size 64
    .visible .entry k(.param .u64 out) {{
        .reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %rd<6>;
        ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1; mov.u32 %r2, 7;
        {lines}
        st.global.u32 [%rd2], %r2;
        ret;
    }}"""
    warpwright.Device(kind).load(text)["k"].launch(1, threads, [out], time_limit=10)
    return out


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_kernel_goes_on_behind_all_of_them(kind):
    out = run(kind, "\n".join(HINTS), 128)
    assert (out[:128] == 7).all() and (out[128:] == 9).all()


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
@pytest.mark.parametrize("mask,leader", [("0xffffffff", 0), ("0xfffffff0", 4), ("0x80000000", 31)])
def test_one_lane_is_elected(kind, mask, leader):
    """The lowest of the mask, which alone gets the predicate; all learn who it is."""
    body = f"""
        mov.u32 %r2, 0; mov.u32 %r3, {mask}; shr.u32 %r4, %r3, %r1; and.b32 %r4, %r4, 1; setp.eq.u32 %p1, %r4, 0;
        @%p1 bra OUT;
        elect.sync %r2|%p2, %r3;
        @%p2 add.u32 %r2, %r2, 100;
    OUT:
    """
    members = [int(mask, 16) >> lane & 1 for lane in range(32)]
    assert run(kind, body)[:32].tolist() == [(leader + 100 * (lane == leader)) * member for lane, member in enumerate(members)]


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_discarded_line_may_hold_anything_and_no_other_is_touched(kind):
    out = run(kind, "discard.global.L2 [%rd1], 128;", 1)
    assert out[0] == 7 and (out[32:] == 9).all()
