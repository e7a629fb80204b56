"""Layer: parameters and an equation on A."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, TypeVar, cast

import torch
from torch import nn

from ..config.names import LAYER_NORMS, Norm
from ..errors import NamesKeywords, UsageError, check_integer, nearest
from ..spmm.chains.end import ENDS, end
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView

T = TypeVar("T")
Activation = Callable[[torch.Tensor], torch.Tensor]


def identity(Z: torch.Tensor) -> torch.Tensor:
    """Return Z."""
    return Z


ACTIVATIONS: dict[str, Activation] = {
    "none": identity,
    "relu": torch.relu,
    "elu": nn.functional.elu,
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
SHOWN_APART = frozenset(("f_in", "f_out", "act", "bias", "norm", "residual"))
NORMS = (None, *(name for name in LAYER_NORMS if name != "none"))
ROW_WISE = (nn.Linear, nn.Identity, nn.LayerNorm, nn.ReLU, nn.ELU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.SiLU)
ROW_WISE += (nn.Mish, nn.PReLU, nn.SELU, nn.CELU, nn.ReLU6, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish)
# reset_parameters draws from the generator of the process, which ranks that are threads share.
TORCHS_GENERATOR = threading.Lock()


def derived(function: Callable[[Any], T]) -> T:
    """Return a class attribute that is computed from the layer, such as hops = derived(lambda self: self.powers)."""
    return cast(T, property(function))


class MadeWith(NamesKeywords):
    """A class whose objects have their constructor's arguments as made_with, from which a saved Stack is rebuilt."""

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        layer = super().__call__(*args, **keywords)
        arguments = inspect.signature(cls.__init__).bind(layer, *args, **keywords).arguments
        _, *given = arguments.items()
        vars(layer)["made_with"] = {key: value for key, value in given if key != "end"} | arguments.get("end", {})
        return layer


class Ending(TypedDict, total=False):
    """Keywords of Layer.end_with."""

    act: str | None
    bias: bool
    norm: str | None
    residual: bool


class Layer(nn.Module, metaclass=MadeWith):
    """Z = forward(A, H): an equation on the operator A and the rows H of own nodes, which returns rows of own nodes.

    A @ H multiplies with the operator of the whole graph and is differentiable in H:

        class Residual(Layer):
            def __init__(self, F):
                super().__init__(F, F)
                self.W_FF = self.weight(F, F)

            def forward(self, A, H_nF):
                return torch.relu(A @ (H_nF @ self.W_FF) + H_nF)

    If X is sparse, H of the first layer is SparseRows, which supports only H @ W and A @ H.

    Args: f_in, f_out  widths F of H and C of Z.
    A class may declare:
        operator     normalisation of A: gcn, sym, row, none, row_loops or loops. None: the one of the DistGraph.
        is_random    False: a training pass computes the same as an evaluation, so its logits are scored.
        reads_input  False: H is read only through A H, which may be cached.
        hops         1: a row of Z depends on the rows of H in its row of A, and on its own row by A.select(H).
                     0: on its own row alone. Training steps may then compute some rows only. None: on any rows.
        carries_edges  True: forward(A, H, E) returns (H, E), where E are states of edges (E, F). The first such layer of
                     a Stack gets None.
        drops_input  False: the dropout of a Stack does not act on H, since the layer drops rows itself.
    In the examples of the layers A is `dgraph.A`, and H is `dgraph.X` with 60 rows and 16 columns.
    """

    operator: Norm | None = None
    reads_input = True
    hops: int | None = None
    is_random = True
    drops_input = True
    carries_edges = False
    residual: bool | None = None  # None until end_with
    act: Activation
    norm: nn.Module | None
    b_C: nn.Parameter | None

    def __init__(self, f_in: int, f_out: int):
        for name, width in (("f_in", f_in), ("f_out", f_out)):
            check_integer(name, width, 1)
        super().__init__()
        self.f_in, self.f_out = f_in, f_out
        self.drawn: list[tuple[nn.Parameter, float]] = []  # parameters that `weight` made, with their start

    def extra_repr(self) -> str:
        """Return widths, arguments of the constructor that are attributes, end and operator.

        Ranks compare this text, and the shapes of weights, to find models that differ.
        """
        shown = [f"{self.f_in} -> {self.f_out}"]
        for name in inspect.signature(type(self).__init__).parameters:
            value = None if name in SHOWN_APART else vars(self).get(name)
            if isinstance(value, (bool, int, float, str, tuple)):
                shown.append(f"{name}={value}")
        if self.residual is not None:
            shown.append(f"act={self.act_name}" + (", residual" if self.residual else ""))
        if self.operator:
            shown.append(f"operator={self.operator}")
        return ", ".join(shown)

    def end_with(
        self, act: str | None = None, bias: bool = False, norm: str | None = None, residual: bool = False
    ) -> None:
        """Set the end of the layer, Z = act(norm(Z + b)) + H, which `finish`, `chained` and `dense` apply.

        Args: act       relu, elu, gelu, silu, tanh, sigmoid, or None.
              bias      add b.
              norm      "layer": normalise each row before the activation; or None.
              residual  add H if f_in = f_out.
        """
        if norm not in NORMS:
            raise UsageError(f"norm {norm!r} is not known{nearest(str(norm), [name for name in NORMS if name])}")
        self.act = activation(act)
        self.register_parameter("b_C", self.weight(self.f_out) if bias else None)
        self.norm = nn.LayerNorm(self.f_out) if norm == "layer" else None
        self.residual = residual and self.f_in == self.f_out

    @property
    def act_name(self) -> str | None:
        """The name of the activation in ACTIVATIONS; None if it was replaced by another function."""
        return next((name for name, act in ACTIVATIONS.items() if act is self.act), None)

    @property
    def has_other_act(self) -> bool:
        """Whether the activation of `end_with` was replaced."""
        return self.residual is not None and self.act_name is None

    def chained(
        self, A: LayerView, H_mF: AnyRows, W_FC: torch.Tensor, V_FC: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return act(norm(A H W + H V + b)) + H, (n, C), see `end_with`; V None: without H V. Collective."""
        Z_nC = A.chain(H_mF, W_FC, self.b_C, relu=self._is_relu, V_FC=V_FC)
        return Z_nC if self._is_relu else self._end(A, H_mF, Z_nC)

    def dense(
        self, A: LayerView, H_mF: AnyRows, X_nF: AnyRows, W_FC: torch.Tensor, add_nC: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return act(norm(X W + add + b)) + H, (n, C), see `end_with`."""
        Z_nC = A.dense(X_nF, W_FC, self.b_C, relu=self._is_relu, add=add_nC)
        return Z_nC if self._is_relu else self._end(A, H_mF, Z_nC)

    @property
    def _is_relu(self) -> bool:
        """Whether the end is a bias and a ReLU, which a product applies itself."""
        return self.act is torch.relu and self.norm is None and not self.residual

    def finish(self, A: LayerView, H_mF: AnyRows, Z_nC: torch.Tensor) -> torch.Tensor:
        """Return act(norm(Z + b)) + H, (n, C), see `end_with`."""
        return self._end(A, H_mF, Z_nC, self.b_C)

    def _end(self, A: LayerView, H_mF: AnyRows, Z_nC: torch.Tensor, b_C: torch.Tensor | None = None) -> torch.Tensor:
        if self.norm is not None:
            Z_nC, b_C = self.norm(end(A, Z_nC, b_C)), None
        return self.add_input(A, H_mF, apply_act(A, Z_nC, self.act, b_C))

    def add_input(self, A: LayerView, H_mF: AnyRows, Z_nC: torch.Tensor) -> torch.Tensor:
        """Return Z + H if the layer has a residual, else Z."""
        if not self.residual:
            return Z_nC
        H_nF = A.select(H_mF)
        return Z_nC + (H_nF if torch.is_tensor(H_nF) else H_nF.dense())  # SparseRows; dense H is as large as Z

    def weight(self, *shape: int, start: float = 0.0) -> nn.Parameter:
        """Return a parameter that `initialise` draws, as a Stack does from its seed; until then drawn by torch's generator.

        Args: start  value of the entries of a vector or a number, which are not drawn.
        """
        parameter = nn.Parameter(_drawn(shape, start))
        self.drawn.append((parameter, start))
        return parameter

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """W ~ U(-a, a), a = sqrt(6 / (fan_in + fan_out)), for each matrix that `weight` made; vectors start again.

        Draws are float32 for every dtype, so that all start from the same weights. Other parameters keep their values;
        modules within the layer are initialised too. Source: Glorot & Bengio 2010, eq. (16).
        """
        for parameter, start in self.drawn:
            parameter.copy_(_drawn(parameter.shape, start, generator))
        for module in self.children():
            initialise(module, generator)


class BuiltIn(Layer):
    """A layer of spgnn whose only random numbers are its dropout, unless a part of it was replaced."""

    is_random = derived(lambda self: getattr(self, "dropout", 0) > 0 or hops_of(self) is None)


def is_row_wise(module: nn.Module) -> bool:
    """Return whether a module of torch computes each row of its output from this row of H alone, without random numbers."""
    is_changed = "forward" in vars(module) or module._forward_pre_hooks or module._forward_hooks
    if type(module) is nn.Sequential:
        return not is_changed and all(map(is_row_wise, module))
    return type(module) in ROW_WISE and not is_changed


def hops_of(layer: nn.Module) -> int | None:
    """Return the hops that a layer declares; None if it has another forward, norm or activation, which may read any rows."""
    if is_row_wise(layer):
        return 0
    if not isinstance(layer, Layer) or "forward" in vars(layer):
        return None
    if type(getattr(layer, "norm", None)) not in (type(None), nn.LayerNorm):
        return None
    if layer.has_other_act:
        return None
    declared = next(cls for cls in type(layer).__mro__ if {"hops", "forward"} & set(vars(cls)))
    return layer.hops if "hops" in vars(declared) else None


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Re-initialise a module and its children from a generator: by `initialise` if defined, else `reset_parameters`."""
    if callable(draw := getattr(module, "initialise", None)):
        draw(generator)
    elif type(module) is nn.Linear:  # same as reset_parameters, without the generator of the process
        with torch.no_grad():
            bound = 1 / math.sqrt(max(module.in_features, 1))
            for parameter in module.parameters():
                parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))
    elif callable(reset := getattr(module, "reset_parameters", None)):
        seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))  # of a meta model, too
        with TORCHS_GENERATOR, torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            reset()
    else:
        for child in module.children():
            initialise(child, generator)


def _drawn(shape: Sequence[int], start: float, generator: torch.Generator | None = None) -> torch.Tensor:
    if len(shape) < 2:
        return torch.full(tuple(shape), float(start))
    bound = math.sqrt(6 / (shape[-2] + shape[-1]))
    return torch.empty(shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator)


def width_of(layer: nn.Module, name: Literal["f_in", "f_out"]) -> int | None:
    """Return f_in or f_out of a layer, or in_features or out_features of a module of torch; None if it has none."""
    return getattr(layer, name, getattr(layer, {"f_in": "in_features", "f_out": "out_features"}[name], None))


def apply_act(A: LayerView, Z_nC: torch.Tensor, act: Activation, b_C: torch.Tensor | None = None) -> torch.Tensor:
    """Return act(Z + b), in one pass if the kernels have the activation."""
    name = next((name for name in ENDS if ACTIVATIONS[name] is act), None)
    return act(end(A, Z_nC, b_C)) if name is None else end(A, Z_nC, b_C, name)


def dense_rows(layer: Layer, H: AnyRows) -> torch.Tensor:
    """Return H. Raises: UsageError if it is sparse, which the layer cannot read."""
    if not torch.is_tensor(H):
        raise UsageError(f"{type(layer).__name__} reads dense rows, but X is sparse: put an MLP before it")
    return H


def add_bias(Z_nC: torch.Tensor, b_C: torch.Tensor | None) -> torch.Tensor:
    """Return Z + b in the type of Z; if b is None, Z."""
    return Z_nC if b_C is None else Z_nC + b_C.to(Z_nC.dtype)


def activation(act: str | None) -> Activation:
    """Return the function of ACTIVATIONS; None: the identity. Raises: UsageError for another name."""
    name = act or "none"
    if name not in ACTIVATIONS:
        raise UsageError(f"activation {act!r} is not known{nearest(name, ACTIVATIONS)}")
    return ACTIVATIONS[name]
