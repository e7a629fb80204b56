"""Scores equal scikit-learn's on the whole graph, however its nodes are spread; weights are chosen by those of validation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_training import learnable, model
from worlds import parallel

from spgnn import train
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.training.metrics import count, per_class, scores

sk = pytest.importorskip("sklearn.metrics")


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("task", ["classes", "labels"])
@pytest.mark.parametrize("C", [2, 3, 7])
def test_scores_equal_scikit_learns(comm, C, task):
    rng, has_classes = np.random.default_rng(C), task == "classes"
    Z, split = rng.standard_normal((200, C)), rng.integers(-1, 3, 200).astype(np.int8)
    y = rng.integers(-1, C, 200) if has_classes else rng.integers(0, 2, (200, C)).astype(np.float64)
    z, t, s = (a[comm.rank :: comm.size] for a in (Z, y, split))
    counts = count(torch.from_numpy(z), torch.from_numpy(t), s, C, comm)
    for number in range(3):
        rows = (split == number) & (y >= 0 if has_classes else True)
        truth, guess = y[rows], Z[rows].argmax(1) if has_classes else Z[rows] > 0
        got = scores(counts[number], task)
        for how in ("micro", "macro", "weighted"):
            assert got[f"{how}_f1"] == pytest.approx(sk.f1_score(truth, guess, average=how))
        if has_classes:
            assert got["accuracy"] == pytest.approx(sk.accuracy_score(truth, guess))
            f1 = [entry["f1"] for entry in per_class(counts[number])]
            np.testing.assert_allclose(f1, sk.f1_score(truth, guess, average=None, labels=range(C)))


def test_counts_take_memory_by_the_class_and_not_by_its_square():
    C, y = 1_000_000, torch.tensor([999_999, 5])
    Z = torch.zeros(2, C)
    Z[:, 5] = 1
    counts = count(Z, y, np.array([0, 2], np.int8), C, SelfCommunicator())
    assert (
        counts.shape == (3, C, 3)
        and counts[0, 5].tolist() == [0, 1, 0]
        and counts[0, C - 1].tolist() == [0, 0, 1]
        and counts[2, 5].tolist() == [1, 0, 0]
    )


def test_an_empty_split_has_no_score():
    assert np.isnan(list(scores(np.zeros((3, 3), np.int64), "classes").values())).all()


def test_weighted_f1_is_zero_where_no_label_is_set():
    assert scores(np.array([[0, 2, 0], [0, 1, 0]]), "labels")["weighted_f1"] == 0


def test_labels_of_test_nodes_choose_nothing():
    graph = learnable()
    found = []
    for y in (graph.y, np.where(graph.split == 2, (graph.y + 1) % 3, graph.y)):
        stack = model()
        history = train(stack, distribute(replace(graph, y=y), SelfCommunicator()), epochs=200, lr=0.3, patience=10)
        found.append(
            (
                history.best_epoch,
                len(history.records),
                history.val,
                [weight.tolist() for weight in stack.parameters()],
                history.test,
            )
        )
    assert found[0][:4] == found[1][:4] and found[0][4] > 0.8 > 0.2 > found[1][4]
