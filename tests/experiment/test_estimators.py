"""NodeClassifier and NodeRegressor: scikit-learn's checks, nodes without a label, and what is refused."""

import sys

import numpy as np
import pytest

import spgnn
from spgnn.errors import ResourceError
from spgnn.layers import GCN, Stack

GRAPH = spgnn.load_graph("sbm:n=120,classes=3,features=4,seed=0")
Y = np.where(np.arange(120) < 60, GRAPH.y, -1)
WORDS = np.array([None if c < 0 else "abc"[c] for c in Y], object)


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("name", ["NodeClassifier", "NodeRegressor"])
def test_estimators_pass_the_checks_of_scikit_learn(name):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    expected = {"check_classifiers_classes": "its labels are -1 and 1, and -1 is no label"}
    estimator = getattr(spgnn, name)(epochs=60, lr=0.05, dropout=0.0, hidden=16)
    found = checks.check_estimator(estimator, on_skip=None, on_fail=None, expected_failed_checks=expected)
    assert not [result for result in found if result["status"] == "failed"]
    failed = {result["check_name"] for result in found if result["status"] == "xfail"}
    assert failed == (set(expected) if name == "NodeClassifier" else set())


@pytest.mark.parametrize("y, classes", [(Y, [0, 1, 2]), (np.where(Y < 0, np.nan, Y), [0, 1, 2]), (WORDS, list("abc"))])
@pytest.mark.parametrize("A", [GRAPH, GRAPH.A, GRAPH.A.tocoo().coords])
def test_a_classifier_is_the_training_of_its_options(y, classes, A):
    pytest.importorskip("sklearn")
    found = spgnn.NodeClassifier(hidden=8, epochs=5, lr=0.05, options={"weight_decay": 1e-3, "dtype": "float64"})
    assert found.fit(GRAPH.X, y, A).classes_.tolist() == classes
    model = Stack(GCN(4, 8, act="relu"), GCN(8, 3), dropout=0.5)
    split = np.where(Y < 0, -1, 0).astype(np.int8)
    graph = spgnn.load_graph(GRAPH.A, features=GRAPH.X, labels=Y, split=split)
    dgraph = spgnn.distribute(graph, dtype="float64")
    spgnn.train(model, dgraph, epochs=5, lr=0.05, weight_decay=1e-3, split="given")
    assert np.array_equal(found.predict_proba(GRAPH.X, A), spgnn.predict(model, dgraph).probabilities)
    right_N = found.predict(GRAPH.X, A) == np.array(classes)[GRAPH.y]
    assert found.score(GRAPH.X, y, A) == right_N[:60].mean()


def test_a_regressor_leaves_out_what_has_no_numbers():
    pytest.importorskip("sklearn")
    numbers_NC = np.stack([GRAPH.X.sum(1), GRAPH.X[:, 0]], axis=1).astype(float)
    some_NC = np.where(np.arange(120)[:, None] < 60, numbers_NC, np.nan)
    found = spgnn.NodeRegressor("mlp", epochs=60, lr=0.05, dropout=0.0).fit(GRAPH.X, some_NC)
    assert found.predict(GRAPH.X).shape == (120, 2) and found.score(GRAPH.X, some_NC) > 0.9
    assert found.fit(GRAPH.X, some_NC[:, 0]).predict(GRAPH.X).shape == (120,)


@pytest.mark.parametrize("y, A, options, fault", [
    (Y * 0, None, {}, "y has one class, .*0.*, and -1 is no label"),
    (Y * 0 - 1, None, {}, "y has no label"),
    (Y, GRAPH.A[:5, :5], {}, "A has 5 nodes, X has 120 rows"),
    (Y[1:], None, {}, "inconsistent numbers of samples"),
    (Y, None, {"depth": 3}, "NodeClassifier: unknown key 'depth'"),
    (Y, None, {"heads": 4}, "heads is no option of this family"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(y, A, options, fault):
    pytest.importorskip("sklearn")
    with pytest.raises((ValueError, spgnn.SpgnnError), match=fault):
        spgnn.NodeClassifier(options=options).fit(GRAPH.X, y, A)


def test_a_missing_scikit_learn_is_one_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "spgnn.experiment.estimators", raising=False)
    with pytest.raises(ResourceError, match=r"pip install 'spgnn\[sklearn\]'"):
        spgnn.NodeClassifier()
