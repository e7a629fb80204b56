"""More parts than block rows: rank r of R has the parts p = r mod R, and trains what the merged partition trains."""

import numpy as np
import pytest
from graphs import random_graph
from worlds import parallel

from spgnn import train
from spgnn.analysis import measure
from spgnn.distgraph import distribute
from spgnn.errors import PartitionError, together
from spgnn.layers import GCN, Stack
from spgnn.partition import Partition, PartitionFolder, part_graph, save_partition

K = 7


def graph_and_parts(**kinds):
    graph = random_graph(n=60, edges=200, seed=4, **kinds)
    return graph, part_graph(graph, K, "random", seed=1)


def trained(dgraph):
    model = Stack(GCN(6, 4, act="relu"), GCN(4, 3))
    history = train(model, dgraph, epochs=3, seed=2, split="given")
    return [record["loss"] for record in history.records], history


def assert_same_rows(one, other):
    np.testing.assert_array_equal(one.node_n, other.node_n)
    np.testing.assert_array_equal(one.A.blocks.index.ghost_g, other.A.blocks.index.ghost_g)
    for name in ("A_oo", "A_og"):
        A, B = getattr(one.A.blocks, name), getattr(other.A.blocks, name)
        assert A.shape == B.shape and (A != B).nnz == 0 and A.nnz == B.nnz
    for name in ("y_n", "split_n"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@parallel([1, 2, 3, 7], mpi=[3])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
def test_a_rank_has_every_Rth_part_from_memory_an_array_rank_0_or_a_folder(comm, tmp_path, scheme):
    graph, part = graph_and_parts()
    path, how = tmp_path / f"{comm.size} {scheme}", {"scheme": scheme, "dtype": "float64"}
    together(comm, lambda: save_partition(part, path, graph), root=0)
    merged = distribute(graph, comm, part.owner_N % comm.size, **how)
    losses, history = trained(merged)
    for source, partition in ((graph, part), (graph, part.owner_N), (path, None)):
        dgraph = distribute(source, comm, partition, **how)
        assert_same_rows(dgraph, merged)
        found, its = trained(dgraph)
        assert found == losses and its.bytes_sent == its.bytes_predicted == history.bytes_sent
    of_root = (graph, part) if comm.rank == 0 else (None, None)
    assert_same_rows(distribute(of_root[0], comm, of_root[1], **how), merged)
    predicted = measure(graph, part.dealt(comm.size), scheme, widths=(6, 4, 3), itemsize=8)
    if comm.size > 1:
        assert predicted.bytes_per_epoch == history.bytes_sent > 0


@parallel([4], mpi=[])
def test_with_replication_the_ranks_of_a_process_row_have_the_same_parts(comm, tmp_path):
    graph, part = graph_and_parts(sparse=True, weighted=True)
    together(comm, lambda: save_partition(part, tmp_path / "parts", graph, hops=0), root=0)
    merged = distribute(graph, comm, part.dealt(2), replication=2, dtype="float64")
    dgraph = distribute(tmp_path / "parts", comm, replication=2, dtype="float64")
    np.testing.assert_array_equal(dgraph.node_n, np.flatnonzero(part.owner_N % 2 == comm.rank // 2))
    assert_same_rows(dgraph, merged)
    assert trained(dgraph)[0] == trained(merged)[0]


@parallel([3], mpi=[])
def test_fewer_parts_than_ranks_are_refused_with_the_fix(comm, tmp_path):
    graph, _ = graph_and_parts()
    part = part_graph(graph, 2, "random")
    with pytest.raises(
        PartitionError, match=r"k = 2 parts, the job 3 rank\(s\); start 2 or make a partition with k = 3"
    ):
        distribute(graph, comm, part)


@parallel([2], mpi=[3])
def test_a_rank_opens_the_folders_of_its_own_parts_only(comm, tmp_path):
    graph, part = graph_and_parts()
    path = tmp_path / "parts"
    together(comm, lambda: save_partition(part, path, graph), root=0)
    opened, block = [], PartitionFolder.block
    folder = PartitionFolder(path)
    folder.block = lambda p: opened.append(p) or block(folder, p)
    distribute(folder, comm)
    assert opened == list(range(comm.rank, K, comm.size))


def test_a_dealt_partition_keeps_what_it_was_made_for_and_forgets_its_metrics():
    graph, part = graph_and_parts()
    dealt = part.dealt(3)
    assert part.dealt(K) is part and (dealt.k, dealt.method, dealt.seed) == (3, "random", 1)
    dealt.check_graph(graph)
    assert dealt.metrics == {} and dealt.describe(graph)["total_rows"] == measure(graph, dealt, "columns").total_rows
    with pytest.raises(PartitionError, match="has k = 7 parts; expected 8 or more"):
        part.dealt(8)
    assert Partition(np.arange(5), 5).dealt(2).sizes_k.tolist() == [3, 2]
