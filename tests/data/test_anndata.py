"""AnnData: files by h5py, objects of the library, and predictions that are written back."""

import subprocess
import sys

import numpy as np
import pytest
import tiny_files as tiny

import spgnn
from spgnn.data.readers.anndata_file import add_to_h5ad, obs_columns
from spgnn.errors import FormatError, GraphError, InputError, UsageError
from spgnn.experiment import predict

h5py = pytest.importorskip("h5py")
NAMES = [f"c{i}" for i in range(tiny.N)]


def test_columns_of_cells_are_features_and_labels(tmp_path):
    path = tiny.write_h5ad(tmp_path)
    graph = spgnn.load_graph(path, labels=f"{path}:kind", features=f"{path}:spatial,size")
    assert graph.ids.tolist() == NAMES and graph.classes == ("B", "NK", "T")
    assert graph.y.tolist() == np.where(tiny.SPLIT < 0, -1, tiny.Y).tolist()
    assert graph.feature_names == ("spatial_0", "spatial_1", "size")
    np.testing.assert_array_equal(graph.X, np.column_stack([tiny.X[:, :2], np.arange(tiny.N) / 2]))
    graph = spgnn.load_graph(f"{path}:distances")
    assert graph.feature_names == ("g0", "g1", "g2") and graph.meta["obsp"] == "distances"


def changed(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


def link(file, target):
    del file["X"]
    file["X"] = h5py.ExternalLink(*target) if isinstance(target, tuple) else target


def huge(file):
    del file["X"]
    file.create_dataset("X", (tiny.N, 10**8), "f4", chunks=(1, 1000))


@pytest.mark.parametrize("change, fault", [
    (lambda file: file.move("obsp", "obsp_"), "obsp has no graph; make one: scanpy.pp.neighbors"),
    (lambda file: file.copy("obsp/distances", "obsp/a"), r"graphs a, connectivities; choose one: .*\.h5ad:a"),
    (lambda file: file.move("obs/_index", "x"), "obs/_index|_index is missing"),
    (lambda file: link(file, ("other.h5", "/X")), "X is in another file"),
    (huge, "2,400,000,000 bytes, and 0 are stored"),
    (lambda file: file["obsp/connectivities/indices"].write_direct(np.full(7, 9, np.int32)), "has column 9; expected 0 to 5"),
])  # fmt: skip
def test_what_a_file_lacks_is_named(tmp_path, change, fault):
    path = tiny.write_h5ad(tmp_path)
    changed(path, change)
    with pytest.raises(InputError, match=fault) as error:
        spgnn.load_graph(path)
    assert str(path) in str(error.value)


def test_keys_and_columns_that_are_missing_are_named(tmp_path):
    path = tiny.write_h5ad(tmp_path)
    with pytest.raises(FormatError, match="obsp has no 'connectivites'; did you mean 'connectivities'"):
        spgnn.load_graph(f"{path}:connectivites")
    with pytest.raises(FormatError, match="no column 'kin'; did you mean 'kind'"):
        spgnn.load_graph(path, labels=f"{path}:kin")


@pytest.mark.slow
def test_predictions_are_added_to_the_cells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, comm = tiny.write_h5ad(tmp_path), spgnn.dist.SelfCommunicator()
    words = "train csr.h5ad --labels csr.h5ad:kind --hidden 4 --edges in --epochs 3 --out run".split()
    subprocess.run([sys.executable, "-m", "spgnn", *words], check=True, capture_output=True)
    for _ in range(2):  # the second replaces the first, and finds the same graph
        predict("run", comm, out=str(path), embeddings=str(path), proba=True)
    columns, _ = obs_columns(path)
    found = spgnn.predict("run", embeddings=True)
    assert [*columns][:4] == ["id", "size", "kind", "spgnn_class"]
    assert columns["spgnn_class"].tolist() == [found.names[c] for c in found.classes]
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["obsm/spgnn_proba"], found.probabilities)
        np.testing.assert_allclose(file["obsm/X_spgnn"], found.embeddings, rtol=1e-6)
    with pytest.raises(
        UsageError, match="absent.h5ad: no such file; predictions are added to a file of the same cells"
    ):
        predict("run", comm, out="absent.h5ad")
    with pytest.raises(GraphError, match="has not the cells of the graph"):
        add_to_h5ad(path, np.array(NAMES[::-1], object), "--out")
    if anndata := sys.modules.get("anndata"):
        assert anndata.read_h5ad(path).obs["spgnn_class"].dtype == "category"


def test_an_anndata_in_memory(tmp_path):
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    obs = pandas.DataFrame({"kind": pandas.Categorical(np.array(["B", "NK", "T"])[tiny.Y])}, index=NAMES)
    adata = anndata.AnnData(X=tiny.X, obs=obs, obsp={"connectivities": tiny.adjacency(tiny.WEIGHTS).tocsr()})
    adata.obsm["spatial"] = tiny.X[:, :2]
    adata.write_h5ad(tmp_path / "a.h5ad")
    path = tmp_path / "a.h5ad"
    of_file = spgnn.load_graph(path, labels=f"{path}:kind")
    for graph in (of_file, spgnn.from_anndata(adata, label="kind")):
        assert (graph.A != tiny.adjacency(tiny.WEIGHTS)).nnz == 0 and np.array_equal(graph.X, tiny.X)
        assert graph.y.tolist() == tiny.Y.tolist() and graph.ids.tolist() == NAMES
    assert spgnn.load_graph(adata).n_features == 3 and spgnn.from_anndata(adata, features="spatial").n_features == 2
    with pytest.raises(GraphError, match="obs has no 'kin'; did you mean 'kind'"):
        spgnn.from_anndata(adata, label="kin")


def test_a_missing_h5py_is_one_error(tmp_path, monkeypatch):
    path = tiny.write_h5ad(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match=r"pip install 'spgnn\[anndata\]'"):
        spgnn.load_graph(path)
