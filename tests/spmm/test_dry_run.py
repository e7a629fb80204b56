"""A dry run writes down what a training then does: its products in their order, and the bytes of its buffers."""

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import random_graph
from models import CUSTOM, TwoProducts
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.graph import Graph
from spgnn.layers import GCN, MLP, LightGCN, Stack
from spgnn.spmm.dry.dry import DryRunError, dry_run
from spgnn.spmm.dry.dry_operator import Setting, setting_of
from spgnn.spmm.dry.recording import Recording, torch_bytes
from spgnn.spmm.operator.dist_spmm import DistSpMM
from spgnn.training.trainer import Trainer

N = 3000  # rows enough that every buffer is a block of the pool
PLAIN = Setting(features=6, counts={"n": 50})


def gcns(widths, **options):
    layers = {name: options.pop(name) for name in ("norm", "residual") if name in options}
    last = len(widths) - 2
    return Stack(
        *[GCN(f, c, act=None if l == last else "relu", **layers) for l, (f, c) in enumerate(zip(widths, widths[1:]))],
        **options,
    )


def doubled():
    model = gcns((6, 5, 3))
    model.layers[1].register_forward_pre_hook(lambda module, given: (given[0], 2 * given[1]))
    return model


MODELS = {
    "chains": lambda: gcns((6, 9, 5, 3)),
    "dropout": lambda: gcns((6, 9, 3), dropout=0.5),
    "dropout between layers": lambda: gcns((6, 9, 3), dropout=0.5, input_dropout=False),
    "norm and residual": lambda: gcns((6, 6, 6, 3), norm="layer", residual=True),
    "two products with X": lambda: Stack(TwoProducts(6, 5), GCN(5, 3)),
    "a mean of powers": lambda: Stack(GCN(6, 5), LightGCN(5, 3), GCN(5, 3)),
    "a hook": doubled,
    **CUSTOM,
}


@contextmanager
def products_made():
    """Write down the products of operators as they are made."""
    made, apply, adjoint = [], DistSpMM.apply, DistSpMM.adjoint

    def applied(self, H, bias=None, relu=False, dtype=None, place=None, add_nF=None, ghosts_gF=None):
        if ghosts_gF is None:
            made.append((place.layer, place.pass_name, H.shape[1]))
        return apply(self, H, bias, relu, dtype, place, add_nF, ghosts_gF)

    def returned(self, G, place=None, add_mF=None):
        made.append((place.layer, place.pass_name, G.shape[1]))
        return adjoint(self, G, place, add_mF)

    with patch.object(DistSpMM, "apply", applied), patch.object(DistSpMM, "adjoint", returned):
        yield made


POOLED = ("chains", "a mean of powers")
TAKE_TENSORS = ("two products with X", "two hops", "no Stack")
CASES = [(name, {"keep": keep}, False) for name in MODELS for keep in (True, False)]
CASES += [
    (name, {"dtype": torch.bfloat16}, False) for name in ("norm and residual", "a residual of its own", "no Stack")
]
CASES += [(name, {"keep": keep}, True) for name in MODELS if name not in TAKE_TENSORS for keep in (True, False)]


@pytest.mark.parametrize("name, options, is_sparse", CASES, ids=str)
def test_its_products_are_those_of_a_step_and_an_evaluation_in_their_order(name, options, is_sparse):
    dgraph = distribute(random_graph(n=60, sparse=is_sparse), SelfCommunicator(), **options)
    model = MODELS[name]()
    trainer = Trainer(model, dgraph, TrainConfig(prune="never"))
    found = dry_run(model, setting_of(dgraph.A, dgraph.X))
    with products_made() as made:
        trainer.step(1)
        trainer.logits()
    assert [(p.layer, p.pass_name, p.width) for p in found.passes("forward", "backward", "evaluate").exchanges] == made


def test_set_up_makes_the_product_that_is_cached():
    found = dry_run(gcns((6, 9, 3)), PLAIN)
    assert [(p.pass_name, p.layer, p.width) for p in found.passes("setup").exchanges] == [("setup", 1, 6)]
    first, second = found.layers
    assert first.is_cached and first.why.startswith("A X is fixed") and first.chain.shape == (6, 9)
    assert [(p.pass_name, p.width, p.order) for p in second.exchanges] == [
        ("forward", 3, "gemm_first"),
        ("backward", 3, None),
    ]


def graph_of(widths, n_labels=0):
    rng = np.random.default_rng(0)
    A = sp.csr_array(sp.random_array((N, N), density=0.002, format="csr", random_state=rng, dtype=np.float32))
    A.data[:] = 1
    X, y = rng.standard_normal((N, widths[0]), dtype=np.float32), rng.integers(0, widths[-1], N)
    y[0] = widths[-1] - 1
    if n_labels:
        y = rng.integers(0, 2, (N, n_labels)).astype(np.int8)
    return Graph(A, X=X, y=y, split=np.where(np.arange(N) % 20 == 0, 0, 1).astype(np.int8))


WIDTHS = [(300, 16, 24), (128, 128, 128, 40), (100, 256, 64, 40), (64, 64, 64)]
OPTIONS = {
    "plain": ({}, {}),
    "dropout": ({"dropout": 0.5}, {}),
    "not cached": ({}, {"keep": False}),
    "dropout, not cached": ({"dropout": 0.5, "input_dropout": False}, {"keep": False}),
    "residual": ({"residual": True}, {}),
    "norm, residual, dropout": ({"norm": "layer", "residual": True, "dropout": 0.5}, {}),
}


def held_and_predicted(model, dgraph, prune="never"):
    """Bytes that the pool holds after two epochs and an evaluation, and the dry run that predicts them."""
    trainer = Trainer(model, dgraph, TrainConfig(prune=prune))
    before = dgraph.A.pool.held_bytes
    for epoch in (1, 2):
        trainer.step(epoch)
    trainer.logits()
    n_train = int((trainer.steps.split_n == 0).sum()) if dgraph.is_multilabel else None
    setting = setting_of(dgraph.A, dgraph.X, trainer.steps.rows.A if trainer.steps.rows.is_pruned else None, n_train)
    return dgraph.A.pool.held_bytes - before, dry_run(model, setting)


def check_bytes(comm, widths, options, distributed, prune="never", graph=None, model=None):
    dgraph = distribute(graph or graph_of(widths), comm, method="random", **distributed)
    held, run = held_and_predicted(model or gcns(widths, **options), dgraph, prune)
    assert run.pool_bytes == held > 0


@pytest.mark.slow
@parallel([1, 2], mpi=[])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_its_buffers_are_the_bytes_that_the_pool_holds(comm, widths, options):
    check_bytes(comm, widths, *OPTIONS[options])


@pytest.mark.slow
@parallel([1, 2, 4], mpi=[])
@pytest.mark.parametrize("prune", ["never", "always"])
@pytest.mark.parametrize("distributed", [{"dtype": torch.bfloat16}, {"wire": "bfloat16", "wire_gradients": "float16"},
                                         {"order": "spmm_first", "keep": False}, {"replication": 2}], ids=str)  # fmt: skip
def test_so_they_are_with_pruned_rows_wires_and_sums_over_process_rows(comm, distributed, prune):
    if comm.size != 4 and "replication" in distributed:
        distributed = {"scheme": "columns"}
    for options in ({}, {"dropout": 0.5}):
        check_bytes(comm, (100, 64, 48, 40), options, distributed, prune)


@pytest.mark.slow
@parallel([1, 2, 4], mpi=[])
@pytest.mark.parametrize("options", [{}, {"dtype": torch.bfloat16}, {"wire": "bfloat16"}, {"replication": 2}], ids=str)
def test_so_they_are_of_a_mean_of_powers(comm, options):
    distributed = {"scheme": "columns"} if comm.size != 4 and "replication" in options else options
    for model in (Stack(GCN(100, 48), LightGCN(48), GCN(48, 40)), Stack(LightGCN(100, 2), MLP(100, 40))):
        check_bytes(comm, (100, 40), {}, distributed, model=model)


@parallel([1, 2], mpi=[])
def test_so_they_are_with_several_labels_a_node(comm):
    check_bytes(comm, (32, 16, 8), {}, {}, graph=graph_of((32, 16, 8), n_labels=8))


@contextmanager
def watched(dgraph, model):
    """Record the memory that torch takes by itself in real steps."""
    record, pool = Recording(model, dgraph.X.shape[1]), dgraph.A.pool
    record.heap.rows_of[N] = ("n",)
    record.heap.take(dgraph.A.kept)
    record.begin_steps(dgraph.X)
    record.begin("forward")
    empty = pool.empty

    def pooled(*shape, **options):
        record.heap.is_pooled = True
        tensor = empty(*shape, **options)
        record.heap.take(tensor)
        record.heap.is_pooled = False
        return tensor

    with record, patch.object(pool, "empty", pooled):
        yield record


@pytest.mark.parametrize(
    "name", ["chains", "norm and residual", "two products in a layer", "a mean of powers", "a residual of its own"]
)
def test_torchs_own_tensors_are_those_of_real_steps(name):
    rng, width = np.random.default_rng(0), 6
    A = sp.csr_array(sp.random_array((N, N), density=0.001, format="csr", random_state=rng, dtype=np.float32))
    A.data[:] = 1
    graph = Graph(
        A, X=rng.standard_normal((N, width), dtype=np.float32), y=rng.integers(0, 3, N), split=np.zeros(N, np.int8)
    )
    dgraph = distribute(graph, SelfCommunicator())
    model = MODELS[name]()
    trainer = Trainer(model, dgraph, TrainConfig(prune="never"))
    found = dry_run(model, setting_of(dgraph.A, dgraph.X))
    with watched(dgraph, model) as record:
        for epoch in (1, 2):
            trainer.step(epoch)
        with torch.no_grad():
            trainer.logits()
    own = [block for block in record.heap.blocks if block.row_bytes != 8]  # labels are counted elsewhere
    assert torch_bytes(own, {"n": N}) == found.torch_bytes and (found.torch_bytes > 0) == (name not in POOLED)


@pytest.mark.parametrize("distributed", [{}, {"keep": False}], ids=str)
def test_multiply_adds_are_those_of_the_products_with_weights(distributed):
    graph = random_graph(n=60)
    dgraph = distribute(graph, SelfCommunicator(), **distributed)
    found = dry_run(Stack(GCN(6, 9, act="relu"), TwoProducts(9, 3)), setting_of(dgraph.A, dgraph.X)).layers
    assert [layer.multiply_adds for layer in found] == [2 * 60 * 6 * 9, 2 * 3 * 60 * 9 * 3]


def test_a_sparse_x_counts_by_its_nonzeros():
    dgraph = distribute(random_graph(n=60, sparse=True), SelfCommunicator())
    dgraph.keep()
    for model, left in ((gcns((6, 9, 3)), dgraph.A.kept), (gcns((6, 9, 3), dropout=0.5), dgraph.X)):
        assert dry_run(model, setting_of(dgraph.A, dgraph.X)).layers[0].multiply_adds == 2 * left.csr.nnz * 9


def test_the_model_stays_as_it_is():
    model = gcns((6, 9, 3), dropout=0.5)
    model.layers[1].register_forward_pre_hook(lambda module, given: None)
    model.is_trained = True
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    found = dry_run(model, PLAIN)
    assert [p.width for p in found.passes("forward").exchanges] == [3]
    assert [(p.kind, p.order) for p in found.products if p.pass_name == "forward"][0] == ("cached ghosts", "spmm_first")
    assert model.is_trained and model.training and len(model.layers[1]._forward_pre_hooks) == 1
    assert all(p.grad is None and p.device.type == "cpu" for p in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())


def test_a_hook_that_fills_a_list_is_refused_and_not_called():
    seen = []
    model = gcns((6, 9, 3))
    model.layers[1].register_forward_pre_hook(lambda module, given: seen.append(len(given[1])))
    with pytest.raises(DryRunError, match="GCN cannot run without data: a hook refers to a list, dict or set"):
        dry_run(model, PLAIN)
    assert not seen


@pytest.mark.parametrize("width", [20_000, 20_001, 40_002])
def test_rows_are_told_from_widths_that_are_as_large(width):
    """40,002 would be the rows of own and ghost columns together."""
    found = dry_run(gcns((6, width, 3), norm="layer"), PLAIN)
    assert [layer.multiply_adds for layer in found.layers] == [2 * 50 * 6 * width, 3 * 50 * width * 3]
    assert found.on({"n": 100}).torch_bytes == 2 * found.torch_bytes
    several = replace(PLAIN, is_exchanged=True, counts={"n": 50, "s": 7, "g": 9, "f": 9})
    assert [layer.multiply_adds for layer in dry_run(gcns((6, width, 3)), several).layers] == [
        2 * 50 * 6 * width,
        3 * 50 * width * 3,
    ]
    wide = replace(several, features=width)
    assert (
        dry_run(gcns((width, 6, 3)), wide).torch_bytes
        == dry_run(gcns((100, 6, 3)), replace(wide, features=100)).torch_bytes
    )


def test_x_is_read_where_it_is_added_to_a_layer_or_dropped_out():
    read = lambda model: dry_run(model, PLAIN).reads_input
    assert not read(gcns((6, 9, 3))) and not read(gcns((6, 9, 3), dropout=0.5, input_dropout=False))
    assert read(gcns((6, 9, 3), dropout=0.5)) and read(gcns((6, 6, 3), residual=True))
