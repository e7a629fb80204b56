"""Layer: parameters and an equation on A."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import torch
from torch import nn

from ..config.names import LAYER_NORMS, Norm
from ..errors import NamesKeywords, UsageError, check_integer, nearest
from ..spmm.chains.end import ENDS, end
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView

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


class MadeWith(NamesKeywords):
    """A class whose objects know their arguments by keyword, as made_with: a Stack of them can be listed and rebuilt."""

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
    A family calls `end_with` once for act, bias, norm and residual, which `chained` and `finish` then apply.
    `operator` is the normalisation of A that the layer multiplies with (gcn, row, none, row_loops or loops); None: the
    DistGraph's.
    A class may declare:
        is_random    False: a training pass computes what an evaluation does, which saves a pass for the scores.
        reads_input  False: H itself is not read, its product with A alone.
        hops         1: a row of the output depends on rows of H that its row of A has, and on its own row, by A.select(H)
                     (0: on its own row alone); then training steps may compute some rows only. None: any rows.
        carries_edges  True: forward(self, A, H, E) returns (H, E), E the states of edges (E, F) of the last such layer of
                     a Stack, None before the first.
        drops_input  True: a Stack's dropout acts on the input of the layer; False: the layer does that itself.
    """

    operator: Norm | None = None
    reads_input = True
    carries_edges = False
    if TYPE_CHECKING:  # declared by a value, or by a property

        @property
        def hops(self) -> int | None: ...
        @property
        def is_random(self) -> bool: ...
        @property
        def drops_input(self) -> bool: ...

    else:
        hops, is_random, drops_input = None, True, True

    # Set by end_with.
    act: Activation
    act_name: str
    b_C: nn.Parameter | None
    norm: nn.LayerNorm | None
    residual: bool

    def __init__(self, f_in: int, f_out: int):
        for name, width in (("f_in", f_in), ("f_out", f_out)):
            check_integer(name, width, 1)
        super().__init__()
        self.f_in, self.f_out = f_in, f_out
        self.drawn: list[nn.Parameter] = []  # what `weight` made

    def extra_repr(self) -> str:
        """Return widths, arguments of the constructor that are attributes, end and operator.

        Ranks with different models are told apart by what this shows, and by the shapes of weights.
        """
        shown = [f"{self.f_in} -> {self.f_out}"]
        for name in inspect.signature(type(self).__init__).parameters:
            value = None if name in SHOWN_APART else vars(self).get(name)
            if isinstance(value, (bool, int, float, str, tuple)):
                shown.append(f"{name}={value}")
        if hasattr(self, "act_name"):
            shown.append(f"act={self.act_name}" + (", residual" if self.residual else ""))
        if self.operator:
            shown.append(f"operator={self.operator}")
        return ", ".join(shown)

    def end_with(
        self, act: str | None = None, bias: bool = False, norm: str | None = None, residual: bool = False
    ) -> None:
        """Set what follows the product of the layer: Z = act(norm(Z + b)) + H.

        Args: act       relu, elu, gelu, tanh, sigmoid, or None.
              bias      add b.
              norm      None, or "layer": normalise each row before the activation.
              residual  add H; needs f_in = f_out, else it is left out.
        """
        if norm not in NORMS:
            raise UsageError(f"norm {norm!r} is not known{nearest(str(norm), [name for name in NORMS if name])}")
        self.act_name = act or "none"
        self.act = activation(act)
        self.b_C = self.weight(self.f_out) if bias else None
        self.norm = nn.LayerNorm(self.f_out) if norm == "layer" else None
        self.residual = residual and self.f_in == self.f_out

    @property
    def has_pass(self) -> bool:
        """Whether the kernels have the activation."""
        return self.act_name in ENDS and self.act is activation(self.act_name)

    def chained(
        self, A: LayerView, H_mF: AnyRows, W_FC: torch.Tensor, V_FC: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return act(norm(A H W + H V + b)) + H, (n, C), as `end_with` has it; V None: without H V. Collective."""
        Z_nC = A.chain(H_mF, W_FC, self.b_C, relu=self._is_relu, V_FC=V_FC)
        return Z_nC if self._is_relu else self._end(A, H_mF, Z_nC)

    def dense(
        self, A: LayerView, H_mF: AnyRows, X_nF: AnyRows, W_FC: torch.Tensor, add_nC: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return act(norm(X W + add + b)) + H, (n, C), as `end_with` has it."""
        Z_nC = A.dense(X_nF, W_FC, self.b_C, relu=self._is_relu, add=add_nC)
        return Z_nC if self._is_relu else self._end(A, H_mF, Z_nC)

    @property
    def _is_relu(self) -> bool:
        """Whether a ReLU alone follows the bias: products end in it."""
        return self.act is torch.relu and self.norm is None and not self.residual

    def finish(self, A: LayerView, H_mF: AnyRows, Z_nC: torch.Tensor) -> torch.Tensor:
        """Return act(norm(Z + b)) + H, (n, C), as `end_with` has it."""
        return self._end(A, H_mF, Z_nC, self.b_C)

    def _end(self, A: LayerView, H_mF: AnyRows, Z_nC: torch.Tensor, b_C: torch.Tensor | None = None) -> torch.Tensor:
        if self.norm is not None:
            Z_nC, b_C = self.norm(end(A, Z_nC, b_C)), None
        Z_nC = end(A, Z_nC, b_C, self.act_name) if self.has_pass else self.act(end(A, Z_nC, b_C))
        return self.add_input(A, H_mF, Z_nC)

    def add_input(self, A: LayerView, H_mF: AnyRows, Z_nC: torch.Tensor) -> torch.Tensor:
        """Return Z + H where the layer has a residual, else Z."""
        return Z_nC + _dense(A.select(H_mF)) if self.residual else Z_nC

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


class BuiltIn(Layer):
    """A layer of spgnn that multiplies with A: it draws nothing but its dropout, unless a part of it is replaced."""

    @property
    def is_random(self) -> bool:
        """Whether a training pass may differ from an evaluation of the same weights."""
        return getattr(self, "dropout", 0) > 0 or hops_of(self) is None


def is_row_wise(module: nn.Module) -> bool:
    """Return whether a module of torch computes each row of its output from the same row of H, and draws nothing."""
    is_changed = "forward" in vars(module) or module._forward_pre_hooks or module._forward_hooks
    if type(module) is nn.Sequential:
        return not is_changed and all(map(is_row_wise, module))
    return type(module) in ROW_WISE and not is_changed


def hops_of(layer: nn.Module) -> int | None:
    """Return the hops that a layer declares; None where another forward, norm or activation may read other rows."""
    if is_row_wise(layer):
        return 0
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
    if callable(draw := getattr(module, "initialise", None)):
        draw(generator)
    elif type(module) is nn.Linear:  # as reset_parameters draws it, without the generator of the process
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


def _glorot(shape: tuple[int, ...], generator: torch.Generator | None = None) -> torch.Tensor:
    if len(shape) < 2:
        return torch.zeros(shape)
    bound = math.sqrt(6 / (shape[0] + shape[1]))
    return torch.empty(shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator)


def width_of(layer: nn.Module, name: Literal["f_in", "f_out"]) -> int | None:
    """Return the f_in or f_out that a layer declares, or that a Linear of torch has; None where it has none."""
    return getattr(layer, name, getattr(layer, {"f_in": "in_features", "f_out": "out_features"}[name], None))


def _dense(H_nF: AnyRows) -> torch.Tensor:
    """Return sparse rows as a tensor, as large as Z: rows that are added to Z have F = C."""
    return H_nF if torch.is_tensor(H_nF) else H_nF.dense()


def dense_rows(layer: Layer, H: AnyRows) -> torch.Tensor:
    """Return dense rows. Raises: UsageError where a layer that keeps the width of H gets sparse ones."""
    if not torch.is_tensor(H):
        raise UsageError(f"{type(layer).__name__} reads dense rows, but X is sparse: put an MLP before it")
    return H


def dense_act(
    A: LayerView, X_nF: AnyRows, W_FC: torch.Tensor, b_C: torch.Tensor | None, act: Activation
) -> torch.Tensor:
    """Return act(X W + b), act a function: those of ENDS in the product or in one pass over its rows."""
    Z_nC = A.dense(X_nF, W_FC, b_C, relu=act is torch.relu)
    if act is torch.relu:
        return Z_nC
    known = next((name for name in ENDS if ACTIVATIONS[name] is act), None)
    return act(Z_nC) if known is None else end(A, Z_nC, act=known)


def add_bias(Z_nC: torch.Tensor, b_C: torch.Tensor | None) -> torch.Tensor:
    """Return Z + b in the type of Z; None: Z as it is."""
    return Z_nC if b_C is None else Z_nC + b_C.to(Z_nC.dtype)


def activation(act: str | None) -> Activation:
    """Return the function called `act`; None is the identity."""
    name = act or "none"
    if name not in ACTIVATIONS:
        raise UsageError(f"activation {act!r} is not known{nearest(name, ACTIVATIONS)}")
    return ACTIVATIONS[name]
