"""Every form of mma and wmma as a kernel of one warp, with operands by lane; and plain references for what it gives."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from warpwright.cpu import fragments
from warpwright.cpu.fragments import Layout
from warpwright.cpu.interpreter import floats

POOL = {"f64": ("fd", "b64"), "f32": ("f", "b32")}


@dataclass(frozen=True)
class Form:
    """An mma: its text without operands, and its slots as the table of instructions names them."""

    shape: str
    d: str
    a: str
    b: str
    c: str
    extra: dict = field(default_factory=dict)
    target: str = "sm_90a"

    @property
    def slots(self) -> dict:
        return {"shape": self.shape, "A": self.a, "B": self.b, "C": self.c, "D": self.d, "alayout": "row", "blayout": "col", **self.extra}

    @property
    def sparse(self) -> str:
        return next((name for name in ("sp", "sp::ordered_metadata") if self.extra.get(name)), "")

    @property
    def text(self) -> str:
        slots = self.slots
        words = ["mma", *([self.sparse] if self.sparse else []), "sync.aligned", self.shape, slots["alayout"], slots["blayout"]]
        words += [slots["kind"]] if "kind" in slots else []
        words += ["satfinite"] if slots.get("satfinite") else []
        words += [self.d, self.a, self.b, self.c]
        return ".".join(words + ([slots["op"], "popc"] if "op" in slots else []))

    def __str__(self) -> str:
        return self.text.removeprefix("mma.")


def forms() -> list[Form]:
    """What sm_80 to sm_90a have of mma.sync and mma.sp."""
    found = [Form("m8n8k4", d, "f16", "f16", c, {"alayout": x, "blayout": y})
             for d, c in (("f32", "f32"), ("f16", "f16"), ("f32", "f16")) for x in ("row", "col") for y in ("row", "col")]
    found += [Form(shape, acc, "f16", "f16", acc) for shape in ("m16n8k8", "m16n8k16") for acc in ("f16", "f32")]
    found += [Form(shape, "f32", "bf16", "bf16", "f32") for shape in ("m16n8k8", "m16n8k16")]
    found += [Form(shape, "f32", "tf32", "tf32", "f32") for shape in ("m16n8k4", "m16n8k8")]
    found += [Form(shape, "f64", "f64", "f64", "f64") for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")]
    found += [Form(shape, acc, a, b, acc) for shape in ("m16n8k16", "m16n8k32")
              for acc, a, b in (("f16", "e4m3", "e5m2"), ("f32", "e4m3", "e4m3"), ("f32", "e5m2", "e4m3"), ("f32", "e5m2", "e5m2"))]
    for bits, shapes in ((8, ("m8n8k16", "m16n8k16", "m16n8k32")), (4, ("m8n8k32", "m16n8k32", "m16n8k64"))):
        found += [Form(shape, "s32", f"{x}{bits}", f"{y}{bits}", "s32", {"satfinite": True} if sat else {})
                  for shape in shapes for x, y, sat in (("s", "s", 0), ("u", "s", 1), ("s", "u", 0), ("s", "s", 1), ("u", "u", 0))]
    found += [Form(shape, "s32", "b1", "b1", "s32", {"op": op}) for shape in ("m8n8k128", "m16n8k128", "m16n8k256") for op in ("xor", "and")]
    sp = {"sp": True}
    found += [Form(shape, acc, "f16", "f16", acc, sp) for shape in ("m16n8k16", "m16n8k32") for acc in ("f16", "f32")]
    found += [Form(shape, "f32", "bf16", "bf16", "f32", sp) for shape in ("m16n8k16", "m16n8k32")]
    found += [Form(shape, "f32", "tf32", "tf32", "f32", sp) for shape in ("m16n8k8", "m16n8k16")]
    found += [Form("m16n8k64", "f32", a, b, "f32", sp) for a, b in (("e4m3", "e5m2"), ("e5m2", "e5m2"))]
    found += [Form(shape, "s32", x, y, "s32", {**sp, **({"satfinite": True} if sat else {})}) for shape, x, y, sat in
              (("m16n8k32", "s8", "u8", 0), ("m16n8k64", "u8", "s8", 1), ("m16n8k64", "s4", "u4", 0), ("m16n8k128", "u4", "s4", 1))]
    ordered = {"sp::ordered_metadata": True}
    found += [Form("m16n8k32", "f32", "f16", "f16", "f32", ordered), Form("m16n8k64", "s32", "s8", "s8", "s32", ordered)]
    return found


# ── kernels ──────────────────────────────────────────────────────────────────────────────────────────────────────


def layouts(form: Form) -> dict[str, Layout]:
    return {letter: fragments.mma_layout(form.slots, letter) for letter in "ABCD"}


def kernel(form: Form, selector: int = 0) -> str:
    """`program(in, out)`: a lane's registers of A, B, C (and the metadata), each 8 bytes, by lane; those of D likewise."""
    lines, operands, at = [], {}, 0
    found = layouts(form)
    for letter, type_ in zip("ABCD", (form.a, form.b, form.c, form.d), strict=True):
        pool, bits = POOL.get(type_, ("r", "b32"))
        names = [f"%{pool}{20 * 'ABCD'.index(letter) + i}" for i in range(found[letter].registers)]
        operands[letter] = "{" + ", ".join(names) + "}"
        if letter != "D":
            lines += [f"ld.global.{bits} {name}, [%rd0+{8 * (at + i)}];" for i, name in enumerate(names)]
            at += len(names)
    more = ""
    if form.sparse:
        lines.append(f"ld.global.b32 %r90, [%rd0+{8 * at}];")
        more, at = f", %r90, {selector}", at + 1
    pool, bits = POOL.get(form.d, ("r", "b32"))
    outputs = [f"st.global.{bits} [%rd1+{8 * i}], %{pool}{60 + i};" for i in range(found["D"].registers)]
    return "\n".join([
        ".version 8.7", f".target {form.target}", ".address_size 64", ".visible .entry program(.param .u64 in, .param .u64 out) {",
        ".reg .f32 %f<96>; .reg .b32 %r<96>; .reg .b64 %rd<8>; .reg .f64 %fd<96>;",
        "ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; mov.u32 %r95, %tid.x;",
        f"mul.wide.u32 %rd2, %r95, {8 * at}; add.s64 %rd0, %rd0, %rd2;",
        f"mul.wide.u32 %rd2, %r95, {8 * found['D'].registers}; add.s64 %rd1, %rd1, %rd2;", *lines,
        f"{form.text} {operands['D']}, {operands['A']}, {operands['B']}, {operands['C']}{more};", *outputs, "ret;", "}"])


def run(device, form: Form, registers: np.ndarray, selector: int = 0) -> np.ndarray:
    """registers: uint64 [32, …]; returns those of D, [32, registers]."""
    out = np.zeros((32, layouts(form)["D"].registers), np.uint64)
    device.load(kernel(form, selector))["program"].launch(grid=1, block=32, args=[np.ascontiguousarray(registers), out])
    return out


# ── operands ─────────────────────────────────────────────────────────────────────────────────────────────────────


def elements(type_: str, count: int, random: np.random.Generator, special: bool = False) -> np.ndarray:
    """Bit patterns: moderate numbers of both signs; special: one in eight is zero, subnormal, infinite, NaN or large."""
    if type_ in ("s32", "b1"):
        return random.integers(0, 1 << 32, count, dtype=np.uint64)
    if type_[0] in "su":
        return random.integers(0, 1 << int(type_[1:]), count, dtype=np.uint64)
    if type_ in ("f32", "f64", "tf32"):
        wide = type_ == "f64"
        bits = random.standard_normal(count).astype(np.float64 if wide else np.float32).view(np.uint64 if wide else np.uint32).astype(np.uint64)
        odd = [0x7FF << 52, 0x7FF8 << 48, 1, 0, 1 << 63] if wide else [0x7F800000, 0xFF800000, 0x7FC00001, 0x00002000, 0x5D000000, 0x80000000]
    else:
        format_ = floats.FORMATS[type_]
        size = format_.sign_bit
        bits = random.integers(0, size, count, dtype=np.uint64)
        near = np.uint64(size // 2 + size // 8)
        bits = np.where(bits > near, bits % np.uint64(size // 2), bits) | random.integers(0, 2, count, dtype=np.uint64) * np.uint64(size)
        odd = [format_.exponent_ones, format_.largest, 1, 0, size, format_.canonical_nan, format_.sign_bit | format_.exponent_ones]
    if special:
        bits = np.where(random.random(count) < 0.125, random.choice(np.array(odd, np.uint64), count), bits)
    return bits


def pack(layout: Layout, values: np.ndarray) -> np.ndarray:
    """Registers [32, …] of a matrix of bit patterns."""
    shifts = (np.arange(layout.places.shape[2]) * layout.bits).astype(np.uint64)
    return np.bitwise_or.reduce(values.ravel()[layout.places] << shifts, axis=2).T


def unpack(layout: Layout, registers: np.ndarray) -> np.ndarray:
    """The matrix [count, rows, columns] of bit patterns that registers [32, …] hold."""
    shifts = (np.arange(layout.places.shape[2]) * layout.bits).astype(np.uint64)
    values = np.zeros(layout.size, np.uint64)
    values[layout.places] = registers.T[:, :, None] >> shifts & np.uint64((1 << layout.bits) - 1)
    return values.reshape(layout.count, layout.rows, layout.columns)


def numbers(bits: np.ndarray, type_: str) -> np.ndarray:
    """Bit patterns as f64, or as integers."""
    if type_ in ("s32", "s8", "s4"):
        half = 1 << int(type_[1:]) - 1
        return (bits.astype(np.int64) ^ half) - half
    if type_ in ("u8", "u4", "b1"):
        return bits.astype(np.int64)
    if type_ == "f64":
        return bits.view(np.float64)
    if type_ in ("f32", "tf32"):
        return (bits.astype(np.uint32) & np.uint32(0xFFFFE000 if type_ == "tf32" else 0xFFFFFFFF)).view(np.float32).astype(np.float64)
    values = {code: floats.to_float(floats.decode(floats.FORMATS[type_], code)) for code in set(bits.ravel().tolist())}
    return np.vectorize(values.get, otypes=[np.float64])(bits)


def sparse_pattern(form: Form, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """For each row of A the columns [16, k / 2] of its elements, ascending, and the two-bit numbers that say so."""
    told = fragments.metadata(form.slots, 0)
    if told.elements == 0.5:  # of tf32 one of two: 0100 or 1110
        odd = random.integers(0, 2, (16, told.lane.shape[1] // 2))
        pairs = np.stack([2 * odd, 2 * odd + 1], axis=2).reshape(16, -1)
        return 2 * np.arange(odd.shape[1]) + odd, pairs
    groups = told.lane.shape[1] // 2
    choices = np.array([(i, j) for i in range(4) for j in range(i + 1, 4)])
    pairs = choices[random.integers(0, 6, (16, groups))].reshape(16, -1)
    columns = 4 * (np.arange(2 * groups) // 2) + pairs
    if told.elements == 2:
        columns = (2 * columns[:, :, None] + np.arange(2)).reshape(16, -1)
    return columns, pairs


def metadata_words(form: Form, pairs: np.ndarray, selector: int, random: np.random.Generator) -> np.ndarray:
    """The lanes' metadata registers; lanes that tell nothing hold anything."""
    told = fragments.metadata(form.slots, selector)
    words = random.integers(0, 1 << 32, 32, dtype=np.uint64)
    words[np.unique(told.lane)] = 0
    np.bitwise_or.at(words, np.broadcast_to(told.lane, pairs.shape), (pairs << told.shift).astype(np.uint64))
    return words
