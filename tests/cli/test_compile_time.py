"""`warpwright bench compile`: its kernels are legal and of the size asked for; a second process starts from the cache."""

import numpy as np
import pytest

import warpwright
from warpwright import ptx
from warpwright.cli import compile_time


@pytest.mark.parametrize("shape", compile_time.SHAPES)
def test_kernels_are_of_the_size_asked_for_and_run(shape):
    text = compile_time.kernel(shape, 200)
    instructions = sum(1 for _ in ptx.parse(text).kernels["k"].instructions())
    assert 180 <= instructions <= 230
    warpwright.Device("cpu", threads=1).load(text)["k"].launch(1, 128, [np.zeros(1 << 20, np.uint32), 2])


def test_a_warm_start_is_quicker():
    result = compile_time.measure("branches", 200, 1)
    assert result["warm_ms"] < result["cold_ms"] / 3
