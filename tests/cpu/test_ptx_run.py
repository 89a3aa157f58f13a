"""`warpwright.ptx_run`, as a mock of the CUDA driver calls it: bare addresses, values as bits, text that a NUL ends."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest
import torch

import warpwright
from warpwright.errors import LaunchError, MemoryFault, PtxError

AXPY = """.version 7.5
.target sm_35
.address_size 64
.visible .entry axpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .s32 n)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd0, [y];
    ld.param.u64 %rd1, [x];
    ld.param.f32 %f0, [a];
    ld.param.s32 %r0, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.s32 %p, %r4, %r0;
    @%p ret;
    mul.wide.s32 %rd2, %r4, 4;
    add.s64 %rd3, %rd0, %rd2;
    add.s64 %rd4, %rd1, %rd2;
    ld.global.f32 %f1, [%rd4];
    ld.global.f32 %f2, [%rd3];
    fma.rn.f32 %f3, %f1, %f0, %f2;
    st.global.f32 [%rd3], %f3;
    ret;
}
"""
BITS_OF_3 = 0x40400000


def arrays():
    return np.ones(100, np.float32), np.arange(100, dtype=np.float32)


def test_arrays_and_numbers_are_arguments_as_for_a_launch():
    y, x = arrays()
    warpwright.ptx_run(AXPY, [y, torch.from_numpy(x), 3.0, 100], block=32, grid=4)
    assert (y == 1 + 3 * np.arange(100)).all()


def test_bare_addresses_run_unchecked_and_values_are_bits():
    y, x = arrays()
    args = [y.ctypes.data, x.ctypes.data, BITS_OF_3, 2**64 - 2**32 + 100]
    warpwright.ptx_run(AXPY.encode() + b"\0", args, (32, 1, 1), (4, 1, 1), memory="unchecked")
    assert (y == 1 + 3 * np.arange(100)).all()


def test_ranges_of_memory_are_checked():
    y, x = arrays()
    args, ranges = [y.ctypes.data, x.ctypes.data, BITS_OF_3, 100], [(y.ctypes.data, 400), (x.ctypes.data, 400)]
    warpwright.ptx_run(AXPY, args, 32, 4, memory=ranges)
    assert (y == 1 + 3 * np.arange(100)).all()
    with pytest.raises(MemoryFault, match="argument 1"):
        warpwright.ptx_run(AXPY, args, 32, 4, memory=[(y.ctypes.data, 400), (x.ctypes.data, 396)])
    with pytest.raises(MemoryFault):  # ranges hold for one call
        warpwright.ptx_run(AXPY, args, 32, 4)


def test_unchecked_memory_still_has_no_null():
    y, _ = arrays()
    with pytest.raises(MemoryFault):
        warpwright.ptx_run(AXPY, [y, None, 1.0, 100], 32, 4, memory="unchecked")


def test_it_takes_the_place_of_a_ctypes_function_with_the_same_arguments():
    def run(source, count, values, lx, ly, lz, gx, gy, gz, shared):  # what gpuocelot's ptx_run takes
        warpwright.ptx_run(source, values[:count], (lx, ly, lz), (gx, gy, gz), shared, memory="unchecked")

    y, x = arrays()
    text = ctypes.create_string_buffer(AXPY.encode())
    values = [ctypes.cast(v, ctypes.c_void_p) for v in (y.ctypes.data, x.ctypes.data, BITS_OF_3, 100)]
    run(ctypes.cast(ctypes.addressof(text), ctypes.c_char_p), 4, (ctypes.c_void_p * 4)(*values), 32, 1, 1, 4, 1, 1, 0)
    assert (y == 1 + 3 * np.arange(100)).all()


def test_a_module_is_loaded_once():
    from warpwright.cpu.one_call import _module

    y, x = arrays()
    text = AXPY.replace("axpy", "axpy_once")
    before = _module.cache_info()
    for _ in range(3):
        warpwright.ptx_run(text, [y, x, 1.0, 100], 32, 4)
    after = _module.cache_info()
    assert after.misses - before.misses == 1 and after.hits - before.hits == 2


def test_bad_calls_are_told():
    y, x = arrays()
    two = AXPY + AXPY[AXPY.index(".visible"):].replace("axpy", "other")
    with pytest.raises(LaunchError, match=r"2 kernels.*kernel="):
        warpwright.ptx_run(two, [y, x, 1.0, 100], 32, 4)
    warpwright.ptx_run(two, [y, x, 1.0, 100], 32, 4, kernel="other")
    with pytest.raises(LaunchError, match="takes 4 arguments"):
        warpwright.ptx_run(AXPY, [y, x], 32, 4)
    with pytest.raises(LaunchError, match="memory='all'"):
        warpwright.ptx_run(AXPY, [y, x, 1.0, 100], 32, 4, memory="all")
    with pytest.raises(PtxError, match="a cubin"):
        warpwright.ptx_run(b"\x7fELF\x02\x01", [], 32)
    with pytest.raises(PtxError, match="not PTX"):
        warpwright.ptx_run(b"\xff\xfe\x00", [], 32)
    with pytest.raises(PtxError, match="list was given"):
        warpwright.ptx_run([AXPY], [], 32)


def test_importing_warpwright_does_not_load_the_engine():
    script = "import sys, warpwright; assert not {'torch', 'llvmlite', 'warpwright.cpu'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
