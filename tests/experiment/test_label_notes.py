"""Labels that are probably not what a user means are said before the first epoch; ordinary ones are not."""

import socket
from dataclasses import replace

import numpy as np
import pytest
from graphs import random_graph
from part_folders import parts_of
from worlds import parallel

from spgnn import cli
from spgnn.config import TrainConfig
from spgnn.distgraph import distribute
from spgnn.graph import count_labels, label_notes
from spgnn.layers import GCN, Stack
from spgnn.partition import part_graph
from spgnn.training import notes
from spgnn.training.notes import data_notes
from spgnn.training.parts.inference import LayerwiseScorer
from spgnn.training.scorer import FullScorer
from spgnn.training.trainer import Trainer

MINUS = "label -1 ({} nodes) means no label, and class 0 has no node: if -1 is a class here, number the classes from 0"
ALL_OF = "all training nodes ({}) are of class {}, and a model that always answers {} fits them"


def notes_of(y, split=None) -> list[str]:
    y = np.array(y)
    return label_notes(count_labels(y, int(y.max()) + 1, None if split is None else np.array(split)))


@pytest.fixture
def svm_files(tmp_path):
    """The options of 60 nodes of noise that have labels -1 and +1, and how many have -1."""
    draw = np.random.default_rng(3)
    y = np.where(draw.random(60) < 0.6, -1, 1)
    np.savetxt(tmp_path / "edges.txt", draw.integers(0, 60, (150, 2)), "%d")
    np.save(tmp_path / "x.npy", draw.standard_normal((60, 4)).astype(np.float32))
    np.save(tmp_path / "y.npy", y)
    files = [str(tmp_path / "edges.txt"), "--features", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.npy")]
    return files, int((y == -1).sum())


def test_a_training_whose_class_minus_1_counts_as_no_label_says_so(svm_files, capsys):
    files, minus = svm_files
    assert cli.main(["train", *files, "--hidden", "8", "--epochs", "2", "--out", "none"]) == 0
    err = capsys.readouterr().err
    n_train = round(0.6 * (60 - minus))
    assert err.count(MINUS.format(minus)) == 1 and err.count(ALL_OF.format(n_train, 1, 1)) == 1
    assert "have no node" not in err


def test_classes_without_a_node_are_named_in_one_line_with_what_numbers_the_others():
    y = np.array([10, 20, 30, 10, 20, 30])
    (note,) = notes_of(y, [0, 0, 0, 1, 2, 2])
    assert note.startswith("of 31 classes 28 have no node (0, 1, 2, ...): ")
    y[y >= 0] = np.unique(y[y >= 0], return_inverse=True)[1]
    assert note.endswith("use y[y >= 0] = np.unique(y[y >= 0], return_inverse=True)[1]") and not notes_of(y)
    assert notes_of([0, 2, -1])[0].startswith("of 3 classes 1 have no node (1): ")
    first, second = notes_of([-1, 1, 3])
    assert first.startswith(MINUS.format(1)) and second.startswith("of 4 classes 1 have no node (2): ")


def test_training_nodes_of_one_class_are_said():
    (note,) = notes_of([0, 0, 1, 1, -1], [0, 0, 1, 2, 0])
    assert note.startswith(ALL_OF.format(2, 0, 0))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, bool, np.int64])
def test_ordinary_labels_are_not_mentioned_nor_a_class_that_only_trains_or_never_does(dtype):
    y = np.array([0, 1, 2, 0, 1, 127], dtype)
    assert bool(notes_of(y)) == (dtype is not bool)
    assert not notes_of(np.minimum(y, 3).astype(dtype), [0, 0, 1, 0, 1, 2])
    assert not notes_of([0, 1, 2, -1, -1], [0, 0, 0, 1, 2])


@parallel([1, 2, 4], mpi=[])
@pytest.mark.parametrize("evaluation", ["full", "layerwise"])
def test_all_ranks_count_the_labels_of_the_whole_graph_once(comm, evaluation):
    y = np.tile([-1, 1, 3, 3], 10)  # the training nodes are of class 3
    graph = replace(random_graph(), y=y, split=np.where(y == 1, 1, 0).astype(np.int8))
    dgraph = distribute(graph, comm, method="random", replication=2 if comm.size == 4 else 1)
    model = Stack(GCN(dgraph.n_features, dgraph.n_classes))
    if evaluation == "full":
        scorer = Trainer(model, dgraph, TrainConfig()).steps.scorer
        assert isinstance(scorer, FullScorer)
    else:
        scorer = LayerwiseScorer(model, parts_of(graph, part_graph(graph, 3, "random"), comm, hops=1))
    minus, empty, train = data_notes(dgraph, scorer)
    assert minus.startswith(MINUS.format(10)) and empty.startswith("of 4 classes 1 have no node (2)")
    assert train.startswith(ALL_OF.format(20, 3, 3))
    several = replace(graph, y=np.eye(4, dtype=np.int8)[graph.y % 4])
    dgraph = distribute(several, comm, method="random")
    assert not data_notes(dgraph, FullScorer(model, dgraph, dgraph.split_n))


def test_hosts_without_loops_of_their_own_are_named_before_the_first_epoch(monkeypatch, capsys):
    monkeypatch.setattr(notes, "slow_loops", lambda: "spgnn is compiled without loops for avx1024")
    assert cli.main(["train", "sbm:n=60", "--epochs", "1", "--out", "none"]) == 0
    said = capsys.readouterr().err
    assert said.count("without loops for avx1024") == 1 and f"({socket.gethostname()})" in said
    assert "SPGNN_ISA_BUILD=all pip install" in said
