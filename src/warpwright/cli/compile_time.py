"""`warpwright bench compile`: how long a kernel takes from its text to its first launch, by size and shape; each time in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

_HEAD = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{
  .reg .b32 %r<40>;
  .reg .f32 %f<64>;
  .reg .b64 %rd<10>;
  .reg .pred %p1;
  .shared .align 16 .b8 s[4096];
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  ld.param.u32 %r2, [n];
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r3, [%rd4];
  cvt.rn.f32.u32 %f1, %r3;
  shl.b32 %r4, %r1, 4;
"""
_TAIL = """
  st.global.u32 [%rd4], %r3;
  st.global.f32 [%rd4], %f1;
  ret;
}
"""


def arithmetic(n: int) -> Iterator[str]:
    """Straight-line code: every result feeds those that follow."""
    for i in range(n // 4):
        a, b, c = 5 + i % 7, 5 + (i + 1) % 7, 2 + i % 5
        yield (f"  add.s32 %r{a}, %r{b}, %r3;\n  fma.rn.f32 %f{c}, %f1, %f{2 + (i + 1) % 5}, 0f3F800000;\n"
               f"  xor.b32 %r3, %r{a}, {i};\n  add.f32 %f1, %f1, %f{c};")


def branches(n: int) -> Iterator[str]:
    """Branches and loops, most of which part a warp."""
    for i in range(n // 8):
        match i % 3:
            case 0:
                yield (f"  and.b32 %r5, %r3, {1 << i % 5};\n  setp.eq.u32 %p1, %r5, 0;\n  @%p1 bra E{i};\n  mul.lo.s32 %r3, %r3, 3;\n"
                       f"  bra.uni X{i};\nE{i}:\n  sub.s32 %r3, %r3, {i};\n  shl.b32 %r6, %r3, 1;\n  add.s32 %r3, %r6, %r3;\nX{i}:")
            case 1:
                yield (f"  mov.u32 %r5, 0;\nL{i}:\n  add.s32 %r3, %r3, %r5;\n  xor.b32 %r3, %r3, %r1;\n  add.s32 %r5, %r5, 1;\n"
                       f"  setp.lt.u32 %p1, %r5, %r2;\n  @%p1 bra L{i};\n  and.b32 %r6, %r3, 3;\n  add.s32 %r3, %r3, %r6;")
            case _:
                yield (f"  and.b32 %r5, %r3, 7;\nL{i}:\n  add.s32 %r3, %r3, %r5;\n  mul.lo.s32 %r3, %r3, 5;\n  add.s32 %r5, %r5, 1;\n"
                       f"  setp.lt.u32 %p1, %r5, 9;\n  @%p1 bra L{i};\n  and.b32 %r6, %r3, 3;\n  add.s32 %r3, %r3, %r6;")


def unrolled(n: int) -> Iterator[str]:
    """What nvcc makes of an unrolled loop: loads at growing offsets, fused multiply-adds, a store now and then."""
    for i in range(n // 4):
        yield (f"  ld.global.f32 %f{10 + i % 16}, [%rd4+{512 * (i % 64)}];\n  ld.shared.f32 %f{30 + i % 16}, [%r4+{4 * (i % 64)}];\n"
               f"  fma.rn.f32 %f1, %f{10 + i % 16}, %f{30 + i % 16}, %f1;\n  st.shared.f32 [%r4+{4 * (i * 3 % 64)}], %f1;")


def gathers(n: int) -> Iterator[str]:
    """Loads from where the data say."""
    for _ in range(n // 4):
        yield "  and.b32 %r5, %r3, 255;\n  mul.wide.u32 %rd5, %r5, 4;\n  add.s64 %rd6, %rd2, %rd5;\n  ld.global.u32 %r3, [%rd6];"


def mma(n: int) -> Iterator[str]:
    """A warp's matrix products, two in three instructions."""
    for i in range(n // 6):
        yield (f"  ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r4+{16 * (i % 64)}];\n"
               f"  ld.shared.v2.u32 {{%r14, %r15}}, [%r4+{16 * (i % 64) + 1024}];")
        for k in range(10, 42, 8):
            sums = f"{{%f{k}, %f{k + 1}, %f{k + 2}, %f{k + 3}}}"
            yield (f"  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {sums}, {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {sums};")
    yield "  add.f32 %f1, %f10, %f18;"


SHAPES: dict[str, Callable[[int], Iterator[str]]] = {shape.__name__: shape for shape in (arithmetic, branches, unrolled, gathers, mma)}


def kernel(shape: str, instructions: int) -> str:
    """PTX of about so many instructions."""
    return _HEAD + "\n".join(SHAPES[shape](instructions)) + _TAIL


# Run in a new process: the time from text to the end of the first launch in ms, imports apart.
_CHILD = """
import sys, time
import numpy as np
import warpwright, warpwright.cpu.device, warpwright.ptx.parser, warpwright.ptx.verifier, warpwright.cpu.codegen
text, data = open(sys.argv[1]).read(), np.zeros(1 << 20, np.uint32)
start = time.perf_counter()
warpwright.Device("cpu", threads=1).load(text)["k"].launch(1, 128, [data, 2], shared_bytes=0)
print(1000 * (time.perf_counter() - start))
"""


def first_launch(path: Path, cache: str) -> float:
    """Milliseconds from text to the end of the first launch, in a new process with an object cache."""
    done = subprocess.run([sys.executable, "-c", _CHILD, str(path)], env={**os.environ, "WARPWRIGHT_CACHE": cache}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"a process ended with {done.returncode}: {done.stderr}")
    return float(done.stdout)


def measure(shape: str, instructions: int, repeats: int) -> dict[str, Any]:
    """cold_ms: with an empty cache (that of the run-time system apart). warm_ms: the median of `repeats` later processes."""
    with tempfile.TemporaryDirectory() as folder:
        small, path = Path(folder) / "small.ptx", Path(folder) / "kernel.ptx"
        small.write_text(kernel("arithmetic", 4))
        path.write_text(kernel(shape, instructions))
        first_launch(small, folder)
        cold = first_launch(path, folder)
        return {"shape": shape, "instructions": instructions, "cold_ms": cold,
                "warm_ms": median(first_launch(path, folder) for _ in range(repeats))}


def run(shapes: list[str], sizes: list[int], repeats: int, as_json: bool) -> None:
    """Print a line a shape and size; `growth` is the cold time of each size over that of the one before, for each instruction: 1 is linear."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"from PTX text to the end of the first launch; warm: medians of {repeats} processes", title_justify="left")
    for heading in ("shape", "instructions", "cold ms", "growth", "warm ms", "warm / cold"):
        table.add_column(heading, justify="left" if heading == "shape" else "right")
    for shape in shapes:
        before = None
        for size in sizes:
            result = measure(shape, size, repeats)
            result["growth"] = result["cold_ms"] / before["cold_ms"] * before["instructions"] / size if before else None
            before = result
            if as_json:
                print(json.dumps(result), flush=True)
            growth = f"{result['growth']:.2f}" if result["growth"] else ""
            table.add_row(shape, f"{size:,}", f"{result['cold_ms']:,.0f}", growth, f"{result['warm_ms']:.1f}",
                          f"{result['warm_ms'] / result['cold_ms']:.1%}")
    if not as_json:
        Console().print(table)
