"""stack_from_pyg: a Stack with the weights of PyG's convolutions computes what those compute."""

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from graphs import random_graph
from pyg_like import GATConv, GATv2Conv, GCNConv, SAGEConv, gin, output
from torch import nn
from worlds import parallel

import spgnn
from spgnn.dist import run_threads
from spgnn.errors import ShapeError, UsageError, together
from spgnn.layers import stack_from_pyg
from spgnn.layers.registry import ModelSpec

GRAPH = random_graph(n=30, edges=90, use="undirected")
A, X = torch.tensor(GRAPH.A.toarray() > 0).double(), torch.tensor(GRAPH.X)
relu, elu = nn.ReLU(), nn.ELU()

MODELS = {
    "gcn": lambda: [GCNConv(6, 5), relu, GCNConv(5, 4, bias=False), elu, GCNConv(4, 3)],
    "sage": lambda: [SAGEConv(6, 5), nn.Tanh(), nn.Dropout(0.5), SAGEConv(5, 3, "sum", root_weight=False)],
    "sage max": lambda: [SAGEConv(6, 5, "max"), relu, SAGEConv(5, 3, "max", project=True)],
    "gin": lambda: [gin(6, 7, 5, eps=0.3), relu, gin(5, 4, 3, eps=-0.2, train_eps=True)],
    "norms and a classifier": lambda: [GCNConv(6, 5), nn.LayerNorm(5), relu, SAGEConv(5, 4), relu, nn.Linear(4, 3)],
    "gat": lambda: [GATConv(6, 3, 4), elu, GATConv(12, 3, 2, concat=False)],
    "gat with one slope and no bias": lambda: [GATConv(6, 3, 2, negative_slope=0.05, bias=False), GATConv(6, 3)],
    "gat, heads side by side at the end": lambda: [GATConv(6, 4, 2), nn.LayerNorm(8), relu, GATConv(8, 3, 3)],
    "gat before others": lambda: [GATConv(6, 3, 4), relu, gin(12, 5, 4), GATConv(4, 2, 3), SAGEConv(6, 4, "max")],
    "gatv2": lambda: [GATv2Conv(6, 3, 4), elu, GATv2Conv(12, 3, 2, concat=False)],
}


def made(name):
    items, generator = [item.double() for item in MODELS[name]()], torch.Generator().manual_seed(3)
    for item in items:
        for parameter in item.parameters():
            nn.init.normal_(parameter, std=0.6, generator=generator)
    return items


def logits(model, comm, graph=GRAPH, **options):
    dgraph = spgnn.distribute(graph, comm, dtype=torch.float64, method="random", **options)
    with torch.no_grad():
        return dgraph.collect(model(dgraph.A, dgraph.X).numpy())


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("name", list(MODELS))
def test_the_logits_are_those_of_pygs_formulas(comm, name):
    items = made(name)
    with torch.no_grad():
        expected = output([item.eval() for item in items], X, A)
    np.testing.assert_allclose(logits(stack_from_pyg(items), comm), expected, rtol=0, atol=1e-11)


@parallel([1, 3], mpi=[])
def test_a_graph_of_from_pyg_is_read_as_pyg_reads_it(comm):
    directed = random_graph(n=30, edges=90)
    source, target = directed.A.nonzero()
    data = SimpleNamespace(edge_index=np.stack([source, target]), x=directed.X, num_nodes=30)
    A_in = torch.tensor(directed.A.toarray().T > 0).double()  # of j -> i, i reads j
    for name in ("sage", "gat", "gin"):
        items = made(name)
        with torch.no_grad():
            expected = output([item.eval() for item in items], torch.tensor(directed.X), A_in)
        model = stack_from_pyg(items)
        np.testing.assert_allclose(logits(model, comm, spgnn.from_pyg(data)), expected, rtol=0, atol=1e-11)
        assert np.abs(logits(model, comm, spgnn.from_pyg(data).with_edges("out")) - expected.numpy()).max() > 0.05


@pytest.mark.parametrize("name, options", [
    ("gcn", {"act": "elu"}), ("sage", {}), ("gin", {}), ("gat", {"act": "elu"}), ("gatv2", {"act": "elu"})])  # fmt: skip
def test_a_state_dict_gives_the_model_of_its_modules(name, options):
    convs = [item for item in made(name) if type(item).__name__.endswith("Conv")]
    if name in ("sage", "gin"):  # a state_dict has neither the aggregator nor whether eps is trained
        convs[1] = (SAGEConv(5, 3) if name == "sage" else gin(5, 4, 3, eps=-0.2)).double()
    net = nn.Module()
    net.first, net.convs = convs[0], nn.ModuleList(convs[1:])
    act = options.get("act", "relu")
    items = [item for conv in convs for item in (conv, act)][:-1]
    ours, theirs = stack_from_pyg(net.state_dict(), name, **options), stack_from_pyg(items)
    assert repr(ours) == repr(theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert ours.is_trained and not ours.training


def test_a_converted_model_goes_on_in_training_from_its_weights():
    model = stack_from_pyg([GCNConv(6, 4), "relu", GCNConv(4, 3)])
    before = [p.detach().clone() for p in model.parameters()]

    def train(comm):
        spgnn.train(model, spgnn.distribute(GRAPH, comm), epochs=1, lr=1e-9, optimizer="sgd")

    run_threads(1, train)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(before, model.parameters()))


class Basic(nn.Module):
    """What stack_from_pyg reads of PyG's models."""

    act_first, jk_mode, norms = False, "cat", [nn.Identity(), nn.Identity()]

    def __init__(self):
        super().__init__()
        self.convs, self.act, self.lin = nn.ModuleList([GATConv(6, 2, 2), SAGEConv(4, 3)]), nn.ReLU(), nn.Linear(7, 3)

    def forward(self, X, A):
        first = self.act(self.convs[0](X, A))
        return self.lin(torch.cat([first, self.act(self.convs[1](first, A))], dim=1))


Basic = type("GCN", (type("BasicGNN", (Basic,), {}),), {})


def test_a_model_of_pyg_with_jumping_knowledge_is_converted():
    torch.manual_seed(0)
    model = Basic().double()
    with torch.no_grad():
        expected = model(X, A)
    run_threads(2, lambda comm: np.testing.assert_allclose(logits(stack_from_pyg(model), comm), expected, atol=1e-11))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(6, 4), GCNConv(4, 3)


@pytest.mark.parametrize("source, options, message", [
    (lambda: Net(), {}, r"a Net cannot be converted, only GCNConv, .*stack_from_pyg\(\[net.conv1, 'relu', net.conv2\]\)"),
    (lambda: [GCNConv(6, 3), nn.BatchNorm1d(3)], {}, "a BatchNorm1d cannot be converted, only GCNConv"),
    (lambda: [GCNConv(6, 3, improved=True)], {}, "layer 1, GCNConv, has improved = True; only improved = False"),
    (lambda: [SAGEConv(6, 3, normalize=True)], {}, "has normalize = True"),
    (lambda: [SAGEConv(6, 3, "median")], {}, "has aggr = median; only mean, sum and max"),
    (lambda: [SAGEConv(6, 3, project=True)], {}, "has project = True; only with aggr = max"),
    (lambda: [GATConv(6, 3, residual=True)], {}, "has residual = True"),
    (lambda: ["relu", GCNConv(6, 3)], {}, "activation 'relu' does not follow a layer"),
    (lambda: [GCNConv(6, 3), "rely"], {}, "activation 'rely' is not known; did you mean 'relu'"),
    (lambda: [GCNConv(6, 3), nn.ELU(0.5)], {}, r"ELU\(alpha=0.5\) cannot be converted"),
    (list, {}, "stack_from_pyg got no layers"),
    (lambda: [GCNConv(6, 3)], {"family": "gcn"}, "family describes a state_dict; omit it, the list has its own"),
    (lambda: Net().state_dict(), {}, "family = None of a state_dict; expected one of: gat, gatv2, gcn, gin, sage"),
    (lambda: Net().state_dict(), {"family": "gcm"}, "family = 'gcm' of a state_dict; did you mean 'gcn'"),
    (lambda: Net().state_dict(), {"family": "sage"}, "the state_dict has no 'lin_l.weight' of a SAGEConv; it has conv1"),
    (lambda: Net().state_dict() | {"norm.running_mean": torch.ones(3)}, {"family": "gcn"}, "norm, read as Linear, has no 'weight'"),
    (lambda: Net().state_dict() | {"conv1.extra": torch.ones(3)}, {"family": "gcn"}, "conv1, read as GCNConv, has 'extra', which"),
    (lambda: [gin(6, 5, 3).nn, gin(6, 5, 3)], {}, "cannot be joined|reads|writes"),
])  # fmt: skip
def test_what_has_no_counterpart_is_refused(source, options, message):
    with pytest.raises((UsageError, ShapeError), match=message):
        stack_from_pyg(source(), **options)


def saved(folder, **options):
    model = stack_from_pyg([item.float() for item in made("norms and a classifier")])
    spgnn.experiment.save_run(folder, model, "sbm:n=40,classes=3,features=6", **options)
    return model


def test_a_converted_model_is_rebuilt_from_what_its_checkpoint_has():
    model = stack_from_pyg([gin(6, 7, 5), "relu", nn.Linear(5, 3)])
    again = ModelSpec(**json.loads(json.dumps(asdict(model.spec)))).build()
    again.load_state_dict(model.state_dict())
    assert repr(again) == repr(model)
    with pytest.raises(UsageError, match="layer 'Sequential' is not known"):
        ModelSpec("layers", model.spec.arguments | {"layers": [["Sequential", {}]]}).build()


@parallel([1, 3], mpi=[])
def test_spgnn_predict_reads_a_converted_model_on_any_number_of_ranks(comm, tmp_path):
    source, run = "sbm:n=40,classes=3,features=6", str(tmp_path / "run")
    together(comm, saved, run, root=0)
    report = spgnn.experiment.predict(run, comm)
    graph = spgnn.load_graph(source).with_edges("undirected")
    X, A = torch.tensor(graph.X), torch.tensor(graph.A.toarray() > 0).float()
    with torch.no_grad():
        Z = output([item.float().eval() for item in made("norms and a classifier")], X, A)
    assert report["n"] == 40 and 0 <= report["test"] <= 1
    assert np.array_equal(np.load(tmp_path / "run" / "predictions.npy"), Z.argmax(1))


def test_a_run_is_saved_of_a_converted_model_in_an_empty_folder_alone(tmp_path):
    with pytest.raises(UsageError, match="the model is a Linear, not a plain Stack"):
        spgnn.save_run(tmp_path / "out", nn.Linear(6, 3), "sbm:n=60")
    saved(tmp_path / "run")
    with pytest.raises(UsageError, match="holds another run; choose another folder"):
        saved(tmp_path / "run")
    with pytest.raises(UsageError, match="unknown key 'feature_nrm'; did you mean 'feature_norm'"):
        saved(tmp_path / "other", feature_nrm="row")
    assert "epochs" not in (tmp_path / "run" / "config.toml").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("SPGNN_TEST_PYG"), reason="SPGNN_TEST_PYG names no python with torch_geometric")
def test_models_that_pyg_trained_predict_the_same_on_1_and_3_ranks(tmp_path):
    graph = spgnn.load_graph("sbm:n=300,classes=4,features=12").with_edges("undirected")
    i, j = graph.A.nonzero()
    np.savez(tmp_path / "graph.npz", edge_index=np.stack([j, i]).astype(np.int64), X=graph.X, y=graph.y)
    script = Path(__file__).parents[1] / "pyg_export.py"
    command = [os.environ["SPGNN_TEST_PYG"], str(script), str(tmp_path / "graph.npz"), str(tmp_path / "made.pt")]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, check=True, timeout=300, env=env, capture_output=True, text=True)
    for name, (state, Z) in torch.load(tmp_path / "made.pt").items():
        model = stack_from_pyg(state, name.partition(" ")[0])

        def near(comm, model=model, Z=Z):
            dgraph = spgnn.distribute(graph, comm, method="random")
            with torch.no_grad():
                ours = dgraph.collect(model(dgraph.A, dgraph.X).numpy())
            assert np.abs(ours - Z.numpy()).max() <= 1e-5 * max(1, float(Z.abs().max())), name

        run_threads(1, near)
        run_threads(3, near)
