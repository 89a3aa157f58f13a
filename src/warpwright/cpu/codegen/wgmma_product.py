"""The function that forms one warp's 16 rows of a wgmma, D = ±A · B (+ D), as LLVM IR.

A register of D is 32 lanes: lane 4g + t holds row g (or g + 8) and column 2t (or 2t + 1) of eight columns. Half of one, a *tile*, is four
rows by four columns. For one k a tile grows by (a of its four rows, each four times) × (b of its four columns, four times over): A lies
ready in that form in scratch memory, and four numbers from memory fill a vector at no cost, so nothing is transposed but B. B is
brought from shared memory 16 columns at a time, as the four columns of each tile one after another for each k.

Sums are f32, fused, k ascending, as in the interpreter. 8-bit floats become bf16 on the way, exactly; 8-bit integers become f32, whose sums
over one instruction's k are exact.

The function is `void (ptr frame, ptr arguments)`; arguments: 0 ptr sums, 8 descriptor of A, 16 of B, 24 i32 whether to add to the sums,
28 i32 site, 64 A's four registers, 576 the metadata (32 lanes each); aligned to
16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpwright.cpu.analysis.program import Imm, Op, Vec
from warpwright.cpu.codegen import faults
from warpwright.cpu.codegen.emitter import Host
from warpwright.cpu.codegen.tensor_core import _K_BITS, Helper, _eight_bit_pairs, _Writer
from warpwright.cpu.interpreter import exact
from warpwright.ptx.isa.matrix import shape_of

A_REGISTERS, METADATA, ARGUMENT_BYTES = 64, 576, 704
FP8 = ("e4m3", "e5m2")
_SPLATS = [[4 * (lane // 4) + word for lane in range(16)] for word in range(4)]  # one word of each 16 bytes, in all four places


@dataclass(frozen=True)
class Product:
    """What an instruction computes. a, b, d: element types; k counts the elements of B; sign: of the product; selector: of the metadata;
    a_rows, b_rows: K-major; exact: as the hardware rounds."""

    n: int
    k: int
    d: str
    a: str
    b: str
    a_in_registers: bool
    sparse: bool
    selector: int
    sign: int
    a_rows: bool
    b_rows: bool
    saturate: bool
    exact: bool

    @classmethod
    def of(cls, op: Op, exact_mma: bool) -> Product:
        def constant(name: str, otherwise: int) -> int:
            arg = op.args.get(name)
            return arg.value if isinstance(arg, Imm) else otherwise

        _, n, k = shape_of(op.slots["shape"])
        return cls(n, k, op.slots["D"], op.slots["A"], op.slots["B"], isinstance(op.args["a"], Vec), bool(op.get("sp")),
                   constant("selector", 0), constant("scale_a", 1) * constant("scale_b", 1), not constant("trans_a", 0),
                   not constant("trans_b", 0), bool(op.get("satfinite")), exact_mma and op.slots["A"] in FP8)

    @property
    def name(self) -> str:
        words = [f"@wgmma_n{self.n}k{self.k}", self.d, self.a, self.b, "r" if self.a_in_registers else "s"]
        words += [f"sp{self.selector}"] * self.sparse + ["minus"] * (self.sign < 0) + ["ta"] * (not self.a_rows) + ["tb"] * (not self.b_rows)
        return "_".join(words + ["sat"] * self.saturate + ["exact"] * self.exact)

    @property
    def bits(self) -> int:
        return 1 if self.a == "b1" else _K_BITS[self.a]

    @property
    def steps(self) -> int:
        """Values of k as the kernel counts them: of b1, words."""
        return self.k // 32 if self.bits == 1 else self.k

    @property
    def stored(self) -> int:
        """Elements in a row of A, as it is stored."""
        return self.k // 2 if self.sparse else self.k

    @property
    def kind(self) -> str:
        """LLVM type of what A, B and the sums are while they are multiplied."""
        return "i32" if self.bits == 1 else "float"


def helper(product: Product, host: Host) -> Helper:
    found = Helper(product.name, "void", [])
    w = _Function(found, product, host)
    w.write()
    head = f"define internal void {found.name}(ptr %frame, ptr %args) noinline nounwind {{\nentry:"
    found.text = "\n".join([head, *w.entry, *w.lines, "}", ""])
    return found


@dataclass(frozen=True)
class _Matrix:
    """A descriptor's fields as i32 values. chunks: of 16 bytes, in a line of the swizzle; shift: their logarithm; swizzled: i1."""

    start: str
    leading: str
    stride: str
    base: str
    chunks: str
    shift: str
    swizzled: str


class _Function(_Writer):
    def __init__(self, helper: Helper, product: Product, host: Host):
        super().__init__(helper)
        self.product, self.host = product, host
        self.groups = 2 if host.avx512 else 1  # of eight columns, at a time
        self.tiles = 4 if host.avx512 else 2  # of four rows, at a time
        self.entry: list[str] = []
        self.block = "entry"

    # ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def room(self, name: str, size: int) -> str:
        """Memory of the function's own."""
        self.entry.append(f"  %{name} = alloca [{size} x i8], align 64")
        return f"%{name}"

    def at(self, base: str, offset: int | str) -> str:
        return self.ins(f"getelementptr i8, ptr {base}, i64 {offset}") if offset != 0 else base

    def load(self, kind: str, base: str, offset: int | str = 0, align: int = 16) -> str:
        return self.ins(f"load {kind}, ptr {self.at(base, offset)}, align {align}")

    def store(self, kind: str, value: str, base: str, offset: int | str = 0, align: int = 16) -> None:
        self.do(f"store {kind} {value}, ptr {self.at(base, offset)}, align {align}")

    def settle(self, *bases: str) -> None:
        """What was stored is in memory: LLVM must not carry it over to the loads as shuffles."""
        self.do(f'call void asm sideeffect "", "{"r," * len(bases)}~{{memory}}"({", ".join(f"ptr {base}" for base in bases)})')

    def splat(self, value: str, count: int, kind: str = "i32") -> str:
        if not value.startswith("%"):
            return f"splat ({kind} {value})"
        one = self.ins(f"insertelement <{count} x {kind}> poison, {kind} {value}, i64 0")
        return self.shuffle(kind, one, [0] * count, None, count)

    def vector(self, values: Sequence[int]) -> str:
        return f"<{', '.join(f'i32 {value}' for value in values)}>"

    def join(self, parts: Sequence[str], kind: str, count: int) -> str:
        """One vector of several of `count`."""
        parts = list(parts)
        while len(parts) > 1:
            parts = [self.shuffle(kind, x, range(2 * count), y, count) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            count *= 2
        return parts[0]

    # ── the whole ────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self) -> None:
        p = self.product
        self.sums = self.load("ptr", "%args", align=8)
        self.adds = self.ins(f"icmp ne i32 {self.load('i32', '%args', 24, 4)}, 0")
        self.site = self.load("i32", "%args", 28, 4)
        self.shared = self.load("ptr", "%frame", 8, 8)
        size = self.load("i64", "%frame", 16, 8)
        self.limit = self.ins(f"trunc i64 {self.call('i64', '@llvm.umin.i64', ('i64', size), ('i64', str(1 << 30)))} to i32")
        warp = self.load("i32", "%frame", 68, 4)
        self.warp = self.ins(f"and i32 {warp}, 3")
        self.a_room = self.room("a", p.steps * 256)
        self.masks = self.room("masks", p.steps * 8) if p.sparse and p.kind == "float" else None
        self.b_room = self.room("b", p.steps * 32 * self.groups)
        self.exact_rooms = {name: self.room(name, size) for name, size in self.exact_sizes().items()}
        self.table = self.room("table", 64 * 8)
        self.bring_a()
        self.b = self.descriptor(16)
        across = p.k if not p.b_rows else 8 * self.groups
        self.b_lines = self.line_terms(self.b, [_column(place) if p.b_rows else place for place in range(across)], p.b_rows)
        whole, rest = divmod(p.n // 8, self.groups)
        if whole:
            self.do("br label %columns")
            before = self.block
            self.start("columns")
            self.do(f"%i = phi i32 [ 0, %{before} ], [ %i.next, %columns.end ]")
            self.columns("%i", self.groups)
            self.do("br label %columns.end")
            self.start("columns.end")
            self.do("%i.next = add i32 %i, 1")
            self.do(f"%more = icmp ult i32 %i.next, {whole}")
            self.do("br i1 %more, label %columns, label %rest")
            self.start("rest")
        if rest:
            self.columns(str(whole), 1)
        self.do("ret void")

    # ── where chunks lie ─────────────────────────────────────────────────────────────────────────────────────────

    def descriptor(self, offset: int) -> _Matrix:
        bits = self.load("i64", "%args", offset, 8)

        def field(shift: int, mask: int, left: int = 0) -> str:
            value = self.ins(f"lshr i64 {bits}, {shift}") if shift else bits
            value = self.ins(f"shl i64 {value}, {left}") if left else value
            return self.ins(f"trunc i64 {self.ins(f'and i64 {value}, {mask}')} to i32")

        start, leading, stride, base, code = (field(0, 0x3FFF0, 4), field(12, 0x3FFF0), field(28, 0x3FFF0), field(49, 7), field(62, 3))
        swizzled = self.ins(f"icmp ne i32 {code}, 0")
        shift = self.ins(f"select i1 {swizzled}, i32 {self.ins(f'sub i32 4, {code}')}, i32 0")
        return _Matrix(start, leading, stride, base, self.ins(f"shl i32 1, {shift}"), shift, swizzled)

    def line_terms(self, m: _Matrix, across: Sequence[int], k_major: bool) -> list[str]:
        """What the position across the chunks adds to their addresses: vectors of 16 (or of fewer)."""
        further = m.stride if k_major else self.ins(f"select i1 {m.swizzled}, i32 {m.stride}, i32 {m.leading}")
        width = self.ins(f"shl i32 {m.chunks}, 4")
        terms = []
        for part in (across[i:i + 16] for i in range(0, len(across), 16)):
            kind = f"<{len(part)} x i32>"
            lines = self.ins(f"mul {kind} {self.splat(width, len(part))}, {self.vector([place % 8 for place in part])}")
            eights = self.ins(f"mul {kind} {self.splat(further, len(part))}, {self.vector([place // 8 for place in part])}")
            both = self.ins(f"add {kind} {lines}, {eights}")
            terms.append(self.ins(f"add {kind} {both}, {self.splat(m.start, len(part))}"))
        return terms

    def along(self, m: _Matrix, chunk: str, k_major: bool) -> str:
        """What the chunk's place in its own direction adds."""
        if k_major:
            step = self.ins(f"select i1 {m.swizzled}, i32 16, i32 {m.leading}")
            return self.ins(f"mul i32 {step}, {chunk}")
        inside = self.ins(f"and i32 {chunk}, {self.ins(f'sub i32 {m.chunks}, 1')}")
        inside = self.ins(f"shl i32 {inside}, 4")
        whole = self.ins(f"mul i32 {self.ins(f'lshr i32 {chunk}, {m.shift}')}, {m.leading}")
        plain = self.ins(f"mul i32 {chunk}, {m.stride}")
        return self.ins(f"select i1 {m.swizzled}, i32 {self.ins(f'add i32 {inside}, {whole}')}, i32 {plain}")

    def pointers(self, m: _Matrix, terms: Sequence[str], count: int, more: Sequence[str]) -> list[list[str]]:
        """For each value to add in `more`, pointers to the chunks of all terms; faults where one is not in shared memory."""
        vectors, outside = [], None
        for extra in more:
            for term in terms:
                kind = f"<{count} x i32>"
                address = self.ins(f"add {kind} {term}, {self.splat(extra, count)}")
                line = self.ins(f"sub {kind} {self.ins(f'lshr {kind} {address}, splat (i32 7)')}, {self.splat(m.base, count)}")
                turn = self.ins(f"and {kind} {line}, {self.splat(self.ins(f'sub i32 {m.chunks}, 1'), count)}")
                address = self.ins(f"xor {kind} {address}, {self.ins(f'shl {kind} {turn}, splat (i32 4)')}")
                end = self.ins(f"add {kind} {address}, splat (i32 16)")
                bad = self.ins(f"icmp ugt {kind} {end}, {self.splat(self.limit, count)}")
                outside = bad if outside is None else self.ins(f"or <{count} x i1> {outside}, {bad}")
                vectors.append(address)
        any_ = self.call("i1", f"@llvm.vector.reduce.or.v{count}i1", (f"<{count} x i1>", outside or ""))
        self.count += 1
        good, fault = f"inside{self.count}", f"outside{self.count}"
        self.do(f"br i1 {any_}, label %{fault}, label %{good}, !prof !1")
        self.start(fault)
        furthest = vectors[0]
        for other in vectors[1:]:
            furthest = self.call(f"<{count} x i32>", f"@llvm.umax.v{count}i32", (f"<{count} x i32>", furthest), (f"<{count} x i32>", other))
        last = self.call("i32", f"@llvm.vector.reduce.umax.v{count}i32", (f"<{count} x i32>", furthest))
        last = self.ins(f"zext i32 {last} to i64")
        self.do(f"call void @fault(ptr %frame, i64 {last}, i32 {self.site}, i32 0, i32 {faults.SHARED}, i32 16)")
        self.do("unreachable")
        self.start(good)
        for i, vector in enumerate(vectors):
            self.store(f"<{count} x i32>", vector, self.table, 4 * count * i)
        self.settle(self.table)
        found: list[list[str]] = []
        place = 0
        for _ in more:
            found.append([])
            for _ in range(count * len(terms)):
                offset = self.ins(f"zext i32 {self.load('i32', self.table, 4 * place, 4)} to i64")
                found[-1].append(self.at(self.shared, offset))
                place += 1
        return found

    # ── elements ─────────────────────────────────────────────────────────────────────────────────────────────────

    def widen(self, vectors: list[str], count: int, type_: str) -> tuple[list[list[str]], str]:
        """Vectors of 16-byte chunks as chunks of elements that `element` knows: for each half of the k, vectors; and their type."""
        if type_ not in FP8:
            return [vectors], type_
        together = 32 // count
        halves: list[list[str]] = [[], []]
        for first in range(0, len(vectors), together):
            whole = self.join(vectors[first:first + together], "i32", count)
            for one, part in zip(halves, _eight_bit_pairs(self, whole, type_, self.host), strict=True):
                one += [self.shuffle("i32", part, range(i, i + count)) for i in range(0, 32, count)]
        return halves, "bf16"

    def element(self, words: str, part: int, count: int, type_: str) -> str:
        """Element `part` of each 32-bit word, as f32 (b1: the word)."""
        i, f = f"<{count} x i32>", f"<{count} x float>"
        match type_:
            case "b1":
                return words
            case "tf32":
                words = self.ins(f"and {i} {words}, splat (i32 -8192)")
            case "bf16":
                words = self.ins(f"and {i} {words}, splat (i32 -65536)" if part else f"shl {i} {words}, splat (i32 16)")
            case "f16":
                words = self.ins(f"lshr {i} {words}, splat (i32 16)") if part else words
                half = self.ins(f"bitcast <{count} x i16> {self.ins(f'trunc {i} {words} to <{count} x i16>')} to <{count} x half>")
                return self.ins(f"fpext <{count} x half> {half} to {f}")
            case _:
                words = self.ins(f"shl {i} {words}, splat (i32 {24 - 8 * part})") if part < 3 else words
                words = self.ins(f"{'ashr' if type_ == 's8' else 'lshr'} {i} {words}, splat (i32 24)")
                return self.ins(f"sitofp {i} {words} to {f}")
        return self.ins(f"bitcast {i} {words} to {f}")

    # ── A ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def bring_a(self) -> None:
        """A in scratch memory: for each k four tiles' rows, each element four times."""
        p = self.product
        stored: dict[tuple[int, int], str] = {}  # (stored k, tile) → its vector
        if p.a_in_registers or p.a_rows:
            self.rows_of_a(stored)
        else:
            self.columns_of_a(stored)
        if p.exact:
            self.exact_a(stored)
        elif p.sparse:
            self.spread_out(stored)
        else:
            for (k, tile), value in stored.items():
                self.store(f"<16 x {p.kind}>", value, self.a_room, 64 * (4 * k + tile), 64)
        self.settle(self.a_room, *([self.masks] if self.masks else []))

    def rows_of_a(self, stored: dict[tuple[int, int], str]) -> None:
        p = self.product
        chunks: list[list[str]] = []  # [chunk][tile]
        if p.a_in_registers:
            for chunk in range(2):
                places = [A_REGISTERS + 128 * (2 * chunk + tile // 2) + 64 * (tile % 2) for tile in range(4)]
                chunks.append([self.load("<16 x i32>", "%args", place) for place in places])
        else:
            m = self.descriptor(8)
            further = self.ins(f"mul i32 {self.ins(f'shl i32 {self.warp}, 1')}, {m.stride}")
            (terms,) = self.line_terms(m, range(16), True)
            more = [self.ins(f"add i32 {further}, {self.along(m, str(chunk), True)}") for chunk in range(2)]
            for rows in self.pointers(m, [terms], 16, more):
                chunks.append([self.join([self.load("<4 x i32>", rows[4 * tile + i]) for i in range(4)], "i32", 4) for tile in range(4)])
        k = 0
        for vectors in chunks:
            halves, type_ = self.widen(vectors, 16, p.a)
            for half in halves:
                per_word = _per_word(type_)
                for word in range(4):
                    for tile, vector in enumerate(half):
                        words = self.shuffle("i32", vector, _SPLATS[word], None, 16)
                        for part in range(per_word):
                            stored[k + part, tile] = self.signed(self.element(words, part, 16, type_))
                    k += per_word

    def columns_of_a(self, stored: dict[tuple[int, int], str]) -> None:
        p = self.product
        m = self.descriptor(8)
        terms = self.line_terms(m, range(p.stored), False)
        first = self.ins(f"shl i32 {self.warp}, 1")
        more = [self.along(m, first, False), self.along(m, self.ins(f"add i32 {first}, 1"), False)]
        for upper, steps in enumerate(self.pointers(m, terms, 16, more)):
            for k, pointer in enumerate(steps):
                eight = self.ins(f"zext <8 x i16> {self.load('<8 x i16>', pointer)} to <8 x i32>")
                eight = self.element(eight, 0, 8, p.a)
                for half in range(2):
                    value = self.shuffle("float", eight, [4 * half + lane // 4 for lane in range(16)], None, 8)
                    stored[k, 2 * upper + half] = self.signed(value)

    def signed(self, value: str) -> str:
        return self.ins(f"fneg <16 x float> {value}") if self.product.sign < 0 else value

    def spread_out(self, stored: dict[tuple[int, int], str]) -> None:
        """A sparse A, where its elements belong, with zeros between; and which lanes of each vector are elements."""
        p = self.product
        i = "<16 x i32>"
        group, kept = self.granule
        for tile in range(4):
            for first in range(0, p.k, group):
                places = self.places(tile, first)
                for place in range(group):
                    value, taken = "zeroinitializer", "zeroinitializer"
                    for which, where in enumerate(places):
                        here = self.ins(f"icmp eq {i} {where}, splat (i32 {place})")
                        own = stored[first // group * kept + which, tile]
                        value = self.ins(f"select <16 x i1> {here}, <16 x float> {own}, <16 x float> {value}")
                        taken = self.ins(f"or <16 x i1> {taken}, {here}")
                    k = first + place
                    self.store("<16 x float>", value, self.a_room, 64 * (4 * k + tile), 64)
                    self.store("<16 x i1>", taken, self.masks or "", 2 * (4 * k + tile), 2)

    @property
    def granule(self) -> tuple[int, int]:
        """Of how many elements of A how many are stored."""
        return (2, 1) if self.product.bits == 32 else (4, 2)

    def places(self, tile: int, first: int) -> list[str]:
        """Where in the granule that begins at k = first each of a tile's stored elements belongs."""
        p = self.product
        i, (group, kept) = "<16 x i32>", self.granule
        lanes = self.load(i, "%args", METADATA + 64 * (tile % 2))
        half, inside = divmod(first // group, p.k // group // 2)
        if p.bits == 8:
            word, shift = 2 * half + tile // 2, 4 * inside
        else:
            word, shift = 2 * p.selector + half, 16 * (tile // 2) + 4 * inside
        bits = self.shuffle("i32", lanes, _SPLATS[word], None, 16)
        found = []
        for which in range(kept):
            by, mask = (shift + 3, 1) if group == 2 else (shift + 2 * which, 3)
            moved = self.ins(f"lshr {i} {bits}, splat (i32 {by})") if by else bits
            found.append(self.ins(f"and {i} {moved}, splat (i32 {mask})"))
        return found

    # ── B ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def columns(self, block: str, groups: int) -> None:
        """8 · groups columns, from the block's number (in units of self.groups groups)."""
        p = self.product
        group = self.ins(f"mul i32 {block}, {self.groups}")
        if p.b_rows:
            self.b_by_rows(group, groups)
        else:
            self.b_by_columns(group, groups)
        self.settle(self.b_room)
        per_group = 2 if p.d == "f16" else 4
        offset = self.ins(f"zext i32 {self.ins(f'mul i32 {group}, {128 * per_group}')} to i64")
        sums = self.at(self.sums, offset)
        if p.exact:
            self.multiply_exactly(sums, groups)
            return
        for first in range(0, 4, self.tiles):
            self.multiply(sums, groups, range(first, first + self.tiles))

    def b_by_rows(self, group: str, groups: int) -> None:
        p = self.product
        count = 8 * groups
        further = self.ins(f"mul i32 {group}, {self.b.stride}")
        more = [self.ins(f"add i32 {further}, {self.along(self.b, str(chunk), True)}") for chunk in range(p.k * p.bits // 128)]
        terms = self.b_lines[0]
        if count < 8 * self.groups:
            terms = self.shuffle("i32", terms, range(count), None, 8 * self.groups)
        k = 0
        for rows in self.pointers(self.b, [terms], count, more):
            quads = [self.join([self.load("<4 x i32>", rows[4 * quad + i]) for quad in range(count // 4)], "i32", 4) for i in range(4)]
            halves, type_ = self.widen(quads, count, p.b)
            for half in halves:
                for words in self.transpose(half, count):
                    for part in range(_per_word(type_)):
                        self.store(f"<{count} x {p.kind}>", self.element(words, part, count, type_), self.b_room, 4 * count * k, 32)
                        k += 1

    def transpose(self, x: list[str], count: int) -> list[str]:
        """Four vectors transposed inside each four words: out[w] in place z is x[z] in place w."""
        def unpack(a: str, b: str, width: int, high: int) -> str:
            places = {1: ((0, count, 1, count + 1), (2, count + 2, 3, count + 3)),
                      2: ((0, 1, count, count + 1), (2, 3, count + 2, count + 3))}[width][high]
            return self.shuffle("i32", a, [4 * quad + place for quad in range(count // 4) for place in places], b, count)

        t = [unpack(x[i], x[i + 1], 1, high) for i in (0, 2) for high in (0, 1)]
        return [unpack(t[0], t[2], 2, 0), unpack(t[0], t[2], 2, 1), unpack(t[1], t[3], 2, 0), unpack(t[1], t[3], 2, 1)]

    def b_by_columns(self, group: str, groups: int) -> None:
        p = self.product
        more = [self.along(self.b, self.ins(f"add i32 {group}, {i}"), False) for i in range(groups)]
        for i, steps in enumerate(self.pointers(self.b, self.b_lines, 16, more)):
            for k, pointer in enumerate(steps):
                words = self.load("<4 x i32>", pointer)
                for part in range(2):
                    self.store("<4 x float>", self.element(words, part, 4, p.b), self.b_room, 32 * groups * k + 32 * i + 16 * part)

    # ── the product ──────────────────────────────────────────────────────────────────────────────────────────────

    def multiply(self, sums: str, groups: int, tiles: Sequence[int]) -> None:
        """sums += A · B for the columns whose B is in scratch memory, and for some tiles of rows."""
        p = self.product
        places = [(group, odd, tile) for group in range(groups) for odd in range(2) for tile in tiles]
        kind = f"<16 x {p.kind}>"
        start = dict.fromkeys(places, f"splat ({p.kind} {'0' if p.kind == 'i32' else '0.0'})")
        if p.d in ("f32", "f16"):
            start = {place: self.added(sums, place) for place in places}
        self.count += 1
        label, before = f"k{self.count}", self.block
        self.do(f"br label %{label}")
        self.start(label)
        number, phis = f"%{label}.i", len(self.lines)
        names = {place: f"%{label}.s{i}" for i, place in enumerate(places)}
        totals = dict(names)
        a = self.at(self.a_room, self.ins(f"shl i64 {number}, 8"))
        b = self.at(self.b_room, self.ins(f"mul i64 {number}, {32 * groups}"))
        masks = self.at(self.masks, self.ins(f"shl i64 {number}, 3")) if self.masks else None
        for k in range(2):
            columns = {}
            for group in range(groups):
                for odd in range(2):
                    four = self.load(f"<4 x {p.kind}>", b, 32 * groups * k + 32 * group + 16 * odd)
                    columns[group, odd] = self.shuffle(p.kind, four, list(range(4)) * 4, None, 4)
            for tile in tiles:
                rows = self.load(kind, a, 64 * (4 * k + tile), 64)
                taken = self.load("<16 x i1>", masks, 2 * (4 * k + tile), 2) if masks else None
                for (group, odd), column in columns.items():
                    place = group, odd, tile
                    totals[place] = self.grow(totals[place], rows, column, taken)
        heads = [f"  {names[place]} = phi {kind} [ {start[place]}, %{before} ], [ {totals[place]}, %{label} ]" for place in places]
        self.lines[phis:phis] = [f"  {number} = phi i64 [ 0, %{before} ], [ {number}.next, %{label} ]", *heads]
        self.do(f"{number}.next = add i64 {number}, 2")
        self.do(f"%{label}.more = icmp ult i64 {number}.next, {p.steps}")
        self.do(f"br i1 %{label}.more, label %{label}, label %{label}.out")
        self.start(f"{label}.out")
        self.put(sums, totals)

    def grow(self, total: str, rows: str, column: str, taken: str | None) -> str:
        if self.product.kind == "i32":
            common = self.ins(f"and <16 x i32> {rows}, {column}")
            return self.ins(f"add <16 x i32> {total}, {self.call('<16 x i32>', '@llvm.ctpop.v16i32', ('<16 x i32>', common))}")
        f = "<16 x float>"
        more = self.call(f, "@llvm.fma.v16f32", (f, rows), (f, column), (f, total))
        return self.ins(f"select <16 x i1> {taken}, {f} {more}, {f} {total}") if taken else more

    # ── as the hardware rounds (library/exact_mma.ll) ────────────────────────────────────────────────────────────

    def exact_sizes(self) -> dict[str, int]:
        """Bytes of plain matrices: A, its exponents, the k of its elements; the exponents of B; the sums."""
        p = self.product
        if not p.exact:
            return {}
        rows = 64 * p.stored
        return {"exact.a": rows, "exact.ea": rows, "exact.where": rows, "exact.eb": 32 * self.groups * p.k, "exact.c": 512 * self.groups}

    def exact_a(self, stored: dict[tuple[int, int], str]) -> None:
        """A as plain rows of what is stored, their exponents, and the row of B for each element."""
        p, rooms = self.product, self.exact_rooms
        group, kept = self.granule
        where = {(k, tile): f"splat (i32 {k})" for k in range(p.stored) for tile in range(4)}
        if p.sparse:
            for tile in range(4):
                for first in range(0, p.k, group):
                    for which, place in enumerate(self.places(tile, first)):
                        where[first // group * kept + which, tile] = self.ins(f"add <16 x i32> {place}, splat (i32 {first})")
        for kind, values, to in (("float", stored, "exact.a"), ("i32", where, "exact.where")):
            for (k, tile), value in values.items():
                self.store(f"<16 x {kind}>", value, self.a_room, 64 * (4 * k + tile), 64)
            self.do(f"call void @wgmma_plain(ptr {self.a_room}, ptr {rooms[to]}, i64 {p.stored})")
        self.do(f"call void @exact_exponents(ptr {rooms['exact.a']}, ptr {rooms['exact.ea']}, i64 {16 * p.stored}, i32 {exact.LEAST[p.a]})")

    def multiply_exactly(self, sums: str, groups: int) -> None:
        p, rooms = self.product, self.exact_rooms
        places = [(group, odd, tile) for group in range(groups) for odd in range(2) for tile in range(4)]

        def piece(place: tuple[int, int, int], row: int) -> int:
            group, odd, tile = place
            return 4 * ((4 * tile + row) * 8 * groups + 8 * group + 4 * odd)

        for place in places:
            value = self.added(sums, place)
            for row in range(4):
                part = self.shuffle("float", value, range(4 * row, 4 * row + 4), None, 16)
                self.store("<4 x float>", part, rooms["exact.c"], piece(place, row))
        self.do(f"call void @exact_exponents(ptr {self.b_room}, ptr {rooms['exact.eb']}, i64 {8 * groups * p.k}, i32 {exact.LEAST[p.b]})")
        self.do(f"call void @exact_product(ptr {rooms['exact.c']}, ptr {rooms['exact.a']}, ptr {rooms['exact.ea']}, ptr {self.b_room}, "
                f"ptr {rooms['exact.eb']}, ptr {rooms['exact.where']}, i64 16, i64 {8 * groups}, i64 {p.stored})")
        totals = {place: self.join([self.load("<4 x float>", rooms["exact.c"], piece(place, row)) for row in range(4)], "float", 4)
                  for place in places}
        self.put(sums, totals)

    def place_of(self, place: tuple[int, int, int]) -> int:
        """Where a tile's sums begin, in bytes. f16: those of the even and the odd columns share words."""
        group, odd, tile = place
        registers = 2 * group + tile // 2 if self.product.d == "f16" else 4 * group + 2 * (tile // 2) + odd
        return 128 * registers + 64 * (tile % 2)

    def added(self, sums: str, place: tuple[int, int, int]) -> str:
        """What a tile's sums start from, as f32 or i32."""
        p = self.product
        if p.d == "f32":
            value = self.load("<16 x float>", sums, self.place_of(place), 64)
        else:
            value = self.load("<16 x i32>", sums, self.place_of(place), 64)
            value = self.element(value, place[1], 16, "f16") if p.d == "f16" else value
        kind = "<16 x i32>" if p.d == "s32" else "<16 x float>"
        return self.ins(f"select i1 {self.adds}, {kind} {value}, {kind} zeroinitializer")

    def put(self, sums: str, totals: dict[tuple[int, int, int], str]) -> None:
        p = self.product
        i = "<16 x i32>"
        for place, total in totals.items():
            if p.d == "f32":
                self.store("<16 x float>", total, sums, self.place_of(place), 64)
            elif p.d == "s32":
                value = self.ins(f"fptosi <16 x float> {total} to {i}") if p.kind == "float" else total
                old = self.added(sums, place)
                value = self.call(i, "@llvm.sadd.sat.v16i32", (i, old), (i, value)) if p.saturate else self.ins(f"add {i} {old}, {value}")
                self.store(i, value, sums, self.place_of(place), 64)
            elif place[1] == 0:
                halves = []
                for value in (total, totals[place[0], 1, place[2]]):
                    half = self.ins(f"bitcast <16 x half> {self.ins(f'fptrunc <16 x float> {value} to <16 x half>')} to <16 x i16>")
                    halves.append(self.ins(f"zext <16 x i16> {half} to {i}"))
                word = self.ins(f"or {i} {halves[0]}, {self.ins(f'shl {i} {halves[1]}, splat (i32 16)')}")
                self.store(i, word, sums, self.place_of(place), 64)


def _per_word(type_: str) -> int:
    return {"b1": 1, "tf32": 1, "f16": 2, "bf16": 2}.get(type_, 4)


def _column(place: int) -> int:
    """The column that stands at a place of scratch memory: of each eight, first the even ones, then the odd ones."""
    return place // 8 * 8 + place % 4 * 2 + place // 4 % 2
