"""The device as its users meet it: launches, arguments, limits, faults; compiled code and the interpreter behave alike."""

import ctypes
import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch

import warpwright
from warpwright.errors import KernelTimeout, KernelTrap, LaunchError, MemoryFault, PtxError

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"

SAXPY = HEADER + """
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .f32 %f<5>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    ld.param.f32 %f0, [a];
    ld.param.u32 %r0, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p, %r4, %r0;
    @%p bra DONE;
    mul.wide.u32 %rd2, %r4, 4;
    add.s64 %rd3, %rd0, %rd2;
    add.s64 %rd4, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    ld.global.f32 %f2, [%rd4];
    fma.rn.f32 %f3, %f0, %f1, %f2;
    st.global.f32 [%rd4], %f3;
DONE:
    ret;
}
"""


def kernel_with(body: str, parameters: str = ".param .u64 out", declarations: str = "") -> str:
    """A module with one kernel `k` of the given body; registers %r, %rd, %f, %p are declared."""
    return HEADER + f"""
.visible .entry k({parameters})
{{
    .reg .pred %p<8>;
    .reg .b32 %r<16>;
    .reg .f32 %f<16>;
    .reg .b64 %rd<16>;
    {declarations}
    {body}
}}
"""


@pytest.fixture(params=["cpu", "interpreter"], scope="module")
def device(request):
    return warpwright.Device(request.param, threads=2 if request.param == "cpu" else None)


def test_a_launch_writes_the_arrays_that_it_was_given(device):
    n = 1000
    x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    device.load(SAXPY)["saxpy"].launch(grid=(8,), block=(128,), args=[x, y, 2.0, n])
    np.testing.assert_array_equal(y, 2 * np.arange(n, dtype=np.float32) + 1)


def test_torch_tensors_and_views_are_arguments(device):
    x, y = torch.arange(64, dtype=torch.float32), torch.zeros(100)
    device.load(SAXPY)["saxpy"].launch(grid=1, block=64, args=[x, y[20:], np.float32(1.0), 64])
    assert torch.equal(y[20:84], x)
    assert not y[:20].any() and not y[84:].any()


def test_a_partial_last_warp_and_a_three_dimensional_block_cover_every_thread_once(device):
    text = kernel_with("""
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z;
    mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y;
    mad.lo.s32 %r5, %r2, %r4, %r1; mad.lo.s32 %r5, %r5, %r3, %r0;
    mul.wide.u32 %rd1, %r5, 4; add.s64 %rd1, %rd0, %rd1;
    mov.u32 %r6, 1; atom.global.add.u32 %r7, [%rd1], %r6;
    ret;""")
    out = np.zeros(64, np.uint32)
    device.load(text)["k"].launch(grid=(2, 3, 1), block=(5, 3, 3), args=[out])
    assert out.tolist() == [6] * 45 + [0] * 19


@pytest.mark.parametrize("grid, block, args, shared, expected", [
    (0, 32, 4, 0, r"grid \(0, 1, 1\) has x=0; h800 takes 1 to 2147483647"),
    (1, 2048, 4, 0, r"block \(2048, 1, 1\) has x=2048; h800 takes 1 to 1024"),
    (1, (1024, 2), 4, 0, r"2048 threads; h800 takes at most 1024"),
    ((1, 70000), 32, 4, 0, r"y=70000; h800 takes 1 to 65535"),
    (1, 32, 3, 0, r"takes 4 arguments \(\.u64 x, \.u64 y, \.f32 a, \.u32 n\); 3 were given"),
    (1, 32, 4, 300_000, r"shared_bytes=300000; h800 has 232448 a CTA"),
    (1, 32, 4, -1, r"shared_bytes=-1"),
    ("many", 32, 4, 0, r"grid='many'"),
])
def test_a_launch_that_the_part_cannot_take_is_refused(device, grid, block, args, shared, expected):
    x = np.zeros(32, np.float32)
    with pytest.raises(LaunchError, match=expected):
        device.load(SAXPY)["saxpy"].launch(grid=grid, block=block, args=[x, x, 1.0, 32][:args], shared_bytes=shared)


@pytest.mark.parametrize("place, value, expected", [
    (3, 1.5, r"argument 3 \(\.u32 n\): float was given; \.u32 takes a whole number"),
    (3, -1, r"argument 3 .*-1 does not fit \.u32 \(0 to 4294967295\)"),
    (3, np.zeros(3), r"argument 3 .*ndarray was given"),
    (2, "a", r"argument 2 \(\.f32 a\): str was given; \.f32 takes a number"),
    (0, "a", r"argument 0 \(\.u64 x\): str was given; \.u64 takes an array or a whole number"),
    (0, 1.5, r"argument 0 .*float was given"),
])
def test_an_argument_of_the_wrong_type_is_named(device, place, value, expected):
    x = np.zeros(32, np.float32)
    args = [x, x, 1.0, 32]
    args[place] = value
    with pytest.raises(LaunchError, match=expected):
        device.load(SAXPY)["saxpy"].launch(1, 32, args)


def test_a_read_only_array_is_refused(device):
    x = np.zeros(32, np.float32)
    x.flags.writeable = False
    with pytest.raises(LaunchError, match=r"read-only array .* pass a copy"):
        device.load(SAXPY)["saxpy"].launch(1, 32, [x, x, 1.0, 32])


def test_an_access_outside_every_allocation_names_everything(device):
    x, y = np.zeros(100, np.float32), np.zeros(1000, np.float32)
    kernel = device.load(SAXPY)["saxpy"]
    with pytest.raises(MemoryFault) as caught:
        kernel.launch(grid=(4,), block=(64,), args=[x, y, 2.0, 200])
    fault = caught.value
    assert fault.kernel == "saxpy" and fault.line == SAXPY.split("\n").index("    ld.global.f32 %f1, [%rd3];") + 1
    assert "ld.global.f32" in fault.instruction
    offset = fault.address - x.ctypes.data
    assert offset >= 400 and offset % 4 == 0
    assert fault.cta is not None and fault.thread is not None
    assert fault.cta[0] * 64 + fault.thread[0] == offset // 4
    for word in ("saxpy", hex(fault.address), str(fault.thread), str(fault.cta), "argument 0", "400 bytes"):
        assert word in str(fault)
    x = np.zeros(200, np.float32)  # the device goes on working
    kernel.launch(grid=(4,), block=(64,), args=[x, y, 2.0, 200])


def test_a_null_pointer_faults(device):
    with pytest.raises(MemoryFault, match="null pointer"):
        device.load(SAXPY)["saxpy"].launch(1, 32, [None, np.zeros(32, np.float32), 1.0, 32])


def test_only_the_active_lanes_of_a_masked_access_count(device):
    x, y = np.ones(37, np.float32), np.zeros(37, np.float32)
    device.load(SAXPY)["saxpy"].launch(grid=(2,), block=(32,), args=[x, y, 3.0, 37])
    assert (y == 3).all()


def test_a_misaligned_access_faults(device):
    buffer = np.zeros(400, np.uint8)
    text = kernel_with("ld.param.u64 %rd0, [out]; ld.global.u32 %r0, [%rd0+2]; st.global.u32 [%rd0], %r0; ret;")
    with pytest.raises(MemoryFault, match="not a multiple of 4"):
        device.load(text)["k"].launch(1, 1, [buffer[(-buffer.ctypes.data) % 4:]])


def test_shared_memory_ends_where_the_launch_says(device):
    text = kernel_with("mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, buffer; add.s32 %r2, %r2, %r1; "
                       "st.shared.u32 [%r2], %r0; ret;",
                       parameters="").replace(".visible", ".extern .shared .align 16 .b8 buffer[];\n.visible")
    kernel = device.load(text)["k"]
    kernel.launch(1, 64, [], shared_bytes=256)
    with pytest.raises(MemoryFault, match="at 0x80 of shared memory, outside what the kernel has of it; does the launch"):
        kernel.launch(1, 64, [], shared_bytes=128)


def test_a_trap_raises_and_names_the_thread(device):
    text = kernel_with("mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 37; @%p0 trap; ret;", parameters="")
    with pytest.raises(KernelTrap) as caught:
        device.load(text)["k"].launch(1, 64, [])
    assert caught.value.thread == (37, 0, 0)


def test_an_endless_loop_is_stopped_and_the_device_goes_on(device):
    text = kernel_with("LOOP: bra LOOP;", parameters="")
    started = time.monotonic()
    with pytest.raises(KernelTimeout, match=r"still running after 0\.3 s"):
        device.load(text)["k"].launch(4, 64, [], time_limit=0.3)
    assert time.monotonic() - started < 10
    x, y = np.ones(32, np.float32), np.zeros(32, np.float32)
    device.load(SAXPY)["saxpy"].launch(1, 32, [x, y, 2.0, 32])
    assert (y == 2).all()


def test_a_barrier_that_some_warps_never_reach_is_a_deadlock(device):
    text = kernel_with("mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32; @%p0 bra A; bar.sync 1, 96; A: bar.sync 2, 96; ret;", parameters="")
    with pytest.raises(KernelTimeout, match=r"bar.sync [12], 96; waits for ever"):
        device.load(text)["k"].launch(1, 64, [])


def test_ctas_that_wait_for_each_other_all_make_progress(device):
    text = kernel_with("""
    ld.param.u64 %rd0, [out];
    mov.u32 %r1, 1; atom.global.add.u32 %r2, [%rd0], %r1;
    mov.u32 %r3, %nctaid.x;
WAIT:
    ld.volatile.global.u32 %r4, [%rd0];
    setp.lt.u32 %p0, %r4, %r3;
    @%p0 bra WAIT;
    atom.global.add.u32 %r5, [%rd0+4], %r1;
    ret;""")
    out = np.zeros(2, np.uint32)
    device.load(text)["k"].launch(40, 1, [out])
    assert out.tolist() == [40, 40]


def test_module_variables_keep_their_values_between_launches(device):
    text = kernel_with("""
    ld.param.u64 %rd0, [out];
    mov.u64 %rd1, counter; atom.global.add.u32 %r0, [%rd1], 1;
    ld.const.u32 %r1, [step];
    mad.lo.s32 %r2, %r0, %r1, 0; st.global.u32 [%rd0], %r2;
    ret;""").replace(".visible", ".global .u32 counter = 5;\n.const .u32 step = 10;\n.visible")
    module, out = device.load(text), np.zeros(1, np.uint32)
    module["k"].launch(1, 1, [out])
    module["k"].launch(1, 1, [out])
    assert out[0] == 60
    assert module.variables["counter"].numpy(np.uint32)[0] == 7


def test_device_buffers_are_aligned_legal_until_freed_and_found_through_pointers_in_memory(device):
    text = kernel_with("ld.param.u64 %rd0, [out]; ld.global.u64 %rd1, [%rd0]; mov.u32 %r0, 7; st.global.u32 [%rd1], %r0; ret;")
    buffer = device.alloc(64, name="mailbox")
    assert buffer.address % 256 == 0
    pointer = np.array([buffer.address], np.uint64)
    device.load(text)["k"].launch(1, 1, [pointer])
    assert buffer.numpy(np.uint32)[0] == 7
    buffer.free()
    with pytest.raises(MemoryFault):
        device.load(text)["k"].launch(1, 1, [pointer])
    with pytest.raises(LaunchError, match=r"mailbox .* was freed"):
        device.load(text)["k"].launch(1, 1, [buffer])


def test_structures_are_passed_by_value(device):
    class Pair(ctypes.Structure):
        _fields_ = [("first", ctypes.c_uint32), ("second", ctypes.c_uint32)]

    text = kernel_with("ld.param.u64 %rd0, [out]; ld.param.u32 %r0, [pair]; ld.param.u32 %r1, [pair+4]; sub.s32 %r2, %r1, %r0; "
                       "st.global.u32 [%rd0], %r2; ret;", parameters=".param .u64 out, .param .align 4 .b8 pair[8]")
    out = np.zeros(1, np.uint32)
    device.load(text)["k"].launch(1, 1, [out, Pair(30, 72)])
    assert out[0] == 42
    with pytest.raises(LaunchError, match="4 bytes were given; it takes 8"):
        device.load(text)["k"].launch(1, 1, [out, np.zeros(1, np.uint32)])


def test_a_required_block_is_held_to(device):
    text = SAXPY.replace(".param .u32 n)\n", ".param .u32 n)\n.reqntid 64, 1, 1\n")
    x = np.zeros(64, np.float32)
    with pytest.raises(LaunchError, match=r"requires block \(64, 1, 1\)"):
        device.load(text)["saxpy"].launch(1, 32, [x, x, 1.0, 32])


def test_illegal_ptx_and_unknown_names_are_refused(device):
    with pytest.raises(PtxError, match=r"16:5: expected"):
        device.load(SAXPY.replace("%ctaid.x;", "%ctaid.x"))
    with pytest.raises(LaunchError, match="no kernel 'daxpy'; it has: saxpy"):
        device.load(SAXPY)["daxpy"]


def test_unknown_parts_and_devices_are_refused():
    with pytest.raises(LaunchError, match="no part 'h900'; there are: a100"):
        warpwright.Device("cpu", like="h900")
    with pytest.raises(LaunchError, match="no device 'tpu'"):
        warpwright.Device("tpu")


def test_a_forked_child_can_launch_too():
    device = warpwright.Device("cpu", threads=2)
    kernel = device.load(SAXPY)["saxpy"]
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    kernel.launch(32, 128, [x, y, 2.0, 4096])
    child = os.fork()
    if child == 0:
        kernel.launch(32, 128, [x, y, 2.0, 4096])
        os._exit(0 if (y == 4).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_compiled_code_is_kept_on_disk_and_damage_to_it_is_harmless(tmp_path):
    program = textwrap.dedent(f"""
        import numpy as np, warpwright
        x, y = np.ones(32, np.float32), np.zeros(32, np.float32)
        warpwright.Device("cpu").load({SAXPY!r})["saxpy"].launch(1, 32, [x, y, 2.0, 32])
        assert (y == 2).all()
    """)
    environment = {**os.environ, "WARPWRIGHT_CACHE": str(tmp_path)}

    def run():
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)

    run()
    files = list(tmp_path.iterdir())
    written = [file.stat().st_mtime_ns for file in files]
    run()
    assert [file.stat().st_mtime_ns for file in files] == written
    for file in files:
        file.write_bytes(file.read_bytes()[:-100])
    run()
    assert all(file.stat().st_mtime_ns != before for file, before in zip(files, written, strict=True))
