"""`warpwright ptx`: check PTX files, and run their kernels without a GPU."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpwright.cli.agree import agree
from warpwright.cli.docs import docs
from warpwright.cli.fmt import fmt
from warpwright.cli.info import info
from warpwright.errors import LaunchError, PtxError, WarpwrightError

if TYPE_CHECKING:
    import numpy as np

app = typer.Typer(help="Check PTX, and run it on this computer's processor.", no_args_is_help=True)
app.command()(docs)
app.command()(fmt)
app.command()(info)
app.command(rich_help_panel="For work on Warpwright itself")(agree)

_SCALARS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "e4m3", "e5m2")
_TORCH_ONLY = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def read_source(file: Path) -> str:
    """A PTX file's text. Raises WarpwrightError where it is none."""
    try:
        return file.read_text()
    except FileNotFoundError:
        raise WarpwrightError(f"{file}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not text (is it a cubin or an object file?)" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise WarpwrightError(f"{file}: cannot be read: {reason}") from None


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="PTX files.")],
    target: Annotated[str | None, typer.Option(help="Judge as for this target instead of the file's own, such as sm_90a.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a problem.")] = False,
    ptxas: Annotated[bool, typer.Option("--ptxas", help="Assemble with ptxas too, where it is installed.")] = False,
    lint: Annotated[list[str] | None, typer.Option(help="Run only this lint, or all (see 'ptx lints'). Repeatable.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Do not run this lint. Repeatable.")] = None,
    no_lint: Annotated[bool, typer.Option("--no-lint", help="Judge as ptxas does and no further.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="What the lints find counts as wrong.")] = False,
) -> None:
    """Read PTX files and say everything that is wrong with them: FILE:LINE:COLUMN: message, the line, and a mark under the place.

    What ptxas lets through, such as a register that was never written, is a warning: see 'ptx lints'. Exit code 1 if anything is wrong; 2 if
    a file cannot be read.
    """
    from warpwright import gpu, ptx

    code = 0
    for file in files:
        problems: list[WarpwrightError] = []
        findings: list[ptx.lints.Finding] = []
        module, lines = None, []
        try:
            text = read_source(file)
            lines = text.split("\n")
            module, found = ptx.diagnose(text, str(file), target)
            problems += found
            if ptxas and module is not None and not problems:
                gpu.assemble(text, target or module.target[0], file=str(file))
        except PtxError as error:
            problems.append(error)
        except WarpwrightError as error:
            problems.append(error)
            code = 2
        if module is not None and not problems and not no_lint:
            findings = ptx.lint(module, lint or (), ignore or ())
        if problems or (strict and findings):
            code = code or 1
        for finding in findings:
            if as_json:
                print(json.dumps({"file": str(file), "line": finding.line, "column": finding.column, "lint": finding.lint,
                                  "message": finding.message}))
            else:
                print(f"{file}:{finding.line}:{finding.column}: warning: {finding.message} [{finding.lint}]")
                print(excerpt(lines, finding.line, finding.column), end="")
        for problem in problems:
            line, column = getattr(problem, "line", None), getattr(problem, "column", None)
            if as_json:
                print(json.dumps({"file": str(file), "line": line, "column": column, "message": getattr(problem, "message", str(problem))}))
            else:
                print(f"{problem}\n{excerpt(lines, line, column)}", end="")
        if not problems and module is not None and not as_json:
            count = sum(len(list(kernel.instructions())) for kernel in module.kernels.values())
            print(f"{file}: ok ({len(module.kernels)} kernels, {count} instructions)")
    if code:
        raise typer.Exit(code)


def excerpt(lines: list[str], line: int | None, column: int | None) -> str:
    """A line of a source with a caret under one of its columns, each with its newline; nothing where there is no such place."""
    if line is None or column is None or not 1 <= line <= len(lines):
        return ""
    shown = lines[line - 1].rstrip("\r").replace("\t", " ")
    start = max(0, column - 100)  # of a very long line, the part around the column
    return f"  {shown[start:start + 160]}\n  {' ' * (column - 1 - start)}^\n"


@app.command()
def lints() -> None:
    """List the lints: what 'ptx check' looks for beyond what ptxas does."""
    from warpwright.ptx.lints import LINTS

    for one in LINTS.values():
        print(f"{one.name:20} {one.meaning}")


@app.command()
def coverage(
    opcode: Annotated[list[str] | None, typer.Argument(help="Only these instructions.")] = None,
    tested: Annotated[Path | None, typer.Option(help="What 'pytest --record-forms FILE' recorded.")] = None,
) -> None:
    """Find out which forms of which instructions are parsed, verified, interpreted, compiled and tested: docs/coverage.md."""
    from warpwright.cpu.coverage import document, read_tested, rows

    print(document(rows(opcode or (), read_tested(tested) if tested else None)), end="")


class Argument:
    """An argument given on the command line: `u32=1024`, `f32[16x16]=random`, `file.npy` or `null`."""

    def __init__(self, spec: str, seed: int):
        import numpy as np

        self.spec, self.array, self.label = spec, None, spec.partition("=")[0]
        self.value: object = None
        found = re.fullmatch(r"(\w+)(\[([\d\sx,]+)\])?=(.+)", spec)
        if spec == "null":
            return
        if spec.endswith(".npy"):
            self.array = self.value = self._load(spec)
            self.label = f"{self.array.dtype}[{'x'.join(map(str, self.array.shape))}]"
        elif found is None:
            raise LaunchError(f"--arg {spec}: write a scalar (u32=1024), an array (f32[1024]=random), a .npy file, or null")
        elif found[1] not in _SCALARS:
            raise LaunchError(f"--arg {spec}: there is no type '{found[1]}'; there are: {', '.join(_SCALARS)}")
        elif found[2] is None:
            self.value = self._number(found[4], found[1])
        else:
            shape = tuple(int(word) for word in re.split(r"[x,\s]+", found[3].strip()) if word)
            self._fill(found[1], shape, found[4], np.random.default_rng(seed))

    @staticmethod
    def _load(spec: str) -> np.ndarray:
        import numpy as np

        try:
            return np.load(spec)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a .npy file of numbers"
            raise LaunchError(f"--arg {spec}: cannot be loaded: {reason}") from None

    def _number(self, text: str, kind: str) -> int | float:
        try:
            return float(text) if kind[0] in "fbe" else int(text, 0)
        except ValueError:
            raise LaunchError(f"--arg {self.spec}: '{text}' is not a {kind} number") from None

    def _fill(self, kind: str, shape: tuple[int, ...], how: str, random: np.random.Generator) -> None:
        import numpy as np

        size = math.prod(shape)
        if size > 2**34:
            raise LaunchError(f"--arg {self.spec}: {size} elements are more than this command makes; pass a .npy file")
        integer = kind[0] in "us"
        dtype = np.dtype({"u": "uint", "s": "int", "f": "float"}[kind[0]] + kind[1:]) if kind not in _TORCH_ONLY else np.dtype(np.float32)
        if how == "random":
            values = random.integers(0, 100, size) if integer else random.standard_normal(size)
        elif how == "arange":
            values = np.arange(size)
        elif how in ("zeros", "ones"):
            values = np.full(size, float(how == "ones"))
        else:
            try:
                values = np.full(size, self._number(how, kind), dtype)
            except (LaunchError, OverflowError):
                raise LaunchError(f"--arg {self.spec}: fill with random, zeros, ones, arange or a {kind} number, not '{how}'") from None
        values = values.astype(dtype).reshape(shape)
        if kind in _TORCH_ONLY:
            import torch

            self.value = torch.from_numpy(values).to(getattr(torch, _TORCH_ONLY[kind]))
            self.array = values
        else:
            self.value = self.array = values

    def contents(self) -> np.ndarray | None:
        """The array as it is now, in a type that numpy has."""
        if self.array is None or self.value is self.array:
            return self.array
        return self.value.float().numpy()  # type: ignore[attr-defined]


def dimensions(text: str, what: str) -> tuple[int, ...]:
    """`40`, `4,2` or `4x2x1` as whole numbers."""
    try:
        return tuple(int(word) for word in re.split(r"[x,]", text))
    except ValueError:
        raise LaunchError(f"--{what} {text}: write one to three whole numbers, such as 40 or 4,2,1") from None


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A PTX file.")],
    kernel: Annotated[str | None, typer.Option(help="The kernel's name; may be left out where there is only one.")] = None,
    grid: Annotated[str, typer.Option(help="CTAs: 40, or 4,2,1.")] = "1",
    block: Annotated[str, typer.Option(help="Threads a CTA: 256, or 16,16.")] = "32",
    arg: Annotated[list[str] | None, typer.Option(
        help="An argument, in order: u32=1024, f32[1024]=random|zeros|ones|arange|NUMBER, file.npy, null.")] = None,
    shared: Annotated[int, typer.Option(help="Bytes of dynamic shared memory a CTA.")] = 0,
    device: Annotated[str, typer.Option(help="cpu (compiled) or interpreter (the slow reference).")] = "cpu",
    like: Annotated[str, typer.Option(help="The part whose limits hold.")] = "h800",
    seed: Annotated[int, typer.Option(help="Seed of random arrays.")] = 0,
    time_limit: Annotated[float, typer.Option(help="Seconds after which the kernel is stopped.")] = 60.0,
    out: Annotated[Path | None, typer.Option(help="Save each array as argN.npy in this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a kernel on this computer's processor, and show what it wrote."""
    import numpy as np

    import warpwright

    source = read_source(file)
    arguments = [Argument(spec, seed + i) for i, spec in enumerate(arg or [])]
    machine = warpwright.Device(device, like=like)
    try:
        module = machine.load(source)
    except PtxError as error:
        raise PtxError(error.message, error.line, error.column, str(file)) from None
    if kernel is None:
        if len(module.kernels) != 1:
            raise LaunchError(f"{file} has {len(module.kernels)} kernels; choose with --kernel: {', '.join(module.kernels) or '(none)'}")
        kernel = module.kernels[0]
    before = [np.copy(contents) if (contents := a.contents()) is not None else None for a in arguments]
    started = time.perf_counter()
    module[kernel].launch(dimensions(grid, "grid"), dimensions(block, "block"), [a.value for a in arguments],
                          shared_bytes=shared, time_limit=time_limit)
    seconds = time.perf_counter() - started
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    shown = []
    for i, (argument, old) in enumerate(zip(arguments, before, strict=True)):
        now = argument.contents()
        if now is None:
            continue
        changed = int(np.sum((now != old) & ~((now != now) & (old != old))))
        row = {"argument": i, "type": argument.label, "changed": changed, "values": now.ravel()[:8].tolist()}
        if out is not None:
            np.save(out / f"arg{i}.npy", now)
            row["file"] = str(out / f"arg{i}.npy")
        shown.append(row)
    if as_json:
        print(json.dumps({"kernel": kernel, "seconds": seconds, "arrays": shown}))
        return
    print(f"{kernel}: grid {grid}, block {block}, {seconds * 1000:.2f} ms with compiling", file=sys.stderr)
    for row in shown:
        values = " ".join(f"{value:g}" for value in row["values"])  # type: ignore[attr-defined]
        state = f"{row['changed']} elements changed" if row["changed"] else "unchanged"
        print(f"argument {row['argument']}  {row['type']}  {state}: {values} …" + (f"  → {row['file']}" if out else ""))
