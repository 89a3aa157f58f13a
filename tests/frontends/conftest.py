"""Other people's compilers: Triton's cache lies in a folder of its own, so that a test session compiles what it runs."""

import os

import pytest
import torch

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # what Triton did by default up to 3.9


@pytest.fixture(scope="session", autouse=True)
def triton_cache(tmp_path_factory):
    before = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    yield
    if before is None:
        del os.environ["TRITON_CACHE_DIR"]
    else:
        os.environ["TRITON_CACHE_DIR"] = before


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
