"""`warpwright ptx`, as a person runs it: real processes, their output and their exit codes."""

import json
import subprocess
import sys

import numpy as np
import pytest

SAXPY = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<5>; .reg .b64 %rd<8>;
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 ret;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.f32 %f1, [a];
    cvta.to.global.u64 %rd3, %rd1; cvta.to.global.u64 %rd4, %rd2;
    mul.wide.u32 %rd5, %r5, 4; add.s64 %rd6, %rd3, %rd5; add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f2, [%rd6]; ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd7], %f4;
    ret;
}
"""
ARGUMENTS = ("--arg", "f32[100]=arange", "--arg", "f32[100]=ones", "--arg", "f32=2", "--arg", "u32=100")


@pytest.fixture
def run(tmp_path):
    (tmp_path / "saxpy.ptx").write_text(SAXPY)
    (tmp_path / "bad.ptx").write_text(SAXPY.replace("fma.rn", "fma").replace("[%rd7], %f4", "[%rd7], %p1"))
    (tmp_path / "broken.ptx").write_text(SAXPY.replace("[y]", "[y"))
    (tmp_path / "cubin.ptx").write_bytes(b"\x7fELF\xff\xfe")

    def run(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-m", "warpwright", "ptx", *words], cwd=tmp_path, capture_output=True, text=True,
                              timeout=120)

    return run


def test_check_says_what_is_right(run):
    ran = run("check", "saxpy.ptx")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "saxpy.ptx: ok (1 kernels, 20 instructions)\n", "")


def test_check_says_everything_that_is_wrong_and_points_at_it(run):
    ran = run("check", "bad.ptx", "broken.ptx")
    assert ran.returncode == 1
    assert ran.stdout.splitlines() == [
        "bad.ptx:16:5: 'fma.f32' lacks one of .rn .rz .rm .rp, as in 'fma.rn.f32'",
        "      fma.f32 %f4, %f1, %f2, %f3;",
        "      ^",
        "bad.ptx:17:27: operand b of 'st.global.f32': '%p1' is a .pred register, and must be .b32 or .f32",
        "      st.global.f32 [%rd7], %p1;",
        "                            ^",
        "broken.ptx:12:50: expected ']' after an address, found ';'",
        "      ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y; ld.param.f32 %f1, [a];",
        "                                                   ^",
    ]


def test_check_of_what_is_no_text(run):
    ran = run("check", "cubin.ptx", "saxpy.ptx")
    assert (ran.returncode, ran.stdout.splitlines()) == (2, [
        "cubin.ptx: cannot be read: it is not text (is it a cubin or an object file?)", "saxpy.ptx: ok (1 kernels, 20 instructions)"])


def test_check_in_json_for_another_target(run):
    ran = run("check", "--json", "--target", "sm_99", "saxpy.ptx")
    assert ran.returncode == 1
    assert json.loads(ran.stdout) == {"file": "saxpy.ptx", "line": None, "column": None,
                                      "message": "unknown target 'sm_99' (did you mean 'sm_90'?)"}


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_run_shows_what_a_kernel_wrote(run, device):
    ran = run("run", "saxpy.ptx", "--kernel", "saxpy", "--grid", "4", "--block", "32", "--device", device, *ARGUMENTS)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "argument 0  f32[100]  unchanged: 0 1 2 3 4 5 6 7 …", "argument 1  f32[100]  99 elements changed: 1 3 5 7 9 11 13 15 …"]


def test_run_reads_and_saves_arrays(run, tmp_path):
    x = np.linspace(-1, 1, 10, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    ran = run("run", "saxpy.ptx", "--grid", "1,1,1", "--arg", "x.npy", "--arg", "f32[10]=0.5", "--arg", "f32=-3", "--arg", "u32=0xA",
              "--out", "results", "--json")
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["kernel"] == "saxpy" and [row["changed"] > 0 for row in report["arrays"]] == [False, True]
    np.testing.assert_array_equal(np.load(tmp_path / "results" / "arg1.npy"),
                                  (0.5 - 3.0 * x.astype(np.float64)).astype(np.float32))  # one rounding, as fma


@pytest.mark.parametrize("words, message", [
    (("nope.ptx",), "nope.ptx: no such file"),
    (("broken.ptx",), "broken.ptx:12:50: expected ']' after an address, found ';'"),
    (("saxpy.ptx", "--kernel", "nope", *ARGUMENTS), "the module has no kernel 'nope'; it has: saxpy"),
    (("saxpy.ptx", "--arg", "u32=1"), "kernel saxpy takes 4 arguments (.u64 x, .u64 y, .f32 a, .u32 n); 1 were given"),
    (("saxpy.ptx", "--arg", "q32=1"), "--arg q32=1: there is no type 'q32'"),
    (("saxpy.ptx", "--arg", "f32[10]=nope"), "--arg f32[10]=nope: fill with random, zeros, ones, arange or a f32 number, not 'nope'"),
    (("saxpy.ptx", "--grid", "4x", *ARGUMENTS), "--grid 4x: write one to three whole numbers, such as 40 or 4,2,1"),
    (("saxpy.ptx", "--block", "2048", *ARGUMENTS), "block (2048, 1, 1) has x=2048; h800 takes 1 to 1024"),
    (("saxpy.ptx", "--grid", "5", *ARGUMENTS[:1], "f32[50]=arange", *ARGUMENTS[2:]), "ld.global.f32 %f2, [%rd6]; reads 4 bytes at"),
    (("saxpy.ptx", "--bogus"), "No such option: --bogus"),
])
def test_a_mistake_is_told_in_one_line_with_exit_code_2(run, words, message):
    ran = run("run", *words)
    assert ran.returncode == 2 and ran.stdout == ""
    assert message in ran.stderr and "Traceback" not in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1

# A register is stored that nothing has written.
LINTED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {
    .reg .b64 %d;
    .reg .b32 %r;
    ld.param.u64 %d, [out];
    st.global.u32 [%d], %r;
}
"""


def test_check_warns_of_what_ptxas_lets_through(run, tmp_path):
    file = tmp_path / "k.ptx"
    file.write_text(LINTED)
    result = run("check", str(file))
    assert result.returncode == 0
    assert f"{file}:8:25: warning: '%r' is read and was never written [unwritten-register]" in result.stdout
    assert "      st.global.u32 [%d], %r;\n                          ^\n" in result.stdout
    assert run("check", "--strict", str(file)).returncode == 1
    assert "warning" not in run("check", "--ignore", "unwritten-register", str(file)).stdout
    assert "warning" not in run("check", "--no-lint", str(file)).stdout
    assert json.loads(run("check", "--json", str(file)).stdout)["lint"] == "unwritten-register"
    unknown = run("check", "--lint", "nonsense", str(file))
    assert unknown.returncode == 2 and "there is no lint 'nonsense'" in unknown.stdout + unknown.stderr
    assert "wgmma-in-flight" in run("lints").stdout


def test_docs_show_the_table(run):
    assert "fma.(rn|rz|rm|rp){.ftz}{.sat}.f32 d, a, b, c;" in run("docs", "fma").stdout
    assert any(line.split()[:1] == ["wgmma"] for line in run("docs").stdout.splitlines())
    unknown = run("docs", "fmaa")
    assert unknown.returncode == 2 and "did you mean fma" in unknown.stderr


def test_fmt_is_idempotent(run, tmp_path):
    assert run("fmt", "--check", "saxpy.ptx").returncode == 1
    assert run("fmt", "--in-place", "saxpy.ptx").returncode == 0
    assert run("fmt", "--check", "saxpy.ptx").returncode == 0
    assert run("fmt", "saxpy.ptx").stdout == (tmp_path / "saxpy.ptx").read_text()


def test_info_says_what_kernels_use_and_need(run):
    ran = run("info", "saxpy.ptx")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == """\
saxpy.ptx: PTX 8.0 for sm_80; PTX 6.3 and sm_75 would do

kernel saxpy
  parameters      x .u64, y .u64, a .f32, n .u32
  registers       5 .b32, 7 .b64, 4 .f32, 1 .pred; at most 7 of 32 bits hold values at once
  instructions    20: ld 6, mov 3, ret 2, cvta 2, add 2, mad 1, setp 1, mul 1, fma 1, st 1
"""


def test_info_as_json_counts_memory_of_callees_and_finds_features(run, tmp_path):
    (tmp_path / "two.ptx").write_text("""\
.version 8.6
.target sm_100a
.address_size 64
.global .b32 counter[4];
.shared .align 16 .b8 tile[256];
.extern .shared .align 16 .b8 dynamic[];
.func helper() { .local .b64 spilled; .reg .b32 %a; mov.u32 %a, tile; st.shared.b32 [%a], 1; st.local.b64 [spilled], 0; ret; }
.visible .entry k(.param .align 16 .b8 block[64]) .reqntid 128, 2 {
  .reg .b32 %r<3>; .reg .pred %p;
  mov.u32 %r1, dynamic;
  cp.async.ca.shared.global [%r1], [counter], 16;
  elect.sync _|%p, -1;
  @%p red.shared.add.u32 [%r1], 1;
  bar.sync 0;
  call helper;
  ret;
}
""")
    ran = run("info", "two.ptx", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    helper, kernel = found.pop("functions")
    assert found == {"file": "two.ptx", "version": [8, 6], "target": "sm_100a", "least_version": [8, 0], "least_target": "sm_90",
                     "global_bytes": 16}
    assert (helper["name"], helper["kernel"], helper["shared"], helper["local"]) == ("helper", False, 256, 8)
    assert kernel == {
        "name": "k", "kernel": True, "parameters": [["block", "b8", 64, 16]], "registers": {"b32": 1, "pred": 1}, "pressure": 1,
        "shared": 256, "dynamic_shared": True, "local": 8, "constant": 0,
        "instructions": {"mov": 1, "cp": 1, "elect": 1, "red": 1, "bar": 1, "call": 1, "ret": 1},
        "features": ["cp.async", "warp votes", "CTA barriers", "atomics"], "calls": ["helper"], "block": ["reqntid", [128, 2]]}


def test_info_refuses_what_is_wrong(run):
    ran = run("info", "bad.ptx")
    assert ran.returncode == 2 and "bad.ptx:16:5: 'fma.f32' lacks one of .rn .rz .rm .rp" in ran.stderr
