"""Graphs of other libraries: scipy and NetworkX for real, PyG and DGL as objects with the same attributes."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from spgnn.data import from_coo, from_dgl, from_networkx, from_pyg, from_scipy, load_graph, load_native, save_graph
from spgnn.errors import GraphError, InputError, UsageError
from spgnn.graph import graph_from_coo
from spgnn.partition import PartitionFolder, part_graph, save_partition

EDGES = np.array([[0, 1, 1, 3], [1, 2, 2, 0]])


class Tensor:
    """What spgnn uses of a torch tensor."""

    is_sparse, layout = False, "torch.strided"

    def __init__(self, values):
        self.values = np.asarray(values)

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self.values


class Data:
    """What spgnn uses of torch_geometric.data.Data."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


class DGLGraph:
    """What spgnn uses of dgl.DGLGraph."""

    is_homogeneous = True

    def __init__(self, n, **fields):
        self.n, self.ndata, self.edata = n, fields, {"w": Tensor([1.0, 2.0, 3.0, 4.0])}

    def edges(self):
        return Tensor(EDGES[0]), Tensor(EDGES[1])

    def num_nodes(self):
        return self.n


Data.__module__, DGLGraph.__module__ = "torch_geometric.data.data", "dgl.heterograph"


def mask(*nodes, n=5):
    return Tensor(np.isin(np.arange(n), nodes))


def test_coo_arrays_are_a_graph():
    graph = load_graph((EDGES[0], EDGES[1]))
    assert (graph.n_nodes, graph.nnz, graph.meta["duplicates"]) == (4, 3, 1)
    assert graph.A[3, 0] == 1 and graph.A[0, 3] == 0
    assert load_graph(EDGES).digest() == from_coo(*EDGES.tolist()).digest() == graph.digest()


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", ">u8", "i1", ">i4"])
def test_ids_may_be_integers_of_any_type(dtype):
    src, dst = EDGES.astype(dtype)
    for graph in (load_graph((src, dst)), from_coo(src, dst, 4), load_graph(EDGES.astype(dtype))):
        assert graph.digest() == load_graph(EDGES).digest()
    with pytest.raises(GraphError, match="edge 3 is 3 -> 0; node ids must be 0 to 2"):
        from_coo(src, dst, 3)


@pytest.mark.parametrize("dtype", ["u8", ">u8"])
def test_ids_beyond_63_bits_are_refused_in_words(dtype):
    ids = np.array([0, 2**63, 1], dtype)
    for ends, name in (((ids, ids[::-1]), "src"), ((ids * 0, ids), "dst")):
        with pytest.raises(GraphError, match=f"{name} of edge 1 is 9223372036854775808, which is beyond int64"):
            from_coo(*ends)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("label, task", [(0.5, "numbers"), (np.nan, "classes"), (1e20, "numbers"), (-3.0, "numbers")])
def test_labels_that_are_no_whole_classes_are_numbers(label, task):
    graph = from_pyg(Data(edge_index=Tensor(EDGES), y=Tensor([0.0, 1.0, label, 1.0])))
    assert graph.task == task and graph.y[2] == (label if task == "numbers" else -1)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_number_to_predict_is_finite():
    with pytest.raises(GraphError, match="node 2 has the target inf; expected finite, NaN for none"):
        from_pyg(Data(edge_index=Tensor(EDGES), y=Tensor([0.0, 1.0, np.inf, 1.0])))


@pytest.mark.parametrize(
    "source",
    [[(0, 5), (1, 2)], ((0, 5), (1, 2)), [[0, 5], [1, 2]], [(np.int64(0), 5), (1, 2)], [(0, 5)], [(0, 5), (1, 2), (3, 4)]],
)  # fmt: skip
def test_pairs_that_may_be_edges_or_sources_and_targets_are_refused(source):
    with pytest.raises(InputError, match=r"pairs such as .* give edges as load_graph\(pairs=edges\), sources"):
        load_graph(source)
    edges = load_graph(pairs=source)
    assert edges.A[0, 5] == 1 and edges.nnz == len(source)


@pytest.mark.parametrize(
    "source",
    [([0, 1], [5, 2]), (np.array([0, 1]), np.array([5, 2])), [np.array([0, 1]), np.array([5, 2])], np.array([[0, 1], [5, 2]])],
)  # fmt: skip
def test_two_lists_or_arrays_are_sources_and_targets(source):
    assert load_graph(source).digest() == from_coo([0, 1], [5, 2]).digest()
    assert load_graph([[0, 1, 3], [5, 2, 4]]).digest() == from_coo([0, 1, 3], [5, 2, 4]).digest()


def test_edges_as_rows_of_an_array_are_refused_with_the_fix():
    with pytest.raises(InputError, match=r"edges of shape \(3, 2\); expected \(2, E\), .*: see edges.T"):
        load_graph(np.array([[0, 5], [1, 2], [3, 4]]))


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix])
def test_scipy_of_every_format_gives_the_same_graph(format, make):
    expected = graph_from_coo([0, 2, 1], [1, 2, 0], 4, np.float32([0.5, 2, 3]))
    graph = load_graph(make(expected.A).asformat(format))
    assert graph.digest() == expected.digest() and graph.A.data.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_sums_of_duplicates_do_not_wrap_around(dtype):
    data, columns = np.full(3, 100, dtype), [1, 1, 1]
    coo, csr = sp.coo_array((data, ([0, 0, 0], columns))), sp.csr_array((data, columns, [0, 3, 3]), shape=(2, 2))
    coo.resize((2, 2))
    assert load_graph(coo).A[0, 1] == load_graph(csr).A[0, 1] == 300


@pytest.mark.parametrize("make, message", [
    (lambda: graph_from_coo([0], [1], weights=[1j]), "weights hold complex128; expected real numbers"),
    (lambda: graph_from_coo([0], [1], weights=["a"]), "weights hold <U1; expected real numbers"),
    (lambda: load_graph(([0], [1]), features=[[1j], [2]]), "features: holds complex128; expected numbers"),
    (lambda: load_graph(([0], [1]), features=[["a"], ["b"]]), "features: holds <U1; expected numbers"),
    (lambda: load_graph(([0], [1]), features=[[1], [1, 2]]), "features: cannot be made an array"),
    (lambda: load_graph(([0], [1]), features=np.array([["2026-01-01"]] * 2, "M8[D]")), "features: holds datetime64"),
    (lambda: load_graph(np.ma.array(EDGES, mask=EDGES == 2)), "masked entries is not supported"),
    (lambda: load_graph(([0], [1], [0.5])), r"expected \(src, dst\); weights: spgnn.graph_from_coo"),
    (lambda: from_pyg(Data(edge_index=Tensor(EDGES), x=Tensor(np.ones((4, 2)) * 1j))), "features hold complex128"),
])  # fmt: skip
def test_values_that_are_no_real_numbers_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_tensors_may_be_features_labels_and_split():
    torch = pytest.importorskip("torch")
    X, y, split = torch.ones(2, 3, requires_grad=True), torch.tensor([0, 1]), torch.tensor([0, 2], dtype=torch.int8)
    for values in (X, X.bfloat16()):
        graph = load_graph(([0], [1]), features=values, labels=y, split=split)
        assert (
            graph.X.tolist() == [[1] * 3] * 2
            and graph.X.dtype == np.float32
            and graph.y.tolist() == [0, 1]
            and graph.split.tolist() == [0, 2]
        )


def test_scipy_duplicates_are_summed_and_counted():
    A = sp.coo_array((np.ones(3), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    graph = from_scipy(A)
    assert graph.A[0, 1] == 2 and graph.meta["duplicates"] == 1
    assert A.nnz == 3
    A = sp.csr_array((np.ones(3), np.array([2, 0, 1]), np.array([0, 3, 3, 3])), shape=(3, 3))
    assert from_scipy(A).A.indices.tolist() == [0, 1, 2] and A.indices.tolist() == [2, 0, 1]  # as it was handed in


@pytest.mark.parametrize("dtype, values, stored", [
    (np.float64, [1, 1], np.float32), (np.float64, [1, 0.1], np.float64), (np.float64, [1, 1e300], np.float64),
    (np.int64, [1, 7], np.float32), (np.int64, [1, 2**24 + 1], np.float64), (bool, [True, True], np.float32),
])  # fmt: skip
def test_weights_keep_their_value_in_the_narrowest_float(tmp_path, dtype, values, stored):
    A = sp.csr_array((np.array(values, dtype), ([0, 1], [1, 0])), shape=(2, 2))
    for form in ("csr", "csc", "coo"):
        sp.save_npz(tmp_path / form, A.asformat(form))
    for graph in (from_scipy(A), *(load_graph(tmp_path / f"{form}.npz") for form in ("csr", "csc", "coo"))):
        assert graph.A.data.dtype == stored and graph.A.data.tolist() == values
    assert from_coo([0, 1], [1, 0], weights=A.data).A.data.tolist() == values


def test_scipy_with_bad_indices_is_refused_before_scipy_uses_it():
    A = sp.csr_array((np.ones(2), np.array([0, 1]), np.array([0, 1, 2])), shape=(2, 2))
    A.indices[1] = 10**6
    with pytest.raises(GraphError, match="index 1000000; expected 0 to 1"):
        from_scipy(A)
    A.indices[1] = 1
    A.indptr[1] = 5
    with pytest.raises(GraphError, match="indptr must rise"):
        from_scipy(A)
    with pytest.raises(GraphError, match="as many rows as columns"):
        from_scipy(sp.csr_array((2, 3)))
    with pytest.raises(GraphError, match="complex128; expected real"):
        from_scipy(sp.csr_array((2, 2), dtype=complex))


def test_networkx_undirected_edges_stand_both_ways_and_loops_once_and_nodes_keep_their_names():
    for make, more in ((nx.Graph, []), (nx.MultiGraph, [("c", "a")])):
        G = make([("b", "a"), ("a", "c"), ("c", "c"), *more])
        graph = load_graph(G)
        assert graph.is_symmetric and graph.nnz == 5 and graph.ids.tolist() == ["b", "a", "c"]
        assert np.array_equal(graph.A.toarray(), nx.to_numpy_array(G)) and (graph.meta["duplicates"] > 0) == bool(more)
    assert from_networkx(nx.path_graph(3)).ids is None
    assert from_networkx(nx.grid_2d_graph(1, 2)).ids.tolist() == ["(0, 0)", "(0, 1)"]
    graph = from_networkx(nx.karate_club_graph(), labels="club")
    assert graph.classes == ("Mr. Hi", "Officer") and graph.y[:2].tolist() == [0, 0] and graph.y[33] == 1


def test_pairs_are_edges():
    assert load_graph(pairs=[(0, 5), (1, 2)]).A[1, 2] == 1 and load_graph(pairs=[]).n_nodes == 0
    for pairs in ([(0, 1, 2)], [(0, 1), (2,)], [0, 1]):
        with pytest.raises(InputError, match=r"expected \(E, 2\)|cannot be made an array"):
            load_graph(pairs=pairs)
    with pytest.raises(UsageError, match="a source, or pairs="):
        load_graph("wordnet", pairs=[(0, 1)])


def test_tensors_and_dense_adjacencies_are_graphs():
    A = np.array([[0, 2, 0], [0, 0, 1], [0.5, 0, 0]])
    for source in (Tensor(EDGES), Tensor(A), A, A.astype(np.float32)):
        graph = load_graph(source)
        expected = load_graph(EDGES) if source is not A and graph.n_nodes == 4 else from_scipy(sp.csr_array(A))
        assert graph.digest() == expected.digest()
    with pytest.raises(InputError, match=r"array of shape \(3,\); expected edges \(2, E\), or an adjacency \(N, N\)"):
        load_graph(Tensor([1, 2, 3]))
    with pytest.raises(InputError, match=r"give tables as spgnn.from_pandas\(edges, nodes\)"):
        load_graph(SimpleNamespace(columns=["source"]))
    with pytest.raises(InputError, match="cannot make a graph of a builtins.dict"):
        load_graph({"edges": []})


def test_networkx_nodes_of_one_text_are_refused_and_large_integers_are_names():
    with pytest.raises(GraphError, match="nodes 1 and '1' have one name; rename one"):
        from_networkx(nx.Graph([(1, "1"), ("1", 2)]))
    assert from_networkx(nx.Graph([(2**70, 5)])).ids.tolist() == [str(2**70), "5"]
    large = np.array([2**63, 5], np.uint64)
    assert from_coo([0], [1], 2, ids=large).ids.tolist() == [str(2**63), "5"]


def test_networkx_directed_multigraph_with_weights_and_attributes():
    G = nx.MultiDiGraph(name="roads")
    G.add_nodes_from([(0, {"f": [1.0, 2.0], "c": 1}), (1, {"f": [3.0, 4.0], "c": 0}), (9, {"f": [0.0, 0.0], "c": 2})])
    G.add_edge(0, 1, weight=2.5)
    G.add_edge(0, 1, weight=1.5)
    G.add_edge(1, 9)
    graph = from_networkx(G, features="f", labels="c")
    assert graph.A.toarray().tolist() == [[0, 4, 0], [0, 0, 1], [0, 0, 0]]
    assert graph.ids.tolist() == [0, 1, 9] and from_networkx(G, duplicates="max").A[0, 1] == 2.5
    assert (graph.name, graph.meta["duplicates"], graph.y.tolist()) == ("roads", 1, [1, 0, 2])
    assert graph.X.tolist() == [[1, 2], [3, 4], [0, 0]]


def test_networkx_errors_name_the_attribute():
    G = nx.path_graph(3)
    with pytest.raises(GraphError, match="3 nodes have no attribute 'x', the first is 0"):
        from_networkx(G, features="x")
    nx.set_edge_attributes(G, "heavy", "weight")
    with pytest.raises(GraphError, match="'weight' is no number"):
        from_networkx(G)


def test_pyg_data_with_features_labels_and_masks():
    data = Data(
        edge_index=Tensor(EDGES), edge_weight=Tensor([1.0, 2.0, 3.0, 4.0]), x=Tensor(np.eye(5, dtype=np.float32)),
        y=Tensor([[0], [1], [2], [0], [1]]), num_nodes=5, train_mask=mask(0, 1), val_mask=mask(2), test_mask=mask(3),
    )  # fmt: skip
    graph = load_graph(data)
    assert (graph.n_nodes, graph.A[1, 2], graph.A[3, 0]) == (5, 5, 4)
    assert graph.X.shape == (5, 5) and graph.y.tolist() == [0, 1, 2, 0, 1]
    assert graph.split.tolist() == [0, 0, 1, 2, -1]


def test_pyg_masks_of_several_splits_and_float_multilabels():
    masks = {"train_mask": Tensor(np.eye(3, 2, dtype=bool)), "test_mask": Tensor(~np.eye(3, 2, dtype=bool))}
    data = Data(edge_index=Tensor([[0], [1]]), num_nodes=3, y=Tensor(np.float32([[1, 0], [1, 1], [0, 0]])), **masks)
    graph = from_pyg(data)
    assert graph.split.tolist() == [[0, 2], [2, 0], [2, 2]]
    assert graph.is_multilabel and graph.y.dtype.kind == "i"


def test_pyg_transposed_adjacency_keeps_the_direction():
    class SparseTensor:
        def sparse_sizes(self):
            return 4, 4

        def coo(self):  # of the transpose: row = target, col = source
            return Tensor(EDGES[1]), Tensor(EDGES[0]), None

    graph = from_pyg(Data(adj_t=SparseTensor(), num_nodes=4))
    assert graph.digest() == from_coo(*EDGES).digest()


def test_pyg_subclasses_are_known_and_isolated_nodes_kept():
    Mine = type("Mine", (Data,), {"__module__": "my.code"})
    assert load_graph(Mine(edge_index=Tensor(EDGES), num_nodes=9)).n_nodes == 9


def test_pyg_errors():
    with pytest.raises(GraphError, match="node 1 is in val_mask and in another"):
        from_pyg(Data(edge_index=Tensor(EDGES), num_nodes=5, train_mask=mask(0, 1), val_mask=mask(1)))
    with pytest.raises(GraphError, match="neither edge_index nor adj_t"):
        from_pyg(Data(num_nodes=5))
    with pytest.raises(GraphError, match="expected \\(2, E\\)"):
        from_pyg(Data(edge_index=Tensor(EDGES.T), num_nodes=5))


def test_graphs_of_pyg_and_dgl_are_read_in_the_direction_of_their_edges_unless_told_otherwise(tmp_path):
    stored = from_coo(*EDGES, 5).A.toarray()
    for graph in (from_pyg(Data(edge_index=Tensor(EDGES), num_nodes=5), meta={"from": "here"}), from_dgl(DGLGraph(5))):
        np.testing.assert_array_equal(graph.A.toarray(), stored)
        save_graph(graph, tmp_path / graph.name)
        for same in (graph, load_native(tmp_path / graph.name)):
            assert same.meta == graph.meta and same.in_use().edges == "reversed"
            np.testing.assert_array_equal(same.with_edges("auto").A.toarray(), stored.T)
            assert same.with_edges("both").edges == "undirected" and same.with_edges("out").in_use().edges == "directed"
        save_partition(part_graph(graph, 2, "block"), tmp_path / f"{graph.name} parts", graph)
        assert PartitionFolder(tmp_path / f"{graph.name} parts").partition().edges == "reversed"
    both = np.hstack([EDGES, EDGES[::-1]])
    assert from_pyg(Data(edge_index=Tensor(both), num_nodes=5)).in_use().edges == "undirected"  # equal, and symmetric


def test_dgl_graph_with_features_labels_masks_and_weights():
    g = DGLGraph(
        5, feat=Tensor(np.eye(5)), label=Tensor([0, 1, 2, 0, 1]), train_mask=mask(0), val_mask=mask(1),
        test_mask=mask(4),
    )  # fmt: skip
    graph = load_graph(g)
    assert graph.X.shape == (5, 5) and graph.y.tolist() == [0, 1, 2, 0, 1] and graph.split.tolist() == [0, 1, -1, -1, 2]
    assert graph.nnz == 3 and np.all(graph.A.data == 1)
    assert from_dgl(g, weight="w").A[1, 2] == 5
    with pytest.raises(GraphError, match="edata has no 'weight'; it has w"):
        from_dgl(g, weight="weight")
