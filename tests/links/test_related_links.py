"""Links whose message edges keep their relations: what is a message, and a training on any ranks."""

import numpy as np
import pytest
from worlds import parallel

import spgnn
from spgnn.distgraph import distribute
from spgnn.errors import GraphError
from spgnn.graph import split_links
from spgnn.layers import RGCN, Stack
from spgnn.layers.decoders import DistMult
from spgnn.training.trainer import make_trainer

N, R = 30, 3
RNG = np.random.default_rng(0)
SRC, DST = RNG.integers(0, N, (2, 200))
REL, ROLE = RNG.integers(0, R, 200), RNG.choice(np.int8([0, 0, 0, 1, 2]), 200)
SRC[0], DST[0], REL[0], ROLE[0] = SRC[1], DST[1], (REL[1] + 1) % R, 2  # a test triple beside a training one
ROLE[1], DST[2], ROLE[2] = 0, SRC[2], 2  # a self-loop that tests
NAMES = ("likes", "knows", "owns")
TRIPLES = spgnn.graph_from_coo(SRC, DST, N, edge_y=REL, edge_split=ROLE, edge_classes=NAMES, name="triples")


def messages(graph):
    """Row, column and relation of the nonzeros."""
    row = np.repeat(np.arange(N), np.diff(graph.A.indptr))
    place = np.where(graph.edge_ids < 0, -1 - graph.edge_ids, graph.edge_ids)
    return sorted(
        zip(row.tolist(), graph.A.indices.tolist(), (2 * graph.edge_y[place] + (graph.edge_ids < 0)).tolist())
    )


def test_messages_are_the_training_triples_and_their_inverses():
    graph = split_links(TRIPLES, relations=True)
    train = [(s, t, r) for s, t, r, role in zip(SRC.tolist(), DST.tolist(), REL.tolist(), ROLE) if role == 0]
    both = [(s, t, 2 * r) for s, t, r in train] + [(t, s, 2 * r + 1) for s, t, r in train]
    assert set(messages(graph)) == set(both) and graph.typed_sizes == (2 * R, 1)
    assert len(split_links(TRIPLES, val=0.2, test=0.2, relations=True).links.of(1)) > 0
    with pytest.raises(GraphError, match="edges have no classes, which are their relations"):
        split_links(spgnn.graph_from_coo(SRC, DST, N), relations=True)


@parallel([1, 2, 3], mpi=[2])
def test_a_training_has_the_losses_and_ranks_of_one_rank(comm):
    graph = split_links(TRIPLES, relations=True)

    def trained(comm):
        dgraph = distribute(graph, comm, method="random", operator="none", dtype="float64").with_embedding(6)
        model = Stack(RGCN(6, 6, 2 * R), RGCN(6, 6, 2 * R, bases=2), decoder=DistMult(6, R))
        trainer = make_trainer(model, dgraph, on="links", loss="softmax", epochs=3, lr=0.05, batch=0)
        return trainer.fit()

    from spgnn.dist import SelfCommunicator

    ours, alone = trained(comm), trained(SelfCommunicator())
    assert ours.records[-1]["bytes_sent"] == ours.bytes_predicted
    for name in ("loss", "val"):
        assert [r[name] for r in ours.records] == pytest.approx([r[name] for r in alone.records], rel=1e-9)
