"""Passes: a Stack cut into layers that read direct neighbours at most once, to be computed one part after another.

Shapes: n own nodes of a part, g nodes of its halo, m = n + g, F and C columns, k parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from ...config.names import Norm
from ...errors import UsageError
from ...layers import APPNP, GAT, GCN, GCNII, SAGE, SGC, MixHop, Stack
from ...layers.layer import BuiltIn, Layer, hops_of
from ...layers.stack import apply_layer, norms_of
from ...spmm.chains.autograd import mixed_precision
from ...spmm.kernels.buffers import BufferPool
from ...spmm.kernels.csr import LocalCSR
from ...spmm.operator.features import SparseRows
from ...spmm.operator.subgraph import Block, SubgraphSpMM
from ...spmm.operator.timing import Operations
from .kept_product import ProductTaker

OWN_TRANSPOSES = ("gcn", "sym", "none", "loops")  # normalisations of an undirected graph
TOGETHER = "use --evaluation together"
Step = Callable[[Any, torch.Tensor], torch.Tensor]  # (A, H) -> rows of own nodes
Moments = tuple[torch.Tensor, torch.Tensor]  # mean and variance of each column over all nodes


@dataclass(frozen=True, slots=True)
class PartLayer:
    """What a pass computes of one layer.

    number    of the layer in the Stack, from 1; operator: the normalisation that it names.
    hops      1: it reads the rows of neighbours; 0: own rows alone.
    is_first  of the steps of its layer: the dropout of the Stack acts on what it reads.
    norm      the BatchNorm that it is, whose moments are of all nodes; else None.
    is_chain  it multiplies A with H itself, once; others may need all rows of H W.
    """

    number: int
    operator: Norm | None
    hops: int
    forward: Step
    is_first: bool = True
    norm: nn.BatchNorm1d | None = None
    is_chain: bool = False


@dataclass(frozen=True, slots=True)
class Pass:
    """Layers that are computed one after the other on the own rows of a part; only the first may read other rows.

    In training dropout draws by original ids, as everywhere. A BatchNorm begins a pass.
    """

    model: Stack
    layers: tuple[PartLayer, ...]

    @property
    def hops(self) -> int:
        """Whether the rows of the halo are read: 1 or 0."""
        return self.layers[0].hops

    def is_own_transpose(self, default: Norm, is_undirected: bool) -> bool:
        """Whether A of the first layer is its own transpose; default: the normalisation of layers that name none."""
        return is_undirected and (self.layers[0].operator or default) in OWN_TRANSPOSES

    @property
    def norm(self) -> nn.BatchNorm1d | None:
        """The BatchNorm that needs the moments of all rows that are read; None where there is none, and in evaluation."""
        norm = self.layers[0].norm
        is_running = norm is None or (not norm.training and norm.running_mean is not None)
        return None if is_running else norm

    def run(
        self, wide: SubgraphSpMM, local: SubgraphSpMM, H, is_last: bool, moments: Moments | None = None
    ) -> torch.Tensor:
        """Return the rows of own nodes, (n, C), from H, (m, F), or (n, F) where no rows of the halo are read.

        Args: wide   (n, m); local: (n, n), of layers that do not multiply; moments: of H, where `norm` needs them.
        """
        for layer in self.layers:
            rate, key = self.model.dropout_of(layer.number)
            A = wide if layer.hops else local
            A_l = A.at(layer.number, is_last and layer is self.layers[-1], layer.operator, key)
            H = A_l.drop(H, rate if layer.is_first else 0.0, draw=0)
            if isinstance(A, ProductTaker) and layer.is_chain:
                A.expected.expect(H)
            with mixed_precision(A_l):
                if layer.norm is not None and moments is not None:
                    H = _normalised(layer.norm, H if torch.is_tensor(H) else H.dense(), moments)
                else:
                    H = layer.forward(A_l, H)
            if not torch.is_tensor(H) or H.ndim != 2 or len(H) != A_l.n:
                got = tuple(H.shape) if torch.is_tensor(H) else type(H).__name__
                raise UsageError(f"layer {layer.number} returned {got}; expected ({A_l.n}, C). {TOGETHER}")
        units = self.model.units if is_last else None
        return H if units is None else units(H)


def passes_of(model: torch.nn.Module) -> tuple[Pass, ...]:
    """Return the passes of a Stack: a layer begins one where it multiplies with A, each product of its own, or is a BatchNorm.

    Raises: UsageError for a model whose layers need rows that a pass does not have.
    """
    if type(model) is not Stack or "forward" in vars(model):
        raise UsageError(f"layer by layer, a model is a plain Stack; got a {type(model).__name__}: {TOGETHER}")
    if model.jump:
        raise UsageError(f"layer by layer, jump = {model.jump} needs the outputs of all layers at once: {TOGETHER}")
    layers: list[PartLayer] = []
    for number, layer in enumerate(model.layers, start=1):
        layers += _part_layers(number, layer)
    starts = [place for place, layer in enumerate(layers) if layer.hops or layer.norm is not None or not place]
    return tuple(Pass(model, tuple(layers[a:b])) for a, b in zip(starts, [*starts[1:], len(layers)]))


@torch.no_grad()
def written_by(
    passes: tuple[Pass, ...], n_features: int, is_sparse: bool, dtype: torch.dtype
) -> list[tuple[int, torch.dtype]]:
    """Return width and type of what each pass writes, from passes over a graph of one node. Raises as the layers do."""
    norms, X = norms_of(passes[0].model), np.zeros((1, n_features), np.float32)
    shared = {"pool": BufferPool(), "dtype": dtype, "threads": 1, "ops": Operations()}
    made: dict[Norm, LocalCSR] = {norm or "gcn": LocalCSR(sp.eye_array(1, format="csr"), dtype, 1) for norm in norms}
    A = SubgraphSpMM(Block((1, 1), np.zeros(1, np.int64), None, norms[0] or "gcn", "one node", made=made, **shared))
    H: Any = SparseRows(sp.csr_array(X), shared["pool"], dtype, 1) if is_sparse else torch.from_numpy(X).to(dtype)
    passes[0].model.eval()
    written = []
    for number, one in enumerate(passes, start=1):
        H = one.run(A, A, H, number == len(passes))
        written.append((H.shape[1], H.dtype))
    return written


def _part_layers(number: int, layer: nn.Module) -> list[PartLayer]:
    hops, name = hops_of(layer), type(layer).__name__
    operator = layer.operator if isinstance(layer, Layer) else None
    if type(layer) is nn.BatchNorm1d:
        return [PartLayer(number, None, 0, partial(apply_layer, layer), norm=layer)]
    if type(layer) is nn.Dropout:
        return [PartLayer(number, None, 0, partial(apply_layer, layer))]
    if (steps_of := STEPS.get(type(layer))) is not None and hops is not None and hops > 1:
        if not getattr(layer, "residual", None):
            steps = steps_of(layer)
            return [PartLayer(number, operator, 1, step, place == 0, is_chain=True) for place, step in enumerate(steps)]
    if hops is None:
        raise UsageError(f"layer by layer, layer {number}, {name}, must declare hops, 0 or 1: see Layer. Or {TOGETHER}")
    if hops > 1:
        raise UsageError(
            f"layer by layer, a layer multiplies with A once; layer {number}, {name}, {hops} times: {TOGETHER}"
        )
    is_narrow = isinstance(layer, BuiltIn) and (layer.f_out or 0) < (layer.f_in or 0) and not layer.residual
    is_split = is_narrow and number > 1 and type(layer) in SPLITS
    if is_split and (steps := SPLITS[type(layer)](layer)):  # fewer columns are read of the halo, and fewer go back
        return [PartLayer(number, None, 0, steps[0]), PartLayer(number, operator, 1, steps[1], False, is_chain=True)]
    is_chain = isinstance(layer, BuiltIn) and not isinstance(layer, GAT) and getattr(layer, "aggregator", "") != "max"
    if isinstance(layer, BuiltIn) and (layer.f_in or 0) > (layer.f_out or 0):
        is_chain = False  # H W comes first
    return [PartLayer(number, operator, hops, partial(apply_layer, layer), is_chain=is_chain)]


def _split_sage(layer: SAGE) -> list[Step]:
    """Return [H W_n | H W_s] and A H W_n + H W_s + b where these are narrower than H; H W_n alone of aggregator gcn."""
    weights, C = [W for W in (layer.W_n, layer.W_s) if W is not None], layer.f_out
    if layer.aggregator == "max" or layer.combine != "add" or len(weights) * C >= layer.f_in:
        return []

    def last(A: Any, P: torch.Tensor) -> torch.Tensor:
        if len(weights) == 1:
            return layer.finish(A, P, A @ P)
        return layer.finish(A, P, A @ P[:, :C].contiguous() + A.select(P)[:, C:])

    return [lambda A, H: torch.cat([A.dense(H, W) for W in weights], 1), last]


def _sgc(layer: SGC) -> list[Step]:
    """Return A (... (A (H W))), an end as SGC has it."""
    first = lambda A, H: A.chain(H, layer.W_FC)
    product = lambda A, H: A @ H
    last = lambda A, H: layer.finish(A, H, A @ H)
    return [first, *[product] * (layer.powers - 2), last]


def _appnp(layer: APPNP) -> list[Step]:
    """Return Z_j = (1 - t) A Z_(j-1) + t H, eq. (5) of APPNP, on rows [Z_(j-1) | H], or H alone at first."""
    F, t = layer.f_out, layer.teleport

    def step(j: int, A: Any, S: torch.Tensor) -> torch.Tensor:
        start = A.select(S)[:, -F:]
        Z = torch.add(t * start, A @ A.drop(S[:, :F].contiguous(), layer.dropout, j), alpha=1 - t)
        return Z if j == layer.powers else torch.cat([Z, start], 1)

    return [partial(step, j) for j in range(1, layer.powers + 1)]


def _gcnii(layer: GCNII) -> list[Step]:
    """Return the products of GCNII, eq. (5), on rows [H_(l-1) | H_0], or H_0 alone at first."""
    F = layer.f_out

    def step(l: int, A: Any, S: torch.Tensor) -> torch.Tensor:
        H, start, W = S[:, :F].contiguous(), A.select(S)[:, -F:], layer.W[l - 1]
        S_nF = torch.add(layer.alpha * start, A @ A.drop(H, layer.dropout, draw=l), alpha=1 - layer.alpha)
        b_l = math.log(layer.theta / l + 1)
        H = layer.dense(A, H, S_nF, (1 - b_l) * torch.eye(F, dtype=W.dtype) + b_l * W)
        return H if l == len(layer.W) else torch.cat([H, start], 1)

    return [partial(step, l) for l in range(1, len(layer.W) + 1)]


def _mixhop(layer: MixHop) -> list[Step]:
    """Return the powers of MixHop, eq. (2), on rows [A^(j-1) H | what the powers below j have made], or H alone at first."""
    F, last, weights = layer.f_in, layer.powers[-1], dict(zip(layer.powers, layer.W))

    def joined(A: Any, made: torch.Tensor | None, S: torch.Tensor, j: int) -> torch.Tensor | None:
        if j not in weights:
            return made
        more = A.dense(S, weights[j])
        if made is None or not made.shape[1]:
            return more
        return torch.cat([made, more], 1) if layer.combine == "cat" else made + more

    def step(j: int, A: Any, S: torch.Tensor) -> torch.Tensor:
        H = S if j == 1 else S[:, :F].contiguous()
        made = joined(A, None, A.select(H), 0) if j == 1 else A.select(S)[:, F:]
        H = A @ H
        made = joined(A, made, H, j)
        if j == last:
            assert made is not None  # the last power has weights
            return layer.finish(A, H, made)
        H = H if torch.is_tensor(H) else H.dense()  # A^j X of sparse X
        return H if made is None else torch.cat([H, made.to(H.dtype)], 1)

    return [partial(step, j) for j in range(1, last + 1)]


STEPS: dict[type, Callable[[Any], Sequence[Step]]] = {SGC: _sgc, APPNP: _appnp, GCNII: _gcnii, MixHop: _mixhop}
SPLITS: dict[type, Callable[[Any], list[Step]]] = {  # H W and A (H W) + b
    GCN: lambda layer: [lambda A, H: A.dense(H, layer.W_FC), lambda A, P: layer.finish(A, P, A @ P)],
    SAGE: _split_sage,
}


def _normalised(norm: nn.BatchNorm1d, H: torch.Tensor, moments: Moments) -> torch.Tensor:
    """Return (H - mean) / sqrt(var + eps) w + b."""
    mean_F, var_F = moments
    out = (H.to(mean_F.dtype) - mean_F) * (var_F + norm.eps).rsqrt()
    return (out if norm.weight is None else out * norm.weight + norm.bias).to(H.dtype)
