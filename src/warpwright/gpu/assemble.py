"""PTX through ptxas: machine code, or its complaints; and what each kernel costs in registers, spills and shared memory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from warpwright.errors import PtxError, WarpwrightError


@dataclass(frozen=True)
class Ptxas:
    """A ptxas that was found: its path and its version, such as (13, 5)."""

    path: str
    version: tuple[int, int]


@dataclass(frozen=True)
class Resources:
    """What one kernel costs, in registers a thread, named barriers, and bytes: stack a thread, spill stores and loads, shared a CTA."""

    registers: int = 0
    barriers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0

    @property
    def spills(self) -> int:
        """Bytes of spill stores and loads together."""
        return self.spill_stores + self.spill_loads


@dataclass(frozen=True)
class Assembled:
    """A cubin, the resources of each kernel in it, what ptxas noted beside them (C75xx and warnings), and by which ptxas."""

    cubin: bytes
    kernels: dict[str, Resources]
    notes: tuple[str, ...]
    target: str
    tool: Ptxas


@cache
def find_ptxas() -> Ptxas:
    """The ptxas to use: $WARPWRIGHT_PTXAS, the nvidia-cuda-nvcc package's, one on the PATH, $CUDA_HOME's; the first that is there.

    Raises WarpwrightError where there is none.
    """
    packages = {Path(sysconfig.get_path(name)) / "nvidia" for name in ("purelib", "platlib")}
    candidates = [os.environ.get("WARPWRIGHT_PTXAS")]
    candidates += [str(path) for package in packages for path in sorted(package.glob("*/bin/ptxas"))]
    candidates += [shutil.which("ptxas"), os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "ptxas")]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            said = subprocess.run([candidate, "--version"], capture_output=True, text=True).stdout
            release = re.search(r"release (\d+)\.(\d+)", said)
            if release:
                return Ptxas(candidate, (int(release[1]), int(release[2])))
    raise WarpwrightError("no ptxas was found; install one with: pip install 'warpwright[ptxas]'")


def assemble(text: str, target: str = "sm_90a", file: str | None = None) -> Assembled:
    """Assemble a PTX module for a target such as "sm_90a".

    Raises PtxError with ptxas' first complaint and its line; WarpwrightError where there is no ptxas.
    """
    tool = find_ptxas()
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "module.ptx", Path(folder) / "module.cubin"
        source.write_text(text)
        ran = subprocess.run([tool.path, "-v", f"-arch={target}", str(source), "-o", str(output)], capture_output=True, text=True)
        said = ran.stdout + ran.stderr
        if ran.returncode:
            raise complaint(said, file)
        return Assembled(output.read_bytes(), *read_report(said), target, tool)


def complaint(said: str, file: str | None = None) -> PtxError:
    """ptxas' first error as a PtxError."""
    found = re.search(r"^ptxas .*?, line (\d+); (?:error|fatal)\s*: (.*)$", said, re.M)
    if found:
        return PtxError(f"ptxas: {found[2]}", int(found[1]), None, file)
    rest = re.search(r"^ptxas (?:fatal|error)\s*: (.*)$", said, re.M)
    return PtxError(f"ptxas: {rest[1] if rest else said.strip() or 'failed without a word'}", None, None, file)


def read_report(said: str) -> tuple[dict[str, Resources], tuple[str, ...]]:
    """The resources of each kernel, and the other notes, from what `ptxas -v` printed."""
    kernels: dict[str, Resources] = {}
    notes: list[str] = []
    name, stack, stores, loads = "", 0, 0, 0
    for line in said.splitlines():
        if entry := re.search(r"Compiling entry function '(.+?)' for", line):
            name, stack, stores, loads = entry[1], 0, 0, 0
        elif frame := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if name:
                stack, stores, loads = (int(number) for number in frame.groups())
        elif used := re.search(r"Used (\d+) registers", line):
            barriers, shared = re.search(r"used (\d+) barriers", line), re.search(r"(\d+) bytes smem", line)
            kernels[name] = Resources(int(used[1]), int(barriers[1]) if barriers else 0, stack, stores, loads, int(shared[1]) if shared else 0)
        elif re.search(r"^ptxas .*warning|\(C\d{4}\)", line):
            notes.append(line.partition(":")[2].strip() or line)
    return kernels, tuple(notes)
