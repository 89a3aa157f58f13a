"""wmma.load, mma and store: every shape, type and layout, with strides, through global and shared memory, in both engines."""

import numpy as np
import pytest
from matrix_forms import POOL, elements, numbers

from warpwright import Device
from warpwright.cpu import fragments
from warpwright.errors import LaunchError, MemoryFault

INT_SHAPES = ("m16n16k16", "m8n32k16", "m32n8k16")
# (shape, type of A and B, C, D)
CASES = [(shape, "f16", c, d) for shape in INT_SHAPES for c, d in (("f32", "f32"), ("f16", "f16"), ("f16", "f32"), ("f32", "f16"))]
CASES += [(shape, ab, c, c) for shape in INT_SHAPES for ab, c in (("bf16", "f32"), ("u8", "s32"), ("s8", "s32"))]
CASES += [("m16n16k8", "tf32", "f32", "f32"), ("m8n8k4", "f64", "f64", "f64"), ("m8n8k32", "s4", "s32", "s32"), ("m8n8k32", "u4", "s32", "s32"),
          ("m8n8k128", "b1", "s32", "s32")]


@pytest.fixture(scope="module")
def devices():
    return Device("cpu", threads=1), Device("interpreter")


def registers(shape: str, operand: str, type_: str) -> str:
    count = fragments.wmma_layout(shape, operand, type_).registers
    pool = POOL.get(type_, ("r", ""))[0]
    return "{" + ", ".join(f"%{pool}{'ABCD'.index(operand) * 10 + i}" for i in range(count)) + "}"


def program(shape: str, types: tuple[str, str, str, str], layouts: str, strides: tuple[int, ...] | None, more: str = "") -> str:
    """`program(a, b, c, d)`. layouts: of a, b, c and d, r or c each; strides in elements, or none given. more: satfinite, rounding or .op."""
    a, b, c, d = ({"r": "row", "c": "col"}[layout] for layout in layouts)
    given = [f", {stride}" if strides else "" for stride in strides or (0,) * 4]
    frags = [registers(shape, operand, type_) for operand, type_ in zip("ABCD", types, strict=True)]
    typed = ".".join([types[3], types[2]] if types[0] == "f16" else [types[3], types[0], types[1], types[2]])
    rounding, end = (more, "") if ".r" in more else ("", more)
    op = ".and.popc" if types[0] == "b1" else ""
    return f"""
.version 8.7
.target sm_90a
.address_size 64
.visible .entry program(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{
  .reg .f32 %f<48>; .reg .b32 %r<48>; .reg .b64 %rd<8>; .reg .f64 %fd<48>;
  .shared .align 32 .b8 stage[8192];
  ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; ld.param.u64 %rd2, [c]; ld.param.u64 %rd3, [d];
  wmma.load.a.sync.aligned.{a}.{shape}.global.{types[0]} {frags[0]}, [%rd0]{given[0]};
  wmma.load.b.sync.aligned.{b}.{shape}.global.{types[1]} {frags[1]}, [%rd1]{given[1]};
  wmma.load.c.sync.aligned.{c}.{shape}.{types[2]} {frags[2]}, [%rd2]{given[2]};
  wmma.mma{op}.sync.aligned.{a}.{b}.{shape}{rounding}.{typed}{end} {frags[3]}, {frags[0]}, {frags[1]}, {frags[2]};
  wmma.store.d.sync.aligned.{d}.{shape}.global.{types[3]} [%rd3], {frags[3]}{given[3]};
  ret;
}}"""


def memory(bits: np.ndarray, type_: str, by_rows: bool, stride: int, random: np.random.Generator) -> np.ndarray:
    """The bytes of a matrix of bit patterns, its lines `stride` elements apart."""
    lines = bits if by_rows else bits.T
    size = fragments.memory_bits(type_)
    if type_ == "b1":
        out = random.integers(0, 1 << 32, (lines.shape[0], stride // 32), dtype=np.uint64).astype(np.uint32)
        out[:, :lines.shape[1]] = lines
    elif size == 4:
        out = random.integers(0, 256, (lines.shape[0], stride // 2), dtype=np.uint64).astype(np.uint8)
        out[:, :lines.shape[1] // 2] = lines[:, ::2] | lines[:, 1::2] << np.uint64(4)
    else:
        out = random.integers(0, 256, (lines.shape[0], stride), dtype=np.uint64).astype(f"u{size // 8}")
        out[:, :lines.shape[1]] = lines
    return out


def sizes(shape: str, type_: str) -> dict[str, tuple[int, int]]:
    return {letter: (layout.rows, layout.columns) for letter in "AB" for layout in [fragments.wmma_layout(shape, letter, type_)]}


def multiply(devices, shape, types, layouts, pad, *, special=False, more=""):
    """Runs on both devices; returns (bits of A, B, C, and D) once the engines agree."""
    random = np.random.default_rng(len(shape) + len(layouts) + pad)
    (m, k), (_, n) = sizes(shape, types[0]).values()
    shapes = [(m, k), (k, n), (m, n), (m, n)]
    bits = [elements(type_, int(np.prod(size)), random, special).reshape(size) for type_, size in zip(types, shapes, strict=True)]
    per = 32 if types[0] == "b1" else 1
    strides = [(size[1] if layout == "r" else size[0]) * (per if i < 2 else 1) + pad * (8 if i < 2 and per == 32 else 1)
               for i, (size, layout) in enumerate(zip(shapes, layouts, strict=True))]
    results = []
    for device in devices:
        random = np.random.default_rng(1)
        every = zip(bits, types, layouts, strides, strict=True)
        buffers = [memory(x, type_, layout == "r", stride, random) for x, type_, layout, stride in every]
        text = program(shape, types, layouts, tuple(strides) if pad else None, more=more)
        if more == ".satfinite" and types[0] == "f16":  # until PTX 6.5
            text = text.replace(".version 8.7", ".version 6.4").replace("sm_90a", "sm_70")
        before = buffers[3].copy()
        device.load(text)["program"].launch(grid=1, block=32, args=buffers)
        length = shapes[3][1] if layouts[3] == "r" else shapes[3][0]
        assert np.array_equal(buffers[3][:, length:], before[:, length:])
        lines = buffers[3][:, :length].astype(np.uint64)
        results.append(lines if layouts[3] == "r" else lines.T)
    assert np.array_equal(results[0], results[1]), np.argwhere(results[0] != results[1])[:4].tolist()
    return *bits[:3], results[0]


@pytest.mark.parametrize("case", CASES, ids=".".join)
def test_every_shape_and_type(devices, case):
    shape, ab, c_type, d_type = case
    fixed = ab in ("s4", "u4", "b1")
    layouts = "rcrc" if fixed or CASES.index(case) % 2 else "crcr"
    a, b, c, d = multiply(devices, shape, (ab, ab, c_type, d_type), layouts, 32 if CASES.index(case) % 3 else 0)
    if ab == "b1":
        wanted = np.bitwise_count(a[:, :, None] & b[None]).sum(1) + numbers(c, c_type)
        assert np.array_equal(numbers(d, "s32"), (wanted + 2**31) % 2**32 - 2**31)
        return
    left, right, start = numbers(a, ab), numbers(b, ab), numbers(c, c_type)
    wanted = left @ right + start
    if d_type == "s32":
        assert np.array_equal(numbers(d, "s32"), (wanted + 2**31) % 2**32 - 2**31)
        return
    size = np.abs(left) @ np.abs(right) + np.abs(start)
    error = (left.shape[1] + 1) * size * 2.0 ** (-53 if d_type == "f64" else -24) + (size * 2.0**-11 if d_type == "f16" else 0)
    assert (np.abs(numbers(d, d_type) - wanted) <= error).all()


@pytest.mark.parametrize("layouts", [f"{a}{b}{c}{d}" for a in "rc" for b in "rc" for c in "rc" for d in "rc"][::3])
def test_layouts(devices, layouts):
    a, b, c, d = multiply(devices, "m16n16k16", ("s8", "s8", "s32", "s32"), layouts, 16)
    wanted = numbers(a, "s8") @ numbers(b, "s8") + numbers(c, "s32")
    assert np.array_equal(numbers(d, "s32"), (wanted + 2**31) % 2**32 - 2**31)


def test_satfinite(devices):
    *_, d = multiply(devices, "m16n16k16", ("u8", "u8", "s32", "s32"), "rcrr", 0, more=".satfinite")
    assert (numbers(d, "s32") < 2**31).all()
    for type_ in ("f16", "f32"):
        *_, d = multiply(devices, "m16n16k16", ("f16", "f16", type_, type_), "rcrr", 0, special=True, more=".satfinite")
        values = numbers(d, type_)
        assert np.isfinite(values).all() and (np.abs(values) == (65504 if type_ == "f16" else np.float64(np.finfo(np.float32).max))).any()


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_f64_is_rounded_as_asked(devices, mode):
    """A host without AVX-512 has only rounding to nearest in the compiled engine, and says so."""
    if mode != "rn":
        try:
            multiply((devices[0], devices[0]), "m8n8k4", ("f64",) * 4, "rcrr", 0, more="." + mode)
        except LaunchError as refused:
            assert "lacks AVX-512, it has only rounding to nearest" in str(refused)
            devices = (devices[1], devices[1])
    a, b, c, d = multiply(devices, "m8n8k4", ("f64",) * 4, "rcrr", 0, more="." + mode)
    if mode in ("rm", "rp"):
        other = multiply(devices, "m8n8k4", ("f64",) * 4, "rcrr", 0, more="." + {"rm": "rp", "rp": "rm"}[mode])[3]
        low, high = (numbers(x, "f64") for x in ((d, other) if mode == "rm" else (other, d)))
        assert (low <= high).all() and (low < high).any()
    assert np.allclose(numbers(d, "f64"), numbers(a, "f64") @ numbers(b, "f64") + numbers(c, "f64"), rtol=1e-13)


def test_shared_memory_and_a_stride_in_a_register(devices):
    """A goes through shared memory with 24 elements from row to row."""
    text = program("m16n16k16", ("f16", "f16", "f32", "f32"), "rcrr", (16,) * 4).replace(
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16", "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16").replace(
        "[%rd0], 16;", "[%r45], %r46;").replace("wmma.load.a", """mov.u32 %r40, %tid.x;
  mul.wide.u32 %rd4, %r40, 16; add.s64 %rd4, %rd4, %rd0; ld.global.v4.b32 {%r41, %r42, %r43, %r44}, [%rd4];
  shr.u32 %r46, %r40, 1; mul.lo.u32 %r46, %r46, 48; and.b32 %r47, %r40, 1; mad.lo.u32 %r46, %r47, 16, %r46;
  mov.u32 %r45, stage; add.u32 %r46, %r46, %r45; st.shared.v4.b32 [%r46], {%r41, %r42, %r43, %r44};
  bar.warp.sync -1; mov.u32 %r46, 24;
  wmma.load.a""", 1)
    random = np.random.default_rng(0)
    a, b = (random.integers(-8, 9, (16, 16)).astype(np.float16) for _ in range(2))
    c = random.integers(-8, 9, (16, 16)).astype(np.float32)
    for device in devices:
        d = np.zeros((16, 16), np.float32)
        device.load(text)["program"].launch(grid=1, block=32, args=[a, np.ascontiguousarray(b.T), c, d])
        assert np.array_equal(d, a.astype(np.float32) @ b.astype(np.float32) + c)


def test_a_matrix_that_does_not_fit_faults_at_the_first_piece_outside(devices):
    text = program("m16n16k16", ("f16", "f16", "f32", "f32"), "rcrr", (16,) * 4)
    a, b, c, d = np.zeros(256, np.float16), np.zeros(248, np.float16), np.zeros(256, np.float32), np.zeros(256, np.float32)
    found = []
    for device in devices:
        with pytest.raises(MemoryFault) as caught:
            device.load(text)["program"].launch(grid=1, block=32, args=[a, b, c, d])
        assert "wmma.load.b" in str(caught.value)
        found.append(str(caught.value))
    assert found[0] == found[1]


def test_an_odd_stride_faults(devices):
    text = program("m16n16k16", ("f16", "f16", "f32", "f32"), "rcrr", (17,) * 4)
    for device in devices:
        with pytest.raises(MemoryFault, match="align"):
            device.load(text)["program"].launch(grid=1, block=32, args=[np.zeros(1024, np.float32) for _ in range(4)])
