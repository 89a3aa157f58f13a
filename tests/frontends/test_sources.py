"""What `device.load` takes: every form in which compilers hand over PTX."""

from pathlib import Path

import numpy as np
import pytest
from compilers import nvcc, nvrtc_text

import warpwright
from warpwright import ptx
from warpwright.errors import PtxError

DOUBLE = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'


@pytest.fixture(scope="module")
def text() -> str:
    return nvrtc_text(DOUBLE, "sm_80")


def runs(source) -> None:
    x = np.arange(32, dtype=np.float32)
    warpwright.Device("cpu", like="a100").load(source)["twice"].launch(1, 32, [x])
    assert (x == 2 * np.arange(32)).all()


def test_text_bytes_paths_trees_and_pairs(text, tmp_path):
    path = Path(tmp_path) / "twice.ptx"
    path.write_bytes(text.encode() + b"\0")
    data = text.encode()
    for source in (text, text + "\0", data, data + b"\0\0", bytearray(data), memoryview(data), path, ptx.parse(text), (text, None)):
        runs(source)


def test_the_object_code_of_cuda_core(text):
    core = pytest.importorskip("cuda.core")
    runs(core.ObjectCode.from_ptx(text.encode() + b"\0"))


def test_what_nvcc_writes():
    assert "tree" in warpwright.Device("cpu", like="h100").load(nvcc("reductions", "sm_90a")).kernels


@pytest.mark.parametrize("data, what", [(b"\x7fELF\x02", "a cubin"), (b"\x50\xed\x55\xba\x01", "a fatbin"), (b"BC\xc0\xde", "LLVM bitcode"),
                                        (b"\x89PNG", "byte 0 is 0x89")])
def test_machine_code_is_told_from_ptx(data, what):
    with pytest.raises(PtxError, match=f"this is .*{what}"):
        warpwright.Device("cpu").load(data)


def test_other_objects_are_refused():
    with pytest.raises(PtxError, match="dict was given; PTX comes as text"):
        warpwright.Device("cpu").load({})
