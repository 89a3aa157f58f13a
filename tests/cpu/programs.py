"""Random PTX programs for differential tests: straight-line code over all register types, branches, memory, lanes.

Registers come in pools, by what their bits mean: p predicates; h, r, d integers of 16, 32, 64 bits; f, g f32 and f64; k f16, y bf16;
m f16x2, n bf16x2. NaNs of two implementations may differ in their bits, so no instruction here moves a float's bits to an integer pool.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

POOLS = "phrdfgkymn"
REGISTERS = 5  # of each pool
DECLARED = {"p": "pred", "h": "b16", "r": "b32", "d": "b64", "f": "f32", "g": "f64", "k": "b16", "y": "b16", "m": "b32", "n": "b32"}
SLOT = 8  # bytes of a register's place in the input and output arrays
SLOTS = [(pool, i) for pool in POOLS for i in range(REGISTERS)]
ROW = SLOT * len(SLOTS)  # bytes a thread has
INTEGERS = {"h": ("u16", "s16"), "r": ("u32", "s32"), "d": ("u64", "s64")}
WIDTH = {"p": 8, "h": 16, "r": 32, "d": 64, "f": 32, "g": 64, "k": 16, "y": 16, "m": 32, "n": 32}
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
UNORDERED = tuple(op + "u" for op in COMPARE) + ("num", "nan")


@dataclass(frozen=True)
class Template:
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


def integer_templates() -> list[Template]:
    found = []
    for pool, types in INTEGERS.items():
        bits = f"b{WIDTH[pool]}"
        for type_ in types:
            for opcode in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
                found.append(Template(f"{opcode}.{type_}", pool, pool * 2))
            found += [Template(f"mad.lo.{type_}", pool, pool * 3), Template(f"mad.hi.{type_}", pool, pool * 3),
                      Template(f"sad.{type_}", pool, pool * 3), Template(f"shr.{type_}", pool, pool + "r"),
                      Template(f"shr.{type_}", pool, pool + "#"), Template(f"slct.{type_}.s32", pool, pool * 2 + "r"),
                      Template(f"selp.{type_}", pool, pool * 2 + "p")]
            wider = {"h": "r", "r": "d"}.get(pool)
            if wider:
                found += [Template(f"mul.wide.{type_}", wider, pool * 2), Template(f"mad.wide.{type_}", wider, pool * 2 + wider)]
            for op in COMPARE + (("lo", "ls", "hi", "hs") if type_[0] == "u" else ()):
                found += [Template(f"setp.{op}.{type_}", "p", pool * 2), Template(f"set.{op}.u32.{type_}", "r", pool * 2)]
            found += [Template(f"setp.lt.{bool_}.{type_}", "pp", pool * 2 + "p") for bool_ in ("and", "or", "xor")]
            for other, other_types in INTEGERS.items():
                for other_type in other_types:
                    found.append(Template(f"cvt.{type_}.{other_type}", pool, other))
                    if saturates(type_, other_type):
                        found.append(Template(f"cvt.sat.{type_}.{other_type}", pool, other))
            if pool != "d":
                for narrow in ("u8", "s8"):
                    found.append(Template(f"cvt.{type_}.{narrow}", pool, pool))
        found += [Template(f"{opcode}.s{WIDTH[pool]}", pool, pool) for opcode in ("abs", "neg")]
        found += [Template(f"{opcode}.{bits}", pool, pool * 2) for opcode in ("and", "or", "xor")]
        found += [Template(f"{opcode}.{bits}", pool, pool) for opcode in ("not", "cnot", "mov")]
        found += [Template(f"shl.{bits}", pool, pool + "r"), Template(f"shl.{bits}", pool, pool + "#")]
        if pool != "h":
            found += [Template(f"{opcode}.{bits}", "r", pool) for opcode in ("popc", "clz")]
            found += [Template(f"brev.{bits}", pool, pool), Template(f"bfi.{bits}", pool, pool * 2 + "rr"),
                      Template(f"bfi.{bits}", pool, pool * 2 + "##")]
            for type_ in types:
                found += [Template(f"bfe.{type_}", pool, pool + "rr"), Template(f"bfe.{type_}", pool, pool + "##"),
                          Template(f"bfind.{type_}", "r", pool), Template(f"bfind.shiftamt.{type_}", "r", pool)]
    for type_ in ("u32", "s32"):
        found += [Template(f"mul24.{mode}.{type_}", "r", "rr") for mode in ("lo", "hi")]
        found += [Template(f"mad24.{mode}.{type_}", "r", "rrr") for mode in ("lo", "hi")]
        found += [Template(f"szext.{mode}.{type_}", "r", "r" + by) for mode in ("clamp", "wrap") for by in "r#"]
        found += [Template(f"dp4a.{type_}.{other}", "r", "rrr") for other in ("u32", "s32")]
        found += [Template(f"dp2a.{mode}.{type_}.{other}", "r", "rrr") for mode in ("lo", "hi") for other in ("u32", "s32")]
    found += [Template("add.sat.s32", "r", "rr"), Template("sub.sat.s32", "r", "rr"), Template("mad.hi.sat.s32", "r", "rrr"),
              Template("mad24.hi.sat.s32", "r", "rrr"), Template("fns.b32", "r", "rr", ", 2"), Template("add.u32", "r", "r&"),
              Template("min.relu.s32", "r", "rr"), Template("lop3.b32", "r", "rrr", ", 0x96"), Template("lop3.b32", "r", "rrr", ", 0x1a"),
              Template("lop3.or.b32", "rp", "rrr", ", 0x72, %p1"), Template("prmt.b32", "r", "rrr"), Template("prmt.b32", "r", "rr&"),
              Template("cvt.pack.sat.s16.s32", "r", "rr"), Template("cvt.pack.sat.u8.s32.b32", "r", "rrr")]
    found += [Template(f"bmsk.{mode}.b32", "r", "r" + by) for mode in ("clamp", "wrap") for by in "r#"]
    found += [Template(f"shf.{way}.{mode}.b32", "r", "rr" + by) for way in "lr" for mode in ("clamp", "wrap") for by in "r#"]
    found += [Template(f"prmt.b32.{mode}", "r", "rrr") for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")]
    found += [Template(f"{opcode}.{type_}", "r", "rr") for type_ in ("u16x2", "s16x2") for opcode in ("add", "min", "max")]
    found += [Template("min.relu.s16x2", "r", "rr"), Template("max.relu.s16x2", "r", "rr")]
    found += [Template(f"{opcode}.pred", "p", "pp") for opcode in ("and", "or", "xor")] + [Template("not.pred", "p", "p")]
    return found


def saturates(to: str, of: str) -> bool:
    """Whether `.sat` is legal: a type that cannot hold all of the other's values."""
    def limits(type_: str) -> tuple[int, int]:
        bits = int(type_[1:])
        return (0, 2**bits - 1) if type_[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    return limits(to)[0] > limits(of)[0] or limits(to)[1] < limits(of)[1]


def float_templates() -> list[Template]:
    found = []
    for pool, type_ in (("f", "f32"), ("g", "f64")):
        flushes = ("", ".ftz") if type_ == "f32" else ("",)
        saturations = ("", ".sat") if type_ == "f32" else ("",)
        for ftz in flushes:
            for mode in ("rn", "rz", "rm", "rp"):
                for sat in saturations:
                    found += [Template(f"{opcode}.{mode}{ftz}{sat}.{type_}", pool, pool * 2) for opcode in ("add", "sub", "mul")]
                    found.append(Template(f"fma.{mode}{ftz}{sat}.{type_}", pool, pool * 3))
                found += [Template(f"div.{mode}{ftz}.{type_}", pool, pool * 2), Template(f"rcp.{mode}{ftz}.{type_}", pool, pool),
                          Template(f"sqrt.{mode}{ftz}.{type_}", pool, pool)]
            found += [Template(f"{opcode}{ftz}.{type_}", pool, pool) for opcode in ("abs", "neg")]
            found += [Template(f"{opcode}{ftz}.{type_}", pool, pool * 2) for opcode in ("min", "max", "add", "mul")]
            for op in COMPARE + UNORDERED:
                found += [Template(f"setp.{op}{ftz}.{type_}", "p", pool * 2), Template(f"set.{op}{ftz}.u32.{type_}", "r", pool * 2),
                          Template(f"setp.{op}.or{ftz}.{type_}", "pp", pool * 2 + "p"), Template(f"set.{op}{ftz}.f32.{type_}", "f", pool * 2)]
            for integral in ("rni", "rzi", "rmi", "rpi"):
                for to, types in INTEGERS.items():
                    found += [Template(f"cvt.{integral}{ftz}.{name}.{type_}", to, pool) for name in types]
                found.append(Template(f"cvt.{integral}{ftz}.{type_}.{type_}", pool, pool))
        found += [Template(f"selp.{type_}", pool, pool * 2 + "p"), Template(f"mov.{type_}", pool, pool), Template(f"copysign.{type_}", pool, pool * 2),
                  Template(f"slct.{type_}.s32", pool, pool * 2 + "r"), Template(f"slct.{type_}.f32", pool, pool * 2 + "f")]
        found += [Template(f"testp.{op}.{type_}", "p", pool) for op in ("finite", "infinite", "number", "notanumber", "normal", "subnormal")]
        for mode in ("rn", "rz", "rm", "rp"):
            for of, types in INTEGERS.items():
                found += [Template(f"cvt.{mode}.{type_}.{name}", pool, of) for name in types]
    found += [Template(f"{opcode}{ftz}{nan}.f32", "f", "ff") for opcode in ("min", "max") for ftz in ("", ".ftz")
              for nan in (".NaN", ".xorsign.abs", ".NaN.xorsign.abs")]
    found += [Template("cvt.f64.f32", "g", "f"), Template("cvt.ftz.f64.f32", "g", "f"), Template("cvt.sat.f32.f32", "f", "f"),
              Template("cvt.ftz.sat.f32.f32", "f", "f"), Template("cvt.sat.f64.f64", "g", "g")]
    found += [Template(f"cvt.{mode}{ftz}{sat}.f32.f64", "f", "g") for mode in ("rn", "rz", "rm", "rp") for ftz in ("", ".ftz") for sat in ("", ".sat")]
    return found


def half_templates() -> list[Template]:
    found = []
    for pool, type_ in (("k", "f16"), ("m", "f16x2"), ("y", "bf16"), ("n", "bf16x2")):
        is_f16 = type_.startswith("f16")
        for ftz in ("", ".ftz") if is_f16 else ("",):
            for sat in ("", ".sat") if is_f16 else ("",):
                found += [Template(f"{opcode}.rn{ftz}{sat}.{type_}", pool, pool * 2) for opcode in ("add", "sub", "mul")]
                found.append(Template(f"fma.rn{ftz}{sat}.{type_}", pool, pool * 3))
            found.append(Template(f"fma.rn{ftz}.relu.{type_}", pool, pool * 3))
            found += [Template(f"{opcode}{ftz}.{type_}", pool, pool) for opcode in ("abs", "neg")]
            found += [Template(f"{opcode}{ftz}{more}.{type_}", pool, pool * 2) for opcode in ("min", "max")
                      for more in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs")]
            for op in COMPARE + UNORDERED:
                found.append(Template(f"setp.{op}{ftz}.{type_}", "pp" if pool in "mn" else "p", pool * 2))
                found.append(Template(f"set.{op}{ftz}.u32.{type_}", "r", pool * 2))
                found.append(Template(f"set.{op}{ftz}.{type_}.{type_}", pool, pool * 2))
    found += [Template("cvt.f32.f16", "f", "k"), Template("cvt.ftz.f32.f16", "f", "k"), Template("cvt.f64.f16", "g", "k"),
              Template("cvt.f32.bf16", "f", "y"), Template("cvt.sat.f32.f16", "f", "k")]
    for mode in ("rn", "rz"):
        for relu in ("", ".relu"):
            for finite in ("", ".satfinite"):
                found += [Template(f"cvt.{mode}{relu}{finite}.{type_}.f32", pool, "f") for pool, type_ in (("k", "f16"), ("y", "bf16"))]
                found += [Template(f"cvt.{mode}{relu}{finite}.{type_}.f32", pool, "ff") for pool, type_ in (("m", "f16x2"), ("n", "bf16x2"))]
    found += [Template(f"cvt.{mode}{more}.f16.f32", "k", "f") for mode in ("rn", "rz", "rm", "rp") for more in ("", ".ftz", ".sat")]
    found += [Template(f"cvt.{mode}.f16.f64", "k", "g") for mode in ("rn", "rz", "rm", "rp")]
    for integral in ("rni", "rzi", "rmi", "rpi"):
        found.append(Template(f"cvt.{integral}.f16.f16", "k", "k"))
        for to, types in INTEGERS.items():
            found += [Template(f"cvt.{integral}.{name}.f16", to, "k") for name in types]
    for of, types in INTEGERS.items():
        found += [Template(f"cvt.{mode}.f16.{name}", "k", of) for name in types for mode in ("rn", "rz", "rm", "rp")]
    for fp8 in ("e4m3x2", "e5m2x2"):
        for relu in ("", ".relu"):
            found += [Template(f"cvt.rn.satfinite{relu}.{fp8}.f32", "h", "ff"), Template(f"cvt.rn.satfinite{relu}.{fp8}.f16x2", "h", "m"),
                      Template(f"cvt.rn{relu}.f16x2.{fp8}", "m", "h")]
    found += [Template("cvt.rna.tf32.f32", "r", "f"), Template("cvt.rn.tf32.f32", "r", "f"), Template("cvt.rz.relu.tf32.f32", "r", "f")]
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

_F32 = [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F7FFFFF, 0x3F800001, 0x3F000000, 0x4B000000, 0x4B800001, 0x4F000000, 0x5F000000,
        0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x43E00000, 0x43E80000, 0x477FE000, 0x477FF000, 0x33000000, 0x38800000, 0x387FE000, 0x3F808000, 0x3FC00000]
_F64 = [0, 1, 0xFFFFFFFFFFFFF, 1 << 52, 0x3FF0000000000000, 0x3FEFFFFFFFFFFFFF, 0x47EFFFFFE0000000, 0x47EFFFFFF0000000, 0x36A0000000000000,
        0x380FFFFFC0000000, 0x41E0000000000000, 0x43E0000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF << 52, 0x7FF8 << 48, 0x3FE0000000000000]
_F16 = [0, 1, 0x3FF, 0x400, 0x3C00, 0x3BFF, 0x3C01, 0x3800, 0x7BFF, 0x7C00, 0x7E00, 0x6400, 0x7800, 0x3E00, 0x4100]
_BF16 = [0, 1, 0x7F, 0x80, 0x3F80, 0x3F7F, 0x3F81, 0x3F00, 0x7F7F, 0x7F80, 0x7FC0, 0x4300, 0x43E0, 0x4040]
_EDGES = {"h": [0, 1, 2, 7, 15, 16, 0x7FFF, 0x8000, 0xFFFF, 0xFF, 0x80], "r": [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF, 0xFF, 64],
          "d": [0, 1, 2, 63, 64, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1], "f": _F32, "g": _F64, "k": _F16, "y": _BF16}


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


def comparable(out: np.ndarray) -> np.ndarray:
    """What a program left in its registers, all NaNs of a float made one."""
    result = out.copy()
    for column, (pool, _) in enumerate(SLOTS):
        for part, kind in (((0, pool),) if pool not in "mn" else ((0, {"m": "k", "n": "y"}[pool]), (16, {"m": "k", "n": "y"}[pool]))):
            if kind in "fgky":
                magnitude, infinity = {"f": (2**31 - 1, 0x7F800000), "g": (2**63 - 1, 0x7FF << 52), "k": (0x7FFF, 0x7C00), "y": (0x7FFF, 0x7F80)}[kind]
                value = result[:, column] >> np.uint64(part) & np.uint64(magnitude)
                nan = np.uint64(magnitude << part)
                result[:, column] = np.where(value > np.uint64(infinity), result[:, column] | nan | np.uint64((magnitude + 1) << part), result[:, column])
    return result


# ── programs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def kernel(body: list[str], *, version: str = "8.7", target: str = "sm_90a", declarations: str = "", functions: str = "") -> str:
    """A kernel `program(in, out)`, each thread with a row of registers in each array, around a body. %t is the thread's number in the grid."""
    lines = [f".version {version}", f".target {target}", ".address_size 64", functions,
             ".visible .entry program(.param .u64 in, .param .u64 out) {", "  .reg .b32 %t<8>;", "  .reg .b64 %a<8>;", "  .reg .pred %q<8>;"]
    lines += [f"  .reg .{type_} %{pool}<{REGISTERS}>;" for pool, type_ in DECLARED.items()]
    lines += [declarations, "  mov.u32 %t1, %ctaid.x;", "  mov.u32 %t2, %ntid.x;", "  mov.u32 %t3, %tid.x;", "  mad.lo.u32 %t0, %t1, %t2, %t3;",
              "  ld.param.u64 %a0, [in];", "  ld.param.u64 %a1, [out];", f"  mul.wide.u32 %a2, %t0, {ROW};",
              "  add.s64 %a0, %a0, %a2;", "  add.s64 %a1, %a1, %a2;"]
    for slot, (pool, i) in enumerate(SLOTS):
        if pool == "p":
            lines += [f"  ld.global.u32 %t4, [%a0+{slot * SLOT}];", f"  setp.ne.u32 %p{i}, %t4, 0;"]
        else:
            lines.append(f"  ld.global.b{WIDTH[pool]} %{pool}{i}, [%a0+{slot * SLOT}];")
    lines += ["  " + line for line in body]
    for slot, (pool, i) in enumerate(SLOTS):
        if pool == "p":
            lines += [f"  selp.u32 %t4, 1, 0, %p{i};", f"  st.global.u32 [%a1+{slot * SLOT}], %t4;"]
        else:
            lines.append(f"  st.global.b{WIDTH[pool]} [%a1+{slot * SLOT}], %{pool}{i};")
    return "\n".join([*lines, "  ret;", "}"])


def straight_line(choices: list[tuple[int, int]], templates: list[Template]) -> list[str]:
    """A body from (which template, seed of its operands) pairs."""
    body = []
    for which, seed in choices:
        at = which % (len(templates) + len(CARRY))
        if at < len(templates):
            body.append(templates[at].render(np.random.default_rng(seed)))
        else:
            body += CARRY[at - len(templates)]
    return body


# Instructions cheap to compile and sensitive to a wrong lane: what control-flow programs are filled with.
_SIMPLE = [Template("add.u32", "r", "rr"), Template("xor.b32", "r", "rr"), Template("mul.lo.u32", "r", "r&"), Template("add.u32", "r", "r#"),
           Template("sub.u32", "r", "rr"), Template("shl.b32", "r", "r#"), Template("setp.lt.u32", "p", "rr"), Template("setp.gt.s32", "p", "r&"),
           Template("selp.b32", "r", "rrp"), Template("add.u64", "d", "dd"), Template("cvt.u64.u32", "d", "r"), Template("cvt.u32.u64", "r", "d"),
           Template("fma.rn.f32", "f", "fff"), Template("min.f32", "f", "ff"), Template("xor.pred", "p", "pp"), Template("mad.lo.s32", "r", "rrr")]


def simple(random: np.random.Generator, count: int) -> list[str]:
    return [_SIMPLE[random.integers(len(_SIMPLE))].render(random) for _ in range(count)]


class Structured:
    """If, else, loops with breaks and continues, early ends; trip counts differ from lane to lane."""

    def __init__(self, random: np.random.Generator):
        self.random, self.names = random, 0
        self.declarations: list[str] = []

    def label(self, what: str) -> str:
        self.names += 1
        return f"{what}_{self.names}"

    def predicate(self) -> str:
        return f"@{'!' if self.random.random() < 0.5 else ''}%p{self.random.integers(REGISTERS)}"

    def block(self, depth: int, leave: tuple[str, str] | None = None) -> list[str]:
        lines = []
        for _ in range(self.random.integers(1, 4)):
            kind = self.random.choice(["plain", "if", "else", "loop", "leave", "end"], p=[0.35, 0.2, 0.2, 0.15, 0.08, 0.02])
            if depth == 0 or kind == "plain" or (kind == "leave" and not leave):
                lines += simple(self.random, self.random.integers(1, 5))
            elif kind == "if":
                after = self.label("AFTER")
                lines += [f"{self.predicate()} bra {after};", *self.block(depth - 1, leave), f"{after}:"]
            elif kind == "else":
                other, after = self.label("ELSE"), self.label("AFTER")
                lines += [f"{self.predicate()} bra {other};", *self.block(depth - 1, leave), f"bra {after};",
                          f"{other}:", *self.block(depth - 1, leave), f"{after}:"]
            elif kind == "loop":
                lines += self.loop(depth)
            elif kind == "leave" and leave:
                lines.append(f"{self.predicate()} bra {leave[self.random.integers(2)]};")
            else:
                lines.append(f"@%p{self.random.integers(REGISTERS)} ret;")
        return lines

    def loop(self, depth: int) -> list[str]:
        top, again, end = self.label("TOP"), self.label("AGAIN"), self.label("END")
        counter = self.label("%c")
        self.declarations += [f".reg .b32 {counter};", f".reg .pred {counter}p;"]
        trips = f"and.b32 {counter}, %r{self.random.integers(REGISTERS)}, 3;" if self.random.random() < 0.6 else f"mov.u32 {counter}, 3;"
        return [trips, f"{top}:", *self.block(depth - 1, (again, end)), f"{again}:", f"sub.u32 {counter}, {counter}, 1;",
                f"setp.gt.s32 {counter}p, {counter}, 0;", f"@{counter}p bra {top};", f"{end}:"]


def structured(seed: int, depth: int) -> str:
    made = Structured(np.random.default_rng(seed))
    body = made.block(depth)
    return kernel(body, declarations="\n".join(made.declarations))


def tangled(seed: int, blocks: int) -> str:
    """Blocks that jump anywhere, loops with several entries among them, until a lane's fuel is spent."""
    random = np.random.default_rng(seed)
    body = ["and.b32 %t5, %r0, 15;", "add.u32 %t5, %t5, 6;"]
    for block in range(blocks):
        body += [f"B{block}:", "sub.u32 %t5, %t5, 1;", "setp.le.s32 %q0, %t5, 0;", "@%q0 bra OUT;", *simple(random, random.integers(1, 4))]
        if random.random() < 0.8:
            body.append(f"@{'!' if random.random() < 0.5 else ''}%p{random.integers(REGISTERS)} bra B{random.integers(blocks)};")
        if random.random() < 0.5 or block == blocks - 1:
            body.append(f"bra B{random.integers(blocks)};")
    return kernel([*body, "OUT:"])


def memory(seed: int, count: int, elements: int = 512) -> str:
    """Loads of all widths and shapes from `in` through several address patterns, stores to each thread's own place in `out`, by way of
    local and shared memory and generic addresses; some under predicates."""
    random = np.random.default_rng(seed)
    # %a3: the whole of `in`; %a4: generic address of this thread's local room; %t6: this thread's shared room.
    body = ["ld.param.u64 %a3, [in];", "mov.u64 %a4, room;", "cvta.local.u64 %a4, %a4;", "mov.u32 %t6, tile;", "mad.lo.u32 %t6, %t3, 64, %t6;",
            "cvt.u64.u32 %a5, %t6;", "cvta.shared.u64 %a5, %a5;"]
    for step in range(count):
        bits, vector = (int(random.choice([8, 16, 32, 64])), int(random.choice([1, 1, 2, 4])))
        if bits * vector > 128:
            vector = 2
        size = bits * vector // 8
        pool = {8: "h", 16: "h", 32: "r", 64: "d"}[bits] if vector > 1 else str(random.choice([p for p in "hrd" if WIDTH[p] >= bits]))
        sign = str(random.choice(["u", "s", "b"]))
        registers = [f"%{pool}{i}" for i in random.permutation(REGISTERS)[:vector]]
        operand = registers[0] if vector == 1 else "{" + ", ".join(registers) + "}"
        kind = f"{f'v{vector}.' if vector > 1 else ''}{sign}{bits}"
        guard = f"@%p{random.integers(REGISTERS)} " if random.random() < 0.35 else ""
        limit = 1 << int(np.log2(elements * 8 // size))
        pattern = random.choice(["own", "stride", "same", "scatter", "reverse"])
        index = {"own": ["mov.u32 %t7, %t0;"], "stride": [f"mul.lo.u32 %t7, %t0, {random.integers(2, 9)};"],
                 "same": [f"mov.u32 %t7, {random.integers(0, limit)};"], "scatter": [f"mad.lo.u32 %t7, %t0, {random.integers(1, 2**20) | 1}, %r0;"],
                 "reverse": ["sub.u32 %t7, 1000, %t0;"]}[str(pattern)]
        where = random.choice(["global", "global", "local", "shared", "generic local", "generic shared"])
        if where == "global":
            space = str(random.choice(["global", "global.nc", "generic", "volatile.global"]))
            ld = {"generic": "ld", "global": "ld.global", "global.nc": "ld.global.nc", "volatile.global": "ld.volatile.global"}[space]
            body += [*index, f"and.b32 %t7, %t7, {limit - 1};", f"mul.wide.u32 %a6, %t7, {size};", "add.s64 %a6, %a3, %a6;", f"{guard}{ld}.{kind} {operand}, [%a6];"]
        else:
            base, suffix = {"local": ("%a7", ".local"), "shared": ("%t7", ".shared"), "generic local": ("%a4", ""), "generic shared": ("%a5", "")}[str(where)]
            offset = size * int(random.integers(0, 64 // size))
            prepare = {"%a7": ["mov.u64 %a7, room;"], "%t7": ["mov.u32 %t7, %t6;"]}.get(base, [])
            source = operand
            load_offset = size * int(random.integers(0, 64 // size))
            body += [*prepare, f"{guard}st{suffix}.{kind} [{base}+{offset}], {source};", f"ld{suffix}.{kind} {operand}, [{base}+{load_offset}];"]
    zero = [f"st.local.b64 [room+{8 * i}], 0;" for i in range(8)]
    shared_zero = ["mov.u32 %t6, tile;", "mad.lo.u32 %t6, %t3, 64, %t6;", *(f"st.shared.b64 [%t6+{8 * i}], 0;" for i in range(8))]
    return kernel([*zero, *shared_zero, *body], declarations=".local .align 16 .b8 room[64];\n.shared .align 16 .b8 tile[16384];")


def across_lanes(seed: int, count: int) -> str:
    """Shuffles, votes, matches and reductions, by all lanes and by the two sides of a branch, each naming its own."""
    random = np.random.default_rng(seed)

    def register(pool: str) -> str:
        return f"%{pool}{random.integers(REGISTERS)}"

    def one(mask: str) -> list[str]:
        kind = random.choice(["shfl", "vote", "match", "redux", "elect", "warp"])
        if kind == "shfl":
            mode = str(random.choice(["up", "down", "bfly", "idx"]))
            width = int(random.choice([32, 32, 16, 8, 4]))
            clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
            by = str(random.integers(0, 32)) if random.random() < 0.6 or mask != "-1" else register("r")
            if mask != "-1":
                # Lanes outside the mask may not be sources: compare only what came from inside.
                return [f"shfl.sync.{mode}.b32 %t4|%q1, %r1, {by}, {clamp}, {mask};", f"shfl.sync.{mode}.b32 %t5|%q2, %t0, {by}, {clamp}, {mask};",
                        "and.b32 %t5, %t5, 31;", f"shr.u32 %t5, {mask}, %t5;", "and.b32 %t5, %t5, 1;", "setp.ne.u32 %q3, %t5, 0;",
                        f"@%q3 mov.u32 {register('r')}, %t4;"]
            return [f"shfl.sync.{mode}.b32 {register('r')}|{register('p')}, {register('r')}, {by}, {clamp}, {mask};"]
        if kind == "vote":
            mode = str(random.choice(["all", "any", "uni", "ballot"]))
            target, type_ = (register("r"), "b32") if mode == "ballot" else (register("p"), "pred")
            return [f"vote.sync.{mode}.{type_} {target}, {'!' if random.random() < 0.3 else ''}{register('p')}, {mask};"]
        if kind == "match":
            pool = str(random.choice(["r", "d"]))
            few = [f"and.b32 %t4, {register('r')}, 3;", "cvt.u64.u32 %a3, %t4;"]
            value = {"r": "%t4", "d": "%a3"}[pool]
            if random.random() < 0.5:
                return [*few, f"match.any.sync.b{WIDTH[pool]} {register('r')}, {value}, {mask};"]
            return [*few, f"match.all.sync.b{WIDTH[pool]} {register('r')}|{register('p')}, {value}, {mask};"]
        if kind == "redux":
            op = str(random.choice(["add.u32", "min.u32", "max.u32", "add.s32", "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32"]))
            return [f"redux.sync.{op} {register('r')}, {register('r')}, {mask};"]
        if kind == "elect":
            return [f"elect.sync {register('r')}|{register('p')}, {mask};"]
        return [f"bar.warp.sync {mask};"]

    body = []
    for step in range(count):
        if random.random() < 0.35:
            chosen = f"%p{random.integers(REGISTERS)}"
            body += [f"mov.pred %q0, {chosen};", "vote.sync.ballot.b32 %t6, %q0, 0xffffffff;", "not.b32 %t7, %t6;", f"@!%q0 bra OTHER{step};"]
            for _ in range(random.integers(1, 3)):
                body += one("%t6")
            body += [f"bra AFTER{step};", f"OTHER{step}:"]
            for _ in range(random.integers(0, 3)):
                body += one("%t7")
            body += [f"AFTER{step}:", "bar.warp.sync 0xffffffff;"]
        else:
            body += one("-1")
        body += simple(random, 1)
    return kernel(body)


def barriers(seed: int, count: int, threads: int) -> str:
    """Rounds of shared memory between barriers: each thread writes its own word and reads another's."""
    random = np.random.default_rng(seed)
    body = ["mov.u32 %t6, tile;", "mad.lo.u32 %t6, %t3, 4, %t6;"]
    for _ in range(count):
        register = f"%r{random.integers(REGISTERS)}"
        body += [f"st.shared.u32 [%t6], {register};", random.choice(["bar.sync 0;", "barrier.sync 1;", f"bar.sync 2, {-(-threads // 32) * 32};"]),
                 f"add.u32 %t7, %t3, {random.integers(1, threads)};", f"rem.u32 %t7, %t7, {threads};", "mov.u32 %t5, tile;",
                 "mad.lo.u32 %t7, %t7, 4, %t5;", f"ld.shared.u32 %r{random.integers(REGISTERS)}, [%t7];"]
        kind = random.choice(["sync", "popc", "and", "or"])
        p = f"%p{random.integers(REGISTERS)}"
        body.append({"sync": "bar.sync 0;", "popc": f"bar.red.popc.u32 %r{random.integers(REGISTERS)}, 3, {p};",
                     "and": f"bar.red.and.pred %p{random.integers(REGISTERS)}, 3, {p};", "or": f"bar.red.or.pred %p{random.integers(REGISTERS)}, 3, !{p};"}[str(kind)])
        body += simple(random, 2)
    return kernel(body, declarations=".shared .align 4 .b8 tile[4096];")


def atomics(seed: int, count: int) -> str:
    """Atomic operations on 16 shared cells, whose final values (and, of a cell of one's own, old values) do not depend on the order."""
    random = np.random.default_rng(seed)
    body = ["mov.u32 %t6, cells;", "setp.lt.u32 %q0, %t3, 16;", "mad.lo.u32 %t7, %t3, 8, %t6;", "@%q0 st.shared.b64 [%t7], %d0;", "bar.sync 0;",
            "mov.u32 %t5, own;", "mad.lo.u32 %t5, %t3, 8, %t5;", "st.shared.b64 [%t5], %d1;"]
    for _ in range(count):
        op = str(random.choice(["add.u32", "add.u64", "min.s32", "max.s32", "min.u64", "max.s64", "and.b32", "or.b64", "xor.b32", "max.u32"]))
        pool = "d" if op.endswith("64") else "r"
        body += [f"and.b32 %t4, %r{random.integers(REGISTERS)}, 15;", "mad.lo.u32 %t4, %t4, 8, %t6;",
                 f"{f'@%p{random.integers(REGISTERS)} ' if random.random() < 0.4 else ''}red.shared.{op} [%t4], %{pool}{random.integers(REGISTERS)};",
                 "bar.sync 0;"]
        own = str(random.choice(["add.u32", "exch.b32", "inc.u32", "dec.u32", "cas.b32", "exch.b64", "cas.b64", "min.s64", "xor.b64", "add.f32", "add.f64"]))
        pool = {"f32": "f", "f64": "g"}.get(own[-3:], "d" if own.endswith("64") else "r")
        if own.startswith("add.f"):
            body += [f"mov.b{WIDTH[pool]} %{pool}0, 0;", f"st.shared.b{WIDTH[pool]} [%t5], %{pool}0;"]
        operands = ", ".join(f"%{pool}{random.integers(REGISTERS)}" for _ in range(2 if own.startswith("cas") else 1))
        body.append(f"{f'@%p{random.integers(REGISTERS)} ' if random.random() < 0.4 else ''}atom.shared.{own} %{pool}{random.integers(REGISTERS)}, [%t5], {operands};")
        if own.startswith("add.f"):
            body += ["st.shared.b64 [%t5], %d1;"]
    body += ["bar.sync 0;", "and.b32 %t4, %t3, 15;", "mad.lo.u32 %t4, %t4, 8, %t6;", "ld.shared.b64 %d0, [%t4];"]
    return kernel(body, declarations=".shared .align 8 .b8 cells[128];\n.shared .align 8 .b8 own[8192];")
