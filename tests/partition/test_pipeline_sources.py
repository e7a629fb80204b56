"""What the pipeline takes: graphs, arrays of any layout, links; and what it refuses before it takes memory or leaves a file."""

import numpy as np
import pytest
import scipy.sparse as sp
from edited_parts import files_of
from graphs import random_graph

from spgnn.data import load_graph
from spgnn.errors import FormatError, InputError, PartitionError, ResourceError, UsageError
from spgnn.graph import graph_from_coo
from spgnn.partition import PartitionFolder, load_partition, part_to_folder, partition_of, save_partition

MEMORY = "16GB"  # the process that runs all tests may have 1 GB itself
EDGES = np.array([[0, 1], [2, 3], [4, 5], [6, 7], [1, 4]], np.int32)
HEAVY = graph_from_coo([0, 1], [1, 2], 3, weights=np.array([1.0, 2.0]), name="heavy")


def arrays_of(folder):
    return {name: data for name, data in files_of(folder).items() if name != "manifest.json"}


@pytest.mark.parametrize("chosen", ["stored", "undirected", "directed", "reversed"])
@pytest.mark.parametrize("k", [1, 3])
def test_a_graph_gives_the_folder_that_it_is_saved_as_with_its_edges_as_chosen(tmp_path, chosen, k):
    rng = np.random.default_rng(0)
    graph = graph_from_coo(rng.integers(0, 40, 120), rng.integers(0, 40, 120), 40, name="mine")
    graph = graph if chosen == "stored" else graph.with_edges(chosen)
    part_to_folder(graph, k, tmp_path / "parts", memory=MEMORY, hops=0)
    part = load_partition(tmp_path / "parts", graph)
    assert part.graph_name == "mine" and part.edges == graph.in_use().edges
    save_partition(partition_of(graph, part.owner_N, k), tmp_path / "memory", graph, hops=0)
    assert arrays_of(tmp_path / "parts") == arrays_of(tmp_path / "memory")


def test_edges_may_be_chosen_for_a_graph_that_has_none_chosen(tmp_path):
    graph = graph_from_coo([0, 1, 2], [1, 2, 3], 4)
    part_to_folder(graph, 1, tmp_path / "parts", memory=MEMORY, edges="reversed")
    assert [list(map(int, ids)) for ids in PartitionFolder(tmp_path / "parts").block(0).A_nN.nonzero()] == [
        [1, 2, 3],
        [0, 1, 2],
    ]


def damaged(folder):
    """Write .npy files that are none."""
    np.save(folder / "objects.npy", np.array([[0, {}]], object), allow_pickle=True)
    np.save(folder / "whole.npy", EDGES)
    whole = (folder / "whole.npy").read_bytes()
    for name, data in (("empty", b""), ("head", whole[:90]), ("cut", whole[:-8]), ("text", b"0 1\n2 3\n")):
        (folder / f"{name}.npy").write_bytes(data)
    return [folder / f"{name}.npy" for name in ("objects", "empty", "head", "cut", "text")]


def test_a_damaged_npy_is_named_as_edges_and_as_owners(tmp_path):
    (tmp_path / "files").mkdir()
    for path in damaged(tmp_path / "files"):
        for wrong in ({"source": path}, {"source": EDGES, "owner": path}):
            with pytest.raises(FormatError, match=path.name):
                part_to_folder(**{"k": 2, "out": tmp_path / "parts", "memory": MEMORY} | wrong)
            assert [left.name for left in tmp_path.iterdir()] == ["files"]


@pytest.mark.parametrize("given, error, message", [
    ({"owner": "nosuch.npy"}, InputError, "nosuch.npy"), ({"owner": np.full(8, 9)}, PartitionError, "node 0 has owner 9"),
    ({"owner": np.array([0, 1])}, PartitionError, "owner has 2 entries, the graph has 8"),
    ({"owner": np.array(1)}, PartitionError, r"owner has shape \(\); expected"),
    ({"features": sp.coo_array(np.arange(8.0))}, FormatError, r"features: shape \(8,\); expected a row per node"),
    ({"n_nodes": 7}, InputError, r"6 -> 7; expected ids from 0 to 6, from n_nodes = 7"),
    ({"features": np.zeros((7, 2))}, InputError, r"6 -> 7; expected ids from 0 to 6, from features"),
    ({"source": HEAVY}, InputError, "heavy: has weights, and a stream of edges carries none"),
    ({"source": HEAVY.in_use(), "edges": "directed"}, UsageError, "edges are 'undirected' already"),
])  # fmt: skip
def test_what_does_not_fit_leaves_nothing(tmp_path, given, error, message):
    with pytest.raises(error, match=message):
        part_to_folder(**{"source": EDGES, "k": 2, "out": tmp_path / "parts", "memory": MEMORY} | given)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("value", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("columns", [[2, 0, 1, 3, 1, 0], [1, 1, 3, 3, 2, 0]], ids=["unsorted", "twice"])
def test_sparse_features_out_of_order_or_twice_are_summed_and_left_as_they_are(tmp_path, columns, value, index):
    data, indptr = np.arange(1, 7).astype(value), np.array([0, 2, 2, 4, 4, 4, 5, 6, 6], index)
    X = sp.csr_array((data, np.array(columns, index), indptr), shape=(8, 4))
    before = [array.copy() for array in (X.data, X.indices, X.indptr)]
    np.savez(tmp_path / "X.npz", format=b"csr", shape=X.shape, data=X.data, indices=X.indices, indptr=X.indptr)
    expected = np.zeros(X.shape)
    np.add.at(expected, (np.repeat(np.arange(8), np.diff(indptr)), columns), data)
    for source in (X, sp.csr_matrix(X), sp.coo_array(X), tmp_path / "X.npz"):
        part_to_folder(EDGES, 1, tmp_path / "parts", memory=MEMORY, features=source)
        np.testing.assert_array_equal(PartitionFolder(tmp_path / "parts").block(0).X_nF.toarray(), expected)
    for array, old in zip((X.data, X.indices, X.indptr), before):
        np.testing.assert_array_equal(array, old)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4"])
def test_sparse_features_of_the_other_byte_order_are_taken(tmp_path, dtype):
    X = sp.random_array((8, 5), density=0.5, format="csr", random_state=np.random.default_rng(0))
    X.data = (8 * X.data).astype(dtype)
    part_to_folder(EDGES, 1, tmp_path / "parts", memory=MEMORY, features=X)
    np.testing.assert_array_equal(PartitionFolder(tmp_path / "parts").block(0).X_nF.toarray(), X.toarray())


def test_numbers_of_any_integer_type_are_taken(tmp_path):
    for name, number in (("plain", int), ("numpy", np.int64)):
        part_to_folder(
            EDGES, number(2), tmp_path / name, memory=MEMORY, seed=number(3), hops=number(2), n_nodes=number(9)
        )
    assert arrays_of(tmp_path / "plain") == arrays_of(tmp_path / "numpy")


def test_memory_that_cannot_do_is_told_before_any_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("spgnn.partition.folder.pipeline.rows.read_edges", lambda *_, **__: pytest.fail("a stage"))
    with pytest.raises(ResourceError, match="1,000,000,000 nodes need 34 bytes each"):
        part_to_folder(EDGES, 2, tmp_path / "parts", memory="16GB", n_nodes=10**9)
    with pytest.raises(UsageError, match=r"n_nodes = 2147483648; expected an integer from 0 to 2147483647"):
        part_to_folder(EDGES, 2, tmp_path / "parts", memory=MEMORY, n_nodes=2**31)


def test_a_row_of_features_that_does_not_fit_is_told(tmp_path):
    wide = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (8, 2**31))  # has holes, takes no disk
    del wide
    with pytest.raises(
        ResourceError, match=r"X.npy: a row has 8,590 MB and is held up to three times; .* give it [\d,]+ MB or more"
    ):
        part_to_folder(EDGES, 2, tmp_path / "parts", memory="16GB", features=tmp_path / "X.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["X.npy"]


@pytest.mark.parametrize("what, values, message", [
    ("labels", np.array([0] * 6 + [np.inf, 0]), "node 6 has the target inf; expected finite"), ("split", np.full(8, 255, np.uint8), "node 0 has split 255; expected 0 train"), ("split", np.zeros(8), "is float64; expected integers: 0 train"),
    *((what, np.zeros((8, 0), np.int8), r".*shape \(8, 0\); expected") for what in ("labels", "split")),
])  # fmt: skip
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_values_of_nodes_are_refused_as_in_memory(tmp_path, what, values, message):
    np.save(tmp_path / "v.npy", values)
    edges = graph_from_coo(*EDGES.T, 8)
    for read in (
        lambda **part: load_graph(edges, **part),
        lambda **part: part_to_folder(EDGES, 2, tmp_path / "parts", memory=MEMORY, **part),
    ):
        with pytest.raises(FormatError, match=f"v.npy: {message}"):
            read(**{what: tmp_path / "v.npy"})


def test_a_split_of_unsigned_integers_is_stored_as_int8(tmp_path):
    part_to_folder(EDGES, 1, tmp_path / "parts", memory=MEMORY, split=np.array([0, 1, 2, 2, 1, 0, 0, 0], np.uint16))
    split = np.load(tmp_path / "parts" / "part-00000" / "split.npy")
    assert split.dtype == np.int8 and split.tolist() == [0, 1, 2, 2, 1, 0, 0, 0]


@pytest.mark.parametrize("name, text", [("e.txt", "# nothing\n"), ("e.bin", "")])
def test_a_file_without_an_edge_is_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(FormatError, match=f"{name}.*(no edge|empty)"):
        part_to_folder(tmp_path / name, 2, tmp_path / "parts", memory=MEMORY)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("by", ["pipeline", "save"])
def test_what_a_link_stands_for_is_written_and_the_link_stays(tmp_path, exists, by):
    if exists:
        (tmp_path / "scratch").mkdir()
    (tmp_path / "link").symlink_to("scratch")
    for _ in range(2):
        if by == "pipeline":
            part_to_folder(EDGES, 2, tmp_path / "link", memory=MEMORY)
        else:
            graph = random_graph(n=8, edges=20)
            save_partition(partition_of(graph, np.arange(8) % 2, 2), tmp_path / "link", graph)
    assert (tmp_path / "link").is_symlink() and load_partition(tmp_path / "scratch").k == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "scratch"]
