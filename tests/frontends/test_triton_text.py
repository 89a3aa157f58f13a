"""What Triton compiles for four GPUs, the tutorials' kernels among it, is read, printed back as the same tree,
found legal, and no lint finds anything in it."""

import pytest

pytest.importorskip("triton")

import triton
import triton_kernels as kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import warpwright.triton  # noqa: F401  compile without ptxas
from warpwright import ptx

HALVES = dict.fromkeys(["a", "b", "c", "q", "k", "v", "out", "dout", "dq", "dk", "dv"], "*fp16")
TILE = {"BM": 64, "BN": 64, "BK": 64}
SIGNATURES = {  # types that are not i32, and constants
    "vector_add": ({"x": "*fp32", "y": "*fp32", "out": "*fp32"}, {"BLOCK": 512}),
    "row_softmax": ({"x": "*fp32", "out": "*fp32"}, {"BLOCK": 1024, "STAGES": 3}),
    "matmul": (HALVES, {**TILE, "GROUP": 4, "ACTIVATION": "leaky_relu", "a_k": 1, "b_k": 1, "c_n": 1}),
    "seeded_dropout": ({"x": "*fp32", "out": "*fp32", "p": "fp32"}, {"BLOCK": 512}),
    "layer_norm_forward": ({"x": "*fp16", "out": "*fp16", "weight": "*fp16", "bias": "*fp16", "means": "*fp32", "rstds": "*fp32", "eps": "fp32"},
                           {"BLOCK": 256}),
    "layer_norm_backward": ({**dict.fromkeys(("dx", "dy", "x", "weight"), "*fp16"), **dict.fromkeys(("dw", "db", "means", "rstds"), "*fp32"),
                             "locks": "*i32"}, {"GROUPS": 8, "BLOCK": 512}),
    "attention_forward": ({**HALVES, "logs": "*fp32", "scale": "fp32"}, {"CAUSAL": True, "BM": 64, "BN": 32, "D": 64}),
    "attention_backward": ({**HALVES, "logs": "*fp32", "delta": "*fp32", "scale": "fp32"}, {"CAUSAL": False, "BM": 32, "BN": 64, "D": 64}),
    "grouped_matmul": ({**dict.fromkeys(("a_pointers", "b_pointers", "c_pointers"), "*i64"), "sizes": "*i32", "strides": "*i32"}, {**TILE, "SMS": 8}),
    "persistent_matmul": (HALVES, {**TILE, "SMS": 8, "GROUP": 4, "SPECIALIZE": True}),
    "described_matmul": ({f"{name}_map": "tensordesc<fp16[64, 64]>" for name in "abc"}, TILE),
    "arc_sine": ({"x": "*fp64", "out": "*fp64"}, {"BLOCK": 128}),
}


@pytest.mark.parametrize("arch", [80, 89, 90, 100])
@pytest.mark.parametrize("name", SIGNATURES)
def test_what_triton_compiles(name, arch):
    types, constants = SIGNATURES[name]
    function = getattr(kernels, name)
    signature = {arg: "constexpr" if arg in constants else types.get(arg, "i32") for arg in function.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] in "*i"}
    compiled = triton.compile(ASTSource(function, signature, constants, aligned), target=GPUTarget("cuda", arch, 32))
    text = compiled.asm["ptx"]
    module = ptx.parse(text)
    assert ptx.parse(str(module)) == module
    ptx.verify(module)
    assert ptx.lint(module) == []
    assert f".target sm_{arch}" in text
