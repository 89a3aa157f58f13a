"""Every instruction that differential tests draw from, by register pools, and the values that go wrong in them.

Registers come in pools, by what their bits mean: p predicates; h, r, d integers of 16, 32, 64 bits; f, g f32 and f64; k f16, y bf16;
m f16x2, n bf16x2. NaNs of two implementations may differ in their bits, so no instruction here moves a float's bits to an integer pool.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

import numpy as np

POOLS = "phrdfgkymn"
REGISTERS = 5  # of each pool
DECLARED = {"p": "pred", "h": "b16", "r": "b32", "d": "b64", "f": "f32", "g": "f64", "k": "b16", "y": "b16", "m": "b32", "n": "b32"}
WIDTH = {"p": 8, "h": 16, "r": 32, "d": 64, "f": 32, "g": 64, "k": 16, "y": 16, "m": 32, "n": 32}
SLOTS = [(pool, i) for pool in POOLS for i in range(REGISTERS)]
SLOT = 8 * 256  # bytes that a register's values, of 256 threads at most, have in the input and output arrays

# A line an instruction: mnemonic, pools written (two: `d|p`), pools read. {a,b} stands for a line with each, [a,b] for one or the other,
# by chance. Constants: 5 is 0 … 31, # is 0 … 69, L is 0 … 255, & any of 32 bits.
INTEGERS = """
  {add,sub,mul.lo,mul.hi,div,rem,min,max}.{u16,s16}  h hh      {add,sub,mul.lo,mul.hi,div,rem,min,max}.{u32,s32}  r rr
  {add,sub,mul.lo,mul.hi,div,rem,min,max}.{u64,s64}  d dd      {mad.lo,mad.hi,sad}.{u16,s16}  h hhh
  {mad.lo,mad.hi,sad}.{u32,s32}  r rrr                         {mad.lo,mad.hi,sad}.{u64,s64}  d ddd
  mul.wide.{u16,s16}  r hh       mul.wide.{u32,s32}  d rr      mad.wide.{u16,s16}  r hhr     mad.wide.{u32,s32}  d rrd
  {add,sub}.sat.s32  r rr        {mad,mad24}.hi.sat.s32  r rrr mul24.{lo,hi}.{u32,s32}  r rr mad24.{lo,hi}.{u32,s32}  r rrr
  {abs,neg}.s16  h h             {abs,neg}.s32  r r            {abs,neg}.s64  d d            add.u32  r r&
  {add,min,max}.{u16x2,s16x2}  r rr                            {min,max}.relu.{s32,s16x2}  r rr
  {and,or,xor}.pred  p pp        not.pred  p p                 {and,or,xor}.b16  h hh        {and,or,xor}.b32  r rr
  {and,or,xor}.b64  d dd         {not,cnot,mov}.b16  h h       {not,cnot,mov}.b32  r r       {not,cnot,mov}.b64  d d
  shl.b16  h hr                  shl.b32  r rr                 shl.b64  d dr                 shl.[b32]  r r#
  shr.{b16,u16,s16}  h hr        shr.{b32,u32,s32}  r rr       shr.{b64,u64,s64}  d dr       shr.[u64,s64]  d d#
  shf.{l,r}.{clamp,wrap}.b32  r rrr                            shf.{l,r}.{clamp,wrap}.b32  r rr#
  prmt.b32  r rrr                prmt.b32  r rr&               prmt.b32.{f4e,b4e,rc8,ecl,ecr,rc16}  r rrr
  lop3.b32  r rrrL               lop3.{or,and}.b32  rp rrrLp   {popc,clz}.b32  r r           {popc,clz}.b64  r d
  brev.b32  r r                  brev.b64  d d                 bfind{,.shiftamt}.{u32,s32}  r r
  bfind{,.shiftamt}.{u64,s64}  r d                             bfe.{u32,s32}  r rrr          bfe.{u32,s32}  r r##
  bfe.{u64,s64}  d drr           bfe.{u64,s64}  d d##          bfi.b32  r rrrr               bfi.b32  r rr##
  bfi.b64  d ddrr                bfi.b64  d dd##               bmsk.{clamp,wrap}.b32  r rr   bmsk.{clamp,wrap}.b32  r r#
  szext.{clamp,wrap}.{u32,s32}  r rr                           szext.{clamp,wrap}.{u32,s32}  r r#
  fns.b32  r r5r                 dp4a.{u32,s32}.{u32,s32}  r rrr                             dp2a.{lo,hi}.{u32,s32}.{u32,s32}  r rrr
  setp.[CMP].s16  p hh           setp.[CMP,lo,ls,hi,hs].u16  p hh                            set.[CMP].[u32,s32,f32].s16  R hh
  setp.{CMP}.s32  p rr           setp.{CMP,lo,ls,hi,hs}.u32  p rr                            set.[CMP].[u32,s32].s32  r rr
  setp.{CMP}.s64  p dd           setp.[CMP,lo,ls,hi,hs].u64  p dd                            set.[CMP].f32.u64  f dd
  setp.{eq,ne}.b16  p hh         setp.[eq,ne].{and,or,xor}.b64  pp ddp                       setp.[CMP].{and,or,xor}.s32  pp rrp
  selp.b16  h hhp                selp.b32  r rrp               selp.b64  d ddp               slct.b16.s32  h hhr
  slct.u32.s32  r rrr            slct.s64.s32  d ddr           slct.u32.f32  r rrf           slct.ftz.b64.f32  d ddf
  cvt.{u16,s16}.{u8,s8}  h h     cvt.{u32,s32}.{u8,s8}  r r    cvt.{u64,s64}.{u8,s8}  d d    cvt.{u8,s8}.[u32,s32]  r r
  cvt.{u16,s16}.{u32,s32}  h r   cvt.{u16,s16}.{u64,s64}  h d  cvt.{u32,s32}.{u16,s16}  r h  cvt.{u32,s32}.{u64,s64}  r d
  cvt.{u64,s64}.{u16,s16}  d h   cvt.{u64,s64}.{u32,s32}  d r  cvt.sat.{u16,s16}.{u32,s32}  h r
  cvt.sat.{u16,s16}.{u64,s64}  h d                             cvt.sat.{u32,s32}.{u64,s64}  r d
  cvt.sat.{u8,s8}.{u32,s32}  r r cvt.sat.u32.{s16}  r h        cvt.sat.u64.{s32}  d r        cvt.sat.{u64.s64,s64.u64}  d d
  cvt.pack.sat.{u16,s16}.s32  r rr                             cvt.pack.sat.{u8,s8}.s32.b32  r rrr
"""
FLOATS = """
  {add,sub,mul}.{rn,rz,rm,rp}{,.ftz}[,.sat].f32  f ff          fma.{rn,rz,rm,rp}{,.ftz}[,.sat].f32  f fff
  {add,sub,mul}.rn.sat.f32  f ff fma.rn.sat.f32  f fff         {add,sub,mul}.{rn,rz,rm,rp}.f64  g gg fma.{rn,rz,rm,rp}.f64  g ggg
  div.{rn,rz,rm,rp}[,.ftz].f32  f ff                           {rcp,sqrt}.{rn,rz,rm,rp}[,.ftz].f32  f f
  div.{rn,rz,rm,rp}.f64  g gg    {rcp,sqrt}.{rn,rz,rm,rp}.f64  g g
  {abs,neg}{,.ftz}.f32  f f      {abs,neg}.f64  g g            copysign.f32  f ff            copysign.f64  g gg
  {min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f32  f ff             {min,max}.f64  g gg           {add,mul}{,.ftz}[,.sat].f32  f ff
  setp.{CMP,CMPU,num,nan}[,.ftz].f32  p ff                     setp.{CMP,CMPU,num,nan}.f64  p gg
  setp.[CMP,CMPU,num,nan].{and,or,xor}[,.ftz].f32  pp ffp      setp.[CMP,CMPU,num,nan].{and,or,xor}.f64  pp ggp
  set.[CMP,CMPU,num,nan]{,.ftz}.[u32,s32].f32  r ff            set.[CMP,CMPU,num,nan]{,.ftz}.f32.f32  f ff
  set.[CMP,CMPU,num,nan].[u32,s32].f64  r gg                   set.[CMP,CMPU,num,nan].f32.f64  f gg
  selp.f32  f ffp                selp.f64  g ggp               slct.f32.s32  f ffr           slct.f64.f32  g ggf
  mov.f32  f f                   mov.f64  g g                  testp.{CLASS}.f32  p f        testp.{CLASS}.f64  p g
  cvt.{rni,rzi,rmi,rpi}[,.ftz].{u16,s16}.f32  h f              cvt.{rni,rzi,rmi,rpi}[,.ftz].{u32,s32}.f32  r f
  cvt.{rni,rzi,rmi,rpi}[,.ftz].{u64,s64}.f32  d f              cvt.[rni,rzi,rmi,rpi].{u8,s8}.f32  r f
  cvt.{rni,rzi,rmi,rpi}.{u16,s16}.f64  h g                     cvt.{rni,rzi,rmi,rpi}.{u32,s32}.f64  r g
  cvt.{rni,rzi,rmi,rpi}.{u64,s64}.f64  d g                     cvt.[rni,rzi,rmi,rpi].{u8,s8}.f64  r g
  cvt.{rni,rzi,rmi,rpi}[,.ftz][,.sat].f32.f32  f f             cvt.{rni,rzi,rmi,rpi}.f64.f64  g g
  cvt.{rn,rz,rm,rp}.f32.{u16,s16}  f h                         cvt.{rn,rz,rm,rp}.f32.{u32,s32}  f r
  cvt.{rn,rz,rm,rp}.f32.{u64,s64}  f d                         cvt.[rn,rz,rm,rp].f64.{u16,s16}  g h
  cvt.[rn,rz,rm,rp].f64.{u32,s32}  g r                         cvt.{rn,rz,rm,rp}.f64.{u64,s64}  g d
  cvt{,.ftz}.f64.f32  g f        cvt{,.ftz}.sat.f32.f32  f f   cvt.sat.f64.f64  g g          cvt.{rn,rz,rm,rp}{,.ftz}[,.sat].f32.f64  f g
"""
HALVES = """
  {add,sub,mul}.rn{,.ftz}{,.sat}.f16  k kk                     {add,sub,mul}.rn{,.ftz}[,.sat].f16x2  m mm
  {add,sub,mul}.rn.bf16  y yy    {add,sub,mul}.rn.bf16x2  n nn fma.rn{,.ftz}{,.sat,.relu}.f16  k kkk
  fma.rn{,.ftz}{,.sat,.relu}.f16x2  m mmm                      fma.rn{,.relu}.bf16  y yyy    fma.rn{,.relu}.bf16x2  n nnn
  {abs,neg}{,.ftz}.f16  k k      {abs,neg}{,.ftz}.f16x2  m m   {abs,neg}.bf16  y y           {abs,neg}.bf16x2  n n
  {min,max}[,.ftz]{,.NaN}{,.xorsign.abs}.f16  k kk             {min,max}[,.ftz]{,.NaN}[,.xorsign.abs].f16x2  m mm
  {min,max}{,.NaN}{,.xorsign.abs}.bf16  y yy                   {min,max}{,.NaN}[,.xorsign.abs].bf16x2  n nn
  setp.{CMP,CMPU,num,nan}[,.ftz].f16  p kk                     setp.[CMP,CMPU,num,nan].{and,or,xor}[,.ftz].f16x2  pp mmp
  setp.{CMP,CMPU,num,nan}.bf16  p yy                           setp.[CMP,CMPU,num,nan].{and,or,xor}.bf16x2  pp nnp
  set.[CMP,CMPU,num,nan]{,.ftz}.[u32,s32].f16  r kk            set.[CMP,CMPU,num,nan].f16.f16  k kk
  set.[CMP,CMPU,num,nan].u32.f16x2  r mm                       set.[CMP,CMPU,num,nan].f16x2.f16x2  m mm
  set.[CMP,CMPU,num,nan].[u32,s32].bf16  r yy                  set.[CMP,CMPU,num,nan].bf16x2.bf16x2  n nn
  cvt{,.ftz}{,.sat}.f32.f16  f k cvt.f64.f16  g k              cvt.f32.bf16  f y             cvt.f64.bf16  g y
  cvt.{rn,rz,rm,rp}{,.ftz,.sat}.f16.f32  k f                   cvt.{rn,rz,rm,rp}.f16.f64  k g
  cvt.{rn,rz}{,.relu}{,.satfinite}.f16.f32  k f                cvt.{rn,rz}{,.relu}{,.satfinite}.bf16.f32  y f
  cvt.{rn,rz}{,.relu}{,.satfinite}.f16x2.f32  m ff             cvt.{rn,rz}{,.relu}{,.satfinite}.bf16x2.f32  n ff
  cvt.{rm,rp}.bf16.f32  y f      cvt.{rn,rz}.bf16.f64  y g     cvt.rn.bf16.f16  y k          cvt.{rn,rm}.bf16.{u32,s32}  y r
  cvt.{rni,rzi,rmi,rpi}.f16.f16  k k                           cvt.[rni,rzi,rmi,rpi].{u16,s16}.f16  h k
  cvt.[rni,rzi,rmi,rpi].{u32,s32}.f16  r k                     cvt.[rni,rzi,rmi,rpi].{u64,s64}.f16  d k
  cvt.[rni,rzi,rmi,rpi].{u32,s32}.bf16  r y                 cvt.{rn,rz,rm,rp}.f16.{u16,s16}  k h
  cvt.{rn,rz,rm,rp}.f16.{u32,s32}  k r                         cvt.{rn,rz,rm,rp}.f16.{u64,s64}  k d
  cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32  h ff           cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f16x2  h m
  cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2}  m h                    cvt.rna[,.satfinite].tf32.f32  r f
  cvt.{rn,rz}{,.relu}.tf32.f32  r f
"""
_LISTS = {"CMPU": "equ,neu,ltu,leu,gtu,geu", "CMP": "eq,ne,lt,le,gt,ge", "CLASS": "finite,infinite,number,notanumber,normal,subnormal"}


@dataclass(frozen=True)
class Op:
    """One instruction of the tables above; what is in square brackets is still to choose."""

    mnemonic: str
    writes: str
    reads: str

    def render(self, random: np.random.Generator) -> str:
        def operand(pool: str) -> str:
            if pool in "5#L":
                return str(random.integers({"5": 32, "#": 70, "L": 256}[pool]))
            if pool == "&":
                return str(int(random.choice([0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, random.integers(0, 2**32)])))
            return f"%{pool}{random.integers(REGISTERS)}"

        mnemonic = re.sub(r"\[(.*?)\]", lambda found: str(random.choice(found[1].split(","))), self.mnemonic)
        writes = "rf"["f32" in mnemonic.split(".")[:-1]] if self.writes == "R" else self.writes  # set to f32 or to an integer
        guard = f"@{'!' if random.random() < 0.5 else ''}{operand('p')} " if random.random() < 0.2 else ""
        reads = [operand(pool) for pool in self.reads]
        sign = mnemonic.startswith("copysign") or "xorsign" in mnemonic
        prepared = [without_nan(register) for register in reads] if sign else []  # the sign of a computed NaN is open
        return "\n".join([*prepared, f"{guard}{mnemonic} {'|'.join(map(operand, writes))}, {', '.join(reads)};"])


def without_nan(register: str) -> str:
    """Lines that make a NaN zero (both halves of a pair)."""
    pool = register[1]
    type_ = {"f": "f32", "g": "f64", "k": "f16", "y": "bf16", "m": "f16x2", "n": "bf16x2"}[pool]
    ordered = f"setp.nan.{type_} {'%q2|%q3' if pool in 'mn' else '%q3'}, {register}, {register};"
    both = "\nor.pred %q3, %q2, %q3;" if pool in "mn" else ""
    return f"{ordered}{both}\n@%q3 mov.b{WIDTH[pool]} {register}, 0;"


def ops(table: str) -> list[Op]:
    """The instructions that a table lists."""
    for name, values in _LISTS.items():
        table = re.sub(rf"\b{name}\b", values, table)
    found = []
    for mnemonic, writes, reads in re.findall(r"(\S+)  ?(\S+) (\S+)", table):
        parts = re.split(r"\{(.*?)\}", mnemonic)  # text, choices, text, choices, …
        for chosen in itertools.product(*(part.split(",") if i % 2 else [part] for i, part in enumerate(parts))):
            found.append(Op("".join(chosen), writes, reads))
    return found


CARRY = [  # chains that must not be torn apart
    ["add.cc.u32 %r0, %r1, %r2;", "addc.cc.u32 %r1, %r2, %r3;", "addc.u32 %r4, %r4, 0;"],
    ["sub.cc.u32 %r0, %r1, %r2;", "subc.cc.u32 %r1, %r2, %r3;", "subc.u32 %r4, %r4, 0;"],
    ["sub.cc.u32 %r0, %r1, %r2;", "addc.cc.u32 %r1, %r2, %r3;", "subc.cc.u32 %r2, %r1, %r3;", "addc.u32 %r4, %r4, 0;"],
    ["add.cc.u64 %d0, %d1, %d2;", "addc.u64 %d1, %d2, %d3;"],
    ["sub.cc.s64 %d0, %d1, %d2;", "subc.s64 %d1, %d2, %d3;"],
    ["mad.lo.cc.u32 %r0, %r1, %r2, %r3;", "madc.hi.cc.u32 %r1, %r1, %r2, %r4;", "addc.u32 %r3, 0, 0;"],
]

STRAIGHT_LINE = {"integers": ops(INTEGERS), "floats": ops(FLOATS), "halves": ops(HALVES)}

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
