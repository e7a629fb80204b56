"""rank_memory: the buffers of an epoch as the pool really holds them, and what each size adds."""

from dataclasses import replace

import numpy as np
import pytest

from spgnn.analysis.memory import (
    GraphSizes,
    LayerSizes,
    RankSizes,
    epoch_buffers,
    largest_rank,
    partition_bytes,
    rank_memory,
)

SIZES = RankSizes(n=3000, own_nnz=20_000, ghost_nnz=2000, g=500, s=400)


def layers(widths, kept=True):
    orders = ["spmm_first" if l == 0 or f < c else "gemm_first" for l, (f, c) in enumerate(zip(widths, widths[1:]))]
    last = len(widths) - 2
    return [
        LayerSizes(f, c, o, kept and l == 0, l < last) for l, (f, c, o) in enumerate(zip(widths, widths[1:], orders))
    ]


def memory(sizes=SIZES, widths=(64, 32, 8), **changes):
    options = dict(n_ranks=2, n_nodes=6000, process_bytes=250e6)
    return rank_memory(sizes, layers(widths), **options | changes)


@pytest.mark.slow
@pytest.mark.parametrize("widths", [(40, 64, 16), (40, 24, 48), (40, 64, 64, 16), (40, 8, 16, 8, 12), (40, 16)])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_replayed_buffers_are_those_that_the_pool_holds_after_two_epochs(widths, dropout):
    import scipy.sparse as sp
    import torch

    from spgnn.config import TrainConfig
    from spgnn.dist import SelfCommunicator
    from spgnn.distgraph import distribute
    from spgnn.graph import Graph
    from spgnn.layers import GCN, Stack
    from spgnn.training import Trainer

    n, rng = 3000, np.random.default_rng(0)
    A = sp.csr_array(sp.random_array((n, n), density=0.002, format="csr", rng=rng, dtype=np.float32))
    X, y = rng.standard_normal((n, widths[0]), dtype=np.float32), rng.integers(0, widths[-1], n)
    y[0] = widths[-1] - 1
    dgraph = distribute(Graph(A, X=X, y=y, split=np.zeros(n, np.int8)), SelfCommunicator())
    torch.manual_seed(0)
    stack = [GCN(f, c, act="relu" if l < len(widths) - 2 else None) for l, (f, c) in enumerate(zip(widths, widths[1:]))]
    trainer = Trainer(Stack(*stack, dropout=dropout, input_dropout=False), dgraph, TrainConfig(prune="never"))
    before = dgraph.A.pool.held_bytes
    for epoch in (1, 2):
        trainer.step(epoch)
    held = dgraph.A.pool.held_bytes - before
    predicted = epoch_buffers(RankSizes(n, A.nnz, 0), layers(widths), dropout=dropout > 0, input_dropout=False)
    assert predicted == pytest.approx(held, rel=0.15), (predicted, held)


def test_a_norm_and_a_residual_keep_a_tensor_a_layer_and_take_one_more_for_all():
    block, equal = (
        3000 * 64 * 4,
        [replace(layer, reads_input=layer.f_in == layer.f_out) for layer in layers((40, 64, 64, 64, 8))],
    )
    held = lambda of, **options: epoch_buffers(RankSizes(n=3000, own_nnz=20_000, ghost_nnz=0), of, **options)
    plain = held(layers((40, 64, 64, 64, 8)))
    more = [
        held(of, norm=norm) - plain for of, norm in ((layers((40, 64, 64, 64, 8)), True), (equal, False), (equal, True))
    ]
    np.testing.assert_allclose(
        more, [4 * block, 3 * block, 6 * block], rtol=0.01
    )  # of 3 hidden layers 2 have a residual


def test_the_parts_add_up_and_the_largest_is_named():
    found = memory()
    assert found.training == sum(found.parts.values()) == found.peak
    assert found.largest == "process"
    wide = memory(widths=(64, 40_000, 8))
    assert wide.largest == "activations and exchange buffers"


@pytest.mark.parametrize("field", ["n", "own_nnz", "ghost_nnz", "g", "s", "sender_nnz"])
def test_every_size_of_a_rank_takes_memory(field):
    more = replace(SIZES, **{field: 50 * getattr(SIZES, field) + 50_000})
    assert memory(more).peak > memory().peak


LONG_ROWS = RankSizes(n=100_000, own_nnz=4_000_000, ghost_nnz=0)  # 40 nonzeros each: four panels
PANELS = 4_000_000 * 6 + 5 * 8 * 100_001


@pytest.mark.parametrize("sizes, widths, options, blocks", [
    (LONG_ROWS, (128, 256, 40), {}, 1), (LONG_ROWS, (128, 256, 40), {"is_symmetric": False}, 2),
    (replace(LONG_ROWS, g=100_000, ghost_nnz=4_000_000), (128, 256, 40), {}, 2),
    (LONG_ROWS, (128, 256), {}, 0),  # A X is kept
    (LONG_ROWS, (128, 256, 16), {}, 0),  # too narrow
    (LONG_ROWS, (128, 256, 256, 40), {"itemsize": 2}, 0),  # bfloat16: only the logits are not rounded, and they are too narrow
    (LONG_ROWS, (128, 256, 64), {"itemsize": 2}, 1),
    (replace(LONG_ROWS, g=10), (128, 256, 256, 40), {"itemsize": 2}, 1),  # beside a ghost part nothing is rounded at once
])  # fmt: skip
def test_column_panels_are_those_of_the_products_of_every_epoch(sizes, widths, options, blocks):
    assert memory(sizes, widths, **options).parts["column panels"] == blocks * PANELS


@pytest.mark.parametrize("kept_nnz, dropout, input_dropout, nnz", [
    (None, 0.0, True, 2_000_000), (None, 0.5, False, 2_000_000), (None, 0.5, True, 0), (3_000_000, 0.5, True, 3_000_000),
])  # fmt: skip
def test_sparse_features_have_panels_where_their_weights_stay(kept_nnz, dropout, input_dropout, nnz):
    sizes = replace(SIZES, n=100_000, x_nnz=2_000_000, kept_nnz=kept_nnz)
    found = memory(sizes, (1000, 128, 8), dropout=dropout > 0, input_dropout=input_dropout).parts["column panels"]
    assert found == (nnz * 6 + 17 * 8 * 1001 if nnz else 0)


def test_dense_x_goes_when_a_x_is_kept_unless_it_is_added_to_the_first_layer():
    alone = RankSizes(n=100_000, own_nnz=400_000, ghost_nnz=0)
    x = 100_000 * 64 * 4
    residual = [replace(layers((64, 64, 8))[0], reads_input=True), layers((64, 64, 8))[1]]
    found = lambda layers: rank_memory(alone, layers, n_ranks=1, n_nodes=100_000, process_bytes=2e8).parts
    assert found(layers((64, 64, 8)))["features"] == x and found(residual)["features"] == 2 * x
    assert found(layers((64, 64, 8), kept=False))["features"] == x
    # Narrow activations take less than X did; wide ones take its memory over.
    narrow, wide = found(layers((64, 8, 4))), found(layers((64, 64, 8)))
    assert narrow["X until A X is kept"] == x - narrow["activations and exchange buffers"] > 0
    assert (
        wide["X until A X is kept"]
        == found(residual)["X until A X is kept"]
        == found(layers((64, 8, 4), kept=False))["X until A X is kept"]
        == 0
    )
    dropped = {
        name: rank_memory(
            alone, layers((64, 64, 8), kept=False), n_ranks=1, n_nodes=1, process_bytes=0, dropout=True, keep=keep
        ).parts["features"]
        / x
        for name, keep in (("kept", True), ("not", False))
    }
    assert dropped == {"kept": 2, "not": 1}  # evaluations have no dropout, and take A X
    narrow, sums = (memory(replace(SIZES, g=10**6, s=s), itemsize=2).parts for s in (0, 400))
    assert (
        narrow["X until A X is kept"] + narrow["activations and exchange buffers"]
        == (3000 + 10**6) * 64 * 2 + 3000 * 64 * 4
    )
    ghosts = memory(replace(SIZES, g=10**6)).parts  # as wide as X while A X is made
    assert ghosts["X until A X is kept"] == (3000 + 10**6 + 400) * 64 * 4 - ghosts["activations and exchange buffers"]


def test_double_precision_doubles_the_buffers_and_bfloat16_halves_those_of_one_rank():
    alone = replace(SIZES, ghost_nnz=0, g=0, s=0)
    sizes = [epoch_buffers(alone, layers((64, 32, 16, 8)), itemsize) for itemsize in (2, 4, 8)]
    assert sizes[2] == pytest.approx(2 * sizes[1], rel=0.02) and sizes[0] == pytest.approx(sizes[1] / 2, rel=0.05)


def test_rank_0_needs_the_whole_graph_for_a_while_unless_each_rank_reads_its_part():
    graph = GraphSizes(n=10**6, stored_nnz=10**7, nnz=2 * 10**7, x_bytes=10**9, y_bytes=8 * 10**6, is_symmetrised=True)
    root, other = memory(root=graph), memory()
    assert root.loading > 1e9 + 8 * 2e7 and root.peak == root.loading
    assert root.largest == "reading and partitioning the graph on rank 0"
    assert other.loading == 0
    rank, worst = largest_rank([root, other])
    assert (rank, worst) == (0, root)


def test_metis_needs_memory_of_its_own_which_streaming_partitioners_do_not():
    graph = GraphSizes(n=10**6, stored_nnz=2 * 10**7, nnz=2 * 10**7, x_bytes=0, y_bytes=0, is_symmetrised=False)
    loading = {method: memory(root=graph, method=method).loading for method in ("metis", "volume", "spring", "block")}
    assert loading["metis"] == loading["volume"] > loading["spring"] + 100 * graph.nnz
    assert loading["spring"] == loading["block"]
    a_nonzero = [partition_bytes(nnz, "metis") / nnz for nnz in (10**3, 4 * 10**6, 8 * 10**6, 32 * 10**6, 10**9)]
    assert a_nonzero == [100, 100, 115, 145, 145] and partition_bytes(0, "metis") == 0


def test_rank_0_holds_its_own_rows_and_a_round_beside_the_graph():
    graph = GraphSizes(n=10**6, stored_nnz=10**6, nnz=10**6, x_bytes=4 * 10**9, y_bytes=0, is_symmetrised=False)
    base = 250e6 + 16e6 + 4e9 + 16e6
    two, many = (
        rank_memory(SIZES, layers((64, 32, 8)), n_ranks=P, n_nodes=10**6, process_bytes=250e6, root=graph).loading
        for P in (2, 1000)
    )
    assert two == pytest.approx(base + 2e9 + 4e6 + 2e9, rel=1e-6)
    assert many == pytest.approx(base + 100e6, rel=1e-2)  # METIS takes more than 4 MB of rows and a round of 64


def test_a_directed_graph_stores_the_transpose_of_the_own_block():
    assert memory(is_symmetric=False).parts["operator"] > memory().parts["operator"]


def test_sparse_features_take_their_nonzeros():
    sparse = memory(replace(SIZES, x_nnz=10_000))
    kept = memory(replace(SIZES, x_nnz=10_000, kept_nnz=90_000))
    assert sparse.parts["features"] < kept.parts["features"] < 5e6
    assert memory(widths=(10_000, 32, 8)).parts["features"] > 1e8
