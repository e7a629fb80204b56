"""Operators have the types of their own rows: on any ranks, in any order, of pruned layers, and of partition folders."""

from dataclasses import replace

import numpy as np
import pytest
from graphs import typed_graph
from part_folders import parts_of
from subgraphs import blocks, subgraph_of
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.distgraph.parts import merge_parts
from spgnn.errors import UsageError
from spgnn.graph import NodeTypes, fingerprint
from spgnn.layers import RGCN, Stack
from spgnn.partition import part_graph
from spgnn.spmm.kernels.buffers import BufferPool
from spgnn.spmm.operator.batched import Batched
from spgnn.spmm.operator.subgraph import SubgraphOperators
from spgnn.training.trainer import Trainer

GRAPH = typed_graph()
GRAPH = replace(GRAPH, X=GRAPH.X.toarray())
TYPE_N = np.repeat([0, 1, 2], [12, 20, 3])


def has_types(A):
    return A.node_type_n.dtype == np.int64 and (A.node_type_n == TYPE_N[A.node_n]).all()


@parallel([1, 2, 3], mpi=[2])
@pytest.mark.parametrize("locality", [False, True])
def test_own_rows_have_their_types(comm, locality):
    dgraph = distribute(GRAPH, comm, method="random", operator="none", dtype="float64", locality=locality)
    assert (
        dgraph.A.node_types == NodeTypes.read(GRAPH.meta)
        and has_types(dgraph.A)
        and has_types(dgraph.A.with_norm("gcn"))
    )
    assert (Batched(dgraph.A, 2).node_type_n.reshape(-1, 2).T == dgraph.A.node_type_n).all()
    model = Stack(RGCN(8, 4, 4), RGCN(4, 3, 4))
    trainer = Trainer(model, dgraph, TrainConfig(split="given", epochs=1, prune="always"))
    layers = [trainer.steps.rows.A.at(layer) for layer in (1, 2)]
    assert layers[1].n < dgraph.A.n or comm.size > 1
    assert all(map(has_types, layers))


@parallel([1, 2])
def test_rows_of_a_folder_have_them(comm):
    graph = GRAPH.with_edges("both")
    parts = parts_of(graph, part_graph(graph, 3, "random"), comm)
    folder = parts.source.folder
    again = folder.graph()
    assert (
        fingerprint(again) == fingerprint(graph)
        and again.meta["typed"]
        and again.meta["node_types"] == GRAPH.meta["node_types"]
    )
    assert all(has_types(parts.open(p).A) for p in parts.own)
    assert has_types(merge_parts(parts).A) and has_types(distribute(folder, comm).A)


def test_without_types_all_rows_are_of_one_and_subgraphs_refuse():
    alone, plain = SelfCommunicator(), replace(GRAPH, meta={})
    assert not distribute(plain, alone).A.node_type_n.any() and not NodeTypes.read(plain.meta).names
    drawn = SubgraphOperators(subgraph_of(GRAPH, *blocks(GRAPH)), BufferPool())
    with pytest.raises(UsageError, match="has no types of nodes"):
        _ = drawn.node_type_n
