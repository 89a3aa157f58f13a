"""What device code gets from CUDA's run-time library: printf, assert, malloc and free. Both engines say the same."""

import numpy as np
import pytest

import warpwright
from warpwright.errors import KernelTrap

HEAD = """.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.extern .func (.param .b64 r) malloc (.param .b64 n);
.extern .func free (.param .b64 p);
"""


def text(name: str, value: str) -> str:
    data = [*value.encode(), 0]
    return f".global .align 1 .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};\n"


@pytest.fixture(params=["interpreter", "cpu"])
def device(request):
    device = warpwright.Device(request.param, threads=1)
    device.lines = []
    device.printf = device.lines.append
    return device


def kernel(body: str, globals_: str = "") -> str:
    return HEAD + globals_ + f"""
.visible .entry k(.param .u64 out)
{{
  .local .align 8 .b8 depot[64];
  .reg .u64 a, b, c, o; .reg .u32 t, x; .reg .pred p; .reg .f64 d;
  ld.param.u64 o, [out]; mov.u32 t, %tid.x; mov.u64 a, depot; cvta.local.u64 a, a;
  {body}
  ret;
}}
"""


PRINT = """{
  .param .b64 f, v; .param .b32 r;
  mov.u64 b, layout; cvta.global.u64 b, b;
  st.param.b64 [f], b; st.param.b64 [v], a;
  call (r), vprintf, (f, v);
}"""


def prints(device, layout: str, stores: str, threads: int = 1, globals_: str = "", guard: str = "") -> str:
    source = kernel(stores + guard + PRINT, text("layout", layout) + globals_)
    device.load(source)["k"].launch(1, threads, [np.zeros(64, np.uint32)])
    return "".join(device.lines)


def test_every_conversion(device):
    stores = """
      st.local.u32 [depot], -5; st.local.u32 [depot+4], 255; st.local.u64 [depot+8], -1234567890123;
      mov.f64 d, 0d400921FB54442D18; st.local.f64 [depot+16], d; st.local.f64 [depot+24], d; st.local.f64 [depot+32], d;
      mov.u64 c, word; cvta.global.u64 c, c; st.local.u64 [depot+40], c; st.local.u32 [depot+48], 65; st.local.u64 [depot+56], 4096;"""
    said = prints(device, "%d %#x %lld %.3f %e %g %-6s|%c %p 100%%\n", stores, globals_=text("word", "four"))
    assert said == "-5 0xff -1234567890123 3.142 3.141593e+00 3.14159 four  |A 0x1000 100%\n"


def test_widths_unsigned_and_octal(device):
    said = prints(device, "[%5u|%-5d|%05d|%+d|%o|%X|%*d]", """
      st.local.u32 [depot], 7; st.local.u32 [depot+4], 8; st.local.u32 [depot+8], 9; st.local.u32 [depot+12], 10;
      st.local.u32 [depot+16], 8; st.local.u32 [depot+20], 48879; st.local.u32 [depot+24], 4; st.local.u32 [depot+28], -1;""")
    assert said == "[    7|8    |00009|+10|10|BEEF|  -1]"


def test_lanes_print_in_order_and_only_those_that_call(device):
    said = prints(device, "%d ", "st.local.u32 [depot], t; and.b32 x, t, 3; setp.ne.u32 p, x, 0; @p ret;", 32)
    assert said == "".join(f"{t} " for t in range(0, 32, 4))


def test_text_comes_out_although_the_kernel_faults(device):
    with pytest.raises(KernelTrap):
        device.load(kernel(PRINT + "trap;", text("layout", "here\n")))["k"].launch(1, 1, [np.zeros(1, np.uint32)])
    assert device.lines == ["here\n"]


def test_the_standard_output_is_the_default(capsys):
    for kind in ("interpreter", "cpu"):
        source = kernel(PRINT, text("layout", f"from the {kind}\n"))
        warpwright.Device(kind, threads=1).load(source)["k"].launch(1, 1, [np.zeros(1, np.uint32)])
    assert capsys.readouterr().out == "from the interpreter\nfrom the cpu\n"


def test_a_failed_assertion_says_which(device):
    body = """
      setp.ne.u32 p, t, 2;
      @p bra OK;
      {
        .param .b64 m, f, n, s; .param .b32 l;
        mov.u64 b, message; cvta.global.u64 b, b; st.param.b64 [m], b;
        mov.u64 b, file; cvta.global.u64 b, b; st.param.b64 [f], b;
        st.param.b32 [l], 42;
        mov.u64 b, name; cvta.global.u64 b, b; st.param.b64 [n], b; st.param.b64 [s], 1;
        call __assertfail, (m, f, l, n, s);
      }
    OK:"""
    source = kernel(body, text("message", "i < n") + text("file", "a.cu") + text("name", "void f()"))
    with pytest.raises(KernelTrap, match=r"thread \(2, 0, 0\).*failed an assertion: i < n \(a.cu:42, void f\(\)\)"):
        device.load(source)["k"].launch(1, 4, [np.zeros(1, np.uint32)])


ALLOCATE = """{
  .param .b64 n, r;
  cvt.u64.u32 b, x; st.param.b64 [n], b;
  call (r), malloc, (n);
  ld.param.b64 a, [r];
}"""
FREE = "{ .param .b64 q; st.param.b64 [q], a; call free, (q); }"


def test_the_heap_gives_each_lane_its_own_and_takes_it_back(device):
    body = f"""
      mad.lo.u32 x, t, 8, 8; {ALLOCATE}
      st.u32 [a], t; bar.warp.sync -1; ld.u32 x, [a];
      mul.wide.u32 c, t, 8; add.u64 c, c, o; st.global.u64 [c], a; {FREE}"""
    module = device.load(kernel(body))
    first, second = np.zeros(32, np.uint64), np.zeros(32, np.uint64)
    module["k"].launch(1, 32, [first])
    module["k"].launch(1, 32, [second])
    assert len(set(first.tolist())) == 32 and not (first % 16).any()
    assert set(first.tolist()) == set(second.tolist())  # what was freed is given again


def test_the_heap_has_an_end_and_refuses_what_it_did_not_give(device):
    found = np.zeros(1, np.uint64)
    device.load(kernel(f"mov.u32 x, 100000000; {ALLOCATE} st.global.u64 [o], a;"))["k"].launch(1, 1, [found])
    assert found[0] == 0
    with pytest.raises(KernelTrap, match="free already"):
        device.load(kernel(f"mov.u32 x, 24; {ALLOCATE} {FREE} {FREE}"))["k"].launch(1, 1, [found])
