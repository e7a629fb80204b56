"""An edge stream becomes the folder of parts that the same graph in memory would have been saved as."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from edited_parts import files_of

import spgnn
from spgnn.errors import InputError, ResourceError, UsageError
from spgnn.partition import PartitionFolder, load_partition, part_to_folder, partition_of, save_partition
from spgnn.partition.folder.pipeline import memory_budget as memory_module
from spgnn.partition.folder.pipeline.memory_budget import Memory, memory_bytes_of
from spgnn.partition.stream import sources

MEMORY = "16GB"  # the process that runs all tests may have 1 GB itself


def draw(folder: Path, n: int, n_edges: int, seed: int, sparse: bool = False) -> dict:
    """Write e.bin, features, labels and split; return the keywords that name them."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, n, (n_edges, 2)).astype(np.int32)
    edges[0], edges[-1] = n - 1, edges[1]  # a self-loop of the largest id, and a duplicate
    edges.tofile(folder / "e.bin")
    if sparse:
        sp.save_npz(folder / "X.npz", sp.random_array((n, 7), density=0.3, format="csr", random_state=rng))
    else:
        np.save(
            folder / "X.npy",
            np.asfortranarray(rng.normal(size=(n, 7))) if seed % 2 else rng.normal(size=(n, 7)).astype(np.float32),
        )
    np.save(folder / "y.npy", rng.integers(-1, 5, n) if seed % 3 else rng.integers(0, 2, (n, 5)))  # several labels
    np.save(folder / "s.npy", rng.integers(-1, 3, (n, 2)).astype(np.int8))
    return {
        "features": folder / ("X.npz" if sparse else "X.npy"),
        "labels": folder / "y.npy",
        "split": folder / "s.npy",
    }


def in_memory(folder: Path, tables: dict, edges: str, k: int, method: str = "spring", hops: int = 1) -> spgnn.Graph:
    """Save folder/e.bin as the in-memory path does, with the owners of folder/parts, as folder/memory."""
    graph = spgnn.load_graph(folder / "e.bin", **tables).with_edges(edges)
    part = partition_of(graph, np.load(folder / "parts" / "owner.npy"), k, method, balance=1.05)
    save_partition(part, folder / "memory", graph, hops=hops)
    return graph


@pytest.mark.parametrize(
    "k, n, n_edges, hops", [(4, 200, 260, 1), (4, 200, 900, 3), (1, 30, 100, 2), (9, 5, 20, 1), (3, 50, 3, 0)]
)
@pytest.mark.parametrize("edges", ["undirected", "directed", "reversed"])
def test_files_are_byte_for_byte_those_of_the_graph_in_memory(tmp_path, edges, k, n, n_edges, hops):
    tables = draw(tmp_path, n, n_edges, seed=k)
    part_to_folder(tmp_path / "e.bin", k, tmp_path / "parts", memory=MEMORY, edges=edges, hops=hops, **tables)
    graph = in_memory(tmp_path, tables, edges, k, hops=hops)
    found, expected = files_of(tmp_path / "parts"), files_of(tmp_path / "memory")
    manifest, other = json.loads(found.pop("manifest.json")), json.loads(expected.pop("manifest.json"))
    assert found == expected
    del manifest["sha256"]  # of all the others, seconds too
    assert manifest == {name: value for name, value in other.items() if name not in ("seconds", "sha256")}
    assert load_partition(tmp_path / "parts", graph).metrics == manifest["metrics"]


def test_sparse_features_stay_sparse_and_are_the_same(tmp_path):
    tables = draw(tmp_path, 120, 500, seed=0, sparse=True)
    part_to_folder(tmp_path / "e.bin", 3, tmp_path / "parts", memory=MEMORY, **tables)
    in_memory(tmp_path, tables, "undirected", 3)
    found, expected = (PartitionFolder(tmp_path / name).manifest["fingerprint"] for name in ("parts", "memory"))
    assert found == expected
    for rank in range(3):
        X, expected = (PartitionFolder(tmp_path / name).block(rank).X_nF for name in ("parts", "memory"))
        assert sp.issparse(X) and X.dtype == expected.dtype and (X != expected).nnz == 0
        halo = PartitionFolder(tmp_path / "parts").halo(rank)
        assert (halo.X_gF != spgnn.load_graph(tmp_path / "e.bin", **tables).X[halo.node_g]).nnz == 0


def test_a_halo_of_more_nonzeros_than_any_part_has_wider_offsets(tmp_path, monkeypatch):
    for module in ("pipeline", "rows"):  # 2^15 stands for 2^31
        monkeypatch.setattr(
            f"spgnn.partition.folder.pipeline.{module}.index_dtype", lambda most: np.int16 if most < 2**15 else np.int32
        )
    np.random.default_rng(0).integers(0, 500, (25_000, 2)).astype(np.int32).tofile(tmp_path / "e.bin")
    part_to_folder(tmp_path / "e.bin", 4, tmp_path / "parts", memory=MEMORY, hops=2)
    A = spgnn.load_graph(tmp_path / "e.bin").in_use().A
    block, halo = PartitionFolder(tmp_path / "parts").block(0), PartitionFolder(tmp_path / "parts").halo(0)
    assert block.A_nN.nnz < 2**15 < halo.A_gN.nnz
    np.testing.assert_array_equal(halo.A_gN.toarray(), A[halo.node_g].toarray() * (halo.hop_g == 1)[:, None])


@pytest.mark.slow
def test_more_than_64_parts_have_the_halo_of_each(tmp_path):
    draw(tmp_path, 300, 900, seed=1)
    part_to_folder(tmp_path / "e.bin", 70, tmp_path / "parts", "dbh", memory=MEMORY, hops=2)
    A, owner_N = spgnn.load_graph(tmp_path / "e.bin").in_use().A, np.load(tmp_path / "parts" / "owner.npy")
    near = A + A @ A
    for rank in (0, 63, 64, 69):
        own_n = np.flatnonzero(owner_N == rank)
        np.testing.assert_array_equal(
            PartitionFolder(tmp_path / "parts").halo(rank).node_g, np.setdiff1d(np.unique(near[own_n].indices), own_n)
        )


@pytest.mark.slow
@pytest.mark.parametrize("hops", [1, 2])
def test_small_buckets_wide_rows_and_blocks_give_the_same_files(tmp_path, monkeypatch, hops):
    tables = draw(tmp_path, 90, 700, seed=3)
    edges = np.fromfile(tmp_path / "e.bin", np.int32).reshape(-1, 2)
    edges[100:400, 0] = 7  # a row with more entries than a bucket may have
    edges.tofile(tmp_path / "e.bin")
    part_to_folder(tmp_path / "e.bin", 3, tmp_path / "large", memory=MEMORY, hops=hops, **tables)
    monkeypatch.setattr(sources, "CHUNK", 64)
    monkeypatch.setattr(Memory, "spill_entries", lambda self, n_nodes: 150)
    monkeypatch.setattr(Memory, "bucket_entries", lambda self, n_nodes: 40)
    monkeypatch.setattr(Memory, "row_bytes", lambda self, n_nodes: 200)
    part_to_folder(tmp_path / "e.bin", 3, tmp_path / "small", memory=MEMORY, hops=hops, **tables)
    assert files_of(tmp_path / "small") == files_of(tmp_path / "large")


def test_ids_with_gaps_beyond_two_to_the_31_are_numbered(tmp_path):
    ids = np.array([5, 2**40, 17, 2**33 + 1])
    ids[np.array([[0, 1], [1, 2], [2, 3], [3, 0]])].tofile(tmp_path / "e.i64")
    np.save(tmp_path / "X.npy", np.arange(4, dtype=np.float32)[:, None])
    report = part_to_folder(
        tmp_path / "e.i64", 2, tmp_path / "parts", memory=MEMORY, relabel=True, features=tmp_path / "X.npy"
    )
    assert report["n"] == 4 and report["nnz"] == 8
    np.testing.assert_array_equal(np.load(tmp_path / "parts" / "ids.npy"), np.sort(ids))
    with pytest.raises(InputError, match="relabel"):
        part_to_folder(tmp_path / "e.i64", 2, tmp_path / "other", memory=MEMORY)


def test_nodes_without_an_edge_are_told_by_the_labels_or_n_nodes(tmp_path):
    np.array([[0, 1]], np.int32).tofile(tmp_path / "e.bin")
    assert part_to_folder(tmp_path / "e.bin", 2, tmp_path / "b", memory=MEMORY, n_nodes=5)["n"] == 5
    np.save(tmp_path / "y.npy", np.zeros(7, int))
    assert part_to_folder(tmp_path / "e.bin", 2, tmp_path / "c", memory=MEMORY, labels=tmp_path / "y.npy")["n"] == 7


def bad_inputs(folder: Path):
    np.array([[0, 1], [3, -2]], np.int32).tofile(folder / "negative.bin")
    (folder / "word.txt").write_text("0 1\n1 x\n")
    np.save(folder / "short.npy", np.zeros((3, 2), np.float32))
    np.save(folder / "nan.npy", np.where(np.arange(120).reshape(60, 2) == 7, np.nan, 1.0))
    np.save(folder / "label.npy", np.full(60, -2))
    np.save(folder / "split.npy", np.full(60, 3, np.int8))
    (folder / "thesis").mkdir()
    (folder / "thesis" / "chapter.tex").write_text("x")
    edges = folder / "e.bin"
    yield {"source": edges, "out": folder / "thesis"}, UsageError, "is not a partition"
    yield {"source": folder / "negative.bin"}, InputError, "edge 1 of the stream is 3 -> -2"
    yield {"source": folder / "word.txt"}, InputError, "word.txt:2: target is 'x'"
    yield {"source": edges, "features": folder / "short.npy"}, InputError, "expected ids from 0 to 2"
    yield (
        {"source": edges, "features": folder / "short.npy", "n_nodes": 60},
        InputError,
        "short.npy: 3 rows; expected 60",
    )
    yield (
        {"source": edges, "features": folder / "short.npy", "relabel": True},
        InputError,
        "short.npy: 3 rows; expected 60",
    )
    yield {"source": edges, "relabel": "yes"}, UsageError, "relabel = 'yes'; expected True or False"
    yield {"source": edges, "features": folder / "nan.npy"}, InputError, "node 3, column 1 is nan"
    yield {"source": edges, "labels": folder / "label.npy"}, InputError, "node 0 has label -2"
    yield {"source": edges, "split": folder / "split.npy"}, InputError, "node 0 has split 3"
    yield {"source": edges, "features": folder / "absent.npy"}, InputError, "absent.npy: no such file"
    yield {"source": edges, "k": 0}, UsageError, "k = 0"
    yield {"source": edges, "edges": "all"}, UsageError, "edges = 'all'"
    yield {"source": edges, "memory": "2 gold"}, UsageError, "expected a size such as 2GB"
    yield {"source": edges, "memory": "30MB"}, ResourceError, r"34 bytes each.*give it [\d,]+ MB or more"


@pytest.mark.slow
def test_bad_input_ends_with_one_message_and_leaves_nothing(tmp_path):
    draw(tmp_path, 60, 200, seed=6)
    for wrong, error, message in bad_inputs(tmp_path):
        before = sorted(path.name for path in tmp_path.iterdir())
        with pytest.raises(error, match=message):
            part_to_folder(**{"k": 2, "out": tmp_path / "parts", "memory": MEMORY} | wrong)
        assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "text, size", [("2GB", 2 * 10**9), ("500 mb", 5 * 10**8), ("1.5GiB", 3 << 29), ("1000", 1000), (7, 7)]
)
def test_sizes_are_read_with_their_units(text, size):
    assert memory_bytes_of(text) == size


def test_the_shares_of_memory_stay_below_it():
    for n_nodes in (0, 10**6, 10**7):
        limit = Memory(10**9, memory_module.node_bytes("spring", 32, 1, False), base_bytes=60 << 20)
        rest = 10**9 - (60 << 20) - limit.node_bytes * n_nodes
        assert 16 * limit.spill_entries(n_nodes) <= rest
        assert 4 * limit.bucket_entries(n_nodes) + (8 << 20) <= rest
        assert 3 * limit.row_bytes(n_nodes) <= rest


def test_many_parts_take_memory_by_their_pairs():
    assert Memory.now(10**9, "spring", 8000, 1, False, False).pair_bytes == 4 * 8000**2
    rest = [Memory(10**9, 34, pair_bytes=pairs).buffers(10**6) for pairs in (0, 4 * 8000**2)]
    assert rest[0] - rest[1] == 256_000_000
    with pytest.raises(
        ResourceError, match="0 MB, the pairs of parts 256 MB, and buffers 25 MB; give it 282 MB or more"
    ):
        Memory(200 * 10**6, 34, pair_bytes=4 * 8000**2).buffers(10)
