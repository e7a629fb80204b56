"""A partition on disk: what was saved is what a rank loads, and nothing else is accepted."""

import os

import numpy as np
import pytest
import scipy.sparse as sp
from edited_parts import redigested

from spgnn.analysis import measure
from spgnn.errors import PartitionError, ResourceError, UsageError
from spgnn.graph import graph_from_coo
from spgnn.partition import Partition, PartitionFolder, load_partition, part_graph, save_partition
from spgnn.partition.folder import store
from spgnn.partition.folder.blocks import row_block


def make_graph(n=40, features="dense", y="classes", seed=1):
    rng = np.random.default_rng(seed)
    X = (rng.random((n, 6)) * (rng.random((n, 6)) < 0.4)).astype(np.float32)
    fields = {
        "X": {"dense": X, "sparse": sp.csr_array(X), "none": None}[features],
        "y": {"classes": rng.integers(-1, 3, n), "multi": rng.integers(0, 2, (n, 4)), "none": None}[y],
        "split": None if y == "none" else rng.integers(-1, 3, n).astype(np.int8),
    }
    return graph_from_coo(
        rng.integers(0, n, 5 * n), rng.integers(0, n, 5 * n), n, rng.random(5 * n), edges="directed", **fields
    )


def dense(M):
    return M.toarray() if sp.issparse(M) else M


def is_mapped(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


@pytest.fixture
def saved(tmp_path):
    graph = make_graph()
    save_partition(part_graph(graph, 3), tmp_path / "parts", graph)
    return graph, tmp_path / "parts"


@pytest.mark.parametrize(("features", "y"), [("dense", "classes"), ("sparse", "multi"), ("none", "none")])
@pytest.mark.parametrize(("n", "k"), [(40, 1), (40, 3), (6, 9)])
def test_the_row_blocks_on_disk_are_the_rows_of_the_graph(tmp_path, features, y, n, k):
    graph = make_graph(n, features, y)
    part = part_graph(graph, k)
    save_partition(part, tmp_path / "parts", graph)
    for rank in range(k):
        block = row_block(graph, part, rank)
        loaded = PartitionFolder(tmp_path / "parts").block(rank)
        own_n = np.flatnonzero(part.owner_N == rank)
        for one in (block, loaded):
            np.testing.assert_array_equal(one.own_n, own_n)
            assert one.own_n.dtype == np.int64 and (one.n_nodes, one.k, one.rank) == (n, k, rank)
            assert one.A_nN.shape == (len(own_n), n)
            for got, whole in zip((one.A_nN, one.X_nF, one.y_n, one.split_n), (graph.A, graph.X, graph.y, graph.split)):
                assert (got is None) == (whole is None) and sp.issparse(got) == sp.issparse(whole)
                if whole is not None:
                    np.testing.assert_array_equal(dense(got), dense(whole)[own_n])
                    assert got.dtype == whole.dtype


def test_a_block_is_mapped_not_read_and_opens_no_other_part(saved):
    graph, folder = saved
    for other in ("part-00000", "part-00002", "owner.npy"):
        (folder / other).rename(folder / f"gone-{other}")
    block = PartitionFolder(folder).block(1)
    for array in (block.own_n, block.A_nN.data, block.A_nN.indices, block.A_nN.indptr, block.X_nF, block.y_n):
        assert is_mapped(array)


def test_a_partition_comes_back_with_all_it_knew(saved):
    graph, folder = saved
    made, loaded = part_graph(graph, 3), load_partition(folder, graph)
    np.testing.assert_array_equal(loaded.owner_N, made.owner_N)
    for name in ("k", "method", "seed", "balance", "metrics", "graph_digest"):
        assert getattr(loaded, name) == getattr(made, name)
    np.testing.assert_array_equal(np.load(folder / "owner.npy"), made.owner_N)


def test_an_open_folder_reads_manifest_and_owners_once_and_a_part_without_the_owners(saved):
    graph, path = saved
    folder = PartitionFolder(path)
    (path / "owner.npy").rename(path / "owner.later")
    assert folder.block(1).k == 3 and folder.is_valid
    (path / "owner.later").rename(path / "owner.npy")
    first = folder.partition(graph)
    assert len(folder.hash) == 64 and folder.hash == PartitionFolder(path).hash
    (path / "owner.npy").unlink()
    (path / "manifest.json").unlink()
    assert folder.partition() is first and folder.manifest["k"] == 3 and folder.block(2).rank == 2
    with pytest.raises(PartitionError, match="manifest.json: cannot be read"):
        PartitionFolder(path).hash


def test_a_partition_of_unknown_origin_is_measured_when_it_is_saved(tmp_path):
    graph = make_graph()
    save_partition(Partition(np.arange(40) % 2, 2), tmp_path / "parts", graph)
    loaded = load_partition(tmp_path / "parts", graph)
    assert loaded.graph_digest == graph.digest() and loaded.metrics["total_rows"] > 0


def test_another_graph_is_refused_with_the_question_to_ask(saved):
    graph, folder = saved
    with pytest.raises(PartitionError, match="40 entries, .* 41 nodes; was this partition made for another graph?"):
        load_partition(folder, make_graph(41))
    with pytest.raises(PartitionError, match="was this partition made for another graph"):
        load_partition(folder, make_graph(seed=2))
    with pytest.raises(PartitionError, match="was this partition made for another graph"):
        save_partition(part_graph(graph, 3), folder, make_graph(seed=2))


@pytest.mark.parametrize("rank", [-1, 3])
def test_a_part_that_does_not_exist_names_the_number_of_ranks_to_start(saved, rank):
    graph, folder = saved
    with pytest.raises(UsageError, match="has 3 parts, 0 to 2; start 3 ranks"):
        PartitionFolder(folder).block(rank)
    with pytest.raises(UsageError, match="has 3 parts, 0 to 2; start 3 ranks"):
        row_block(graph, load_partition(folder), rank)


def test_spoiled_rows_are_noticed_before_a_kernel_reads_them(saved):
    _, folder = saved
    path = folder / "part-00001" / "indices.npy"
    indices = np.load(path)
    indices[0] = 1_000_000
    np.save(path, indices)
    redigested(folder)
    with pytest.raises(PartitionError, match="part 1: A: row 0 has column 1000000; expected 0 to 39"):
        PartitionFolder(folder).block(1)


@pytest.mark.parametrize("spoiled", [np.arange(3), np.arange(13.0)])
def test_an_array_of_another_type_or_length_than_the_manifest_says_is_refused(saved, spoiled):
    _, folder = saved
    np.save(folder / "part-00001" / "labels.npy", spoiled)
    with pytest.raises(PartitionError, match=r"labels.npy: holds .*; the manifest says <i8 \(1[0-9],\)"):
        PartitionFolder(folder).block(1)


def test_an_object_array_is_never_unpickled(saved, tmp_path):
    _, folder = saved
    trap = tmp_path / "sprung"

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(trap),)

    np.save(folder / "part-00000" / "labels.npy", np.array([Trap()], object), allow_pickle=True)
    with pytest.raises(PartitionError, match="labels.npy"):
        PartitionFolder(folder).block(0)
    assert not trap.exists()


def test_saving_again_replaces_a_partition_but_never_another_folder(saved, tmp_path):
    graph, folder = saved
    save_partition(part_graph(graph, 2, "block"), folder, graph)
    assert load_partition(folder).k == 2 and not (folder / "part-00002").exists()
    (folder / "checkpoints").mkdir()
    with pytest.raises(UsageError, match="is not replaced: checkpoints would be lost"):
        save_partition(part_graph(graph, 2), folder, graph)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1").write_text("precious")
    with pytest.raises(UsageError, match="exists and is not a partition"):
        save_partition(part_graph(graph, 2), tmp_path / "thesis", graph)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text('{"format": "spgnn-graph"}')
    with pytest.raises(PartitionError, match="not the manifest of a partition"):
        save_partition(part_graph(graph, 2), tmp_path / "other", graph)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "parts", "thesis"]


def test_a_save_that_fails_half_way_leaves_the_old_partition_and_no_litter(saved, tmp_path, monkeypatch):
    graph, folder = saved
    write, calls = store._write, []

    def disk_full(path, array):
        calls.append(path)
        if len(calls) > 5:
            raise OSError(28, "No space left on device")
        write(path, array)

    monkeypatch.setattr(store, "_write", disk_full)
    with pytest.raises(ResourceError, match="No space left"):
        save_partition(part_graph(graph, 2), folder, graph)
    assert load_partition(folder).k == 3
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


def test_a_graph_whose_edges_nobody_chose_is_cut_measured_and_saved_with_its_reverse_edges(tmp_path):
    stored = graph_from_coo(np.arange(11), np.arange(1, 12))
    both = stored.with_edges("undirected")
    part = part_graph(stored, 3)
    assert part.graph_digest == both.digest() and part.metrics == part_graph(both, 3).metrics
    save_partition(part, tmp_path / "parts", stored)
    for graph in (stored, both):
        part.check_graph(graph)
        assert part.describe(graph)["nnz"] == 22
        assert measure(graph, part, widths=(4, 4)).nnz == 22
        assert sum(row_block(graph, part, rank).A_nN.nnz for rank in range(3)) == 22
    assert sum(PartitionFolder(tmp_path / "parts").block(rank).A_nN.nnz for rank in range(3)) == 22
    with pytest.raises(PartitionError, match="directed edges has .*or with other edges"):
        part.check_graph(stored.with_edges("directed"))
