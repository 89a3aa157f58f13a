"""Launches on streams: order, events, errors, and kernels that run at the same time; both engines."""

import gc
import itertools

import numpy as np
import pytest

import warpwright
from warpwright.errors import KernelTimeout, KernelTrap, LaunchError, MemoryFault

SOURCE = """.version 8.0
.target sm_90
.address_size 64
// out[i] = out[i] * 3 + add, for 32 threads a CTA
.visible .entry step(.param .u64 out, .param .u32 add)
{
  .reg .u64 o, a; .reg .u32 c, t, n, x, b;
  ld.param.u64 o, [out]; ld.param.u32 b, [add];
  mov.u32 c, %ctaid.x; mov.u32 t, %tid.x; mov.u32 n, %ntid.x; mad.lo.u32 t, c, n, t;
  mul.wide.u32 a, t, 4; add.u64 a, a, o;
  ld.global.u32 x, [a]; mul.lo.u32 x, x, 3; add.u32 x, x, b; st.global.u32 [a], x;
  ret;
}
// Set flag `mine` to 1, wait until flag `other` is, `rounds` times with growing numbers.
.visible .entry meet(.param .u64 mine, .param .u64 other, .param .u32 rounds)
{
  .reg .u64 m, o; .reg .u32 i, x, n; .reg .pred p;
  ld.param.u64 m, [mine]; ld.param.u64 o, [other]; ld.param.u32 n, [rounds];
  mov.u32 i, 0;
ROUND:
  add.u32 i, i, 1;
  st.release.sys.global.u32 [m], i;
SPIN:
  ld.acquire.sys.global.u32 x, [o];
  setp.lt.u32 p, x, i;
  @p bra SPIN;
  setp.lt.u32 p, i, n;
  @p bra ROUND;
  ret;
}
// Count with atomics until the total over everybody who does is `until`.
.visible .entry count(.param .u64 total, .param .u32 times)
{
  .reg .u64 a; .reg .u32 i, n, x; .reg .pred p;
  ld.param.u64 a, [total]; ld.param.u32 n, [times]; mov.u32 i, 0;
AGAIN:
  atom.relaxed.sys.global.add.u32 x, [a], 1;
  add.u32 i, i, 1; setp.lt.u32 p, i, n;
  @p bra AGAIN;
  ret;
}
.visible .entry stop() { trap; ret; }
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);
.global .align 1 .b8 text[6] = {104, 101, 108, 108, 111, 0};
.visible .entry say()
{
  .reg .u64 f, z; .reg .b32 r0; mov.u64 f, text; cvta.global.u64 f, f; mov.u64 z, 0;
  { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], f; st.param.b64 [b], z;
    call.uni (r), vprintf, (a, b); ld.param.b32 r0, [r]; }
  ret;
}
"""


@pytest.fixture(params=["interpreter", "cpu"])
def module(request):
    return warpwright.Device(request.param, threads=1).load(SOURCE)


def test_launches_on_a_stream_run_in_order(module):
    stream, out = module.device.stream(), np.arange(96, dtype=np.uint32)
    events = [module["step"].launch(3, 32, [out, add], stream=stream) for add in range(10)]
    stream.synchronize()
    expected = np.arange(96, dtype=np.uint32)
    for add in range(10):
        expected = expected * 3 + np.uint32(add)
    assert (out == expected).all() and all(event.done for event in events) and stream.idle
    assert all(before.ended <= after.started for before, after in itertools.pairwise(events))


@pytest.mark.parametrize("rounds", [1, 20])
def test_kernels_on_two_streams_that_wait_for_each_other_end(module, rounds):
    flags = np.zeros(64, np.uint32)
    streams = module.device.stream(), module.device.stream()
    ends = [module["meet"].launch(1, 1, [flags[32 * me:], flags[32 * (1 - me):], rounds], stream=streams[me], time_limit=20) for me in (0, 1)]
    for end in ends:
        end.wait()
    assert flags[0] == flags[32] == rounds


def test_one_stream_does_not_run_two_kernels_at_once(module):
    flags, stream = np.zeros(2, np.uint32), module.device.stream()
    first, second = (module["meet"].launch(1, 1, [flags[me:], flags[1 - me:], 1], stream=stream, time_limit=0.3) for me in (0, 1))
    with pytest.raises(KernelTimeout):
        first.wait()
    second.wait()  # what the first one stored is there


def test_one_kernel_counts_in_four_streams_at_once(module):
    total = np.zeros(1, np.uint32)
    streams = [module.device.stream() for _ in range(4)]
    for stream in streams:
        module["count"].launch(4, 32, [total, 5], stream=stream)
    module.device.synchronize()
    assert total[0] == 4 * 4 * 32 * 5


def test_a_stream_waits_for_an_event_of_another(module):
    flags, out = np.zeros(64, np.uint32), np.ones(32, np.uint32)
    slow, after = module.device.stream(), module.device.stream()
    met = module["meet"].launch(1, 1, [flags, flags[32:], 1], stream=slow, time_limit=20)
    after.wait(met)
    end = module["step"].launch(1, 32, [out, 0], stream=after)
    assert not end.wait(0.05) and (out == 1).all()
    flags[32] = 1
    end.wait()
    assert (out == 3).all() and met.done


def test_an_error_is_raised_once_by_the_event(module):
    stream = module.device.stream()
    event = module["stop"].launch(1, 1, [], stream=stream)
    with pytest.raises(KernelTrap, match="stop"):
        event.wait()
    event.wait()
    stream.synchronize()


def test_an_error_that_nobody_waited_for_is_raised_by_synchronize(module):
    stream, out = module.device.stream(), np.ones(32, np.uint32)
    module["step"].launch(1, 64, [out, 0], stream=stream)
    module["step"].launch(1, 32, [out, 0], stream=stream)
    with pytest.raises(MemoryFault):
        stream.synchronize()
    stream.synchronize()
    assert (out == 9).all()


def test_what_is_wrong_with_a_launch_is_raised_at_once(module):
    stream = module.device.stream()
    with pytest.raises(LaunchError, match="takes 2 arguments"):
        module["step"].launch(1, 32, [], stream=stream)
    with pytest.raises(LaunchError, match="another device"):
        module["stop"].launch(1, 1, [], stream=warpwright.Device(threads=1).stream())


def test_arrays_live_until_the_kernel_is_done(module):
    stream, flags = module.device.stream(), np.zeros(64, np.uint32)
    module["meet"].launch(1, 1, [flags, flags[32:], 1], stream=stream, time_limit=20)
    buffer = module.device.alloc(128)
    buffer.numpy()[:] = 0
    event = module["step"].launch(1, 32, [buffer, 7], stream=stream)
    storage = buffer.numpy(np.uint32)
    buffer.free()
    del buffer
    gc.collect()
    flags[32] = 1
    event.wait()
    assert (storage == 7).all()


def test_what_two_streams_print_is_all_there(module):
    texts = []
    module.device.printf = texts.append
    for stream in [module.device.stream() for _ in range(3)]:
        module["say"].launch(2, 1, [], stream=stream)
    module.device.synchronize()
    assert "".join(texts) == "hello" * 6


def test_a_host_function_runs_between_kernels(module):
    stream, out, seen = module.device.stream(), np.ones(32, np.uint32), []
    module["step"].launch(1, 32, [out, 0], stream=stream)
    stream.put(lambda: seen.append(int(out[0])))
    module["step"].launch(1, 32, [out, 0], stream=stream)
    stream.synchronize()
    assert seen == [3] and out[0] == 9
