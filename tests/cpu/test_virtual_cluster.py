"""Nodes of virtual GPUs: peer memory by pointer, the network between nodes, modelled time, and memory shared between processes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from test_streams import SOURCE

import warpwright
from warpwright.cpu import shared_buffer
from warpwright.errors import LaunchError, MemoryFault

# Put one request into a send queue: number, words 1 to 6 from `request`; then wait until `done` requests are done.
SEND = """.version 8.0
.target sm_90
.address_size 64
.visible .entry send(.param .u64 queue, .param .u64 request, .param .u32 entries, .param .u64 number)
{
  .reg .u64 q, r, a, n, m, d; .reg .u32 e, i; .reg .pred p;
  ld.param.u64 q, [queue]; ld.param.u64 r, [request]; ld.param.u32 e, [entries]; ld.param.u64 n, [number];
  cvt.u64.u32 m, e; rem.u64 a, n, m; add.u64 a, a, 1; mad.lo.u64 a, a, 64, q;
  mov.u32 i, 0;
WORD:
  ld.global.u64 d, [r]; st.global.u64 [a+8], d;
  add.u64 r, r, 8; add.u64 a, a, 8; add.u32 i, i, 1; setp.lt.u32 p, i, 6;
  @p bra WORD;
  add.u64 n, n, 1;
  st.release.sys.global.u64 [a+-48], n;
WAIT:
  ld.acquire.sys.global.u64 d, [q];
  setp.lt.u64 p, d, n;
  @p bra WAIT;
  ret;
}
"""


@pytest.fixture(params=["interpreter", "cpu"])
def cluster(request):
    return warpwright.VirtualCluster(nodes=2, gpus_per_node=2, kind=request.param)


def test_ranks_nodes_and_peers(cluster):
    assert [(gpu.rank, gpu.node, gpu.local_rank) for gpu in cluster.gpus] == [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)]
    assert cluster.gpus[3].peers == cluster.gpus[2:]


def test_a_kernel_reaches_its_nodes_shared_memory_and_no_other(cluster):
    near, far = cluster.gpus[1].allocate_shared(128, "near"), cluster.gpus[2].allocate_shared(128, "far")
    private = cluster.gpus[1].alloc(128)
    step = cluster.gpus[0].load(SOURCE)["step"]
    step.launch(1, 32, [near.address, 5])
    assert (near.numpy(np.uint32) == 5).all()
    for buffer in (far, private):
        with pytest.raises(MemoryFault):
            step.launch(1, 32, [buffer.address, 5])
    near.free()
    with pytest.raises(MemoryFault):
        step.launch(1, 32, [near.address, 5])


def test_kernels_of_two_gpus_meet_by_flags(cluster):
    flags = [gpu.allocate_shared(128) for gpu in cluster.gpus[:2]]
    for me, gpu in enumerate(cluster.gpus[:2]):
        gpu.load(SOURCE)["meet"].launch(1, 1, [flags[me].address, flags[1 - me].address, 10], stream=gpu.stream(), time_limit=20)
    cluster.synchronize()
    assert [flag.numpy(np.uint32)[0] for flag in flags] == [10, 10]


def test_the_network_carries_bytes_then_sets_the_flag(cluster):
    inbox, flag = cluster.gpus[3].allocate_shared(1000), cluster.gpus[3].allocate_shared(8)
    data = np.random.default_rng(1).integers(0, 255, 1000, np.uint8)
    cluster.network.send(0, 3, data, inbox, 1000, flag=flag, value=7).wait()
    assert (inbox.numpy() == data).all() and flag.numpy(np.uint64)[0] == 7
    assert cluster.network.sent == {(0, 3): 1000}


def test_a_kernel_waits_for_a_message(cluster):
    gpu = cluster.gpus[2]
    mine, flag = gpu.allocate_shared(8), gpu.allocate_shared(8)
    end = gpu.load(SOURCE)["meet"].launch(1, 1, [mine, flag, 1], stream=gpu.stream(), time_limit=20)
    cluster.network.send(1, 2, np.zeros(1, np.uint8), mine.address + 4, 1, flag=flag)
    end.wait()


def test_kernels_send_through_a_queue(cluster):
    gpu, inbox, flag = cluster.gpus[0], cluster.gpus[2].allocate_shared(400), cluster.gpus[2].allocate_shared(8)
    queue, data = cluster.network.send_queue(0, entries=2), np.arange(100, dtype=np.uint32)
    kernel = gpu.load(SEND)["send"]
    for number in range(5):  # more than the queue has entries
        request = np.array([2, data.ctypes.data + 80 * number, inbox.address + 80 * number, 80, flag.address, number + 1], np.uint64)
        kernel.launch(1, 1, [queue.buffer, request, queue.entries, number], time_limit=20)
    cluster.network.close()
    assert (inbox.numpy(np.uint32) == data).all() and flag.numpy(np.uint64)[0] == 5


def test_modelled_time_is_bytes_over_bandwidth_one_message_after_another(cluster, tmp_path):
    inbox, data = cluster.gpus[2].allocate_shared(1_000_000), np.zeros(1_000_000, np.uint8)
    first, second = (cluster.network.send(sender, 2, data, inbox, 1_000_000) for sender in (0, 0))
    second.wait()
    first.wait()
    assert first.arrives == pytest.approx(20e-6 + 3.7e-6) and second.arrives == pytest.approx(40e-6 + 3.7e-6)
    cluster.network.send(1, 2, data, inbox, 1_000_000).wait()  # waits for the receiver's adapter
    assert cluster.clock.now("GPU 1 InfiniBand NDR out") == pytest.approx(60e-6)
    cluster.network.send(3, 2, data, inbox, 1_000_000).wait()  # inside the node
    assert cluster.clock.now("GPU 3 NVLink of h800 out") == pytest.approx(6.25e-6)
    cluster.clock.write_trace(tmp_path / "trace.json")
    spans = [event for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert len(spans) == 8 and sum(span["dur"] for span in spans) == pytest.approx(6 * 20 + 2 * 6.25)


def test_what_is_not_legal_to_send(cluster):
    inbox = cluster.gpus[2].allocate_shared(8)
    for send, message in [((0, 4, inbox, inbox, 8), "ranks 0 to 3"), ((0, 2, inbox, np.zeros(8), 8), "has shared"),
                          ((0, 2, inbox, inbox, 9), "not within"), ((0, 1, inbox, inbox, 8), "has shared"), ((0, 2, "x", inbox, 1), "str was given")]:
        with pytest.raises(LaunchError, match=message):
            cluster.network.send(*send)
    with pytest.raises(LaunchError, match="at least 1 of each"):
        warpwright.VirtualCluster(nodes=0)


def test_processes_map_one_buffer():
    """The other process is a rank of its own, with a device of its own."""
    device, name = warpwright.Device(threads=1), f"test-{os.getpid()}"
    buffer = shared_buffer(device, name, 256)
    try:
        assert (buffer.numpy() == 0).all()
        other = ("import sys; sys.path.insert(0, sys.argv[3]); import warpwright, test_streams; from warpwright.cpu import shared_buffer\n"
                 "d = warpwright.Device(threads=1); b = shared_buffer(d, sys.argv[1], 256)\n"
                 "d.load(test_streams.SOURCE)['meet'].launch(1, 1, [b.address, b.address + 128, int(sys.argv[2])], time_limit=20)")
        child = subprocess.Popen([sys.executable, "-c", other, name, "5", os.path.dirname(__file__)])
        device.load(SOURCE)["meet"].launch(1, 1, [buffer.address + 128, buffer.address, 5], time_limit=20)
        assert child.wait(20) == 0 and buffer.numpy(np.uint32)[0] == buffer.numpy(np.uint32)[32] == 5
        with pytest.raises(LaunchError, match="another process made it with 256 bytes"):
            shared_buffer(device, name, 512)
    finally:
        buffer.unlink()
    assert not buffer.path.exists()
    with pytest.raises(LaunchError, match="letters, digits"):
        shared_buffer(device, "a/b", 8)
