"""A family of models is one entry of the registry: options, checks and checkpoints follow from it."""

import json
from dataclasses import asdict

import pytest
import torch

from spgnn import cli
from spgnn.config import TrainConfig
from spgnn.errors import UsageError
from spgnn.layers import GCN, Stack
from spgnn.layers.registry import FAMILIES, Family, ModelSpec, check_model


@pytest.fixture
def plain(monkeypatch):
    """A second family, registered as a new one would be."""
    make = lambda f_in, n_classes, options: Stack(GCN(f_in, options.hidden), GCN(options.hidden, n_classes))
    monkeypatch.setitem(FAMILIES, "plain", Family(("hidden",), make))


def test_a_gcn_has_the_layers_that_its_options_say():
    options = dict(hidden=5, layers=3, norm="layer", residual=True, bias=False, dropout=0.3, input_dropout=False)
    model = ModelSpec.of(TrainConfig(**options), 6, 4).build()
    assert [(layer.f_in, layer.f_out, layer.act_name) for layer in model.layers] == [
        (6, 5, "relu"),
        (5, 5, "relu"),
        (5, 4, "none"),
    ]
    assert [layer.norm is not None for layer in model.layers] == [True, True, False]
    assert [layer.residual for layer in model.layers] == [False, True, False]
    assert model.dropout == 0.3 and not model.input_dropout and all(layer.b_C is None for layer in model.layers)


def test_a_new_family_is_built_stored_and_rebuilt(plain):
    spec = ModelSpec.of(TrainConfig(model="plain", hidden=5), 6, 4)
    assert spec.arguments == {"f_in": 6, "n_classes": 4, "hidden": 5}
    again = ModelSpec(**json.loads(json.dumps(asdict(spec))))
    assert again == spec and [layer.f_out for layer in again.build().layers] == [5, 4]


def test_an_option_of_another_family_is_refused(plain):
    check_model(TrainConfig(model="plain", hidden=5))
    check_model(TrainConfig(dropout=0.5))
    with pytest.raises(UsageError, match="--input-dropout is an option of --model gcn; plain has none"):
        check_model(TrainConfig(model="plain", input_dropout=False))


def test_a_family_that_is_not_known_is_refused_before_the_graph_is_read(capsys):
    assert cli.main(["train", "nowhere", "--model", "gcm"]) == 2
    assert "--model 'gcm' is not known; did you mean 'gcn'?" in capsys.readouterr().err


def test_help_names_every_family(capsys):
    cli.main(["train", "--help"])
    line = next(line for line in capsys.readouterr().out.splitlines() if "--model" in line)
    assert all(name in line for name in FAMILIES)


def test_what_is_built_has_the_weights_of_no_training():
    spec = ModelSpec.of(TrainConfig(), 6, 4)
    one, other = spec.build(), spec.build()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters())) and not one.is_trained
