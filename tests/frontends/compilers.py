"""PTX from pip's CUDA compilers. Each (file, target) is compiled once a test session."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

CORPUS = Path(__file__).parent / "corpus"


@functools.cache
def toolkit() -> Path:
    """The folder of pip's CUDA: bin/, include/, nvvm/."""
    nvidia = pytest.importorskip("nvidia")
    found = [Path(folder) / "cu13" for folder in nvidia.__path__ if (Path(folder) / "cu13" / "include" / "cuda_fp16.h").exists()]
    if not found:
        pytest.skip("CUDA's headers are not installed (pip install 'warpwright[frontends]')")
    return found[0]


@functools.cache
def nvrtc(name: str, target: str) -> str:
    """corpus/`name`.cu compiled by NVRTC."""
    return nvrtc_text((CORPUS / f"{name}.cu").read_text(), target, name)


def nvrtc_text(source: str, target: str, name: str = "kernel") -> str:
    bindings = pytest.importorskip("cuda.bindings.nvrtc")

    def call(result, *values):
        assert int(result) == 0, result
        return values[0] if values else None

    def read(size, get) -> str:
        text = b" " * call(*size(program))
        call(*get(program, text))
        return text.decode()

    program = call(*bindings.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], []))
    include = toolkit() / "include"
    options = [f"-arch={target}", f"-I{include}", f"-I{include / 'cccl'}", "-std=c++17", "-default-device", "-device-int128"]
    if int(bindings.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])[0]):
        raise AssertionError(read(bindings.nvrtcGetProgramLogSize, bindings.nvrtcGetProgramLog))
    return read(bindings.nvrtcGetPTXSize, bindings.nvrtcGetPTX).rstrip("\0")


@functools.cache
def nvcc(name: str, target: str) -> str:
    """corpus/`name`.cu compiled by nvcc, which needs a C++ compiler beside it."""
    binary = toolkit() / "bin" / "nvcc"
    if not binary.exists() or shutil.which("g++") is None:
        pytest.skip("nvcc needs itself and g++")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.ptx"
        subprocess.run([binary, "-ptx", f"-arch={target}", "-std=c++17", f"-I{toolkit() / 'include' / 'cccl'}", CORPUS / f"{name}.cu", "-o", out],
                       check=True, capture_output=True, text=True)
        return out.read_text()
