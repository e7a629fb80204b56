"""SubgraphSpMM: A on a subgraph that one process has whole, so that nothing is exchanged; SubgraphOperators: of each layer.

A subgraph has one operator (s, s) for all layers, or a block (n, m) for each layer, whose n outputs are the first of its
m inputs and the inputs of the next block. Layers run on it as they are. Rows have their original ids, which may repeat:
dropout has the masks of the whole graph. Nothing here is collective.
Shapes: n rows out, m rows in, F columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ...config.names import Norm
from ...cost.schedule import keeps_sparse
from ...errors import ShapeError, UsageError
from ...samplers import Csr, NormedBlock, Subgraph
from ..chains.dropout import Key
from ..exchange.ghosts import ColumnBlock
from ..kernels.backend import kernels_on
from ..kernels.buffers import Pool
from ..kernels.csr import LocalCSR
from .facts import computed, made_once
from .features import AnyRows, SparseRows
from .place import OUTSIDE, Place
from .protocol import Operator
from .timing import OWN, Operations, spmm_flops
from .view import LayerView, current_pass

INDUCED = "use a sampler of one subgraph for all layers (frontier, walk, ...)"


@dataclass(frozen=True, eq=False)
class Block:
    """The rows of one layer, or of all layers, and its operators, each made when it is first needed.

    shape      (n, m); the first n of the inputs are the outputs.
    node_m     (m,) int64, original ids of the inputs.
    operators  by normalisation; None: of a layer that does not multiply with A, n = m.
    default    the normalisation of layers that name none.
    label      of error messages.
    """

    shape: tuple[int, int]
    node_m: np.ndarray
    operators: Mapping[Norm, NormedBlock] | None
    default: Norm
    label: str
    pool: Pool
    dtype: torch.dtype
    threads: int
    ops: Operations
    made: dict[Norm, LocalCSR] = field(default_factory=dict)

    def csr(self, how: Norm) -> LocalCSR:
        """Return the operator of a normalisation, with its transpose. Raises: UsageError where the subgraph has none."""
        if how not in self.made:
            if self.operators is None:
                raise UsageError(f"{self.label} declares hops = 0, and multiplies with A: declare hops = 1")
            if how not in self.operators:
                raise UsageError(
                    f"{self.label} has no operator of normalisation {how!r}, only {', '.join(self.operators)}: draw it "
                    "with those of all layers of the model"
                )
            self.made[how] = _local_csr(self.operators[how], self)
        return self.made[how]

    @cached_property
    def selected(self) -> np.ndarray | None:
        """Which inputs are outputs, None: all."""
        n, m = self.shape
        return None if n == m else np.arange(n)


def _refuse_attributes(label: str) -> None:
    raise UsageError(
        f"{label} has no types of nodes or attributes and relations of edges: samplers draw none; train on the whole graph"
    )


class SubgraphSpMM(Operator):
    """A block in one normalisation, with the primitives of SpMM.

    Args: how  the normalisation; None: the default of layers.
    """

    def __init__(self, block: Block, how: Norm | None = None):
        self.block, self.name = block, how or block.default
        self.n, self.m = block.shape

    node_n, pool, dtype, threads, ops, selected = (
        computed(attrgetter(f"block.{name}")) for name in ("node_m", "pool", "dtype", "threads", "ops", "selected")
    )
    device = computed(attrgetter("block.pool.device"))
    A = property(lambda self: self.block.csr(self.name), doc="The block as a LocalCSR.")
    work = computed(lambda self: (self.block.shape, self.A.nnz))  # (n, m) and nonzeros: what products take

    selects_first = True
    edge_attr, relations, node_types = (made_once(lambda self: _refuse_attributes(self.block.label)) for _ in range(3))

    def with_norm(self, how: Norm | None) -> SubgraphSpMM:
        """Return the operator of another normalisation of the same block. Raises: UsageError where there is none."""
        if how is None or how == self.name:
            return self
        other = SubgraphSpMM(self.block, how)
        other.fixed_input = self.fixed_input
        return other

    def prepare_adjoint(self) -> None:
        """Copy all to the device, before buffers fill the memory."""
        kernels = kernels_on(self.device)
        kernels.prepare(self.A)
        kernels.prepare(self.A.transposed())

    def select(self, H: Any) -> Any:
        """Return the rows of H that correspond to the rows of A H: the first n."""
        if self.n == self.m:
            return H
        return H.rows(self.selected) if H.is_sparse else H[: self.n]

    @cached_property
    def column_blocks(self) -> tuple[ColumnBlock, ...]:
        """All columns: none are ghosts."""
        return (ColumnBlock(self.A, self.node_n),)

    def apply(
        self, H_mF, bias_F=None, relu: bool = False, dtype=None, place: Place = OUTSIDE, add_nF=None, ghosts_gF=None
    ) -> torch.Tensor | SparseRows:
        """Return relu(A H + add + b), (n, F), in A's dtype or another; of SparseRows A H as such."""
        if H_mF.is_sparse:
            return self._apply_sparse(H_mF)
        self.check_rows(H_mF, self.m)
        Z_nF = self.pool.empty(self.n, H_mF.shape[1], dtype=dtype or self.dtype)
        with self.ops.span(OWN, spmm_flops(self.A, H_mF)):
            return self.A.apply(H_mF, Z_nF, bias_F=bias_F, relu=relu, add_nF=add_nF)

    def adjoint(self, G_nF: torch.Tensor, place: Place = OUTSIDE, add_mF: torch.Tensor | None = None) -> torch.Tensor:
        """Return A' G, (m, F)."""
        self.check_rows(G_nF, self.n)
        out_mF = self.pool.empty(self.m, G_nF.shape[1], dtype=self.dtype)
        with self.ops.span(OWN, spmm_flops(self.A, G_nF)):
            return self.A.adjoint(G_nF, out_mF, add_mF=add_mF)

    def over_columns(self, H_mF: AnyRows, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, Any]]:
        """Yield (block, H)."""
        self.check_rows(H_mF, self.m)
        yield self.column_blocks[0], H_mF

    def _apply_sparse(self, S: SparseRows) -> SparseRows:
        """Return A S as sparse rows."""
        AS = sp.csr_array(self.A.to_scipy() @ S.csr.to_scipy())
        AS.sort_indices()
        return SparseRows(AS, self.pool, S.dtype, self.threads)

    def stays_sparse(self, S: SparseRows, place: Place = OUTSIDE) -> bool:
        """Return whether A S has few enough nonzeros to be cached."""
        uses_m = np.bincount(self.A.indices, minlength=self.m)
        return keeps_sparse(int(uses_m @ np.diff(S.csr.indptr)), S.csr.nnz, self.A.nnz)

    def check_rows(self, H: AnyRows, rows: int) -> None:
        """Raise ShapeError unless H has so many rows."""
        if H.ndim != 2 or H.shape[0] != rows:
            hint = "" if self.n == self.m else f"; a layer that multiplies several times cannot use a block: {INDUCED}"
            raise ShapeError(f"{self.block.label}: H has shape {tuple(H.shape)}; expected ({rows}, F){hint}")


class SubgraphOperators(SubgraphSpMM):
    """The operators of one subgraph. Layers get them by `at`: the one of all layers, or block l for the l-th that multiplies.

    It is itself the operator of the first block, so that a model that is no Stack may multiply with the one of all layers.
    Args:   subgraph  of a sampler.
            operator  the normalisation of layers that name none.
            hops      of each layer, from layers.block_hops: one of 0 hops takes no block. None: each layer takes one.
            ops       what times the products.
    Raises: UsageError where the layers that multiply are not as many as the blocks.
    """

    def __init__(
        self,
        subgraph: Subgraph,
        pool: Pool,
        dtype: torch.dtype = torch.float32,
        threads: int = 0,
        operator: Norm = "gcn",
        hops: Sequence[int] | None = None,
        ops: Operations | None = None,
    ):
        self.subgraph = subgraph
        shared = {"pool": pool, "dtype": dtype, "threads": threads, "ops": ops or Operations()}
        n, m = subgraph.shapes[0]
        self.is_layered = len(subgraph.blocks) > 1 or n != m
        self._blocks = []
        for number, (shape, operators) in enumerate(zip(subgraph.shapes, subgraph.blocks), start=1):
            label = f"subgraph {subgraph.index}" + (f", block {number}" if self.is_layered else "")
            node_m = subgraph.node_m if shape[1] == m else subgraph.node_m[: shape[1]]
            self._blocks.append(Block(shape, node_m, operators, operator, label, **shared))
        self.hops = None if hops is None or not self.is_layered else tuple(map(bool, hops))
        if self.hops is not None and sum(self.hops) != len(self._blocks):
            raise _other_number(len(self._blocks), sum(self.hops))
        super().__init__(self._blocks[0])

    @property
    def n_out(self) -> int:
        """Rows of the last output, which the targets are places of."""
        return self.subgraph.shapes[-1][0]

    def at(
        self, layer: int | None = None, is_last: bool = False, operator: Norm | None = None, key: Key | None = None
    ) -> LayerView:
        """Return the operator of a layer; see LayerView.at.

        Raises: UsageError where the layers are not as many as the blocks, or the subgraph lacks the normalisation.
        """
        A = SubgraphSpMM(self._block(layer, is_last), operator)
        return LayerView(A, layer, current_pass(), is_last, A, key)

    def _block(self, layer: int | None, is_last: bool) -> Block:
        if not self.is_layered:
            return self._blocks[0]
        if layer is None:
            raise UsageError(f"a model that is not a Stack cannot use a block for each layer: {INDUCED}")
        L = len(self._blocks) if self.hops is None else len(self.hops)
        if layer > L or is_last != (layer == L):
            raise _other_number(L, layer, is_last)
        if self.hops is None:
            return self._blocks[layer - 1]
        before = sum(self.hops[: layer - 1])
        return self._blocks[before] if self.hops[layer - 1] else self._local(layer, before)

    def _local(self, layer: int, before: int) -> Block:
        """Return the rows of a layer that does not multiply: the outputs of the blocks before it."""
        first = self._blocks[0]
        m = self._blocks[before].shape[1] if before < len(self._blocks) else self.n_out
        rows = {"shape": (m, m), "node_m": self.subgraph.node_m[:m], "operators": None, "label": f"layer {layer}"}
        return replace(first, **rows, made={})


def _other_number(blocks: int, layers: int, is_last: bool = True) -> UsageError:
    layers_ = f"{layers}" if is_last else f"{layers} or more"
    return UsageError(
        f"the subgraph has blocks for {blocks} layers, the model has {layers_}: give the sampler as many fan-outs as "
        f"layers multiply with A, or {INDUCED}"
    )


def _local_csr(made: NormedBlock, block: Block) -> LocalCSR:
    """Return an operator of a subgraph over its arrays; its transpose is made when a gradient needs it."""
    shape, dtype, threads = block.shape, block.dtype, block.threads  # not the block, which holds what is returned
    of = np.float64 if dtype == torch.float64 else np.float32

    def csr(M: Csr, shape: tuple[int, int], flip=None) -> LocalCSR:
        values = None if M.values is None else M.values.astype(of, copy=False)
        return LocalCSR.trusted(shape, M.indptr, M.indices, values, dtype, threads, flip, is_fixed=False)

    return csr(made.A, shape, lambda: (csr(made.transposed, shape[::-1]), made.order_e))
