"""Stack: layers one after the other, with dropout between them; the hops of its layers, by which steps may compute some rows."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import nn

from ..config.names import NORMS, Norm
from ..errors import NamesKeywords, ShapeError, UsageError, check_choice, nearest
from ..spmm.chains.autograd import mixed_precision
from ..spmm.chains.dropout import NOTHING, EpochKeys, Key, check_rate, dropout_key
from ..spmm.dry.dry import DryRun
from ..spmm.operator.features import AnyRows
from ..spmm.operator.protocol import Operator
from ..spmm.operator.subgraph import INDUCED
from ..spmm.operator.view import LayerView
from .foreign.on_ranks import OnRanks
from .layer import Layer, hops_of, initialise, is_row_wise, width_of

JOINED_WIDTH: dict[str, Callable[[Iterable[int]], int]] = {"cat": sum, "max": max}  # of outputs that are joined


class Units(nn.Module):
    """Z * deviation_C + mean_C: from outputs of mean 0 and deviation 1 to the units of the targets.

    Args: C  columns. mean_C and deviation_C are buffers, part of the state_dict; training sets them once.
    """

    def __init__(self, C: int):
        super().__init__()
        self.register_buffer("mean_C", torch.zeros(C))
        self.register_buffer("deviation_C", torch.ones(C))

    def forward(self, Z_nC: torch.Tensor) -> torch.Tensor:
        """Return Z in the units of the targets, (n, C)."""
        if Z_nC.shape[1] != len(self.mean_C):
            raise ShapeError(
                f"the model returns {Z_nC.shape[1]} columns, the targets have {len(self.mean_C)}; the last layer must have "
                f"f_out = {len(self.mean_C)}"
            )
        return Z_nC * self.deviation_C + self.mean_C

    def without(self, X_nC: torch.Tensor) -> torch.Tensor:
        """Return (X - mean_C) / deviation_C, (n, C)."""
        return ((X_nC - self.mean_C) / self.deviation_C).to(X_nC.dtype)


class Seeded(nn.Module):
    """A module that draws dropout by its number in the model, and the seed and epoch of the pass; see set_epoch."""

    number = 0
    seed = 0
    epoch: int | EpochKeys = 0


class Stack(Seeded, metaclass=NamesKeywords):
    """H_l = layer_l(A, dropout(H_(l-1))), H_0 = X.

    Args: layers         Layer, Stack, or any module with forward(A, H) or forward(H), such as nn.Linear. In the latter
                         BatchNorm uses the rows of all ranks, and Dropout draws by original ids. Modules of PyG:
                         spgnn.wrap.
          dropout        rate on the input of every layer in training.
          input_dropout  False: no dropout on X.
          decoder        of spgnn.links, which scores pairs of rows of the output: of a training on links. None: their
                         products.
          jump           jumping knowledge: the last layer reads the outputs of all others, side by side (cat), or their
                         maximum, entry by entry (max). None: it reads the output of the layer before it.
    Source: jump: Xu et al. 2018, section 4.

    >>> Stack(GCN(16, 8, act="relu"), GCN(8, 8), GCN(16, 4), jump="cat")(A, H).shape
    torch.Size([60, 4])
    """

    def __init__(
        self, *layers: nn.Module, dropout: float = 0.0, input_dropout: bool = True, jump: str | None = None,
        decoder: nn.Module | None = None,
    ):  # fmt: skip
        super().__init__()
        if not layers:
            raise UsageError("a Stack needs at least one layer")
        for number, layer in enumerate(layers, start=1):
            _check_layer(number, layer, is_called=type(self).forward is Stack.forward)
        if jump is not None:
            check_choice("jump", jump, tuple(JOINED_WIDTH))
        _check_widths(layers, jump)
        if decoder is not None and not isinstance(decoder, nn.Module):
            raise UsageError(
                f"decoder is a {type(decoder).__name__}; expected a Decoder of spgnn.links, such as Dot(16)"
            )
        self.layers = nn.ModuleList(layers)
        self.dropout, self.jump = check_rate(dropout), jump
        self.input_dropout = input_dropout
        self.is_trained = False  # then `train` continues from these weights
        self.decoder = decoder
        self.inputs: Units | None = None  # of X, if trained on snapshots
        self.units: Units | None = None  # of the targets, if these are numbers
        self.register_load_state_dict_post_hook(_note_loaded)
        self.initialise(0)

    def initialise(self, seed: int | torch.Generator) -> None:
        """Draw all weights from one seed, layer after layer."""
        generator = seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
        for layer in self.layers:
            if isinstance(layer, (Layer, Stack)):
                layer.initialise(generator)
        if self.decoder is not None:
            initialise(self.decoder, generator)

    @property
    def is_random(self) -> bool:
        """Whether a training pass differs from an evaluation of the same weights."""
        return (
            type(self).forward is not Stack.forward
            or self.dropout > 0
            or any(getattr(layer, "is_random", not is_row_wise(layer)) for layer in self.layers)
        )

    def extra_repr(self) -> str:
        widths = [width_of(self.layers[0], "f_in"), *(width_of(layer, "f_out") for layer in self.layers)]
        return (
            f"{' -> '.join(str(width or '?') for width in widths)}, dropout={self.dropout}, input_dropout={self.input_dropout}"
            + (self.jump and f", jump={self.jump}" or "")
        )

    def forward(self, A, X=None, seed: int = 0, epoch: int | EpochKeys = 0) -> torch.Tensor:
        """Return the logits of the own nodes, (n, C).

        Args: A  operator of a DistGraph, and its X; or the DistGraph alone.
              seed, epoch  of dropout, which acts in training mode; epoch from 1 on, 0: those of set_epoch.
        """
        operator, X = operands(A, X)
        if epoch:
            set_epoch(self, seed, epoch)
        if self.inputs is not None:
            X = self.inputs.without(cast("torch.Tensor", X))
        Z_nC = self._run(operator, X, list(self.layers))
        return Z_nC if self.units is None else self.units(Z_nC)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **more: Any) -> None:
        """Make the Units that a state has values for, which torch then loads."""
        for name in ("inputs", "units"):
            mean_C = state_dict.get(f"{prefix}{name}.mean_C")
            if mean_C is not None and getattr(self, name) is None:
                weight = next(self.parameters(), mean_C)
                setattr(self, name, Units(len(mean_C)).to(weight.device, weight.dtype))
        super()._load_from_state_dict(state_dict, prefix, *args, **more)

    def embed(self, A: Operator, X: AnyRows) -> torch.Tensor:
        """Return the input of the last layer (n, F): the embeddings of the own nodes."""
        return self._run(A, X, list(self.layers)[:-1])

    def dropout_of(self, number: int) -> tuple[float, Key]:
        """Return (rate of dropout on the input of layer `number`, from 1 on; key of the layer in this pass)."""
        is_dropped = getattr(self.layers[number - 1], "drops_input", True) and (number > 1 or self.input_dropout)
        key = dropout_key(self.seed, self.epoch, number, self.number) if self.training else NOTHING
        return self.dropout if is_dropped else 0.0, key

    def _run(self, A: Operator | LayerView, H: Any, layers: Sequence[nn.Module]) -> Any:
        outputs: list[torch.Tensor] = []  # that the last layer reads, with jump
        E = None  # the states of edges, of layers that have them
        for number, layer in enumerate(layers, start=1):
            rate, key = self.dropout_of(number)
            A_l = A.at(number, number == len(self.layers), layer.operator if isinstance(layer, Layer) else None, key)
            if outputs and number == len(self.layers):
                H = self._joined(outputs)
            H = A_l.drop(H, rate, draw=0)
            with mixed_precision(A_l):
                if getattr(layer, "carries_edges", False):
                    H, E = layer(A_l, H, E)
                else:
                    H = apply_layer(layer, A_l, H)
            _check_written(number, layer, H)
            if self.jump:
                outputs.append(H)
        return self._joined(outputs) if self.jump and len(layers) < len(self.layers) else H

    def _joined(self, outputs: list[torch.Tensor]) -> torch.Tensor:
        """Return the input of the last layer, made of the outputs of the others, and release these.

        On blocks of a sampler earlier layers have more rows; the first ones are the rows of the layer before the last.
        """
        rows = len(outputs[-1])
        outputs[:] = (H if len(H) == rows else H[:rows] for H in outputs)
        H = torch.cat(outputs, dim=1) if self.jump == "cat" else functools.reduce(torch.maximum, outputs)
        outputs.clear()
        return H


def operands(A: Any, X: AnyRows | None) -> tuple[Operator, AnyRows]:
    """Return the operator and X that a model is called with, which may be a DistGraph alone.

    Raises: UsageError for anything else.
    """
    if not torch.is_tensor(A) and (X is not None or getattr(A, "X", None) is not None):
        return (A.A, A.X) if X is None else (A, X)
    raise UsageError(
        "a model is called with the operator and the features of a distributed graph: model(dgraph.A, dgraph.X), "
        "dgraph = spgnn.distribute(graph); an edge_index becomes one by spgnn.load_graph or spgnn.graph_from_coo"
    )


def _check_layer(number: int, layer: Any, is_called: bool) -> None:
    """Raise UsageError unless a layer is a module and, where the Stack calls it, takes (A, H)."""
    if not isinstance(layer, nn.Module):
        hint = "; give layers one by one, Stack(*layers)" if isinstance(layer, (list, tuple)) else ""
        raise UsageError(f"layer {number} is a {type(layer).__name__}; expected a module with forward(A, H){hint}")
    trained = set(layer.parameters())
    for name, value in vars(layer).items():
        if name != "drawn" and isinstance(value, (list, tuple)):
            if any(isinstance(weight, nn.Parameter) and weight not in trained for weight in value):
                raise UsageError(
                    f"layer {number}, {type(layer).__name__}: {name} is a {type(value).__name__} of weights, which torch does "
                    "not train; use torch.nn.ParameterList"
                )
    if isinstance(layer, Layer) and layer.operator not in (None, *NORMS):
        raise UsageError(
            f"layer {number}: operator {layer.operator!r} is not known{nearest(str(layer.operator), NORMS)}"
        )
    named = f"layer {number}, {type(layer).__name__},"
    try:
        signature = inspect.signature(layer.forward)
        if is_called and not isinstance(layer, Layer) and "edge_index" in signature.parameters:
            raise UsageError(f"{named} reads an edge_index; give spgnn.wrap of it")
        if is_called:
            signature.bind(*[None] * (1 if takes_rows(layer) else 2))
    except TypeError:
        raise UsageError(
            f"{named} cannot be called as layer(A, H) or layer(H); GCN has act=, norm= and bias=, a Stack dropout="
        ) from None
    except ValueError:  # a callable whose signature Python does not know
        pass


def takes_rows(layer: nn.Module) -> bool:
    """Return whether a layer is called as layer(H), without A: a module of torch, or one whose forward has one argument."""
    if isinstance(layer, (Layer, Stack)):
        return False
    if type(layer).__module__.startswith("torch.nn."):
        return True
    try:
        inspect.signature(layer.forward).bind(None, None)
    except TypeError:
        return True
    except ValueError:
        pass
    return False


def apply_layer(layer: nn.Module, A: LayerView, H: AnyRows) -> Any:
    """Return layer(A, H), or layer(H) if it has one argument: BatchNorm and Dropout in it act on the whole graph."""
    if not takes_rows(layer):
        return layer(A, H)
    if not torch.is_tensor(H) and type(layer) is nn.Linear:  # sparse rows
        return H @ layer.weight.t() if layer.bias is None else H @ layer.weight.t() + layer.bias
    with OnRanks(A):
        return layer(H if torch.is_tensor(H) else H.dense())


def _check_widths(layers: tuple[nn.Module, ...], jump: str | None) -> None:
    """Raise ShapeError if f_in of a layer is not the f_out of the layer before it, or of all before it with jump."""
    for number, (first, second) in enumerate(zip(layers, layers[1:]), start=1):
        got, expected, written = width_of(second, "f_in"), width_of(first, "f_out"), f"layer {number} writes"
        if jump and number == len(layers) - 1:
            outs = [width_of(layer, "f_out") for layer in layers[:-1]]
            outs = [width for width in outs if width is not None]
            if len(outs) < len(layers) - 1:
                continue
            if jump == "max" and len(set(outs)) > 1:
                raise ShapeError(f"jump = max needs layers of one width; got {', '.join(map(str, outs))}")
            expected, written = JOINED_WIDTH[jump](outs), f"with jump = {jump} the layers before it write"
        if None not in (got, expected) and got != expected:
            raise ShapeError(f"layer {number + 1} reads {got} columns, {written} {expected}")


def _check_written(number: int, layer: nn.Module, H: Any) -> None:
    """Raise ShapeError if a layer returned something else than a matrix with f_out columns."""
    f_out, shape = width_of(layer, "f_out"), getattr(H, "shape", None)
    if f_out is not None and (shape is None or tuple(shape[1:]) != (f_out,)):
        got = f"a {type(H).__name__}" if shape is None else f"shape {tuple(shape)}"
        raise ShapeError(
            f"layer {number}, {type(layer).__name__}, returned {got}; expected {f_out} columns, the f_out that it declares"
        )


def _note_loaded(stack: Stack, keys: Any) -> None:
    stack.is_trained = True


def stacks_of(model: nn.Module) -> list[Stack]:
    """Return the Stacks in a model, which may be one itself, in the order of its modules."""
    return [module for module in model.modules() if isinstance(module, Stack)]


def layers_of(model: nn.Module) -> list[Any]:
    """Return the `layers` of a model, which may be of any class, in order; none where it has no such attribute."""
    layers: Any = getattr(model, "layers", ())
    return list(layers)


def norms_of(model: nn.Module) -> list[Norm | None]:
    """Return the normalisations of A that the layers of a model use, each once; None: the graph's own."""
    layers = [module for module in model.modules() if isinstance(module, Layer) and hops_of(module) != 0]
    return list(dict.fromkeys(layer.operator for layer in layers)) or [None]


def set_epoch(model: nn.Module, seed: int, epoch: int | EpochKeys) -> None:
    """Set the seed and epoch of the dropout of the next training pass, in Stacks and wrapped modules."""
    seeded = [module for module in model.modules() if isinstance(module, Seeded)]
    for number, module in enumerate(sorted(seeded, key=lambda module: not isinstance(module, Stack))):  # Stacks first
        module.number, module.seed, module.epoch = number, seed, epoch


def pruned_hops(model: nn.Module, run: DryRun | None) -> tuple[tuple[int, ...], str]:
    """Return the hops of each layer, 0 or 1, and ""; or, where rows cannot be pruned, () and the reason.

    Args: run  the dry run of the model with all rows; None: the model cannot run without data.
    """
    if not isinstance(model, Stack) or type(model).forward is not Stack.forward:
        return (), f"{type(model).__name__} is not a Stack, whose layers come one after the other"
    if any(module._forward_pre_hooks or module._forward_hooks for module in (model, *model.layers)):
        return (), "a hook may replace the rows of a layer"
    if getattr(model, "jump", None):
        return (), "the last layer reads the rows of all layers (jump)"
    hops: list[int] = []
    for number, layer in enumerate(model.layers, start=1):
        of_layer = hops_of(layer)
        named = f"layer {number}, {type(layer).__name__},"
        if of_layer is None:
            return (), f"{named} declares no hops and may read any rows"
        if of_layer not in (0, 1):
            return (), f"{named} reads rows that are {of_layer} hops away"
        if not of_layer and run is not None and run.layer(number).products:
            return (), f"{named} declares hops = 0, and multiplies with A"
        hops.append(of_layer)
    return (tuple(hops), "") if run is not None else ((), "the model cannot run without data")


def block_hops(model: nn.Module, n_blocks: int) -> tuple[int, ...]:
    """Return the number of blocks that each layer takes, 1 or 0, of a sampler that makes one block per layer with A.

    A block serves one product. A layer that declares no hops takes one block.
    Raises: UsageError for a model that is no Stack or never multiplies with A, for a layer that multiplies several
            times, and for a number of blocks that is not the number of layers with A.
    """
    if not isinstance(model, Stack) or type(model).forward is not Stack.forward:
        raise UsageError(f"{type(model).__name__} is not a Stack, and cannot use a block for each layer: {INDUCED}")
    hops = []
    for number, layer in enumerate(model.layers, start=1):
        of_layer = hops_of(layer)
        if isinstance(layer, Stack) or (of_layer or 0) > 1:
            what = "is a Stack" if isinstance(layer, Stack) else f"reads rows that are {of_layer} hops away"
            raise UsageError(
                f"layer {number}, {type(layer).__name__}, {what}, and cannot use the block of one layer: {INDUCED}"
            )
        hops.append(1 if of_layer is None else of_layer)
    if not any(hops):
        raise UsageError(f"no layer of the model multiplies with A, and takes a block of the sampler: {INDUCED}")
    if sum(hops) != n_blocks:
        raise UsageError(
            f"the sampler makes blocks for {n_blocks} layers, {sum(hops)} layers of the model multiply with A: give it "
            f"{sum(hops)} fan-outs, or {INDUCED}"
        )
    return tuple(hops)
