"""The compiled engine against the interpreter, bit for bit, on random programs over all types, control flow, memory and lanes.

Every example is derived from a fixed seed. WARPWRIGHT_DIFFERENTIAL=20 makes twenty times as many.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import random_programs as programs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_instructions import SLOTS, STRAIGHT_LINE, comparable, inputs, nasty, pack, unpack

from warpwright import Device

TIMES = int(os.environ.get("WARPWRIGHT_DIFFERENTIAL", "1"))
SEEDS = st.integers(0, 2**32 - 1)


def examples(count: int):
    return settings(
        max_examples=count * TIMES,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


@pytest.fixture(scope="module")
def devices():
    return Device("cpu", threads=2), Device("interpreter")


def agree(devices, text: str, threads: int, seed: int, ctas: int = 1) -> None:
    """Run `program` on both devices, from the same registers; whatever it leaves in them must be equal."""
    given_ = pack(inputs(threads * ctas, seed))
    results = []
    for device in devices:
        registers, out = given_.copy(), np.zeros_like(given_)
        device.load(text)["program"].launch(grid=ctas, block=threads, args=[registers, out])
        results.append(comparable(unpack(out, threads * ctas)))
    compiled, interpreted = results
    if not np.array_equal(compiled, interpreted):
        thread, slot = (int(i) for i in np.argwhere(compiled != interpreted)[0])
        pool, index = SLOTS[slot]
        different = sorted({"%{}{}".format(*SLOTS[s]) for s in np.argwhere(compiled != interpreted)[:, 1]})
        raise AssertionError(
            f"thread {thread}: %{pool}{index} is {int(compiled[thread, slot]):#x} compiled, "
            f"{int(interpreted[thread, slot]):#x} interpreted (all that differ: {', '.join(different)})\n{text}"
        )


@pytest.mark.parametrize("family", list(STRAIGHT_LINE))
@pytest.mark.parametrize("part", range(4))
def test_every_instruction(devices, family, part):
    """All instructions of a family, a quarter in a program: none is left to chance."""
    for round_ in range(TIMES):
        random = np.random.default_rng(round_)
        agree(devices, programs.kernel([op.render(random) for op in STRAIGHT_LINE[family][part::4]]), 128, round_)


CHOICES = st.lists(st.tuples(st.integers(0, 10**6), SEEDS), min_size=20, max_size=40)


@pytest.mark.parametrize("statement", [
    *(f"fma.rn.oob{relu}.{type_} {registers};" for relu in ("", ".relu")
      for type_, registers in (("f16", "%h0, %h1, %h2, %h3"), ("bf16", "%h0, %h1, %h2, %h3"),
                               ("f16x2", "%r0, %r1, %r2, %r3"), ("bf16x2", "%r0, %r1, %r2, %r3"))),
    "cvt.ftz.f32.bf16 %f0, %h0;",
])
def test_what_the_fill_of_tensor_copies_and_subnormals_become(devices, statement):
    """fma.oob takes the NaN 0xffff of a or b for zero; .ftz flushes what is subnormal in f32, which a bf16 can be."""
    count = 64
    special = np.array([0xFFFF, 0x7FFF, 0x0001, 0x8001, 0x007F, 0x3C00, 0xBF80, 0x0000], np.uint16)
    halves = np.random.default_rng(5).choice(special, (count, 8))
    pool = "h" if "%h0" in statement else "r"
    target = "f32" if "%f0" in statement else "b16" if pool == "h" else "b32"
    loads = "\n".join(f"ld.global.{'b16 %h' if pool == 'h' else 'b32 %r'}{i}, [%d1+{2 * i if pool == 'h' else 4 * i}];" for i in range(4))
    text = f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) {{
.reg .b16 %h<4>; .reg .b32 %r<5>; .reg .b64 %d<4>; .reg .f32 %f<1>;
mov.u32 %r4, %tid.x; ld.param.u64 %d1, [x]; mad.wide.u32 %d1, %r4, 16, %d1;
{loads}
{statement}
ld.param.u64 %d2, [y]; mad.wide.u32 %d2, %r4, 4, %d2; st.global.{target} [%d2], {'%f0' if target == 'f32' else f'%{pool}0'};
}}"""
    results = []
    for device in devices:
        out = np.zeros(count, np.uint32)
        device.load(text)["k"].launch(grid=1, block=count, args=[halves, out])
        if target == "f32":  # which NaN is not compared
            out = np.where(np.isnan(out.view(np.float32)), np.uint32(0x7FFFFFFF), out)
        results.append(out)
    assert results[0].tolist() == results[1].tolist()
    if "oob" in statement:
        assert (results[0][(halves[:, 1] == 0xFFFF) & (halves[:, 2] == 0xFFFF)] & 0xFFFF == 0).all() or pool == "r"
    else:
        assert results[0][halves[:, 0] == 0x0001].tolist() == [0] * int((halves[:, 0] == 0x0001).sum())


@pytest.mark.parametrize("family", list(STRAIGHT_LINE))
def test_straight_line_programs(devices, family):
    @examples(2)
    @given(choices=CHOICES, seed=SEEDS)
    def run(choices, seed):
        agree(devices, programs.kernel(programs.straight_line(choices, STRAIGHT_LINE[family])), 64, seed)

    run()


@examples(4)
@given(program=SEEDS, depth=st.integers(1, 3), seed=SEEDS, threads=st.sampled_from([32, 64, 40, 1]))
def test_structured_control_flow(devices, program, depth, seed, threads):
    agree(devices, programs.structured(program, depth), threads, seed)


@examples(4)
@given(program=SEEDS, blocks=st.integers(2, 9), seed=SEEDS, threads=st.sampled_from([32, 33, 7]))
def test_tangled_control_flow(devices, program, blocks, seed, threads):
    agree(devices, programs.tangled(program, blocks), threads, seed)


@examples(4)
@given(program=SEEDS, count=st.integers(1, 16), seed=SEEDS, threads=st.sampled_from([32, 64, 50]))
def test_memory_accesses(devices, program, count, seed, threads):
    agree(devices, programs.memory(program, count), threads, seed)


@examples(4)
@given(program=SEEDS, count=st.integers(1, 12), seed=SEEDS)
def test_exchanges_between_lanes(devices, program, count, seed):
    agree(devices, programs.across_lanes(program, count), 64, seed)


@examples(3)
@given(program=SEEDS, count=st.integers(1, 6), seed=SEEDS, threads=st.sampled_from([64, 96, 128, 70]))
def test_barriers(devices, program, count, seed, threads):
    agree(devices, programs.barriers(program, count, threads), threads, seed, ctas=2)


@examples(3)
@given(program=SEEDS, count=st.integers(1, 8), seed=SEEDS, threads=st.sampled_from([32, 96]))
def test_atomics(devices, program, count, seed, threads):
    agree(devices, programs.atomics(program, count), threads, seed)


# ── approximations: within the ISA's bounds of the interpreter's correctly rounded results ───────────────────────

# opcode → (largest error in units in the last place, largest absolute error where that is the bound). The ISA allows each of two
# implementations its error; the interpreter has at most half a unit.
APPROXIMATIONS = {
    "rcp.approx.f32": (1, 0),
    "rcp.approx.ftz.f32": (1, 0),
    "sqrt.approx.f32": (2, 0),
    "sqrt.approx.ftz.f32": (2, 0),
    "rsqrt.approx.f32": (2, 0),
    "rsqrt.approx.ftz.f32": (2, 0),
    "ex2.approx.f32": (2, 0),
    "ex2.approx.ftz.f32": (2, 0),
    "lg2.approx.f32": (2, 2.0**-22),
    "lg2.approx.ftz.f32": (2, 2.0**-22),
    "sin.approx.f32": (0, 2.0**-20.5),
    "cos.approx.f32": (0, 2.0**-20.5),
    "tanh.approx.f32": (2**13, 0),
}


def test_approximations(devices):
    """All in one kernel, of 2048 values each; the trigonometric ones of an angle within ±2π."""
    count = 2048
    values = np.stack(
        [
            nasty("f", count, np.random.default_rng(1)).astype(np.uint32),
            np.random.default_rng(2).uniform(-6.28, 6.28, count).astype(np.float32).view(np.uint32),
        ]
    )
    body = []
    for i, opcode in enumerate(APPROXIMATIONS):
        body += [f"{opcode} %f2, %f{int(opcode[:3] in ('sin', 'cos'))};", f"st.global.f32 [%rd1+{4 * count * i}], %f2;"]
    text = "\n".join(
        [
            ".version 8.7",
            ".target sm_90a",
            ".address_size 64",
            ".visible .entry program(.param .u64 in, .param .u64 out) {",
            ".reg .f32 %f<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>;",
            "ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out];",
            "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r0, %r1, 256, %r0; mul.wide.u32 %rd2, %r0, 4;",
            "add.s64 %rd0, %rd0, %rd2; add.s64 %rd1, %rd1, %rd2;",
            f"ld.global.f32 %f0, [%rd0]; ld.global.f32 %f1, [%rd0+{4 * count}];",
            *body,
            "ret; }",
        ]
    )
    results = []
    for device in devices:
        out = np.zeros((len(APPROXIMATIONS), count), np.float32)
        device.load(text)["program"].launch(grid=count // 256, block=256, args=[values.copy(), out])
        results.append(out)
    for opcode, compiled, exact in zip(APPROXIMATIONS, *results, strict=True):
        units, absolute = APPROXIMATIONS[opcode]
        assert np.array_equal(np.isnan(compiled), np.isnan(exact)), opcode
        special = (np.isinf(exact) | (exact == 0)) & ~np.isnan(exact)
        assert np.array_equal(compiled[special].view(np.uint32), exact[special].view(np.uint32)), opcode
        plain = ~special & ~np.isnan(exact)
        c, e = compiled[plain].astype(np.float64), exact[plain].astype(np.float64)
        allowed = np.maximum(units * np.spacing(np.abs(exact[plain])).astype(np.float64), absolute)
        worst = int(np.argmax(np.abs(c - e) - allowed))
        assert np.all(np.abs(c - e) <= allowed), f"{opcode} of {values[0][plain][worst]:#x}: {c[worst]!r}, exactly {e[worst]!r}"


# ── matrices ─────────────────────────────────────────────────────────────────────────────────────────────────────

# shape, types of D, A, B, C
PRODUCTS = [
    ("m16n8k16", "f32.f16.f16.f32"),
    ("m16n8k8", "f32.f16.f16.f32"),
    ("m16n8k16", "f16.f16.f16.f16"),
    ("m16n8k16", "f32.bf16.bf16.f32"),
    ("m16n8k8", "f32.bf16.bf16.f32"),
    ("m16n8k8", "f32.tf32.tf32.f32"),
    ("m16n8k4", "f32.tf32.tf32.f32"),
    ("m16n8k32", "f32.e4m3.e4m3.f32"),
    ("m16n8k32", "f32.e5m2.e5m2.f32"),
    ("m16n8k32", "f32.e4m3.e5m2.f32"),
    ("m16n8k32", "s32.s8.s8.s32"),
    ("m16n8k32", "s32.u8.s8.s32"),
    ("m16n8k16", "s32.s8.s8.s32"),
    ("m16n8k16", "s32.u8.u8.s32"),
]


def fragments(shape: str, types: str, seed: int) -> np.ndarray:
    """Registers of 32 lanes for A, B and C: [32, 12] words, of finite values mostly near one, with some that round or vanish."""
    random = np.random.default_rng(seed)
    _, a, b, c = types.split(".")
    columns = []
    for type_, count in ((a, 4), (b, 2), (c, 4)):
        if type_ in ("f16", "bf16"):
            pool = {"f16": "m", "bf16": "n"}[type_]
            columns += [nasty(pool, 32, random) & np.uint64(0xBFFFBFFF) for _ in range(count)]
        elif type_ in ("f32", "tf32"):
            columns += [nasty("f", 32, random) & np.uint64(0xBFFFFFFF) for _ in range(count)]
        elif type_ in ("e4m3", "e5m2"):
            words = random.integers(0, 2**32, (count, 32), dtype=np.uint64)
            columns += list(words & np.uint64(0xBFBFBFBF if type_ == "e5m2" else 0xF7F7F7F7))
        else:
            columns += list(random.integers(0, 2**32, (count, 32), dtype=np.uint64))
    return np.stack(columns, axis=1).astype(np.uint32)


@pytest.mark.parametrize(("shape", "types"), PRODUCTS)
def test_matrix_products(devices, shape, types):
    from warpwright.ptx.isa.matrix import fragment

    d, a, b, c = types.split(".")
    slots = {"shape": shape, "A": a, "B": b, "C": c, "D": d}
    a_count, b_count, c_count, d_count = (fragment(slots, name)[0] for name in "ABCD")
    wide = "f" if d == "f32" else "r"

    def listed(pool: str, first: int, count: int) -> str:
        return "{" + ", ".join(f"%{pool}{first + i}" for i in range(count)) + "}"

    loads = [f"ld.global.b32 %{'f' if c == 'f32' and i >= 6 else 'r'}{i}, [%rd0+{4 * i}];" for i in range(10)]
    text = "\n".join(
        [
            ".version 8.7",
            ".target sm_90a",
            ".address_size 64",
            ".visible .entry program(.param .u64 in, .param .u64 out) {",
            "  .reg .f32 %f<24>; .reg .b32 %r<24>; .reg .b64 %rd<4>;",
            "ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out];",
            "mov.u32 %r20, %tid.x; mul.wide.u32 %rd2, %r20, 40; add.s64 %rd0, %rd0, %rd2; add.s64 %rd1, %rd1, %rd2;",
            *loads,
            f"mma.sync.aligned.{shape}.row.col.{types} {listed(wide, 10, d_count)}, {listed('r', 0, a_count)}, "
            f"{listed('r', 4, b_count)}, {listed('f' if c == 'f32' else 'r', 6, c_count)};",
            *(f"st.global.b32 [%rd1+{4 * i}], %{wide}{10 + i};" for i in range(d_count)),
            "ret;",
            "}",
        ]
    )
    for seed in range(4):
        results = []
        for device in devices:
            out = np.zeros((32, 10), np.uint32)
            device.load(text)["program"].launch(grid=1, block=32, args=[fragments(shape, types, seed), out])
            results.append(out)
        compiled, interpreted = results
        if d == "f32":
            both = np.isnan(compiled.view(np.float32)) & np.isnan(interpreted.view(np.float32))
            compiled, interpreted = np.where(both, 0, compiled), np.where(both, 0, interpreted)
        assert np.array_equal(compiled, interpreted), (seed, np.argwhere(compiled != interpreted)[:4].tolist())
