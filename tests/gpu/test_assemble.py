"""PTX through ptxas: resources and complaints. The report's reader is tested on recorded output, so it needs no tool."""

import pytest

from warpwright.errors import PtxError, WarpwrightError
from warpwright.gpu import Resources, assemble, find_ptxas
from warpwright.gpu.assemble import complaint, read_report

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'heavy' for 'sm_90a'
ptxas info    : Function properties for heavy
    48 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 168 registers, used 2 barriers, 48 bytes cumulative stack size, 128 bytes smem
ptxas info    : Compile time = 2.350 ms
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions
ptxas info    : Compiling entry function 'light' for 'sm_90a'
ptxas info    : Function properties for light
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""
MODULE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b64 %rd0;
    .reg .b32 %r0;
    .shared .align 4 .b8 s[128];
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    st.global.u32 [%rd0], %r0;
    bar.sync 0;
    ret;
}
"""


def test_the_report_gives_each_kernels_resources_and_the_notes():
    kernels, notes = read_report(REPORT)
    assert kernels == {"heavy": Resources(168, 2, 48, 40, 44, 128), "light": Resources(8)}
    assert kernels["heavy"].spills == 84
    assert notes == ("(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions",)


def test_a_module_assembles_for_the_target_asked_for():
    done = assemble(MODULE, "sm_90a")
    assert done.cubin[:4] == b"\x7fELF" and done.target == "sm_90a"
    assert done.kernels["k"].shared == 128 and done.kernels["k"].barriers == 1 and done.kernels["k"].spills == 0
    assert done.tool.version >= (12, 0)


def test_ptxas_first_complaint_becomes_an_error_with_its_line():
    with pytest.raises(PtxError, match=r"^k\.ptx:12: ptxas: Unknown modifier '\.syn'") as caught:
        assemble(MODULE.replace("bar.sync", "bar.syn"), "sm_90a", file="k.ptx")
    assert caught.value.line == 12


def test_a_complaint_without_a_line_is_still_told():
    assert "Value 'sm_1' is not defined" in str(complaint("ptxas fatal   : Value 'sm_1' is not defined for option 'gpu-name'\n"))


def test_a_missing_ptxas_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    find_ptxas.cache_clear()
    with pytest.raises(WarpwrightError, match="pip install 'warpwright\\[ptxas\\]'"):
        find_ptxas()
    find_ptxas.cache_clear()
