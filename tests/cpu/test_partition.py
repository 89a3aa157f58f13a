"""A device's SMs in two partitions: where kernels run, how many CTAs are resident, and that neither side waits for the other."""

import numpy as np
import pytest
from test_residency import GRID_BARRIER
from test_streams import SOURCE

import warpwright
from warpwright.errors import LaunchError

WHERE = """.version 8.0
.target sm_90
.address_size 64
.visible .entry where(.param .u64 out)
{
  .reg .u64 o, a; .reg .u32 c, s, n;
  ld.param.u64 o, [out]; mov.u32 c, %ctaid.x; mul.wide.u32 a, c, 8; add.u64 a, a, o;
  mov.u32 s, %smid; mov.u32 n, %nsmid; st.global.v2.u32 [a], {s, n};
  ret;
}
"""


@pytest.fixture(params=["interpreter", "cpu"])
def device(request):
    return warpwright.Device(request.param, threads=2)


def test_kernels_are_on_the_sms_of_their_partition(device):
    parts = device.partition(comm=20)
    kernel, out = device.load(WHERE)["where"], [np.zeros((300, 2), np.uint32) for _ in range(3)]
    for part, array in zip(parts, out, strict=False):
        kernel.launch(300, 1, [array], stream=part.stream())
    kernel.launch(300, 1, [out[2]])
    device.synchronize()
    assert set(out[0][:, 0]) == set(range(20)) and set(out[1][:, 0]) == set(range(20, 132)) and set(out[2][:, 0]) == set(range(132))
    assert all((array[:, 1] == 132).all() for array in out)
    assert (parts.comm.first_sm, parts.comm.sms, parts.compute.first_sm, parts.compute.sms) == (0, 20, 20, 112)


def test_both_make_progress_at_the_same_time(device):
    parts, flags, module = device.partition(comm=4), np.zeros(64, np.uint32), device.load(SOURCE)
    for me, part in enumerate(parts):
        module["meet"].launch(1, 1, [flags[32 * me:], flags[32 * (1 - me):], 10], stream=part.stream(threads=1), time_limit=20)
    device.synchronize()
    assert flags[0] == flags[32] == 10


def test_a_cooperative_launch_takes_what_the_partition_holds():
    device = warpwright.Device("cpu", threads=1)
    kernel, stream = device.load(GRID_BARRIER)["meet"], device.partition(comm=2).comm.stream()
    per_sm = kernel.resident_ctas(1024) // 132
    counter, seen = np.zeros(1, np.uint32), np.zeros(2 * per_sm, np.uint32)
    kernel.launch(2 * per_sm, 1024, [counter, seen, 2], cooperative=True, stream=stream).wait()
    assert counter[0] == 4 * per_sm
    with pytest.raises(LaunchError, match=f"h800 on 2 SMs holds {2 * per_sm} of them"):
        kernel.launch(2 * per_sm + 1, 1024, [counter, seen, 2], cooperative=True, stream=stream)


@pytest.mark.parametrize("comm", [0, 132, -1, 2.5])
def test_both_sides_have_an_sm(device, comm):
    with pytest.raises(LaunchError, match="132 SMs; give 1 to 131"):
        device.partition(comm=comm)
