"""verify finds planted mistakes, names the module and the reason, and passes models that are exact."""

import dataclasses
import json

import numpy as np
import planted
import pytest
import torch
from graphs import random_graph

import spgnn
from spgnn import cli
from spgnn.config import TrainConfig
from spgnn.errors import UsageError
from spgnn.layers import GCN, Stack
from spgnn.layers.registry import FAMILIES, ModelSpec, reads_relations

pytestmark = pytest.mark.slow
GRAPH = random_graph(n=60, edges=300, use="directed")


def model(*faults, **options):
    return Stack(GCN(6, 5, act="relu"), *(fault(5) for fault in faults), GCN(5, 3), **options)


FAULTS = {  # layer -> the module that is wrong, the check that fails, what the reason says
    planted.TorchNorm: ("layers.1.inner", "training", "a statistic of the rows of one rank"),
    planted.TorchDropout: ("layers.1.inner", "training", "no function of the original node ids"),
    planted.Unsteady: ("layers.1", "evaluation", "two runs on one rank differ"),
    planted.Centred: ("layers.1", "evaluation", "a statistic of the rows of one rank"),
    planted.Counted: ("layers.1", "evaluation", "counts rows or ranks"),
    planted.Numbered: ("layers.1", "evaluation", "number of a row on its rank as the id"),
    planted.Accumulated: ("layers.1", "evaluation", "order of the rows on a rank"),
    planted.OfItsRank: ("layers.1", "evaluation", "the number of the rank"),
    planted.Remembered: ("layers.1", "buffers", "a buffer per rank"),
    planted.OwnRows: ("layers.1", "evaluation", "an exchange is missing"),
    planted.Detached: ("layers.1", "gradient", "as by detach"),
    planted.OwnDegree: ("layers.1", "evaluation", "as a degree"),
    planted.Mirrored: ("layers.1", "evaluation", "assumes that A is symmetric"),
    planted.NoTranspose: ("layers.1", "slope", "A in place of A'"),
    planted.PartOfAColumn: ("layers.1", "gradient", "wrong in 1.5D alone"),
    planted.HalfSummed: ("layers.1", "gradient", "not summed over the ranks"),
    planted.Raising: ("layers.1", "error", "ValueError: one rank alone"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_mistake_is_found_in_its_module_and_explained(fault):
    found = spgnn.verify(model(fault), GRAPH, ranks=(1, 2))
    module, check, reason = FAULTS[fault]
    assert not found.ok
    assert (found.finding.module, found.finding.check) == (module, check)
    assert reason in found.finding.reason
    assert str(found).endswith(f"likely reason: {found.finding.reason}")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_exact_under_dropout(name):
    wanted = dict(
        layers=3, hidden=8, dropout=0.4, attention_dropout=0.3, norm="layer", residual=True, jump="cat", heads=2
    )
    options = {key: value for key, value in wanted.items() if key in FAMILIES[name].options}
    rng = np.random.default_rng(0)
    edges, more = rng.integers(0, 40, (2, 100)), {"edge_attr": rng.standard_normal((100, 3))}
    more |= {"edge_y": rng.integers(0, 3, 100)} if reads_relations(name) else {}
    graph = spgnn.graph_from_coo(*edges, 41, X=rng.standard_normal((41, 6)), y=rng.integers(0, 3, 41), **more)
    made = ModelSpec.of(TrainConfig(model=name, **options), 6, 6, graph).build()
    found = spgnn.verify(made, graph, ranks=(1, 3))
    assert found.ok, found
    rows = [(row.ranks, row.edges) for row in found.rows]
    assert rows[:3] == [(3, "given"), (4, "given"), (3, "one-way")] and not found.rows[-1].note
    assert rows[3:] in ([], [(1, "on disk")])


def test_of_two_mistakes_the_first_is_named_and_what_follows_it_is_not():
    found = spgnn.verify(model(planted.Steady, planted.Centred, planted.Counted), GRAPH, (1, 2), replication=1)
    assert found.finding.module == "layers.2" and found.finding.ranks == (2,)


def test_a_model_that_is_not_trained_out_of_core_as_in_memory_is_found():
    found = spgnn.verify(model(planted.OfOnePart), GRAPH, ranks=(1, 2), replication=1)
    assert found.rows[-1].edges == "on disk" and found.rows[-1].loss > 1e-3
    assert found.finding.check == "evaluation" and "its `hops` does not say" in found.finding.reason
    bare = spgnn.verify(model(), dataclasses.replace(GRAPH, y=None, split=None), ranks=(1,))
    assert bare.ok and not bare.rows[-1].note and bare.rows[-1].gradient < 1e-12
    right = spgnn.verify(model(dropout=0.3), GRAPH, ranks=(1,), loss=lambda Z, y: ((Z[:, 0] - y) ** 2).sum())
    assert right.ok and right.rows[-1].edges == "on disk" and right.rows[-1].gradient < 1e-12


def test_a_layer_beside_a_wrong_one_is_not_blamed_for_the_gradient_of_what_both_read():
    found = spgnn.verify(model(planted.SideBySide), GRAPH, (1, 2), replication=1)
    assert (found.finding.module, found.finding.parameter) == ("layers.1.wrong", "layers.1.wrong.W_FF")


def test_an_assumption_of_symmetry_is_found_on_a_symmetric_graph_too():
    symmetric = random_graph(n=40, edges=150, use="undirected")
    found = spgnn.verify(model(planted.Mirrored), symmetric, (1, 2), replication=1)
    assert [row.edges for row in found.rows] == ["given", "one-way"] and found.rows[0].evaluation <= 1e-10
    assert found.finding.module == "layers.1" and "assumes that A is symmetric" in found.finding.reason


def test_rows_of_nonzeros_are_compared_by_their_nodes():
    assert spgnn.verify(model(planted.OnEdges), GRAPH, (1, 3), replication=1).ok
    wrong = model(lambda f: planted.OnEdges(f, planted.CentredEdges()))
    found = spgnn.verify(wrong, GRAPH, (1, 3), replication=1)
    assert found.finding.module == "layers.1.mlp.2" and "statistic" in found.finding.reason


def test_of_equal_edges_of_a_multigraph_each_is_compared_with_itself():
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 20, (2, 60))
    twice = np.concatenate([src, src]), np.concatenate([dst, dst])
    graph = spgnn.graph_from_coo(*twice, 20, edge_attr=rng.standard_normal((120, 5)), X=rng.standard_normal((20, 6)))
    found = spgnn.verify(model(planted.OnEdges), graph, (1, 3), replication=1, operator="none")
    assert found.ok and graph.nnz == 120


def test_a_foreign_model_is_taken_and_a_mistake_between_its_modules_is_its_own():
    assert spgnn.verify(planted.Foreign, GRAPH, (1, 2), replication=1).ok
    found = spgnn.verify(planted.Foreign(is_wrong=True), GRAPH, (1, 2), replication=1)
    assert (found.finding.module, found.finding.check) == ("", "evaluation")


def test_the_modules_within_a_wrapped_one_are_compared_too():
    good, wrong = (
        spgnn.wrap(planted.Gathering(5, *more)) for more in ([planted.CentredEdges()], [planted.FirstEdge()])
    )
    assert spgnn.verify(Stack(GCN(6, 5), good, GCN(5, 3), dropout=0.5), GRAPH, (1, 3), replication=1).ok
    found = spgnn.verify(Stack(GCN(6, 5), good, wrong, dropout=0.5), GRAPH, (1, 3))
    assert found.finding.module == "layers.2.mlp.2" and "replication" in found.rows[1].note
    assert "wrapped modules against themselves outside of wrap" in str(
        spgnn.verify(Stack(GCN(6, 5), good), GRAPH, (1, 2))
    )


def test_a_loss_is_a_sum_over_rows():
    of = torch.nn.functional.cross_entropy
    assert spgnn.verify(model(), GRAPH, (1, 3), loss=lambda Z, y: of(Z, y, reduction="sum"), replication=1).ok
    found = spgnn.verify(model(), GRAPH, (1, 3), loss=of, replication=1)
    assert (found.finding.module, found.finding.check) == ("loss", "loss")
    assert "the mean over the rows of a rank" in found.finding.reason


def test_rows_without_a_number_to_predict_are_left_out_of_a_loss():
    y = np.random.default_rng(0).standard_normal((60, 3))
    y[:7] = np.nan
    loss = lambda Z, y: ((Z - y) ** 2).sum()
    found = spgnn.verify(model(), dataclasses.replace(GRAPH, y=y), (1, 3), loss=loss, replication=1)
    assert found.ok and found.rows[0].loss < 1e-12


def test_nodes_have_the_names_of_the_graph_and_rows_are_a_frame():
    graph = spgnn.graph_from_coo([0, 1, 2, 3], [1, 2, 3, 0], X=torch.eye(4), ids=["a", "b", "c", "d"])
    found = spgnn.verify(Stack(planted.Centred(4)), graph, (1, 2), replication=1)
    assert found.finding.node in ("a", "b") and str(found.finding.node) in str(found)
    frame = found.to_frame()
    assert list(frame.ranks) == [2, 2] and frame.evaluation.max() == found.rows[0].evaluation > 1e-10


@pytest.mark.parametrize("given, message", [
    ((3, GRAPH), "got a int; expected a torch module"),
    ((model(), None), "got a NoneType"),
    ((model(), random_graph(n=4), (1, 5)), "the graph has 4 nodes; take fewer ranks"),
    ((model(), spgnn.load_graph("star")), "has no features"),
])  # fmt: skip
def test_what_cannot_be_verified_is_refused(given, message):
    with pytest.raises(UsageError, match=message):
        spgnn.verify(*given)


def test_the_model_and_torchs_generator_stay_as_they_are():
    made = model(planted.TorchDropout, planted.Remembered)
    before, state = {key: T.clone() for key, T in made.state_dict().items()}, torch.get_rng_state()
    spgnn.verify(made, GRAPH, (1, 2), replication=1)
    assert all(torch.equal(T, before[key]) for key, T in made.state_dict().items()) and made.training
    assert not made._forward_hooks and torch.equal(state, torch.get_rng_state())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from spgnn.layers import GCN, Layer, Stack\n\n\nclass Centred(Layer):\n    def forward(self, A, H):\n"
        "        return H - H.mean(0)\n\n\ndef good(f_in, n_classes):\n    return Stack(GCN(f_in, n_classes))\n\n\n"
        "def bad(f_in, n_classes):\n    return Stack(GCN(f_in, n_classes), Centred(n_classes, n_classes))\n"
    )
    return path


LINE = ["verify", "sbm:n=40,seed=0", "--ranks", "2", "--replication", "1"]


def test_the_command_ends_with_6_where_a_module_is_not_exact(file, capsys):
    assert cli.main([*LINE, f"{file}:good"]) == 0 and "exact on these ranks" in capsys.readouterr().out
    assert cli.main([*LINE, f"{file}:bad"]) == 6 and "module layers.1: wrong output" in capsys.readouterr().out
    assert cli.main([*LINE, f"{file}:bad", "--json"]) == 6
    *rows, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert [row["edges"] for row in rows] == ["given", "one-way"]
    assert last["finding"]["module"] == "layers.1" and not last["ok"]


def test_the_command_takes_families_and_runs(tmp_path, capsys):
    assert cli.main([*LINE, "--model", "sage", "--hidden", "8", "--dropout", "0.5"]) == 0
    run = str(tmp_path / "run")
    assert cli.main(["train", "sbm:n=40,seed=0", "--epochs", "1", "--hidden", "8", "--out", run]) == 0
    assert cli.main([*LINE, run]) == 0
    assert cli.main([*LINE, run, "--hidden", "8"]) == 2
    assert "--hidden has no effect" in capsys.readouterr().err
    assert cli.main([*LINE, "absent.py:f"]) == 2 and cli.main([*LINE, f"{__file__}:absent"]) == 2
