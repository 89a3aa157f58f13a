"""Triton kernels on the virtual GPU: what the driver does. What whole kernels compute is in test_triton_tutorials.py."""

import pytest

pytest.importorskip("triton")

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.errors import OutOfResources
from triton.tools.tensor_descriptor import TensorDescriptor

import warpwright.triton
from warpwright.errors import KernelTrap, LaunchError, MemoryFault


@pytest.fixture(params=["a100", "h100"])
def gpu(request):
    with warpwright.triton.virtual_gpu(request.param) as device:
        yield device


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def test_a_kernel_launches_on_cpu_tensors_with_a_grid_that_depends_on_its_constants(gpu):
    x, y, out = torch.randn(5000), torch.randn(5000), torch.zeros(5003)
    add[lambda meta: (triton.cdiv(5000, meta["BLOCK"]),)](x, y, out, 5000, BLOCK=1024)
    assert torch.equal(out[:5000], x + y) and not out[5000:].any()


def test_what_is_compiled_is_for_the_part_and_nothing_is_assembled(gpu):
    kernel = add.warmup(torch.float32, torch.float32, torch.float32, 5000, BLOCK=512, grid=(1,))
    major, minor = gpu.part.capability
    assert f".target sm_{major}{minor}" in kernel.asm["ptx"]
    assert kernel.asm["cubin"] == kernel.asm["ptx"].encode()
    x, out = torch.randn(512), torch.empty(512)
    kernel[(1, 1, 1)](x, x, out, 500, 512)
    assert torch.equal(out[:500], 2 * x[:500])


def test_tutorials_find_a_device_and_its_properties(gpu):
    active = triton.runtime.driver.active
    properties = active.utils.get_device_properties(active.get_active_torch_device().index)
    assert properties["multiprocessor_count"] == gpu.part.sms and properties["warpSize"] == 32
    assert properties["max_shared_mem"] == gpu.part.shared_per_cta
    assert active.get_current_target().arch == 10 * gpu.part.capability[0] + gpu.part.capability[1]


def test_the_gpu_of_a_block_is_given_back_after_it():
    with warpwright.triton.virtual_gpu("a100") as a100:
        with warpwright.triton.virtual_gpu("h200") as h200:
            assert triton.runtime.driver.active.device is h200
        assert triton.runtime.driver.active.device is a100
    assert triton.runtime.driver.active.device.part.name == "h100"  # what the import made active


@triton.jit
def scalars(out, b: tl.int1, i8: tl.int8, i16: tl.int16, i32, i64, u32: tl.uint32, h: tl.float16, q: tl.bfloat16, f, d: tl.float64):
    tl.store(out + 0, b.to(tl.float64))
    tl.store(out + 1, i8.to(tl.float64))
    tl.store(out + 2, i16.to(tl.float64))
    tl.store(out + 3, i32.to(tl.float64))
    tl.store(out + 4, i64.to(tl.float64))
    tl.store(out + 5, u32.to(tl.float64))
    tl.store(out + 6, h.to(tl.float64))
    tl.store(out + 7, q.to(tl.float64))
    tl.store(out + 8, f.to(tl.float64))
    tl.store(out + 9, d)


def test_numbers_arrive_in_the_types_that_triton_gives_them(gpu):
    out = torch.zeros(10, dtype=torch.float64)
    values = [True, -3, -300, -70_000, -(2**40), 2**32 - 1, 1.5, -2.25, 3.0e38, 1e-300]
    scalars[(1,)](out, *values)
    assert out[:8].tolist() == [float(v) for v in values[:8]]
    assert out[8] == torch.tensor(3.0e38, dtype=torch.float32).double() and out[9] == 1e-300


@triton.jit
def shifted(pair, out, bias, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(pair[0] + at) * pair[1][0] + pair[1][1]
    if bias is not None:
        value += tl.load(bias + at)
    tl.store(out + at, value)


def test_tuples_ones_and_nones_are_taken_apart_as_triton_does(gpu):
    x, bias, out = torch.randn(64), torch.randn(64), torch.empty(64)
    shifted[(1,)]((x, (3.0, 1)), out, None, BLOCK=64)
    assert torch.allclose(out, x * 3.0 + 1, atol=1e-6)
    shifted[(1,)]((x, (2.0, 16)), out, bias, BLOCK=64)
    assert torch.allclose(out, x * 2.0 + 16 + bias, atol=1e-5)


def test_autotuning_runs_every_configuration_and_keeps_the_fastest(gpu):
    runs = []
    configs = [triton.Config({"BLOCK": 128}, num_warps=1), triton.Config({"BLOCK": 1024}, num_warps=4)]
    tuned = triton.autotune(configs=configs, key=["n"], pre_hook=lambda args, reset_only=False: runs.append(args["BLOCK"]))(add)
    x, out = torch.randn(3000), torch.empty(3000)
    tuned[lambda meta: (triton.cdiv(3000, meta["BLOCK"]),)](x, x, out, 3000)
    assert torch.equal(out, 2 * x) and set(runs) == {128, 1024}
    assert tuned.best_config in configs and all(times[0] < 1000 for times in tuned.configs_timings.values())


def test_do_bench_measures_milliseconds(gpu):
    x, out = torch.randn(1000), torch.empty(1000)
    assert 0 < triton.testing.do_bench(lambda: add[(1,)](x, x, out, 1000, BLOCK=1024), warmup=1, rep=3) < 1000


def test_a_kernel_can_be_preloaded_from_what_a_hook_recorded(gpu):
    recorded = []
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.jit_cache_hook = lambda **event: recorded.append(event["compile"]["specialization_data"])
        add.warmup(torch.float32, torch.float32, torch.float32, 77, BLOCK=64, grid=(1,))
    add.device_caches.clear()
    kernel = add.preload(recorded[0])
    x, out = torch.randn(64), torch.empty(64)
    kernel[(1, 1, 1)](x, x, out, 64, 64)
    assert torch.equal(out, 2 * x)


def test_a_launch_of_no_ctas_does_nothing(gpu):
    out = torch.zeros(4)
    add[(0,)](out, out, out, 4, BLOCK=64)
    assert not out.any()


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────


@triton.jit
def unmasked(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(out + at, value)


def test_a_stray_access_names_the_kernel_the_argument_and_the_line_of_python(gpu):
    x, out = torch.randn(100), torch.empty(128)
    with pytest.raises(MemoryFault) as caught:
        unmasked[(1,)](x, out, BLOCK=128)
    line = unmasked.starting_line_number + 3
    assert "kernel unmasked" in str(caught.value) and "argument 0 (400 bytes" in str(caught.value)
    assert str(caught.value).endswith(f"test_triton.py:{line}")
    unmasked[(1,)](torch.randn(128), out, BLOCK=128)  # the device goes on


def test_a_tensor_that_is_not_the_processors_is_refused(gpu):
    with pytest.raises(LaunchError, match=r"kernel unmasked, argument 1 .*meta"):
        unmasked[(1,)](torch.randn(128), torch.empty(128, device="meta"), BLOCK=128)


@triton.jit
def through_table(table, out, BLOCK: tl.constexpr):
    x = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(x + at))


def test_pointers_kept_in_memory_need_their_tensors_registered(gpu):
    parts = [torch.randn(64), torch.randn(64)]
    table, out = torch.tensor([part.data_ptr() for part in parts]), torch.empty(128)
    with pytest.raises(MemoryFault):
        through_table[(2,)](table, out, BLOCK=64)
    for part in parts:
        gpu.register(part)
    through_table[(2,)](table, out, BLOCK=64)
    assert torch.equal(out, torch.cat(parts))


@triton.jit
def turned(x, out, BLOCK: tl.constexpr):
    down, across = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(out + across * BLOCK + down, tl.load(x + down * BLOCK + across))


def test_too_much_shared_memory_is_triton_s_own_error():
    x = torch.randn(256, 256)
    with warpwright.triton.virtual_gpu("rtx4090"), pytest.raises(OutOfResources, match="shared memory"):
        turned[(1,)](x, torch.empty(256, 256), BLOCK=256, num_warps=32)


@triton.jit(debug=True)
def asserting(x, n):
    tl.device_assert(tl.load(x + tl.program_id(0)) < n, "x is too large")


def test_a_failed_device_assert_is_a_trap(gpu):
    x = torch.tensor([1, 2, 9, 3])
    asserting[(2,)](x, 5)
    with pytest.raises(KernelTrap, match="kernel asserting"):
        asserting[(4,)](x, 5)


@triton.jit
def talking(x):
    tl.device_print("value", tl.load(x + tl.arange(0, 2)))


def test_device_print_goes_to_standard_output(gpu, capfd):
    talking[(1,)](torch.tensor([17, 42], dtype=torch.int32), num_warps=1)
    lines = capfd.readouterr().out.splitlines()
    assert any("pid (0, 0, 0) idx (0) value: 17" in line for line in lines) and any("idx (1) value: 42" in line for line in lines)


# ── parts of the language ────────────────────────────────────────────────────────────────────────────────────────


@triton.jit
def functions(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(out + 0 * BLOCK + at, libdevice.tanh(value))
    tl.store(out + 1 * BLOCK + at, libdevice.erf(value))
    tl.store(out + 2 * BLOCK + at, libdevice.pow(tl.abs(value), value))
    tl.store(out + 3 * BLOCK + at, libdevice.tgamma(value))
    tl.store(out + 4 * BLOCK + at, libdevice.fmod(value, value * value + 1))
    tl.store(out + 5 * BLOCK + at, tl.exp(value))
    tl.store(out + 6 * BLOCK + at, tl.log(tl.abs(value)))
    tl.store(out + 7 * BLOCK + at, tl.sin(value))
    tl.store(out + 8 * BLOCK + at, tl.sqrt(tl.abs(value)))
    tl.store(out + 9 * BLOCK + at, tl.sigmoid(value))


@pytest.mark.parametrize("dtype, error", [(torch.float32, 2e-6), (torch.float64, 1e-14)])
def test_libdevice_and_tl_functions(gpu, dtype, error):
    x = torch.linspace(-3.3, 5.1, 128, dtype=dtype)
    out = torch.empty(10, 128, dtype=dtype)
    functions[(1,)](x, out, 128, BLOCK=128)
    d = x.double()
    gamma = torch.exp(torch.lgamma(d)) * torch.where((d < 0) & (torch.floor(d) % 2 != 0), -1.0, 1.0)
    wanted = torch.stack([d.tanh(), d.erf(), d.abs() ** d, gamma, torch.fmod(d, (x * x + 1).double()), d.exp(), d.abs().log(),
                          d.sin(), d.abs().sqrt(), d.sigmoid()])
    assert ((out.double() - wanted).abs() / wanted.abs().clamp(min=1)).max() < error


@triton.jit
def totals(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(out + at, tl.cumsum(value, 0))
    tl.store(out + BLOCK + at, tl.sort(value))
    tl.store(out + 2 * BLOCK + at, tl.flip(value, 0))
    tl.store(out + 3 * BLOCK + at, tl.sum(value) + tl.zeros_like(value))
    tl.store(out + 4 * BLOCK + at, tl.argmax(value, 0) + tl.zeros_like(value))
    tl.atomic_add(out + 5 * BLOCK + at % 4, value)
    tl.store(out + 6 * BLOCK + at, tl.gather(value, (at * 7) % BLOCK, 0))
    tl.store(out + 7 * BLOCK + at, tl.histogram(value.to(tl.int32) & (BLOCK - 1), BLOCK).to(tl.float32))


def test_scans_sorts_and_reductions(gpu):
    x, out = torch.randint(0, 50, (256,)).float(), torch.zeros(8, 256)
    totals[(1,)](x, out, BLOCK=256)
    assert torch.equal(out[0], x.cumsum(0)) and torch.equal(out[1], x.sort().values) and torch.equal(out[2], x.flip(0))
    assert (out[3] == x.sum()).all() and (out[4] == x.argmax()).all()
    assert torch.equal(out[5, :4], x.view(64, 4).sum(0))
    assert torch.equal(out[6], x[torch.arange(256) * 7 % 256])
    assert torch.equal(out[7], torch.bincount(x.long(), minlength=256).float())


@triton.jit
def descriptor_add(x, out, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, cols], [cols, 1], [ROWS, COLS])
    target = tl.make_tensor_descriptor(out, [rows, cols], [cols, 1], [ROWS, COLS])
    r, c = tl.program_id(0) * ROWS, tl.program_id(1) * COLS
    target.store([r, c], source.load([r, c]) + 1.0)


@triton.jit
def given_descriptors_add(source, target, ROWS: tl.constexpr, COLS: tl.constexpr):
    r, c = tl.program_id(0) * ROWS, tl.program_id(1) * COLS
    target.store([r, c], source.load([r, c]) + 1.0)


@pytest.mark.parametrize("part", ["a100", "h100"])
@pytest.mark.parametrize("made", ["on the device", "on the host"])
def test_tensor_descriptors(part, made):
    x, out = torch.randn(50, 72), torch.zeros(50, 72)
    with warpwright.triton.virtual_gpu(part):
        if made == "on the device":
            triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
            descriptor_add[(4, 3)](x, out, 50, 72, ROWS=16, COLS=32)
        else:
            given_descriptors_add[(4, 3)](TensorDescriptor.from_tensor(x, [16, 32]), TensorDescriptor.from_tensor(out, [16, 32]), ROWS=16, COLS=32)
    assert torch.equal(out, x + 1)


@triton.jit
def clustered_product(a, b, c, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


def test_a_program_may_be_a_cluster_of_ctas():
    a, b, c = torch.randn(128, 128, dtype=torch.float16), torch.randn(128, 128, dtype=torch.float16), torch.empty(128, 128)
    with warpwright.triton.virtual_gpu("h100"):
        kernel = clustered_product[(1,)](a, b, c, SIZE=128, num_ctas=2)
    assert kernel.metadata.num_ctas == 2
    assert (c.double() - a.double() @ b.double()).abs().max() < 1e-3


def test_the_interpreter_runs_the_same_ptx():
    x, outs = torch.randn(64, 64, dtype=torch.float16), [torch.empty(64, 64), torch.empty(64, 64)]
    for kind, out in zip(("cpu", "interpreter"), outs, strict=True):
        with warpwright.triton.virtual_gpu(warpwright.Device(kind, like="h100")):
            clustered_product[(1,)](x, x, out, SIZE=64)
    assert torch.equal(*outs)


@triton.jit
def meet(counter, out, ctas):
    tl.atomic_add(counter, 1, sem="release")
    while tl.atomic_add(counter, 0, sem="acquire") < ctas:
        pass
    tl.store(out + tl.program_id(0), tl.load(counter))


def test_the_ctas_of_a_cooperative_launch_wait_for_each_other(gpu):
    counter, out = torch.zeros(1, dtype=torch.int32), torch.zeros(20, dtype=torch.int32)
    meet[(20,)](counter, out, 20, launch_cooperative_grid=True)
    assert (out == 20).all()
