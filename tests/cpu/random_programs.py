"""Random PTX programs for differential tests: straight-line code, branches, memory, lanes, barriers, atomics."""

from __future__ import annotations

import re

import numpy as np
from random_instructions import CARRY, DECLARED, REGISTERS, SLOT, SLOTS, WIDTH, Op

# ── programs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def kernel(body: list[str], *, version: str = "8.7", target: str = "sm_90a", declarations: str = "") -> str:
    """A kernel `program(in, out)` around a body: it loads the registers that the body uses, and stores them after it (see `pack`).
    %t0 is the thread's number in the grid, %t3 in the CTA."""
    used = set(re.findall(r"%[a-z]\d", "\n".join(body)))
    slots = [(number, pool, i) for number, (pool, i) in enumerate(SLOTS) if f"%{pool}{i}" in used]
    lines = [
        f".version {version}",
        f".target {target}",
        ".address_size 64",
        ".visible .entry program(.param .u64 in, .param .u64 out) {",
        "  .reg .b32 %t<8>;",
        "  .reg .b64 %a<8>;",
        "  .reg .pred %q<8>;",
        *(f"  .reg .{type_} %{pool}<{REGISTERS}>;" for pool, type_ in DECLARED.items()),
        declarations,
        "  mov.u32 %t1, %ctaid.x;",
        "  mov.u32 %t2, %ntid.x;",
        "  mov.u32 %t3, %tid.x;",
        "  mad.lo.u32 %t0, %t1, %t2, %t3;",
        "  ld.param.u64 %a0, [in];",
        "  ld.param.u64 %a1, [out];",
    ]
    for number, pool, i in slots:
        bits = WIDTH[pool]
        lines += [f"  mul.wide.u32 %a2, %t0, {bits // 8};", "  add.s64 %a2, %a0, %a2;"]
        if pool == "p":
            lines += [f"  ld.global.u8 %t4, [%a2+{number * SLOT}];", f"  setp.ne.u32 %p{i}, %t4, 0;"]
        else:
            lines.append(f"  ld.global.b{bits} %{pool}{i}, [%a2+{number * SLOT}];")
    lines += ["  " + line for line in body]
    for number, pool, i in slots:
        bits = WIDTH[pool]
        lines += [f"  mul.wide.u32 %a2, %t0, {bits // 8};", "  add.s64 %a2, %a1, %a2;"]
        if pool == "p":
            lines += [f"  selp.u32 %t4, 1, 0, %p{i};", f"  st.global.u8 [%a2+{number * SLOT}], %t4;"]
        else:
            lines.append(f"  st.global.b{bits} [%a2+{number * SLOT}], %{pool}{i};")
    return "\n".join([*lines, "  ret;", "}"])


def straight_line(choices: list[tuple[int, int]], templates: list[Op]) -> list[str]:
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
_SIMPLE = [
    Op("add.u32", "r", "rr"),
    Op("xor.b32", "r", "rr"),
    Op("mul.lo.u32", "r", "r&"),
    Op("add.u32", "r", "r#"),
    Op("sub.u32", "r", "rr"),
    Op("shl.b32", "r", "r#"),
    Op("setp.lt.u32", "p", "rr"),
    Op("setp.gt.s32", "p", "r&"),
    Op("selp.b32", "r", "rrp"),
    Op("add.u64", "d", "dd"),
    Op("cvt.u64.u32", "d", "r"),
    Op("cvt.u32.u64", "r", "d"),
    Op("fma.rn.f32", "f", "fff"),
    Op("min.f32", "f", "ff"),
    Op("xor.pred", "p", "pp"),
    Op("mad.lo.s32", "r", "rrr"),
]


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
                lines += [
                    f"{self.predicate()} bra {other};",
                    *self.block(depth - 1, leave),
                    f"bra {after};",
                    f"{other}:",
                    *self.block(depth - 1, leave),
                    f"{after}:",
                ]
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
        return [
            trips,
            f"{top}:",
            *self.block(depth - 1, (again, end)),
            f"{again}:",
            f"sub.u32 {counter}, {counter}, 1;",
            f"setp.gt.s32 {counter}p, {counter}, 0;",
            f"@{counter}p bra {top};",
            f"{end}:",
        ]


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
    body = [
        "ld.param.u64 %a3, [in];",
        "mov.u64 %a4, room;",
        "cvta.local.u64 %a4, %a4;",
        "mov.u32 %t6, tile;",
        "mad.lo.u32 %t6, %t3, 64, %t6;",
        "cvt.u64.u32 %a5, %t6;",
        "cvta.shared.u64 %a5, %a5;",
    ]
    for _ in range(count):
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
        index = {
            "own": ["mov.u32 %t7, %t0;"],
            "stride": [f"mul.lo.u32 %t7, %t0, {random.integers(2, 9)};"],
            "same": [f"mov.u32 %t7, {random.integers(0, limit)};"],
            "scatter": [f"mad.lo.u32 %t7, %t0, {random.integers(1, 2**20) | 1}, %r0;"],
            "reverse": ["sub.u32 %t7, 1000, %t0;"],
        }[str(pattern)]
        where = random.choice(["global", "global", "local", "shared", "generic local", "generic shared"])
        if where == "global":
            space = str(random.choice(["global", "global.nc", "generic", "volatile.global"]))
            ld = {"generic": "ld", "global": "ld.global", "global.nc": "ld.global.nc", "volatile.global": "ld.volatile.global"}[space]
            body += [
                *index,
                f"and.b32 %t7, %t7, {limit - 1};",
                f"mul.wide.u32 %a6, %t7, {size};",
                "add.s64 %a6, %a3, %a6;",
                f"{guard}{ld}.{kind} {operand}, [%a6];",
            ]
        else:
            base, suffix = {
                "local": ("%a7", ".local"),
                "shared": ("%t7", ".shared"),
                "generic local": ("%a4", ""),
                "generic shared": ("%a5", ""),
            }[str(where)]
            offset = size * int(random.integers(0, 64 // size))
            prepare = {"%a7": ["mov.u64 %a7, room;"], "%t7": ["mov.u32 %t7, %t6;"]}.get(base, [])
            source = operand
            load_offset = size * int(random.integers(0, 64 // size))
            body += [
                *prepare,
                f"{guard}st{suffix}.{kind} [{base}+{offset}], {source};",
                f"ld{suffix}.{kind} {operand}, [{base}+{load_offset}];",
            ]
    zero = [f"st.local.b64 [room+{8 * i}], 0;" for i in range(8)]
    shared_zero = ["mov.u32 %t6, tile;", "mad.lo.u32 %t6, %t3, 64, %t6;", *(f"st.shared.b64 [%t6+{8 * i}], 0;" for i in range(8))]
    return kernel([*zero, *shared_zero, *body], declarations=".local .align 16 .b8 room[64];\n.shared .align 16 .b8 tile[16384];")


def across_lanes(seed: int, count: int) -> str:
    """Shuffles, votes, matches and reductions, by all lanes and by the two sides of a branch, each naming its own."""
    random = np.random.default_rng(seed)

    def register(pool: str) -> str:
        return f"%{pool}{random.integers(REGISTERS)}"

    def one(mask: str, before: list[str]) -> list[str]:
        kind = "vote" if before else random.choice(["shfl", "vote", "match", "redux", "elect", "warp"])
        if kind == "shfl":
            mode = str(random.choice(["up", "down", "bfly", "idx"]))
            width = int(random.choice([32, 32, 16, 8, 4]))
            clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
            by = str(random.integers(0, 32)) if random.random() < 0.6 or mask != "-1" else register("r")
            if mask != "-1":
                # What comes from a lane outside the mask is open: learn the source lane before, and take only what is defined.
                before.append(f"shfl.sync.{mode}.b32 %t5, %t0, {by}, {clamp}, 0xffffffff;")
                return [
                    f"shfl.sync.{mode}.b32 %t4|%q1, {register('r')}, {by}, {clamp}, {mask};",
                    "and.b32 %t2, %t5, 31;",
                    f"shr.u32 %t2, {mask}, %t2;",
                    "and.b32 %t2, %t2, 1;",
                    "setp.ne.u32 %q3, %t2, 0;",
                    f"@%q3 mov.u32 {register('r')}, %t4;",
                ]
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
            before: list[str] = []
            inside = [line for _ in range(random.integers(1, 3)) for line in one("%t6", before)]
            outside = [line for _ in range(random.integers(0, 3)) for line in one("%t7", before)]
            body += [
                f"mov.pred %q0, {register('p')};",
                "vote.sync.ballot.b32 %t6, %q0, 0xffffffff;",
                "not.b32 %t7, %t6;",
                *before,
                f"@!%q0 bra OTHER{step};",
                *inside,
                f"bra AFTER{step};",
                f"OTHER{step}:",
                *outside,
                f"AFTER{step}:",
                "bar.warp.sync 0xffffffff;",
            ]
        else:
            body += one("-1", [])
        body += simple(random, 1)
    return kernel(body)


def barriers(seed: int, count: int, threads: int) -> str:
    """Rounds of shared memory between barriers: each thread writes its own word and reads another's."""
    random = np.random.default_rng(seed)
    body = ["mov.u32 %t6, tile;", "mad.lo.u32 %t6, %t3, 4, %t6;"]
    for _ in range(count):
        register = f"%r{random.integers(REGISTERS)}"
        body += [
            f"st.shared.u32 [%t6], {register};",
            random.choice(["bar.sync 0;", "barrier.sync 1;", f"bar.sync 2, {-(-threads // 32) * 32};"]),
            f"add.u32 %t7, %t3, {random.integers(1, threads)};",
            f"rem.u32 %t7, %t7, {threads};",
            "mov.u32 %t5, tile;",
            "mad.lo.u32 %t7, %t7, 4, %t5;",
            f"ld.shared.u32 %r{random.integers(REGISTERS)}, [%t7];",
        ]
        kind = random.choice(["sync", "popc", "and", "or"])
        p = f"%p{random.integers(REGISTERS)}"
        body.append(
            {
                "sync": "bar.sync 0;",
                "popc": f"bar.red.popc.u32 %r{random.integers(REGISTERS)}, 3, {p};",
                "and": f"bar.red.and.pred %p{random.integers(REGISTERS)}, 3, {p};",
                "or": f"bar.red.or.pred %p{random.integers(REGISTERS)}, 3, !{p};",
            }[str(kind)]
        )
        body += simple(random, 2)
    return kernel(body, declarations=".shared .align 4 .b8 tile[4096];")


def atomics(seed: int, count: int) -> str:
    """Atomic operations on 16 shared cells, whose final values (and, of a cell of one's own, old values) do not depend on the order."""
    random = np.random.default_rng(seed)

    def register(pool: str) -> str:
        return f"%{pool}{random.integers(REGISTERS)}"

    def guard() -> str:
        return f"@{register('p')} " if random.random() < 0.4 else ""

    body = [
        "mov.u32 %t6, cells;",
        "setp.lt.u32 %q0, %t3, 16;",
        "mad.lo.u32 %t7, %t3, 8, %t6;",
        "@%q0 st.shared.b64 [%t7], %d0;",
        "bar.sync 0;",
        "mov.u32 %t5, own;",
        "mad.lo.u32 %t5, %t3, 8, %t5;",
        "st.shared.b64 [%t5], %d1;",
    ]
    for _ in range(count):
        op = str(
            random.choice(["add.u32", "add.u64", "min.s32", "max.s32", "min.u64", "max.s64", "and.b32", "or.b64", "xor.b32", "max.u32"])
        )
        pool = "d" if op.endswith("64") else "r"
        body += [
            f"and.b32 %t4, %r{random.integers(REGISTERS)}, 15;",
            "mad.lo.u32 %t4, %t4, 8, %t6;",
            f"{guard()}red.shared.{op} [%t4], {register(pool)};",
            "bar.sync 0;",
        ]
        own = str(
            random.choice(
                ["add.u32", "exch.b32", "inc.u32", "dec.u32", "cas.b32", "exch.b64", "cas.b64", "min.s64", "xor.b64", "add.f32", "add.f64"]
            )
        )
        pool = {"f32": "f", "f64": "g"}.get(own[-3:], "d" if own.endswith("64") else "r")
        if own.startswith("add.f"):
            body += [f"mov.b{WIDTH[pool]} %{pool}0, 0;", f"st.shared.b{WIDTH[pool]} [%t5], %{pool}0;"]
        operands = ", ".join(register(pool) for _ in range(2 if own.startswith("cas") else 1))
        body.append(f"{guard()}atom.shared.{own} {register(pool)}, [%t5], {operands};")
        if own.startswith("add.f"):
            body += ["st.shared.b64 [%t5], %d1;"]
    body += ["bar.sync 0;", "and.b32 %t4, %t3, 15;", "mad.lo.u32 %t4, %t4, 8, %t6;", "ld.shared.b64 %d0, [%t4];"]
    return kernel(body, declarations=".shared .align 8 .b8 cells[128];\n.shared .align 8 .b8 own[8192];")


def with_locks(text: str, seed: int, count: int) -> str:
    """A program with `count` locks taken in a loop, and given back behind it, at places drawn among its instructions. Its results are the same."""
    random = np.random.default_rng(seed)
    lines = text.replace(".visible .entry", ".global .b32 lock;\n.visible .entry").split("\n")
    first = next(i for i, line in enumerate(lines) if "ld.param.u64 %a1" in line) + 1
    last = max(i for i, line in enumerate(lines) if "ret;" in line)
    for number, at in enumerate(sorted(random.integers(first, last, count), reverse=True)):
        lines[at:at] = [f"TAKE{number}:", "atom.global.cas.b32 %old, [lock], 0, 1;", "setp.ne.u32 %held, %old, 0;", f"@%held bra TAKE{number};",
                        "atom.global.exch.b32 %old, [lock], 0;"]
    lines[first:first] = [".reg .b32 %old;", ".reg .pred %held;"]
    return "\n".join(lines)
