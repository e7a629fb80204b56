"""A partition folder: halos and sums of every part, and what checks them."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from edited_parts import redigested, replaced, resealed
from graphs import random_graph

from spgnn.distgraph.parts import FolderSource
from spgnn.errors import PartitionError, UsageError
from spgnn.graph import graph_from_coo
from spgnn.partition import PartitionFolder, part_graph, partition_of, save_partition
from spgnn.partition.folder.blocks import HaloFinder, matrix_sums
from spgnn.partition.folder.check import check_parts


def saved(folder, hops=2, k=4, **kinds):
    graph = random_graph(n=60, edges=110, seed=3, **kinds)
    part = part_graph(graph, k, "random")
    save_partition(part, folder, graph, hops=hops)
    return graph, part


def distances(A, own_n, hops):
    """The hop of each node from own_n by plain loops over dense rows, 99 beyond hops."""
    A, far = A.toarray() != 0, np.full(A.shape[0], 99)
    far[own_n] = 0
    for hop in range(1, hops + 1):
        for u in np.flatnonzero(far == hop - 1):
            for v in np.flatnonzero(A[u]):
                far[v] = min(far[v], hop)
    return far


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "kinds", [{}, {"weighted": True, "use": "undirected", "sparse": True}], ids=["directed", "weighted"]
)
def test_a_part_has_the_halo_within_so_many_hops_with_rows_features_and_sums(tmp_path, kinds, hops):
    graph, part = saved(tmp_path / "parts", hops, **kinds)
    folder, A = PartitionFolder(tmp_path / "parts"), graph.A.toarray().astype(np.float64)
    has_loop = np.isin(np.arange(60) * 61, np.repeat(np.arange(60), np.diff(graph.A.indptr)) * 60 + graph.A.indices)
    sums_N3 = np.stack([A.sum(1), A.sum(0), np.where(has_loop, np.diag(A), np.nan)], axis=1)
    assert (folder.manifest["hops"], folder.manifest["version"]) == (hops, 4)
    for p in range(4):
        np.testing.assert_allclose(folder.sums(p), sums_N3[part.own(p)], rtol=1e-12)
        halo = folder.halo(p)
        if not hops:
            assert halo is None
            continue
        far = distances(graph.A, part.own(p), hops)
        expected = np.flatnonzero((far > 0) & (far < 99))
        np.testing.assert_array_equal(halo.node_g, expected)
        np.testing.assert_array_equal(halo.hop_g, far[expected])
        np.testing.assert_allclose(halo.sums_g3, sums_N3[expected], rtol=1e-12)
        dense = lambda X: X.toarray() if kinds.get("sparse") else X
        np.testing.assert_array_equal(dense(halo.X_gF), dense(graph.X)[expected])
        if hops > 1:
            rows = graph.A.toarray()[expected] * (far[expected] < hops)[:, None]
            np.testing.assert_array_equal(halo.A_gN.toarray(), rows)


def test_the_manifest_counts_classes_and_labelled_training_nodes(tmp_path):
    graph, part = saved(tmp_path / "parts")
    manifest = PartitionFolder(tmp_path / "parts").manifest
    is_train = (graph.split == 0) & (graph.y >= 0)
    assert manifest["n_classes"] == graph.n_classes == 3
    assert manifest["train"] == [[int(is_train[part.own(p)].sum())] for p in range(4)]


def test_a_finder_takes_one_part_after_the_other_and_time_by_their_edges():
    n = 5000
    graph = graph_from_coo(np.arange(n - 1), np.arange(1, n)).in_use()
    finder = HaloFinder(graph.A, 3)
    for _ in range(2):  # what the first search marked does not hide nodes from the second
        node_g, hop_g = finder.halo(np.arange(100, 200))
        np.testing.assert_array_equal(node_g, [97, 98, 99, 200, 201, 202])
        np.testing.assert_array_equal(hop_g, [3, 2, 1, 1, 2, 3])
        assert finder.rows(node_g, hop_g).nnz == 8


def test_a_diagonal_without_an_entry_or_of_weight_0_is_nan():
    graph = graph_from_coo([0, 1, 1], [0, 1, 2], 3, [0.0, 2.0, 1.0], edges="directed")
    np.testing.assert_array_equal(matrix_sums(graph.A)[:, 2], [np.nan, 2.0, np.nan])


@pytest.mark.parametrize("hops", [-1, 128, 1.5, True])
def test_hops_are_an_integer_from_0_to_127(tmp_path, hops):
    graph = random_graph()
    with pytest.raises(UsageError, match=rf"hops = {hops!r}; expected an integer from 0 to 127"):
        save_partition(part_graph(graph, 2), tmp_path / "parts", graph, hops=hops)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("version", [1, 2, 3, True, "4", None])
def test_another_version_is_refused(tmp_path, version):
    saved(tmp_path / "parts")
    path = tmp_path / "parts" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))
    with pytest.raises(PartitionError, match="this spgnn reads version 4"):
        _ = PartitionFolder(tmp_path / "parts").manifest


def add_one(at):
    def changed(values):
        values[at] += 1
        return values

    return changed


DAMAGES = {
    "sums": (add_one((2, 0)), "sums.npy: node .* has row sum"),
    "sums ": (add_one((2, 1)), "sums.npy: node .*: column sum"),
    "halo": (lambda ids: np.sort(np.append(ids[1:], 59 if 59 not in ids else ids[0] - 1)), "halo.*npy: "),
    "halo_hops": (lambda hops: 3 - hops, "halo_hops.npy: the nodes of hop 1"),
    "halo_sums": (add_one((1, 1)), "halo_sums.npy: differs from the sums"),
    "halo_sums ": (lambda sums: np.abs(sums) + np.inf, "halo_sums.npy: node .* has a sum that is not finite"),
    "halo_features": (lambda X: X * np.nan, "halo_features.npy: node .* has a feature that is not finite"),
    "halo_weights": (lambda weights: weights * 2, "halo_weights.npy: node .*: another row sum"),
    "own": (lambda ids: ids[::-1], "ids must rise"),
    "weights": (lambda weights: weights * 2, "sums.npy: node .* has row sum"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_check_names_the_array_that_is_wrong(tmp_path, name):
    saved(tmp_path / "parts")
    assert check_parts(tmp_path / "parts")["halo_nodes"] > 0
    damage, message = DAMAGES[name]
    path = tmp_path / "parts" / "part-00001" / f"{name.strip()}.npy"
    np.save(path, damage(np.load(path)))
    with pytest.raises(PartitionError, match=f"{path.name}: the SHA-256 differs"):
        check_parts(tmp_path / "parts")
    redigested(tmp_path / "parts")
    with pytest.raises(PartitionError, match=message):
        check_parts(tmp_path / "parts")


def test_arrays_of_other_names_are_not_read(tmp_path):
    saved(tmp_path / "parts")
    resealed(
        tmp_path / "parts", lambda manifest: manifest["parts"][1].update({"../owner": manifest["parts"][1]["own"]})
    )
    with pytest.raises(PartitionError, match="part 1 is not described as expected .*owner"):
        PartitionFolder(tmp_path / "parts").block(1)


def test_check_compares_owners_with_parts(tmp_path):
    graph, part = saved(tmp_path / "parts")
    save_partition(partition_of(graph, (part.owner_N + 1) % 4), tmp_path / "other", graph, hops=2)
    shutil.copytree(tmp_path / "other" / "part-00000", tmp_path / "parts" / "part-00000", dirs_exist_ok=True)
    with pytest.raises(PartitionError, match="part-00000"):
        check_parts(tmp_path / "parts")


def test_a_manifest_with_any_changed_bit_is_refused(tmp_path):
    saved(tmp_path / "parts")
    path, rng = tmp_path / "parts" / "manifest.json", np.random.default_rng(0)
    whole = path.read_bytes()
    for at in rng.permutation(len(whole))[:200]:
        data = bytearray(whole)
        data[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            assert json.loads(data) == json.loads(whole), "the change is seen"
        except ValueError:
            pass
        except AssertionError:
            with pytest.raises(PartitionError):
                _ = PartitionFolder(tmp_path / "parts").manifest


@pytest.mark.parametrize("name", ["features", "labels", "weights", "indices", "sums", "halo_sums", "halo_features"])
def test_a_part_with_a_changed_bit_is_refused_when_it_is_opened(tmp_path, name):
    saved(tmp_path / "parts")
    path = tmp_path / "parts" / "part-00001" / f"{name}.npy"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    folder = PartitionFolder(tmp_path / "parts")
    opened = folder.halo if name.startswith("halo") else folder.sums if name == "sums" else folder.block
    with pytest.raises(PartitionError, match=f"{path.name}: the SHA-256 differs"):
        opened(1)
    opened(0)


# Of the header: the type is then |i4, which numpy takes for <i4; of the values.
@pytest.mark.parametrize("at", [21, -3])
@pytest.mark.parametrize("name", ["owner", "ids_bytes", "ids_indptr"])
def test_a_changed_bit_beside_the_parts_is_refused(tmp_path, name, at):
    graph = replace(random_graph(n=40, edges=150), ids=np.array([f"node {v}" for v in range(40)]))
    save_partition(part_graph(graph, 3, "random"), tmp_path / "parts", graph)
    assert check_parts(tmp_path / "parts")["nonzeros"] == graph.nnz
    path = tmp_path / "parts" / f"{name}.npy"
    data = bytearray(path.read_bytes())
    data[at] ^= 64
    path.write_bytes(data)
    with pytest.raises(PartitionError, match=f"{name}"):
        check_parts(tmp_path / "parts")


@pytest.mark.parametrize(
    "counts", [[[-5], [29], [19], [0]], [[10**9], [0], [0], [0]], [[1], [1], [1], [1]], [None] * 4]
)
def test_counts_of_training_nodes_are_those_of_labels_and_split(tmp_path, counts):
    saved(tmp_path / "parts")
    resealed(tmp_path / "parts", lambda manifest: manifest.update(train=counts))
    for read in (lambda folder: folder.checked_block(1), lambda folder: check_parts(folder.path)):
        with pytest.raises(PartitionError, match="train"):
            read(PartitionFolder(tmp_path / "parts"))


STRUCTURED = {
    "a structure": lambda array: array.view([("a", array.dtype)]),
    "void": lambda array: np.ascontiguousarray(array).view(f"V{array.itemsize}"),
    "text": lambda array: array.astype("U"),
    "another axis": lambda array: array[..., None, None],
    "infinite": lambda array: array + np.inf,
}


@pytest.mark.parametrize(
    "name", ["own", "indptr", "indices", "weights", "features", "labels", "split", "sums", "halo", "halo_sums"]
)
@pytest.mark.parametrize("kind", STRUCTURED)
def test_an_array_of_another_kind_is_refused_though_the_manifest_has_it(tmp_path, kind, name):
    saved(tmp_path / "parts")
    replaced(tmp_path / "parts", name, STRUCTURED[kind])
    folder = PartitionFolder(tmp_path / "parts")
    with pytest.raises(PartitionError, match="part[- ]0*1"):
        FolderSource(folder, hops=2).part(1)
    with pytest.raises(PartitionError, match="part[- ]0*1"):
        check_parts(folder.path)


@pytest.mark.parametrize(
    "edit",
    [
        lambda manifest: manifest.update(n_features=2**64),
        lambda manifest: manifest.update(n_features=2**40),
        lambda manifest: manifest.update(n_nodes=2**40),
        lambda manifest: manifest.update(k=2**40),
        lambda manifest: manifest["parts"][1].pop("halo"),
        lambda manifest: manifest["parts"][1].pop("own"),
        lambda manifest: manifest["parts"].__setitem__(1, []),
        lambda manifest: manifest["parts"][1]["own"].update(shape="x"),
        lambda manifest: manifest["parts"][1]["own"].update(dtype=5),
    ],
)
def test_a_manifest_that_does_not_describe_its_parts_is_one_error(tmp_path, edit):
    saved(tmp_path / "parts")
    resealed(tmp_path / "parts", edit)
    with pytest.raises(PartitionError, match="manifest|part"):
        FolderSource(PartitionFolder(tmp_path / "parts"), hops=2).part(1)
