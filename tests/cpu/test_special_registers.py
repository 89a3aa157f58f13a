"""Special registers: every one of the ISA has a sensible value, and the same in both engines where it does not tell the time or the launch."""

import numpy as np
import pytest

import warpwright
from warpwright.ptx.isa.special import SPECIAL, VECTORS

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
TIMES = ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")


def run(kind: str, body: str, grid=2, block=48, like="h100", declarations="", **options) -> np.ndarray:
    """What a body leaves in %rd1, for each thread of a grid; %r1 is the thread's number in the grid."""
    text = HEADER + f""".visible .entry k(.param .u64 out) {{
        .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
        {declarations}
        mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
        {body}
        ld.param.u64 %rd2, [out]; mad.wide.u32 %rd2, %r1, 8, %rd2; st.global.u64 [%rd2], %rd1;
        ret;
    }}"""
    out = np.zeros(grid * block, np.uint64)
    warpwright.Device(kind, like=like).load(text)["k"].launch(grid, block, [out], **options)
    return out.reshape(grid, block)


def reading(name: str) -> str:
    match SPECIAL[name]:
        case "pred":
            return f"mov.pred %p1, {name}; selp.u64 %rd1, 1, 0, %p1;"
        case "u64":
            return f"mov.u64 %rd1, {name};"
        case type_:
            return f"mov.{type_} %r4, {name}; cvt.u64.u32 %rd1, %r4;"


@pytest.mark.parametrize("name", [name for name in SPECIAL if name not in TIMES])
def test_both_engines_read_the_same(name):
    np.testing.assert_array_equal(run("cpu", reading(name)), run("interpreter", reading(name)))


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
@pytest.mark.parametrize("name,value", [
    ("%nsmid", 132), ("%nwarpid", 64), ("%smid", [0, 1]), ("%gridid", 1), ("%dynamic_smem_size", 300), ("%total_smem_size", 384 + 128),
    ("%aggr_smem_size", 384 + 128), ("%current_graph_exec", 0), ("%envreg31", 0), ("%pm0_64", 0), ("%nctaid.w", 0), ("%tid.w", 0),
    ("%reserved_smem_offset_begin", 0), ("%is_explicit_cluster", 0), ("%nclusterid.x", 2), ("%cluster_nctarank", 1),
])
def test_values(kind, name, value):
    shared = ".shared .align 16 .b8 s[100]; .extern .shared .align 16 .b8 d[]; .reg .b32 %a; mov.u32 %a, s; mov.u32 %a, d;"
    got = run(kind, shared + reading(name), block=1, shared_bytes=300)
    assert got.ravel().tolist() == (value if isinstance(value, list) else [value, value])


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
@pytest.mark.parametrize("vector", VECTORS)
def test_a_vector_is_read_as_a_whole(kind, vector):
    declarations = ".reg .v4 .u32 %v; .reg .b32 %q<4>;"
    whole = f"mov.v4.u32 {{%q0, %q1, %q2, %q3}}, {vector}; mad.lo.u32 %r4, %q1, 100, %q0; mad.lo.u32 %r4, %q2, 10000, %r4; add.u32 %r4, %r4, %q3;"
    parts = f"""mov.u32 %q0, {vector}.x; mov.u32 %q1, {vector}.y; mov.u32 %q2, {vector}.z;
        mad.lo.u32 %r4, %q1, 100, %q0; mad.lo.u32 %r4, %q2, 10000, %r4;"""
    end = "cvt.u64.u32 %rd1, %r4;"
    np.testing.assert_array_equal(run(kind, whole + end, declarations=declarations), run(kind, parts + end, declarations=declarations))


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
@pytest.mark.parametrize("name", ["%clock64", "%globaltimer", "%clock", "%globaltimer_lo"])
def test_clocks_move_on_between_reads(kind, name):
    type_, register = ("u64", "%rd") if SPECIAL[name] == "u64" else ("u32", "%r")
    body = f"""
        .reg .b64 %n;
        mov.{type_} {register}5, {name};
        mov.u64 %n, 0;
    AGAIN:
        mov.{type_} {register}6, {name};
        add.u64 %n, %n, 1;
        setp.eq.{type_} %p1, {register}5, {register}6;
        @%p1 bra AGAIN;
        sub.{type_} {register}6, {register}6, {register}5;
        setp.lt.{type_} %p1, {register}6, 1000000000;
        selp.u64 %rd1, %n, 0, %p1;
    """
    reads = run(kind, body, time_limit=10)
    assert (reads > 0).all()
    if name.startswith("%clock"):
        assert (reads == 1).all()


def test_the_global_timer_counts_nanoseconds():
    """Against the host's clock, around a launch."""
    import time

    for kind in ("cpu", "interpreter"):
        before = time.time_ns()
        seen = run(kind, reading("%globaltimer"))
        assert before <= seen.min() <= seen.max() <= time.time_ns()


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_launch_has_a_number_of_its_own(kind):
    device = warpwright.Device(kind)
    kernel = device.load(HEADER + """.visible .entry k(.param .u64 out) { .reg .b64 %rd<3>;
        mov.u64 %rd1, %gridid; ld.param.u64 %rd2, [out]; st.global.u64 [%rd2], %rd1; ret; }""")["k"]
    out = np.zeros(1, np.uint64)
    numbers = []
    for _ in range(3):
        kernel.launch(1, 1, [out])
        numbers.append(int(out[0]))
    assert numbers == [1, 2, 3]
