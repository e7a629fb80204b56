"""P-invariance on 1.5D grids and of pruned steps: loss, gradients and logits equal the dense float64 model."""

import pytest
from dense_model import gradients_are_the_dense_ones
from graphs import random_graph
from worlds import parallel, some


@parallel([4, 16], mpi=[4], only=lambda given: given["method"] == "random" and given["scheme"] == "cover")
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("method", ["random", "metis"])
@pytest.mark.parametrize("use", ["directed", "undirected"])
def test_on_a_grid_too_and_replicated_rows_count_once(comm, scheme, method, use):
    for model_name, sparse, how, keep in some(
        comm, (("wide", False, "gcn", True), ("own", True, "gcn", True), ("residual", False, "row", False))
    ):
        graph = random_graph(n=30, edges=120, sparse=sparse, weighted=True, use=use)
        options = dict(scheme=scheme, method=method, replication=4 if comm.size == 16 else 2, keep=keep)
        gradients_are_the_dense_ones(comm, graph, model_name, how, **options)


@parallel([1, 3, 4], mpi=[4], only=lambda given: given["scheme"] == "cover")
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("use", ["directed", "undirected"])
def test_pruned_steps_give_the_same_gradients_and_evaluations_all_rows(comm, scheme, keep, use):
    for model_name, sparse, how in some(
        comm, (("wide", False, "gcn"), ("wide", True, "row"), ("residual", False, "row"), ("residual", True, "gcn"))
    ):
        graph = random_graph(n=40, edges=60, sparse=sparse, weighted=True, use=use, train_every=9)
        options = dict(scheme=scheme, method="random", replication=1 if comm.size % 4 else 2, keep=keep)
        trainer = gradients_are_the_dense_ones(comm, graph, model_name, how, prune="always", **options)
        assert trainer.steps.rows.is_pruned and trainer.steps.rows.X is not None
