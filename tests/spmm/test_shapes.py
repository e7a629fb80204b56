"""Shapes and types of a dry run are those that torch's operations have."""

import pytest
import torch
from command_line import in_python
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from spgnn.spmm.dry.shapes import result_of

F = torch.nn.functional


def rows(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, requires_grad=dtype.is_floating_point)


CASES = {
    "mm": lambda: rows(5, 4) @ rows(4, 3),
    "addmm": lambda: torch.addmm(rows(3), rows(5, 4), rows(4, 3)),
    "mm into a tensor": lambda: torch.mm(rows(5, 4).detach(), rows(4, 3).detach(), out=torch.empty(5, 3)),
    "linear": lambda: F.linear(rows(5, 4), rows(3, 4), rows(3)),
    "broadcast": lambda: rows(5, 4) * rows(4) + rows(5, 1) - 2 / rows(5, 4),
    "of two types": lambda: rows(5, 4) + rows(5, 4, dtype=torch.float64),
    "bfloat16": lambda: (rows(5, 4, dtype=torch.bfloat16) * 2).to(torch.float32) + rows(5, 4, dtype=torch.bfloat16),
    "activations": lambda: sum(f(rows(5, 4)) for f in (torch.relu, torch.tanh, torch.sigmoid, F.elu, F.gelu, F.silu)),
    "layer norm": lambda: F.layer_norm(rows(5, 4), (4,), rows(4), rows(4)),
    "sums": lambda: rows(5, 4).sum(0) + rows(5, 4).sum(-1, keepdim=True).sum() + rows(5, 4).sum(0, keepdim=True),
    "taken rows": lambda: rows(5, 4)[torch.tensor([0, 2])],
    "in place": lambda: rows(5, 4).detach().add_(1).mul_(rows(4).detach()).relu_(),
    "selected rows": lambda: rows(5, 4).index_select(0, torch.tensor([0, 2])),
    "two labels": lambda: F.binary_cross_entropy_with_logits(rows(5, 4), torch.ones(5, 4), reduction="sum"),
}


class Comparing(TorchDispatchMode):
    """Compare each result with what the rules say."""

    def __init__(self):
        super().__init__()
        self.known = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        dry = lambda x: torch.empty_like(x, device="meta") if isinstance(x, torch.Tensor) else x
        found = result_of(func, tree_map(dry, args), tree_map(dry, kwargs))
        if found is not NotImplemented:
            self.known += 1
            for ours, torchs in zip(tree_leaves(found), tree_leaves(out), strict=True):
                assert torchs is None or (ours.shape, ours.dtype) == (torchs.shape, torchs.dtype), func
        return out


@pytest.mark.parametrize("name", CASES)
def test_results_have_the_shape_and_type_of_torchs_forward_and_backward(name):
    with Comparing() as compared:
        out = CASES[name]()
        if out.requires_grad:
            out.sum().backward()
    assert compared.known > 0


@pytest.mark.parametrize("wrong", [lambda a: a @ a, lambda a: torch.addmm(a, a, a), lambda a: a + a.new_empty(7)])
def test_what_does_not_fit_is_left_to_torch(wrong):
    class Ruled(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = result_of(func, args, kwargs or {})
            return func(*args, **kwargs or {}) if found is NotImplemented else found

    with Ruled(), pytest.raises(RuntimeError):
        wrong(torch.empty(5, 4, device="meta"))


@pytest.mark.slow
def test_a_dry_run_imports_neither_torchs_compiler_nor_sympy():
    script = (
        "import sys, spgnn\n"
        "graph = spgnn.graph_from_coo([0, 1, 2], [1, 2, 3])\n"
        "from spgnn.layers import GCN, Stack\n"
        "model = Stack(GCN(4, 4, act='relu', norm='layer', residual=True), GCN(4, 3), dropout=0.5)\n"
        "spgnn.measure(graph, [0, 0, 1, 1], widths=(4, 4, 3))\n"
        "from spgnn.spmm.dry.dry import dry_run\n"
        "from spgnn.spmm.dry.dry_operator import Setting\n"
        "for is_multilabel in (False, True):\n"
        "    dry_run(model, Setting(features=4, is_multilabel=is_multilabel))\n"
        "from spgnn.layers import GAT, SAGE\n"
        "counts = dict(T0=5, T1=3, T2=2)\n"
        "for layer in (lambda c: GAT(4, c, 1, act='elu'), lambda c: SAGE(4, c, 'max', act='relu')):\n"
        "    dry_run(Stack(layer(4), layer(3)), Setting(features=4, steps=(1, 1), is_cached=False, counts=counts))\n"
        "print([name for name in ('sympy', 'torch._dynamo') if name in sys.modules])\n"
    )
    done = in_python(script)
    assert done.stdout.strip() == "[]", done.stderr
