"""A family of models is one entry of the registry: options, checks and checkpoints follow from it."""

import json
from copy import copy
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch
from command_line import in_python

import spgnn
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.errors import UsageError
from spgnn.experiment import run
from spgnn.layers import GCN, Stack
from spgnn.layers.registry import FAMILIES, ModelSpec, operator_of


@pytest.fixture
def plain(monkeypatch):
    """A family of a user."""
    monkeypatch.setattr("spgnn.layers.registry.FAMILIES", copy(FAMILIES))

    @spgnn.layers.family("plain", "hidden")
    def plain(f_in, n_classes, options):
        return Stack(GCN(f_in, options.hidden), GCN(options.hidden, n_classes))


def test_a_new_family_is_built_stored_and_rebuilt(plain):
    spec = ModelSpec.of(TrainConfig(model="plain", hidden=5), 6, 4)
    assert spec.arguments == {"f_in": 6, "n_classes": 4, "hidden": 5}
    again = ModelSpec(**json.loads(json.dumps(asdict(spec))))
    assert again == spec and [layer.f_out for layer in again.build().layers] == [5, 4]


def test_an_option_that_is_missing_in_a_stored_model_has_its_default(plain):
    stored = {"f_in": 6, "n_classes": 4, "hidden": 5}
    assert ModelSpec("gcn", stored).build().layers[0].act_name == "relu"


@pytest.mark.parametrize("options, message", [
    (dict(model="gat", hidden=20), "heads=8 does not divide hidden=20; the next smaller that does is 5"),
    (dict(model="sage", aggregator="gcn", combine="cat"), "aggregator gcn has no product .* use combine add"),
    (dict(model="gcn", layers=1, jump="cat"), "jump cat requires layers=2 or more, or classifier"),
    (dict(model="mixhop", hidden=2), "hidden=2 has no column for each of the 3 powers; raise hidden"),
    (dict(model="sgc", hidden=32), "hidden is no option of this family; omit it with model sgc"),
    (dict(model="gcn", teleport=0.2), "teleport is an option of model appnp and gcnii; omit it with model gcn"),
    (dict(model="plain", teleport=0.3), "teleport is an option of model appnp and gcnii; omit it with model plain"),
])  # fmt: skip
def test_options_that_do_not_fit_the_family_or_each_other_are_refused(plain, options, message):
    with pytest.raises(UsageError, match=message):
        operator_of(TrainConfig(**options))


def test_a_family_of_a_user_is_refused_under_a_built_in_name_or_with_an_option_that_no_model_has(plain):
    with pytest.raises(UsageError, match="family 'sage' is built in; choose another name"):
        spgnn.layers.family("sage", "hidden")
    with pytest.raises(UsageError, match="family 'wide': no model has an option 'hiden'; did you mean 'hidden'"):
        spgnn.layers.family("wide", "hiden")
    with pytest.raises(UsageError, match="a family's name is .*; expected text"):
        spgnn.layers.family(plain)


def test_the_operator_auto_is_that_of_the_first_layer_and_gcn_where_it_names_none(plain):
    class Sum(GCN):
        operator = "none"

    @spgnn.layers.family("sums", "hidden")
    def sums(f_in, n_classes, options):
        return Stack(Sum(f_in, options.hidden), GCN(options.hidden, n_classes))

    assert operator_of(TrainConfig()) == operator_of(TrainConfig(model="plain")) == "gcn"
    assert operator_of(TrainConfig(operator="row")) == "row"
    assert operator_of(TrainConfig(model="sums")) == "none"
    assert operator_of(TrainConfig(model="sums", operator="row")) == "row"  # of the last layer
    assert operator_of(TrainConfig(model="mlp")) == "loops"  # no layer multiplies with it


def test_an_operator_that_no_layer_of_the_model_uses_is_refused(plain):
    class Mean(GCN):
        operator = "row"

    @spgnn.layers.family("means")
    def means(f_in, n_classes, options):
        return Stack(Mean(f_in, n_classes))

    with pytest.raises(UsageError, match="operator none has no effect on model means, whose layers multiply with row"):
        operator_of(TrainConfig(model="means", operator="none"))


def test_checking_a_model_takes_no_memory_whatever_its_widths_are():
    operator_of(TrainConfig(hidden=1_000_000, layers=5, norm="layer"))


def test_options_are_checked_without_torch_and_without_the_files_of_families():
    code = "import sys; from spgnn.config import TrainConfig; from spgnn.layers.registry import check_options\n"
    code += "check_options(TrainConfig(model='gat')); print([name for name in sys.modules if 'torch' in name or 'layers.' in name])"
    assert in_python(code).stdout == "['spgnn.layers.registry']\n"


def test_what_is_built_has_the_weights_of_no_training():
    spec = ModelSpec.of(TrainConfig(), 6, 4)
    one, other = spec.build(), spec.build()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters())) and not one.is_trained


OTHER = {
    "hidden": 8, "layers": 4, "act": "elu", "norm": "layer", "residual": True, "bias": False, "dropout": 0.5, "input_dropout": False,
    "jump": "cat", "classifier": True, "aggregator": "sum", "combine": "cat", "heads": 2, "heads_out": 3, "attention": "v2",
    "attention_dropout": 0.4, "powers": 5, "teleport": 0.3,
}  # fmt: skip


def described(config):
    """What tells ranks that have different models: its text, and the shapes of its weights."""
    model = ModelSpec.of(config, 6, 6, SimpleNamespace(n_edge_features=3, typed_sizes=(3, 2), links=None)).build()
    return repr(model), [(name, tuple(p.shape)) for name, p in model.named_parameters()]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_option_of_a_family_changes_the_model_that_it_builds(name):
    assert set(OTHER) == {option for family in FAMILIES.values() for option in family.options}
    plain = dict(model=name, layers=3) | ({"hidden": 16} if "hidden" in FAMILIES[name].options else {})
    for option in FAMILIES[name].options:
        assert described(TrainConfig(**plain | {option: OTHER[option]})) != described(TrainConfig(**plain)), (
            f"{option} changes neither text nor weights: show it in extra_repr"
        )


@pytest.mark.parametrize(
    "options, given", [(dict(sampler="walk"), "sampler walk"), (dict(mode="average"), "mode average")]
)
def test_a_family_on_edges_trains_on_all_nodes(options, given):
    with pytest.raises(
        UsageError, match=f"model gine reads attributes of edges, which {given} does not keep; omit {given}"
    ):
        run("sbm:n=60,seed=1", TrainConfig(model="gine", **options), SelfCommunicator())
