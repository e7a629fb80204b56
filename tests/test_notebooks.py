"""The notebooks of docs/gallery run at a tiny size, are small, and are on their page with a picture."""

import os
import re
import sys
from pathlib import Path

import pytest
from worlds import ROOT, mpirun

NOTEBOOKS = sorted((ROOT / "docs" / "gallery").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_at_a_tiny_size(path, tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    bin = f"{Path(sys.executable).parent}:{mpirun().parent}"
    env = os.environ | {"SPGNN_GALLERY": "tiny", "PYTHONPATH": str(ROOT), "PATH": f"{bin}:{os.environ['PATH']}"}
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}}).execute(env=env)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_notebooks_are_small_and_on_their_page_with_a_picture():
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\(gallery/(\w+)\.ipynb\)", page) and len(NOTEBOOKS) == 8
    for path in NOTEBOOKS:
        text, picture = path.read_text(encoding="utf-8"), path.with_suffix(".png")
        assert f"](gallery/{path.name})" in page and f"](gallery/{picture.name})" in page, path.name
        assert picture.stat().st_size <= 40_000 and len(text) <= 100_000, path.name
        assert not re.search(r"/(?:home|root|tmp|work)/", text), f"{path.name} names a path of a machine"
