"""Every instruction that differential tests draw from, by register pools, and the values that go wrong in them.

Registers come in pools, by what their bits mean: p predicates; h, r, d integers of 16, 32, 64 bits; f, g f32 and f64; k f16, y bf16;
m f16x2, n bf16x2. NaNs of two implementations may differ in their bits, so no instruction here moves a float's bits to an integer pool.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

POOLS = "phrdfgkymn"
REGISTERS = 5  # of each pool
DECLARED = {"p": "pred", "h": "b16", "r": "b32", "d": "b64", "f": "f32", "g": "f64", "k": "b16", "y": "b16", "m": "b32", "n": "b32"}
SLOTS = [(pool, i) for pool in POOLS for i in range(REGISTERS)]
SLOT = 8 * 256  # bytes that a register's values, of 256 threads at most, have in the input and output arrays
INTEGERS = {"h": ("u16", "s16"), "r": ("u32", "s32"), "d": ("u64", "s64")}
WIDTH = {"p": 8, "h": 16, "r": 32, "d": 64, "f": 32, "g": 64, "k": 16, "y": 16, "m": 32, "n": 32}
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
UNORDERED = (*(f"{op}u" for op in COMPARE), "num", "nan")


@dataclass(frozen=True)
class Op:
    """An instruction: the pools of what it writes (two: `d|p`) and of what it reads. # is a small constant, & any 32-bit constant."""

    mnemonic: str
    writes: str
    reads: str
    tail: str = ""

    def render(self, choice: np.random.Generator) -> str:
        def operand(pool: str) -> str:
            if pool == "#":
                return str(choice.integers(0, 70))
            if pool == "&":
                return str(int(choice.choice([0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, choice.integers(0, 2**32)])))
            return f"%{pool}{choice.integers(0, REGISTERS)}"

        reads = [operand(pool) for pool in self.reads]
        text = f"{self.mnemonic} {'|'.join(operand(pool) for pool in self.writes)}, {', '.join(reads)}{self.tail};"
        if choice.random() < 0.2:
            text = f"@{'!' if choice.random() < 0.5 else ''}%p{choice.integers(0, REGISTERS)} {text}"
        return text


def integer_templates() -> list[Op]:
    found = []
    for pool, types in INTEGERS.items():
        bits = f"b{WIDTH[pool]}"
        for type_ in types:
            for opcode in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
                found.append(Op(f"{opcode}.{type_}", pool, pool * 2))
            found += [
                Op(f"mad.lo.{type_}", pool, pool * 3),
                Op(f"mad.hi.{type_}", pool, pool * 3),
                Op(f"sad.{type_}", pool, pool * 3),
                Op(f"shr.{type_}", pool, pool + "r"),
                Op(f"shr.{type_}", pool, pool + "#"),
                Op(f"slct.{type_}.s32", pool, pool * 2 + "r"),
                Op(f"selp.{type_}", pool, pool * 2 + "p"),
            ]
            wider = {"h": "r", "r": "d"}.get(pool)
            if wider:
                found += [Op(f"mul.wide.{type_}", wider, pool * 2), Op(f"mad.wide.{type_}", wider, pool * 2 + wider)]
            for op in COMPARE + (("lo", "ls", "hi", "hs") if type_[0] == "u" else ()):
                found += [Op(f"setp.{op}.{type_}", "p", pool * 2), Op(f"set.{op}.u32.{type_}", "r", pool * 2)]
            found += [Op(f"setp.lt.{bool_}.{type_}", "pp", pool * 2 + "p") for bool_ in ("and", "or", "xor")]
            for other, other_types in INTEGERS.items():
                for other_type in other_types:
                    found.append(Op(f"cvt.{type_}.{other_type}", pool, other))
                    if saturates(type_, other_type):
                        found.append(Op(f"cvt.sat.{type_}.{other_type}", pool, other))
            if pool != "d":
                for narrow in ("u8", "s8"):
                    found.append(Op(f"cvt.{type_}.{narrow}", pool, pool))
        found += [Op(f"{opcode}.s{WIDTH[pool]}", pool, pool) for opcode in ("abs", "neg")]
        found += [Op(f"{opcode}.{bits}", pool, pool * 2) for opcode in ("and", "or", "xor")]
        found += [Op(f"{opcode}.{bits}", pool, pool) for opcode in ("not", "cnot", "mov")]
        found += [Op(f"shl.{bits}", pool, pool + "r"), Op(f"shl.{bits}", pool, pool + "#")]
        if pool != "h":
            found += [Op(f"{opcode}.{bits}", "r", pool) for opcode in ("popc", "clz")]
            found += [Op(f"brev.{bits}", pool, pool), Op(f"bfi.{bits}", pool, pool * 2 + "rr"), Op(f"bfi.{bits}", pool, pool * 2 + "##")]
            for type_ in types:
                found += [
                    Op(f"bfe.{type_}", pool, pool + "rr"),
                    Op(f"bfe.{type_}", pool, pool + "##"),
                    Op(f"bfind.{type_}", "r", pool),
                    Op(f"bfind.shiftamt.{type_}", "r", pool),
                ]
    for type_ in ("u32", "s32"):
        found += [Op(f"mul24.{mode}.{type_}", "r", "rr") for mode in ("lo", "hi")]
        found += [Op(f"mad24.{mode}.{type_}", "r", "rrr") for mode in ("lo", "hi")]
        found += [Op(f"szext.{mode}.{type_}", "r", "r" + by) for mode in ("clamp", "wrap") for by in "r#"]
        found += [Op(f"dp4a.{type_}.{other}", "r", "rrr") for other in ("u32", "s32")]
        found += [Op(f"dp2a.{mode}.{type_}.{other}", "r", "rrr") for mode in ("lo", "hi") for other in ("u32", "s32")]
    found += [
        Op("add.sat.s32", "r", "rr"),
        Op("sub.sat.s32", "r", "rr"),
        Op("mad.hi.sat.s32", "r", "rrr"),
        Op("mad24.hi.sat.s32", "r", "rrr"),
        Op("fns.b32", "r", "rr", ", 2"),
        Op("add.u32", "r", "r&"),
        Op("min.relu.s32", "r", "rr"),
        Op("lop3.b32", "r", "rrr", ", 0x96"),
        Op("lop3.b32", "r", "rrr", ", 0x1a"),
        Op("lop3.or.b32", "rp", "rrr", ", 0x72, %p1"),
        Op("prmt.b32", "r", "rrr"),
        Op("prmt.b32", "r", "rr&"),
        Op("cvt.pack.sat.s16.s32", "r", "rr"),
        Op("cvt.pack.sat.u8.s32.b32", "r", "rrr"),
    ]
    found += [Op(f"bmsk.{mode}.b32", "r", "r" + by) for mode in ("clamp", "wrap") for by in "r#"]
    found += [Op(f"shf.{way}.{mode}.b32", "r", "rr" + by) for way in "lr" for mode in ("clamp", "wrap") for by in "r#"]
    found += [Op(f"prmt.b32.{mode}", "r", "rrr") for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")]
    found += [Op(f"{opcode}.{type_}", "r", "rr") for type_ in ("u16x2", "s16x2") for opcode in ("add", "min", "max")]
    found += [Op("min.relu.s16x2", "r", "rr"), Op("max.relu.s16x2", "r", "rr")]
    found += [Op(f"{opcode}.pred", "p", "pp") for opcode in ("and", "or", "xor")] + [Op("not.pred", "p", "p")]
    return found


def saturates(to: str, of: str) -> bool:
    """Whether `.sat` is legal: a type that cannot hold all of the other's values."""

    def limits(type_: str) -> tuple[int, int]:
        bits = int(type_[1:])
        return (0, 2**bits - 1) if type_[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    return limits(to)[0] > limits(of)[0] or limits(to)[1] < limits(of)[1]


def float_templates() -> list[Op]:
    found = []
    for pool, type_ in (("f", "f32"), ("g", "f64")):
        flushes = ("", ".ftz") if type_ == "f32" else ("",)
        saturations = ("", ".sat") if type_ == "f32" else ("",)
        for ftz in flushes:
            for mode in ("rn", "rz", "rm", "rp"):
                for sat in saturations:
                    found += [Op(f"{opcode}.{mode}{ftz}{sat}.{type_}", pool, pool * 2) for opcode in ("add", "sub", "mul")]
                    found.append(Op(f"fma.{mode}{ftz}{sat}.{type_}", pool, pool * 3))
                found += [
                    Op(f"div.{mode}{ftz}.{type_}", pool, pool * 2),
                    Op(f"rcp.{mode}{ftz}.{type_}", pool, pool),
                    Op(f"sqrt.{mode}{ftz}.{type_}", pool, pool),
                ]
            found += [Op(f"{opcode}{ftz}.{type_}", pool, pool) for opcode in ("abs", "neg")]
            found += [Op(f"{opcode}{ftz}.{type_}", pool, pool * 2) for opcode in ("min", "max", "add", "mul")]
            for op in COMPARE + UNORDERED:
                found += [
                    Op(f"setp.{op}{ftz}.{type_}", "p", pool * 2),
                    Op(f"set.{op}{ftz}.u32.{type_}", "r", pool * 2),
                    Op(f"setp.{op}.or{ftz}.{type_}", "pp", pool * 2 + "p"),
                    Op(f"set.{op}{ftz}.f32.{type_}", "f", pool * 2),
                ]
            for integral in ("rni", "rzi", "rmi", "rpi"):
                for to, types in INTEGERS.items():
                    found += [Op(f"cvt.{integral}{ftz}.{name}.{type_}", to, pool) for name in types]
                found.append(Op(f"cvt.{integral}{ftz}.{type_}.{type_}", pool, pool))
        found += [
            Op(f"selp.{type_}", pool, pool * 2 + "p"),
            Op(f"mov.{type_}", pool, pool),
            Op(f"copysign.{type_}", pool, pool * 2),
            Op(f"slct.{type_}.s32", pool, pool * 2 + "r"),
            Op(f"slct.{type_}.f32", pool, pool * 2 + "f"),
        ]
        found += [Op(f"testp.{op}.{type_}", "p", pool) for op in ("finite", "infinite", "number", "notanumber", "normal", "subnormal")]
        for mode in ("rn", "rz", "rm", "rp"):
            for of, types in INTEGERS.items():
                found += [Op(f"cvt.{mode}.{type_}.{name}", pool, of) for name in types]
    found += [
        Op(f"{opcode}{ftz}{nan}.f32", "f", "ff")
        for opcode in ("min", "max")
        for ftz in ("", ".ftz")
        for nan in (".NaN", ".xorsign.abs", ".NaN.xorsign.abs")
    ]
    found += [
        Op("cvt.f64.f32", "g", "f"),
        Op("cvt.ftz.f64.f32", "g", "f"),
        Op("cvt.sat.f32.f32", "f", "f"),
        Op("cvt.ftz.sat.f32.f32", "f", "f"),
        Op("cvt.sat.f64.f64", "g", "g"),
    ]
    found += [
        Op(f"cvt.{mode}{ftz}{sat}.f32.f64", "f", "g") for mode in ("rn", "rz", "rm", "rp") for ftz in ("", ".ftz") for sat in ("", ".sat")
    ]
    return found


def half_templates() -> list[Op]:
    found = []
    for pool, type_ in (("k", "f16"), ("m", "f16x2"), ("y", "bf16"), ("n", "bf16x2")):
        is_f16 = type_.startswith("f16")
        for ftz in ("", ".ftz") if is_f16 else ("",):
            for sat in ("", ".sat") if is_f16 else ("",):
                found += [Op(f"{opcode}.rn{ftz}{sat}.{type_}", pool, pool * 2) for opcode in ("add", "sub", "mul")]
                found.append(Op(f"fma.rn{ftz}{sat}.{type_}", pool, pool * 3))
            found.append(Op(f"fma.rn{ftz}.relu.{type_}", pool, pool * 3))
            found += [Op(f"{opcode}{ftz}.{type_}", pool, pool) for opcode in ("abs", "neg")]
            found += [
                Op(f"{opcode}{ftz}{more}.{type_}", pool, pool * 2)
                for opcode in ("min", "max")
                for more in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs")
            ]
            for op in COMPARE + UNORDERED:
                found.append(Op(f"setp.{op}{ftz}.{type_}", "pp" if pool in "mn" else "p", pool * 2))
                found.append(Op(f"set.{op}{ftz}.u32.{type_}", "r", pool * 2))
                found.append(Op(f"set.{op}{ftz}.{type_}.{type_}", pool, pool * 2))
    found += [
        Op("cvt.f32.f16", "f", "k"),
        Op("cvt.ftz.f32.f16", "f", "k"),
        Op("cvt.f64.f16", "g", "k"),
        Op("cvt.f32.bf16", "f", "y"),
        Op("cvt.sat.f32.f16", "f", "k"),
    ]
    for mode in ("rn", "rz"):
        for relu in ("", ".relu"):
            for finite in ("", ".satfinite"):
                found += [Op(f"cvt.{mode}{relu}{finite}.{type_}.f32", pool, "f") for pool, type_ in (("k", "f16"), ("y", "bf16"))]
                found += [Op(f"cvt.{mode}{relu}{finite}.{type_}.f32", pool, "ff") for pool, type_ in (("m", "f16x2"), ("n", "bf16x2"))]
    found += [Op(f"cvt.{mode}{more}.f16.f32", "k", "f") for mode in ("rn", "rz", "rm", "rp") for more in ("", ".ftz", ".sat")]
    found += [Op(f"cvt.{mode}.f16.f64", "k", "g") for mode in ("rn", "rz", "rm", "rp")]
    for integral in ("rni", "rzi", "rmi", "rpi"):
        found.append(Op(f"cvt.{integral}.f16.f16", "k", "k"))
        for to, types in INTEGERS.items():
            found += [Op(f"cvt.{integral}.{name}.f16", to, "k") for name in types]
    for of, types in INTEGERS.items():
        found += [Op(f"cvt.{mode}.f16.{name}", "k", of) for name in types for mode in ("rn", "rz", "rm", "rp")]
    for fp8 in ("e4m3x2", "e5m2x2"):
        for relu in ("", ".relu"):
            found += [
                Op(f"cvt.rn.satfinite{relu}.{fp8}.f32", "h", "ff"),
                Op(f"cvt.rn.satfinite{relu}.{fp8}.f16x2", "h", "m"),
                Op(f"cvt.rn{relu}.f16x2.{fp8}", "m", "h"),
            ]
    found += [Op("cvt.rna.tf32.f32", "r", "f"), Op("cvt.rn.tf32.f32", "r", "f"), Op("cvt.rz.relu.tf32.f32", "r", "f")]
    return found


CARRY = [  # chains that must not be torn apart
    ["add.cc.u32 %r0, %r1, %r2;", "addc.cc.u32 %r1, %r2, %r3;", "addc.u32 %r4, %r4, 0;"],
    ["sub.cc.u32 %r0, %r1, %r2;", "subc.cc.u32 %r1, %r2, %r3;", "subc.u32 %r4, %r4, 0;"],
    ["add.cc.u64 %d0, %d1, %d2;", "addc.u64 %d1, %d2, %d3;"],
    ["sub.cc.s64 %d0, %d1, %d2;", "subc.s64 %d1, %d2, %d3;"],
    ["mad.lo.cc.u32 %r0, %r1, %r2, %r3;", "madc.hi.cc.u32 %r1, %r1, %r2, %r4;", "addc.u32 %r3, 0, 0;"],
]

STRAIGHT_LINE = {"integers": integer_templates(), "floats": float_templates(), "halves": half_templates()}

# ── values that go wrong ─────────────────────────────────────────────────────────────────────────────────────────

# Zero, the ends of the subnormals, one and its neighbours, the largest, infinity, a quiet and a signalling NaN; then what is half way
# between two values of a narrower type, or at the end of one's range.
# fmt: off
_F32 = [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F7FFFFF, 0x3F800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001,
        0x3F000000, 0x4B000000, 0x4B800001, 0x4F000000, 0x5F000000, 0x43E00000, 0x43E80000, 0x477FE000, 0x477FF000, 0x33000000,
        0x38800000, 0x387FE000, 0x3F808000, 0x3FC00000]
_F64 = [0, 1, 0xFFFFFFFFFFFFF, 1 << 52, 0x3FF0000000000000, 0x3FEFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0x7FF << 52, 0x7FF8 << 48,
        0x7FF0000000000001, 0x47EFFFFFE0000000, 0x47EFFFFFF0000000, 0x36A0000000000000, 0x380FFFFFC0000000, 0x41E0000000000000,
        0x43E0000000000000, 0x3FE0000000000000]
_F16 = [0, 1, 0x3FF, 0x400, 0x3C00, 0x3BFF, 0x3C01, 0x7BFF, 0x7C00, 0x7E00, 0x7C01, 0x3800, 0x6400, 0x7800, 0x3E00, 0x4100]
_BF16 = [0, 1, 0x7F, 0x80, 0x3F80, 0x3F7F, 0x3F81, 0x7F7F, 0x7F80, 0x7FC0, 0x7F81, 0x3F00, 0x4300, 0x43E0, 0x4040]
# fmt: on
_EDGES = {
    "h": [0, 1, 2, 7, 15, 16, 0x7FFF, 0x8000, 0xFFFF, 0xFF, 0x80],
    "r": [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF, 0xFF, 64],
    "d": [0, 1, 2, 63, 64, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1],
    "f": _F32,
    "g": _F64,
    "k": _F16,
    "y": _BF16,
}


def nasty(pool: str, count: int, random: np.random.Generator) -> np.ndarray:
    """Values of a pool as 64-bit words: edges (of either sign for floats), and random bits, for floats mostly of middling exponent."""
    if pool == "p":
        return random.integers(0, 2, count, dtype=np.uint64)
    if pool in "mn":
        of = {"m": "k", "n": "y"}[pool]
        return nasty(of, count, random) | nasty(of, count, random) << np.uint64(16)
    width = WIDTH[pool]
    edges = random.choice(np.array(_EDGES[pool], np.uint64), count)
    bits = random.integers(0, 2**width - 1, count, dtype=np.uint64, endpoint=True)
    if pool in "fgky":
        fraction, bias = {"f": (23, 127), "g": (52, 1023), "k": (10, 15), "y": (7, 127)}[pool]
        exponent = (bias + random.integers(-12, 13, count)).astype(np.uint64)
        low = bits & np.uint64(2**fraction - 1)
        sign = bits & np.uint64(1 << (width - 1))
        middling = sign | exponent << np.uint64(fraction) | low
        bits = np.where(random.random(count) < 0.7, middling, bits)
        edges = edges | sign
    else:
        small = bits & np.uint64(0x3F)
        bits = np.where(random.random(count) < 0.2, small, bits)
    return np.where(random.random(count) < 0.45, edges, bits)


def inputs(threads: int, seed: int) -> np.ndarray:
    """The registers' first values: [threads, slots] of 64-bit words."""
    random = np.random.default_rng(seed)
    return np.stack([nasty(pool, threads, random) for pool, _ in SLOTS], axis=1)


def pack(registers: np.ndarray) -> np.ndarray:
    """[threads, slots] words as the array a program loads from: a slot a register, one thread's value of its width after the other."""
    memory = np.zeros((len(SLOTS), SLOT), np.uint8)
    for number, (pool, _) in enumerate(SLOTS):
        values = registers[:, number].astype(f"u{WIDTH[pool] // 8}").view(np.uint8)
        memory[number, : len(values)] = values
    return memory


def unpack(memory: np.ndarray, threads: int) -> np.ndarray:
    """The words that `pack` made bytes of."""
    columns = [memory[number, : threads * WIDTH[pool] // 8].view(f"u{WIDTH[pool] // 8}") for number, (pool, _) in enumerate(SLOTS)]
    return np.stack(columns, axis=1).astype(np.uint64)


def comparable(out: np.ndarray) -> np.ndarray:
    """What a program left in its registers, all NaNs of a float made one."""
    result = out.copy()
    for column, (pool, _) in enumerate(SLOTS):
        for part, kind in ((0, pool),) if pool not in "mn" else ((0, {"m": "k", "n": "y"}[pool]), (16, {"m": "k", "n": "y"}[pool])):
            if kind in "fgky":
                magnitude, infinity = {
                    "f": (2**31 - 1, 0x7F800000),
                    "g": (2**63 - 1, 0x7FF << 52),
                    "k": (0x7FFF, 0x7C00),
                    "y": (0x7FFF, 0x7F80),
                }[kind]
                value = result[:, column] >> np.uint64(part) & np.uint64(magnitude)
                nan = np.uint64(magnitude << part)
                result[:, column] = np.where(
                    value > np.uint64(infinity), result[:, column] | nan | np.uint64((magnitude + 1) << part), result[:, column]
                )
    return result
