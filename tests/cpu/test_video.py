"""Video instructions: what the manual's examples come to, and the same bits from both engines on random words and selectors."""

import numpy as np
import pytest

from warpwright import Device
from warpwright.ptx.isa.table import TABLE
from warpwright.ptx.isa.video import OPCODES
from warpwright.ptx.samples import samples

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) {\n.reg .b64 %p; .reg .b32 %r, %a, %b, %c;\n"
BLOCK = 64


def program(instructions: list[str]) -> str:
    """Words a, b, c of each thread, and for each instruction a result."""
    lines = ["ld.param.u64 %p, [p];", "mov.u32 %r, %tid.x;", "mad.wide.u32 %p, %r, 4, %p;"]
    lines += [f"ld.global.b32 %{name}, [%p+{4 * BLOCK * i}];" for i, name in enumerate("abc")]
    for i, instruction in enumerate(instructions):
        lines += [instruction, f"st.global.b32 [%p+{4 * BLOCK * (3 + i)}], %r;"]
    return HEAD + "\n".join(lines) + "\n}\n"


def run(kind: str, instructions: list[str], words: np.ndarray) -> np.ndarray:
    memory = np.full((3 + len(instructions), BLOCK), 0xDEADBEEF, np.uint32)
    memory[:3] = words
    Device(kind).load(program(instructions))["k"].launch(1, BLOCK, [memory])
    return memory[3:]


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
@pytest.mark.parametrize(("instruction", "a", "b", "c", "expected"), [
    ("vadd.s32.u32.s32.sat %r, %a.b0, %b.h0;", 0xFF, 0xFFFF, 0, 0xFE),
    ("vadd.u32.u32.u32.sat %r, %a, %b;", 0xFFFFFFFF, 1, 0, 0xFFFFFFFF),
    ("vadd.u32.u32.u32 %r, %a, %b;", 0xFFFFFFFF, 1, 0, 0),
    ("vsub.s32.s32.s32.sat %r.b1, %a, %b, %c;", 1000, 0, 0x11223344, 0x11227F44),
    ("vsub.u32.u32.u32.sat %r.h1, %a, %b, %c;", 1, 2, 0x11223344, 0x00003344),
    ("vabsdiff.u32.u32.u32.add %r, %a.b3, %b.b0, %c;", 0x05000000, 9, 100, 104),
    ("vmin.s32.s32.s32.max %r, %a, %b, %c;", 5, 0xFFFFFFFF, 0xFFFFFFF0, 0xFFFFFFFF),
    ("vshl.u32.u32.u32.clamp %r, %a, %b;", 3, 40, 0, 0),
    ("vshl.u32.u32.u32.wrap %r, %a, %b;", 3, 33, 0, 6),
    ("vshl.u32.u32.u32.sat.clamp %r, %a, %b;", 0xFFFFFFFF, 32, 0, 0xFFFFFFFF),
    ("vshr.s32.s32.u32.clamp %r, %a, %b.h1;", 0x80000000, 31 << 16, 0, 0xFFFFFFFF),
    ("vset.s32.u32.lt.add %r, %a, %b, %c;", 0xFFFFFFFF, 0, 41, 42),
    ("vmad.s32.s32.u32.sat %r, %a, %b, -%c;", 0xFFFFFFFF, 5, 7, 0xFFFFFFF4),
    ("vmad.u32.u32.u32.shr15 %r, %a.h0, %b.h0, %c;", 0x8000, 0x8000, 0x8000, 0x8001),
    ("vmad.u32.u32.u32.po.shr7 %r, %a, %b, %c;", 127, 1, 0, 1),
    ("vmad.s32.u32.u32.sat %r, -%a, %b, %c;", 0xFFFFFFFF, 2, 0, 0x80000000),
    ("vadd2.s32.s32.s32.sat %r, %a, %b, %c;", 0x7FFF0001, 0x00010002, 0, 0x7FFF0003),
    ("vsub2.s32.s32.s32 %r.h0, %a.h10, %b.h32, %c;", 0x00050004, 0x00010001, 0x99998888, 0x99990003),
    ("vmin2.s32.u32.u32.add %r.h10, %a.h00, %b.h22, %c;", 3, 4, 10, 16),
    ("vavrg4.u32.u32.u32 %r, %a, %b, %c;", 0x01020304, 0x03030303, 0, 0x02030304),
    ("vavrg2.s32.s32.s32 %r, %a, %b, %c;", 0xFFFFFFFE, 0, 0, 0xFFFFFFFF),
    ("vset4.u32.u32.lt.add %r.b310, %a, %b, %c;", 0x00000000, 0x01010001, 7, 9),
    ("vabsdiff4.u32.s32.s32 %r, %a.b7310, %b.b0000, %c;", 0x80010203, 0xFF000000, 0, 0x04830100),
])  # fmt: skip
def test_values(kind, instruction, a, b, c, expected):
    words = np.array([[a], [b], [c]], np.uint32) * np.ones(BLOCK, np.uint32)
    assert [hex(value) for value in np.unique(run(kind, [instruction], words))] == [hex(expected)]


def random_instructions(opcode: str, random: np.random.Generator) -> list[str]:
    """Each form with each modifier, and selectors at random."""
    found = []
    scalar = ["", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"]
    for sample in samples(opcode):
        count = len(TABLE[opcode].forms[sample.form].specs)
        merge = count == 4 and ".po" not in sample.mnemonic and opcode != "vmad" and not any(
            sample.mnemonic.endswith(end) for end in (".add", ".min", ".max"))
        if opcode[-1] in "24":
            letter, number = ("h", 2) if opcode[-1] == "2" else ("b", 4)
            a, b = ("".join(map(str, random.integers(0, 2 * number, number))) for _ in range(2))
            mask = "".join(str(i) for i in reversed(range(number)) if random.random() < 0.6) or "0"
            selectors = [f".{letter}{mask}", f".{letter}{a}", f".{letter}{b}"] if random.random() < 0.8 else ["", "", ""]
        else:
            selectors = [str(random.choice(scalar[1:])) if merge else "", *map(str, random.choice(scalar, 2))]
        operands = [f"%{name}{selector}" for name, selector in zip("rab", selectors, strict=True)] + ["%c"] * (count == 4)
        if opcode == "vmad" and ".po" not in sample.mnemonic:
            i = int(random.integers(0, 5))
            operands[1:] = ["-" + operand if i == place else operand for place, operand in enumerate(operands[1:])]
        found.append(f"{sample.mnemonic} {', '.join(operands)};")
    return found


@pytest.mark.parametrize("opcode", sorted(OPCODES))
def test_both_engines_agree(opcode):
    random = np.random.default_rng(len(opcode) + ord(opcode[1]))
    instructions = random_instructions(opcode, random)
    words = random.integers(0, 2**32, (3, BLOCK), dtype=np.uint32)
    words[random.random(words.shape) < 0.3] = random.choice([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80, 0xFF7F80FF])
    fast, reference = run("cpu", instructions, words), run("interpreter", instructions, words)
    for instruction, got, wanted in zip(instructions, fast, reference, strict=True):
        assert (got == wanted).all(), instruction
