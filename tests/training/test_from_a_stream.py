"""Training on the parts of an edge stream is training on its graph: no rank sees more than its part."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from worlds import parallel

import spgnn
from spgnn import train
from spgnn.config import TrainConfig
from spgnn.distgraph import distribute
from spgnn.errors import PartitionError
from spgnn.experiment import predict, run
from spgnn.layers import GCN, Stack
from spgnn.partition import part_to_folder


def write_parts(comm, folder: str, edges: str, sparse: bool) -> tuple[Path, dict]:
    """Rank 0 writes a stream and its parts, one a rank; all return the folder and the tables."""
    folder = Path(comm.all_gather_json(folder)[0])
    tables = {
        "features": folder / ("X.npz" if sparse else "X.npy"),
        "labels": folder / "y.npy",
        "split": folder / "s.npy",
    }
    if comm.rank == 0:
        rng = np.random.default_rng(0)
        (rng.random((400, 2)) ** 2 * 90).astype(np.int32).tofile(folder / "e.bin")
        X = rng.normal(size=(90, 6))
        sp.save_npz(folder / "X.npz", sp.csr_array(X * (X > 0.5))) if sparse else np.save(folder / "X.npy", X)
        np.save(folder / "y.npy", rng.integers(0, 3, 90))
        np.save(folder / "s.npy", rng.integers(0, 3, 90).astype(np.int8))
        part_to_folder(folder / "e.bin", comm.size, folder / "parts", memory="16GB", edges=edges, **tables)
    comm.barrier()
    return folder, tables


@parallel([1, 2, 4], mpi=[4])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("edges", ["undirected", "directed"])
def test_losses_and_bytes_are_those_of_the_graph_in_memory(comm, edges, sparse):
    with tempfile.TemporaryDirectory() as own:
        folder, tables = write_parts(comm, own, edges, sparse)
        graph = spgnn.load_graph(folder / "e.bin", **tables).with_edges(edges)
        histories = []
        for source, partition in ((graph, np.load(folder / "parts" / "owner.npy")), (folder / "parts", None)):
            dgraph = distribute(source, comm, partition, dtype=torch.float64, scheme="columns")
            history = train(Stack(GCN(6, 8, act="relu"), GCN(8, 3)), dgraph, epochs=5, seed=1)
            assert history.bytes_sent == history.bytes_predicted
            histories.append(history)
        whole, parts = histories
        np.testing.assert_allclose([r["loss"] for r in parts.records], [r["loss"] for r in whole.records], rtol=1e-12)
        assert parts.bytes_sent == whole.bytes_sent
        comm.barrier()


@parallel([1, 3], mpi=[])
def test_a_folder_of_parts_is_a_graph(comm):
    with tempfile.TemporaryDirectory() as own:
        folder, _ = write_parts(comm, own, "undirected", False)
        config = TrainConfig(epochs=2, hidden=4, out=str(folder / "run"))
        summary = run(str(folder / "parts"), config, comm)
        assert summary["n"] == 90 and summary["graph"] == "e" and summary["bytes_sent"] == summary["bytes_predicted"]
        predictions = np.load(folder / "run" / "predictions.npy")
        assert len(predictions) == 90
        comm.barrier()
        if comm.rank == 0:
            (folder / "e.bin").unlink()  # nobody reads the whole graph, to train or to evaluate
        comm.barrier()
        report = predict(str(folder / "run"), comm, out=str(folder / "again.npy"))
        assert np.array_equal(np.load(folder / "again.npy"), predictions) and report["test"] == summary["test"]
        comm.barrier()


@parallel([2], mpi=[])
def test_a_folder_of_more_parts_than_ranks_trains_and_predicts(comm):
    with tempfile.TemporaryDirectory() as own:
        folder, files = write_parts(comm, own, "undirected", False)
        if comm.rank == 0:
            part_to_folder(folder / "e.bin", 5, folder / "five", memory="16GB", hops=2, **files)
        comm.barrier()
        config = TrainConfig(epochs=2, hidden=4, out=str(folder / "run"))
        summary = run(str(folder / "five"), config, comm)
        assert summary["n"] == 90 and 0 < summary["bytes_sent"] == summary["bytes_predicted"]
        report = predict(str(folder / "run"), comm, out=str(folder / "again.npy"))
        assert report["test"] == summary["test"]
        assert np.array_equal(np.load(folder / "again.npy"), np.load(folder / "run" / "predictions.npy"))
        comm.barrier()


@parallel([3], mpi=[])
def test_more_ranks_than_parts_are_refused_with_the_fix(comm):
    with tempfile.TemporaryDirectory() as own:
        folder, _ = write_parts(comm, own, "undirected", False)
        if comm.rank == 0:
            part_to_folder(folder / "e.bin", 2, folder / "two", memory="16GB")
        comm.barrier()
        with pytest.raises(PartitionError, match="start 2 or make a partition with k = 3"):
            distribute(folder / "two", comm)
        comm.barrier()
