"""Layers are their equations; a Stack chains them; weights depend on the seed alone."""

import copy
import pickle

import numpy as np
import pytest
import torch
from dense_operator import DenseOperator
from graphs import dense_operator, random_graph

from spgnn.errors import UsageError
from spgnn.layers import ACTIVATIONS, GCN, Layer, Stack
from spgnn.layers.layer import hops_of
from spgnn.layers.stack import pruned_hops
from spgnn.spmm.dry.dry import dry_run
from spgnn.spmm.dry.dry_operator import Setting

GRAPH = random_graph(n=20, edges=60)
A = DenseOperator(dense_operator(GRAPH))
X = torch.tensor(GRAPH.X)


@pytest.mark.parametrize("act", [None, *ACTIVATIONS])
@pytest.mark.parametrize("bias", [True, False])
def test_gcn_is_act_of_a_h_w_plus_b(act, bias):
    layer = GCN(6, 4, act=act, bias=bias).double()
    layer.initialise(torch.Generator().manual_seed(1))
    if bias:
        layer.b_C.data.copy_(torch.arange(4.0))
    expected = A.A @ X @ layer.W_FC
    expected = ACTIVATIONS[act or "none"](expected + layer.b_C if bias else expected)
    assert torch.allclose(layer(A, X), expected, rtol=1e-12)
    assert (layer.b_C is None) == (not bias)


class Powers(Layer):
    """act(norm(H W_0 + A H W_1 + b)) + H, with what `end_with` takes; are_trained False: its weights are in a list."""

    def __init__(self, are_trained=True, **end):
        super().__init__(6, 6)
        self.W = [self.weight(6, 6) for _ in range(2)]
        if are_trained:
            self.W = torch.nn.ParameterList(self.W)
            self.both = list(self.W)  # a second name is no harm
        self.end_with(**end)

    def forward(self, A, H):
        return self.finish(A, H, A.powers(H, list(self.W), range(2), combine="sum"))


@pytest.mark.parametrize("end", [{}, {"act": "relu", "bias": True}, {"act": "tanh", "norm": "layer", "residual": True}])
def test_finish_gives_a_custom_layer_what_end_with_names(end):
    layer = Powers(**end).double()
    Z = X @ layer.W[0] + A.A @ X @ layer.W[1]
    if end.get("bias"):
        layer.b_C.data.copy_(torch.arange(6.0))
        Z = Z + layer.b_C
    if end.get("norm"):
        Z = (Z - Z.mean(1, keepdim=True)) / torch.sqrt(Z.var(1, unbiased=False, keepdim=True) + 1e-5)
    expected = ACTIVATIONS[end.get("act", "none")](Z) + (X if end.get("residual") else 0)
    assert torch.allclose(layer(A, X), expected, rtol=1e-12)
    assert repr(layer) != repr(Powers(**end | {"act": "elu"}).double()), (
        "ranks with different layers must differ in their text"
    )


def test_weights_in_a_list_are_refused_which_torch_would_not_train():
    Stack(Powers())
    with pytest.raises(UsageError, match="layer 2, Powers: W is a list of weights.*; use torch.nn.ParameterList"):
        Stack(GCN(6, 6), Powers(are_trained=False))


def test_weights_depend_on_the_seed_and_not_on_the_dtype():
    one, two, other = (Stack(GCN(6, 5), GCN(5, 5), GCN(5, 5)) for _ in range(3))
    two.double()
    for model, seed in ((one, 3), (two, 3), (other, 4)):
        model.initialise(seed)
    state, double, changed = one.state_dict(), two.state_dict(), other.state_dict()
    assert all(torch.equal(state[k].double(), double[k]) for k in state)
    assert not torch.equal(state["layers.0.W_FC"], changed["layers.0.W_FC"])
    assert not torch.equal(state["layers.1.W_FC"], state["layers.2.W_FC"])
    bound = np.sqrt(6 / 11)
    assert 0.8 * bound < float(state["layers.0.W_FC"].abs().max()) <= bound


class WithModules(Layer):
    """Has parameters that `weight` did not make, and modules of torch's own."""

    def __init__(self):
        super().__init__(6, 4)
        self.W_FC, self.scale = self.weight(6, 4), torch.nn.Parameter(torch.full((4,), 2.0))
        self.norm, self.inner = torch.nn.LayerNorm(4), torch.nn.Sequential(torch.nn.Linear(4, 4), GCN(4, 4))

    def forward(self, A, H):
        return self.inner[1](A, torch.relu(self.norm(A @ (H @ self.W_FC)) * self.scale))


def test_parameters_that_a_layer_did_not_draw_stay_and_modules_in_it_draw_as_they_do():
    one, two, other = WithModules(), WithModules(), WithModules()
    torch.manual_seed(5)
    for layer, seed in ((one, 0), (two, 0), (other, 1)):
        layer.initialise(torch.Generator().manual_seed(seed))
    assert torch.equal(one.scale, torch.full((4,), 2.0)) and torch.equal(one.norm.weight, torch.ones(4))
    for (name, p), q, r in zip(one.named_parameters(), two.parameters(), other.parameters()):
        assert torch.equal(p, q), name
        assert p.ndim < 2 or not torch.allclose(p, r), name
    assert float(torch.rand(())) == float(
        (torch.manual_seed(5), torch.rand(()))[1]
    )  # torch's own generator is where it was
    assert Stack(WithModules(), GCN(4, 2)).double()(A, X).abs().sum() > 0


def test_models_can_be_pickled_and_copied():
    model = Stack(GCN(6, 5), WithModules.__base__(5, 5), GCN(5, 2, act="relu"))
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        for p, q in zip(model.parameters(), copied.parameters()):
            assert torch.equal(p, q)
        copied.initialise(1)
        assert hops_of(copied.layers[0]) == 1 and not torch.equal(copied.layers[0].W_FC, model.layers[0].W_FC)
        copied.load_state_dict(model.state_dict())
        assert copied.is_trained and torch.equal(copied.layers[0].W_FC, model.layers[0].W_FC)


def test_what_a_subclass_or_another_norm_makes_of_an_equation_is_not_known():
    class Mine(Stack):
        def forward(self, A, X, seed=0, epoch=0):
            return torch.nn.functional.dropout(super().forward(A, X, seed, epoch), 0.9, self.training)

    plain, normed, named = (Stack(GCN(6, 4), GCN(4, 2)) for _ in range(3))
    normed.layers[0].norm = torch.nn.BatchNorm1d(4)
    named.layers[0].act = torch.nn.Dropout(0.8)
    run = dry_run(plain, Setting(features=6))
    assert pruned_hops(plain, run) == ((1, 1), "") and not plain.is_random
    for model in (Mine(GCN(6, 4), GCN(4, 2)), normed, named):
        assert pruned_hops(model, run)[1] and model.is_random
