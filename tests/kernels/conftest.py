"""Fixtures of the kernels' tests."""

from zlib import crc32

import pytest
import torch


@pytest.fixture
def random(request) -> torch.Generator:
    """Random numbers of the test's own, the same in each run."""
    return torch.Generator().manual_seed(crc32(request.node.nodeid.encode()))


@pytest.fixture
def poisoned():
    """`torch.empty` gives NaN (of integers, the largest): what a kernel leaves unwritten comes to light."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
