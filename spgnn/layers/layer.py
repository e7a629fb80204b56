"""Layer: parameters and an equation on A."""

from __future__ import annotations

import math
import threading

import torch
from torch import nn

from ..config.names import Norm
from ..errors import UsageError, nearest


def identity(Z: torch.Tensor) -> torch.Tensor:
    """Return Z."""
    return Z


ACTIVATIONS = {
    "none": identity,
    "relu": torch.relu,
    "elu": nn.functional.elu,
    "gelu": nn.functional.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
TORCHS_GENERATOR = (
    threading.Lock()
)  # reset_parameters draws from the one of the process, which ranks that are threads share


class Layer(nn.Module):
    """Base of layers: `forward(self, A, H)` returns the rows of own nodes from those of own nodes.

    A @ H multiplies with the whole graph's operator, whoever owns its rows, and is differentiable:

        class Residual(Layer):
            def __init__(self, F):
                super().__init__(F, F)
                self.W_FF = self.weight(F, F)

            def forward(self, A, H_nF):
                return torch.relu(A @ (H_nF @ self.W_FF) + H_nF)

    Where X is sparse, H of the first layer is SparseRows, which know H @ W and A @ H; a GCN before it makes it dense.

    Args: f_in, f_out  widths of H and of what forward returns.
    `operator` is the normalisation of A that the layer multiplies with (gcn, row, none, row_loops or loops); None: that
    of the DistGraph.
    A class may declare:
        is_random    False: a training pass computes what an evaluation does, which saves a pass for the scores.
        reads_input  False: H itself is not read, its product with A alone.
        hops         1: a row of the output depends on rows of H that its row of A has, and on its own row, by A.select(H)
                     (0: on its own row alone); then training steps may compute some rows only. None: any rows.
        is_chain     True: one A.chain(H, W, ...) of shape (f_in, f_out) and no other product with A, rows of H itself by
                     A.select(H). Then bytes are predicted, and training steps may compute some rows only.
    """

    operator: Norm | None = None
    reads_input = True
    hops: int | None = None
    is_random = True
    is_chain = False

    def __init__(self, f_in: int, f_out: int):
        super().__init__()
        self.f_in, self.f_out = f_in, f_out
        self.drawn: list[nn.Parameter] = []  # what `weight` made

    def extra_repr(self) -> str:
        return f"operator={self.operator}" if self.operator else ""

    def weight(self, *shape: int) -> nn.Parameter:
        """Return a parameter that a Stack draws from its seed by `initialise`; until then from torch's generator, as torch's modules are."""
        self.drawn.append(nn.Parameter(_glorot(shape)))
        return self.drawn[-1]

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw what `weight` made: U(-a, a), a = sqrt(6 / (fan_in + fan_out)); vectors are zero. Modules in it draw as they do.

        Drawn in float32 for every dtype, so that all start from the same weights. Other parameters keep their values.
        Source: Glorot & Bengio 2010, eq. (16).
        """
        for parameter in self.drawn:
            parameter.copy_(_glorot(parameter.shape, generator))
        for module in self.children():
            initialise(module, generator)


def hops_of(layer: nn.Module) -> int | None:
    """Return the hops that a layer declares; None where another forward, norm or activation may read other rows."""
    if not isinstance(layer, Layer) or "forward" in vars(layer):
        return None
    if type(getattr(layer, "norm", None)) not in (type(None), nn.LayerNorm):
        return None
    if hasattr(layer, "act_name") and layer.act is not activation(layer.act_name):
        return None
    declared = next(cls for cls in type(layer).__mro__ if {"hops", "forward"} & set(vars(cls)))
    return layer.hops if "hops" in vars(declared) else None


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Re-initialise a module and its children from a generator: by `initialise` if defined, else `reset_parameters`."""
    if hasattr(module, "initialise"):
        module.initialise(generator)
    elif hasattr(module, "reset_parameters"):
        seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))  # of a meta model, too
        with TORCHS_GENERATOR, torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            module.reset_parameters()
    else:
        for child in module.children():
            initialise(child, generator)


def _glorot(shape: tuple[int, ...], generator: torch.Generator | None = None) -> torch.Tensor:
    if len(shape) < 2:
        return torch.zeros(shape)
    bound = math.sqrt(6 / (shape[0] + shape[1]))
    return torch.empty(shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator)


def activation(act: str | None):
    """Return the function called `act`; None is the identity."""
    name = act or "none"
    if name not in ACTIVATIONS:
        raise UsageError(f"activation {act!r} is not known{nearest(name, ACTIVATIONS)}")
    return ACTIVATIONS[name]
