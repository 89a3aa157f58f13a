"""The Python of the pages in docs/ runs as it stands, in order."""

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page, needs", [("triton", "triton"), ("cuda-cpp", "cuda.bindings.nvrtc"), ("numba", "numba.cuda"), ("ptx-run", "numpy"),
                                         ("tensor-maps", "numpy")])
def test_the_examples_of_a_page_run(page, needs, tmp_path, monkeypatch):
    pytest.importorskip(needs)
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    script = tmp_path / f"{page}.py"  # Triton reads the source of its functions from their file
    script.write_text("\n\n".join(blocks))
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))
