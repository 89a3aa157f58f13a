"""mma.sync and mma.sp in every form that sm_80 to sm_90a have: against plain products, and the engines against each other, bit by bit."""

import numpy as np
import pytest
from matrix_forms import Form, elements, forms, layouts, metadata_words, numbers, pack, run, sparse_pattern, unpack

from warpwright import Device
from warpwright.cpu import fragments
from warpwright.cpu.interpreter import floats

FORMS = forms()


@pytest.fixture(scope="module")
def devices():
    return Device("cpu", threads=1), Device("interpreter")


def operands(form: Form, random: np.random.Generator, special: bool = False):
    """Bit patterns of A, B, C [count, rows, columns], and for a sparse product the columns of A's elements and its metadata."""
    found = []
    for letter, type_ in zip("ABC", (form.a, form.b, form.c), strict=True):
        layout = layouts(form)[letter]
        found.append(elements(type_, layout.size, random, special).reshape(layout.count, layout.rows, layout.columns))
    return *found, *(sparse_pattern(form, random) if form.sparse else (None, None))


def registers(form: Form, a, b, c, pairs=None, selector: int = 0, random=None) -> np.ndarray:
    found = layouts(form)
    parts = [pack(found[letter], values) for letter, values in zip("ABC", (a, b, c), strict=True)]
    if pairs is not None:
        parts.append(metadata_words(form, pairs, selector, random)[:, None])
    return np.concatenate(parts, axis=1)


def reference(form: Form, a, b, c, columns=None):
    """(A·B + C, the same of magnitudes) as f64 or integers."""
    left, right, start = numbers(a, form.a), numbers(b, form.b), numbers(c, form.c)
    if form.a == "b1":
        combine = np.bitwise_xor if form.extra["op"] == "xor" else np.bitwise_and
        return np.bitwise_count(combine(a[:, :, :, None], b[:, None])).sum(2) + start, None
    if columns is not None:  # A as it is without zeros left out
        full = np.zeros((1, 16, right.shape[1]), left.dtype)
        np.put_along_axis(full[0], columns, left[0], axis=1)
        left = full
    return left @ right + start, np.abs(left) @ np.abs(right) + np.abs(start)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form(devices, form):
    random = np.random.default_rng(len(str(form)))
    a, b, c, columns, pairs = operands(form, random)
    given = registers(form, a, b, c, pairs, 0, random)
    compiled, interpreted = (run(device, form, given) for device in devices)
    assert np.array_equal(compiled, interpreted), np.argwhere(compiled != interpreted)[:4].tolist()
    got = unpack(layouts(form)["D"], compiled)
    wanted, size = reference(form, a, b, c, columns)
    if form.d == "s32":
        wanted = np.clip(wanted, -(2**31), 2**31 - 1) if form.extra.get("satfinite") else wanted
        assert np.array_equal(got, wanted.astype(np.int64).astype(np.uint64) & np.uint64(2**32 - 1))
    else:
        k = layouts(form)["A"].columns
        error = (k + 1) * size * 2.0 ** -(24 if form.d != "f64" else 53) + (size * 2.0**-11 if form.d == "f16" else 0)
        assert (np.abs(numbers(got, form.d) - wanted) <= error).all()


SPECIAL = [form for form in FORMS if form.a[0] in "fbte" and form.a != "b1" and not form.sparse and form.shape != "m8n8k4"]


@pytest.mark.parametrize("form", SPECIAL, ids=str)
def test_infinities_nans_zeros_and_subnormals(devices, form):
    """The engines agree bit by bit, and infinities and NaN are where IEEE's sums have them."""
    random = np.random.default_rng(5)
    a, b, c, *_ = operands(form, random, special=True)
    given = registers(form, a, b, c)
    compiled, interpreted = (run(device, form, given) for device in devices)
    assert np.array_equal(compiled, interpreted), np.argwhere(compiled != interpreted)[:4].tolist()
    got = numbers(unpack(layouts(form)["D"], compiled), form.d)
    with np.errstate(all="ignore"):
        left, right, wanted = numbers(a, form.a), numbers(b, form.b), numbers(c, form.c)
        for k in range(left.shape[2]):
            wanted = wanted + left[:, :, k:k + 1] * right[:, k:k + 1]
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    infinite = np.isinf(wanted)
    assert np.array_equal(got[infinite], wanted[infinite])


def test_nan_is_canonical(devices):
    for form, nan in ((Form("m16n8k16", "f32", "f16", "f16", "f32"), 0x7FFFFFFF), (Form("m16n8k32", "f32", "e4m3", "e4m3", "f32"), 0x7FFFFFFF),
                      (Form("m16n8k16", "f16", "f16", "f16", "f16"), 0x7FFF7FFF), (Form("m16n8k8", "f32", "tf32", "tf32", "f32"), 0x7FFFFFFF)):
        given = registers(form, *operands(form, np.random.default_rng(0))[:3])
        given[:, :layouts(form)["A"].registers] = 0xFFFFFFFF
        for device in devices:
            assert (run(device, form, given) == nan).all()


def test_the_selector_names_the_lanes_that_tell_where_elements_belong(devices):
    for form in (Form("m16n8k16", "f32", "f16", "f16", "f32", {"sp": True}), Form("m16n8k32", "f32", "bf16", "bf16", "f32", {"sp": True}),
                 Form("m16n8k8", "f32", "tf32", "tf32", "f32", {"sp::ordered_metadata": True}),
                 Form("m16n8k32", "s32", "u8", "s8", "s32", {"sp": True})):
        random = np.random.default_rng(9)
        a, b, c, columns, pairs = operands(form, random)
        wanted, size = reference(form, a, b, c, columns)
        count = fragments.selectors(form.slots)
        assert count == {"m16n8k16": 4, "m16n8k8": 4, "m16n8k32": 2}[form.shape]
        for selector in range(count):
            given = registers(form, a, b, c, pairs, selector, random)
            for device in devices:
                got = numbers(unpack(layouts(form)["D"], run(device, form, given, selector)), form.d)
                assert np.allclose(got, (wanted + 2**31) % 2**32 - 2**31 if form.d == "s32" else wanted, rtol=0, atol=1e-5 * np.abs(size).max())


def test_what_a_sparse_a_leaves_out_is_not_multiplied(devices):
    """A row of B that no element of A meets may be infinite."""
    form = Form("m16n8k16", "f32", "f16", "f16", "f32", {"sp": True})
    a, b, c, _, _ = operands(form, np.random.default_rng(2))
    pairs = np.tile([0, 1], (16, 4))
    b[0, 2::4] = b[0, 3::4] = floats.F16.exponent_ones
    for device in devices:
        got = numbers(unpack(layouts(form)["D"], run(device, form, registers(form, a, b, c, pairs, 0, np.random.default_rng(0)))), "f32")
        assert np.isfinite(got).all()


@pytest.mark.parametrize("form", [form for form in FORMS if not form.sparse][::7], ids=str)
def test_every_element_of_a_matrix_is_in_one_place(form):
    for letter in "ABCD":
        layout = layouts(form)[letter]
        assert np.array_equal(np.sort(layout.places.ravel()), np.arange(layout.size))


def test_places_that_the_manual_gives():
    """Lane 13 is the second of group 3."""
    a = fragments.mma_layout(Form("m16n8k16", "f32", "f16", "f16", "f32").slots, "A")
    assert [divmod(int(x), 16) for x in a.places[:, 13].ravel()] == [(3, 2), (3, 3), (11, 2), (11, 3), (3, 10), (3, 11), (11, 10), (11, 11)]
    b = fragments.mma_layout(Form("m16n8k64", "s32", "u4", "s4", "s32").slots, "B")
    assert [divmod(int(x), 8) for x in b.places[1, 13]] == [(40 + i, 3) for i in range(8)]
    c = fragments.mma_layout(Form("m8n8k4", "f32", "f16", "f16", "f32").slots, "C")  # of the fourth product's upper half, lane 31
    assert [divmod(int(x) - 192, 8) for x in c.places[:, 31, 0]] == [(5, 2), (5, 3), (7, 2), (7, 3), (5, 6), (5, 7), (7, 6), (7, 7)]
