"""Any matrix product of a warp, by way of memory: `fragments` says where elements go.

The registers are stored, their elements made f32 (i32, f64, words of bits) and put into plain matrices, multiplied row by row, eight columns
at a time, k ascending, fused; the sums go back to registers. One outlined function a form of instruction. What is common and dense has its
own, faster way: `tensor_core`, `mma_group`.
"""

from __future__ import annotations

import numpy as np

from warpwright.cpu import fragments
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.tensor_core import Helper, _Writer
from warpwright.cpu.fragments import Layout
from warpwright.cpu.interpreter import exact, floats

_FLOATS = {"f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}
_ROUNDING = {"rm": 9, "rp": 10, "rz": 11}  # AVX-512's, without exceptions
_ROWS = 4  # rows of a multiplied together, to hide the latency of the sums


def register_kind(type_: str) -> str:
    """The LLVM type of a fragment register of A, B, C or D."""
    return {"f64": "double", "f32": "float"}.get(type_, "i32")


def name_of(slots: dict, exact_mma: bool) -> str:
    parts = [slots["shape"], *(str(slots.get(name) or "f16") for name in "ABCD")]
    parts += [str(slots[name]).replace(":", "") for name in ("alayout", "blayout", "op", "kind", "rnd") if slots.get(name)]
    parts += [name.replace(":", "") for name in ("sp", "sp::ordered_metadata", "satfinite") if slots.get(name)]
    return "@product_" + "_".join(parts) + ("_exact" if exact_mma else "")


def helper(e: Emitter, slots: dict, layouts: list[Layout], name: str, selector: int = 0, exact_mma: bool = False) -> Helper:
    """The function (a…, b…, c…, and of a sparse product the metadata) → d… of a product. layouts: of A, B, C and D."""
    types = [str(slots.get(letter) or "f16") for letter in "ABCD"]
    sparse = bool(slots.get("sp") or slots.get("sp::ordered_metadata"))
    kinds = [f"<32 x {register_kind(type_)}>" for type_ in types]
    parameters = [f"{kind} {letter}{i}" for letter, kind, layout in zip("abc", kinds, layouts, strict=False)
                  for i in range(layout.registers)]
    if sparse:
        parameters.append("<32 x i32> e0")
    made = Helper(name, "{ " + ", ".join([kinds[3]] * layouts[3].registers) + " }", parameters)
    w = _Memory(e, made)
    a, b, c, d = types
    if a == "b1":
        a_kind = b_kind = c_kind = "words"
    elif a == "f64":
        a_kind = b_kind = c_kind = "f64"
    else:
        a_kind, b_kind, c_kind = a, b, "words" if c in ("s32", "f32") else c
    matrices = [w.matrix(letter, kind, layout, register) for letter, kind, layout, register in
                zip("abc", (a_kind, b_kind, c_kind), layouts, kinds, strict=False)]
    at = w.sparse(slots, selector) if sparse else w.table(np.tile(np.arange(layouts[0].columns), layouts[0].rows), "i32")
    sums = w.product(matrices, at, layouts, slots, exact_mma and a in exact.LEAST and b in exact.LEAST)
    results = w.registers(sums, layouts[3], d, kinds[3], bool(slots.get("satfinite")))
    return w.finish(results, kinds[3])


class _Memory(_Writer):
    """Text of a product's function."""

    def __init__(self, e: Emitter, made: Helper):
        super().__init__(made)
        self.e = e
        e.library("matrix")

    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def buffer(self, elements: int, kind: str = "i32") -> str:
        return self.ins(f"alloca [{elements} x {kind}], align 64")

    def gep(self, pointer: str, elements: int, kind: str = "i32") -> str:
        return self.ins(f"getelementptr {kind}, ptr {pointer}, i64 {elements}") if elements else pointer

    def table(self, values: np.ndarray, kind: str) -> str:
        """A constant array, by its contents."""
        return table(self.e, values, kind)

    # ── registers to matrices ────────────────────────────────────────────────────────────────────────────────────

    def store(self, letter: str, count: int, register: str) -> str:
        kind = register[len("<32 x "):-1]
        buffer = self.buffer(32 * count, kind)
        for i in range(count):
            self.do(f"store {register} %{letter}{i}, ptr {self.gep(buffer, 32 * i, kind)}, align 64")
        return buffer

    def matrix(self, letter: str, kind: str, layout: Layout, register: str) -> str:
        """An operand as a plain matrix. kind: the element's type, or words, which need no change."""
        stored, count = self.store(letter, layout.registers, register), layout.places.size
        places = self.table(layout.places.ravel(), "i16")
        if kind == "f64":
            to = self.buffer(layout.size, "double")
            self.do(f"call void {mover(self.e, 'place', 64)}(ptr {stored}, ptr {places}, i64 {count}, ptr {to})")
            return to
        if kind != "words":
            wide = self.buffer(count)
            name, more = f"@matrix_from_{kind}", ""
            if layout.bits <= 8:
                name = "@matrix_from_nibbles" if layout.bits == 4 else "@matrix_from_bytes"
                more = f", ptr {self.table(_values(kind, layout.bits), 'i32')}"
            self.do(f"call void {name}(ptr {stored}, i64 {count}, ptr {wide}{more})")
            stored = wide
        to = self.buffer(layout.size)
        self.do(f"call void {mover(self.e, 'place', 32)}(ptr {stored}, ptr {places}, i64 {count}, ptr {to})")
        return to

    def sparse(self, slots: dict, selector: int) -> str:
        """The row of b for each element of a."""
        told = fragments.metadata(slots, selector)
        base = fragments.where(slots, np.zeros(told.lane.shape, int), told)
        lane, shift = (np.broadcast_to(x, told.lane.shape) for x in (told.lane, told.shift))
        up, down = 0, 0
        if told.elements == 0.5:
            lane, shift, down = lane[:, ::2], shift[:, ::2], 1
        elif told.elements == 2:
            lane, shift, up = lane.repeat(2, 1), shift.repeat(2, 1), 1
        words, to = self.store("e", 1, "<32 x i32>"), self.buffer(base.size)
        tables = ", ".join(f"ptr {self.table(x.ravel(), 'i16')}" for x in (lane, shift, base))
        self.do(f"call void @matrix_where(ptr {words}, {tables}, i32 {up}, i32 {down}, i64 {base.size}, ptr {to})")
        return to

    # ── products ─────────────────────────────────────────────────────────────────────────────────────────────────

    def product(self, matrices: list[str], at: str, layouts: list[Layout], slots: dict, exact_mma: bool) -> str:
        """Multiply; returns the sums' buffer."""
        a, b, sums = matrices
        (m, k), n, count = (layouts[0].rows, layouts[0].columns), layouts[1].columns, layouts[0].count
        if exact_mma:
            self.e.library("exact_mma")
            sizes = [layout.size for layout in layouts[:2]]
            exponents = [self.buffer(size) for size in sizes]
            for values, to, size, letter in zip((a, b), exponents, sizes, "AB", strict=True):
                self.do(f"call void @exact_exponents(ptr {values}, ptr {to}, i64 {size}, i32 {exact.LEAST[slots[letter]]})")
            self.do(f"call void @exact_product(ptr {sums}, ptr {a}, ptr {exponents[0]}, ptr {b}, ptr {exponents[1]}, ptr {at}, "
                    f"i64 {m}, i64 {n}, i64 {k})")
            return sums
        type_ = str(slots.get("A") or "f16")
        how = "float" if type_ in _FLOATS else "double" if type_ == "f64" else str(slots.get("op") or "i32")
        name = multiplier(self.e, how, str(slots.get("rnd") or "rn"))
        element = "double" if type_ == "f64" else "i32"
        start = sums
        if slots.get("satfinite") and type_ not in _FLOATS:
            sums = self.buffer(layouts[2].size)
            self.do(f"store [{layouts[2].size} x i32] zeroinitializer, ptr {sums}, align 64")
        for i in range(count):
            c, x, y = (self.gep(pointer, i * size, element) for pointer, size in ((sums, m * n), (a, m * k), (b, k * n)))
            self.do(f"call void {name}(ptr {c}, ptr {x}, ptr {y}, ptr {at}, i64 {m}, i64 {n}, i64 {k})")
        if start is not sums:
            self.do(f"call void @matrix_add_saturating(ptr {sums}, ptr {start}, i64 {layouts[2].size})")
        return sums

    # ── matrices to registers ────────────────────────────────────────────────────────────────────────────────────

    def registers(self, sums: str, layout: Layout, type_: str, register: str, satfinite: bool) -> list[str]:
        kind, count = register[len("<32 x "):-1], layout.places.size
        places = self.table(layout.places.ravel(), "i16")
        found = self.buffer(count, "double" if type_ == "f64" else "i32")
        if satfinite and type_ in ("f16", "f32"):
            largest = 0x477FE000 if type_ == "f16" else 0x7F7FFFFF
            self.do(f"call void @matrix_finite(ptr {sums}, i64 {layout.size}, i32 {largest})")
        elif type_ != "s32":
            self.do(f"call void @matrix_canonical{'64' if type_ == 'f64' else ''}(ptr {sums}, i64 {layout.size})")
        move = mover(self.e, "fetch", 64 if type_ == "f64" else 32)
        self.do(f"call void {move}(ptr {sums}, ptr {places}, i64 {count}, ptr {found})")
        if type_ == "f16":
            narrow = self.buffer(count // 2)
            self.do(f"call void @matrix_to_f16(ptr {found}, i64 {count}, ptr {narrow})")
            found = narrow
        return [self.ins(f"load {register}, ptr {self.gep(found, 32 * i, kind)}, align 64") for i in range(layout.registers)]


def mover(e: Emitter, how: str, bits: int) -> str:
    """`void (from, places, count, to)`: how = place: to[places[i]] = from[i]; fetch: to[i] = from[places[i]]. Elements of so many bits."""
    name = f"@matrix_{how}{bits}"
    source, target = ("%i", "%at") if how == "place" else ("%at", "%i")
    e.helpers.setdefault(name, f"""
define internal void {name}(ptr %from, ptr %places, i64 %count, ptr %to) noinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %pp = getelementptr i16, ptr %places, i64 %i
  %place = load i16, ptr %pp
  %at = zext i16 %place to i64
  %fp = getelementptr i{bits}, ptr %from, i64 {source}
  %value = load i{bits}, ptr %fp
  %tp = getelementptr i{bits}, ptr %to, i64 {target}
  store i{bits} %value, ptr %tp
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}
""")
    return name


def table(e: Emitter, values: np.ndarray, kind: str) -> str:
    """The name of a constant array."""
    text = ", ".join(f"{kind} {value}" for value in np.asarray(values).tolist())
    for name, known in e.helpers.items():
        if name.startswith("@table") and known.endswith(f"[{text}], align 64\n"):
            return name
    name = f"@table{sum(1 for known in e.helpers if known.startswith('@table'))}"
    e.helpers[name] = f"{name} = private unnamed_addr constant [{len(values)} x {kind}] [{text}], align 64\n"
    return name


def _values(type_: str, bits: int) -> np.ndarray:
    """What each code of a type of up to 8 bits stands for: the bits of an f32, or an i32."""
    codes = range(1 << bits)
    if type_ in floats.FORMATS:
        format_ = floats.FORMATS[type_]
        numbers = [floats.to_float(floats.decode(format_, code & (1 << format_.bits) - 1)) for code in codes]
        return np.array(numbers, np.float32).view(np.int32)
    half = 1 << bits - 1
    return np.array([(code ^ half) - half if type_[0] == "s" else code for code in codes])


def multiplier(e: Emitter, how: str, mode: str = "rn") -> str:
    """`void (c, a, b, where, m, n, k)`: c [m, n] += a [m, k] · b, of which element (i, j) of a meets the row where[i, j]. m a multiple of 4,
    n of 8. how: float, double, i32, or xor, and (c += the number of ones). mode: how doubles are rounded; but to nearest, by AVX-512."""
    name = f"@multiply_{how}" + (f"_{mode}" if mode != "rn" else "")
    if name in e.helpers:
        return name
    kind = how if how in ("float", "double") else "i32"
    vector = f"<8 x {kind}>"
    intrinsic = {"float": "@llvm.fma.v8f32", "double": "@llvm.fma.v8f64", "xor": "@llvm.ctpop.v8i32", "and": "@llvm.ctpop.v8i32"}.get(how)
    rounding = ""
    if mode != "rn":
        intrinsic, rounding = "@llvm.x86.avx512.vfmadd.pd.512", f", i32 {_ROUNDING[mode]}"
        e.declarations[intrinsic] = f"declare {vector} {intrinsic}({vector}, {vector}, {vector}, i32 immarg)"
    elif intrinsic:
        arguments = ", ".join([vector] * (3 if "fma" in intrinsic else 1))
        e.declarations[intrinsic] = f"declare {vector} {intrinsic}({arguments})"
    rows = range(_ROWS)
    lines = [f"define internal void {name}(ptr %c, ptr %a, ptr %b, ptr %where, i64 %m, i64 %n, i64 %k) noinline {{", "entry:",
             "  br label %row", "row:", "  %r = phi i64 [ 0, %entry ], [ %r1, %row.end ]", "  br label %column", "column:",
             "  %col = phi i64 [ 0, %row ], [ %col1, %column.end ]"]
    for i in rows:
        lines += [f"  %r.{i} = add i64 %r, {i}", f"  %ar.{i} = mul i64 %r.{i}, %k", f"  %cr.{i} = mul i64 %r.{i}, %n",
                  f"  %ci.{i} = add i64 %cr.{i}, %col", f"  %cp.{i} = getelementptr {kind}, ptr %c, i64 %ci.{i}",
                  f"  %c.{i} = load {vector}, ptr %cp.{i}, align 4"]
    lines += ["  br label %step", "step:", "  %j = phi i64 [ 0, %column ], [ %j1, %step ]"]
    lines += [f"  %s.{i} = phi {vector} [ %c.{i}, %column ], [ %t.{i}, %step ]" for i in rows]
    for i in rows:
        lines += [f"  %ji.{i} = add i64 %ar.{i}, %j", f"  %wp.{i} = getelementptr i32, ptr %where, i64 %ji.{i}",
                  f"  %w32.{i} = load i32, ptr %wp.{i}", f"  %w.{i} = zext i32 %w32.{i} to i64", f"  %wn.{i} = mul i64 %w.{i}, %n",
                  f"  %bi.{i} = add i64 %wn.{i}, %col", f"  %bp.{i} = getelementptr {kind}, ptr %b, i64 %bi.{i}",
                  f"  %b.{i} = load {vector}, ptr %bp.{i}, align 4", f"  %ap.{i} = getelementptr {kind}, ptr %a, i64 %ji.{i}",
                  f"  %av.{i} = load {kind}, ptr %ap.{i}", f"  %a1.{i} = insertelement {vector} poison, {kind} %av.{i}, i64 0",
                  f"  %a.{i} = shufflevector {vector} %a1.{i}, {vector} poison, <8 x i32> zeroinitializer"]
        if how in ("float", "double"):
            lines.append(f"  %t.{i} = call {vector} {intrinsic}({vector} %a.{i}, {vector} %b.{i}, {vector} %s.{i}{rounding})")
        elif how == "i32":
            lines += [f"  %p.{i} = mul {vector} %a.{i}, %b.{i}", f"  %t.{i} = add {vector} %s.{i}, %p.{i}"]
        else:
            lines += [f"  %x.{i} = {how} {vector} %a.{i}, %b.{i}", f"  %p.{i} = call {vector} {intrinsic}({vector} %x.{i})",
                      f"  %t.{i} = add {vector} %s.{i}, %p.{i}"]
    lines += ["  %j1 = add i64 %j, 1", "  %step.more = icmp ult i64 %j1, %k", "  br i1 %step.more, label %step, label %column.end",
              "column.end:", *(f"  store {vector} %t.{i}, ptr %cp.{i}, align 4" for i in rows), "  %col1 = add i64 %col, 8",
              "  %column.more = icmp ult i64 %col1, %n", "  br i1 %column.more, label %column, label %row.end", "row.end:",
              f"  %r1 = add i64 %r, {_ROWS}", "  %row.more = icmp ult i64 %r1, %m", "  br i1 %row.more, label %row, label %end", "end:",
              "  ret void", "}", ""]
    e.helpers[name] = "\n".join(lines)
    return name
