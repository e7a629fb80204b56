"""The own rows of a part, complete, over own and halo columns: what a pass over the parts, layer by layer, multiplies with.

Shapes: N nodes, n own nodes, g nodes of the halo that own rows read, m = n + g, k parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from ..config.names import Norm
from ..cost.grid import ProcessGrid
from ..dist import SelfCommunicator
from ..errors import GraphError, UsageError
from ..machine import give_back_memory
from ..partition import RowBlock
from ..partition.folder.blocks import Halo, check_rank
from ..spmm.exchange.context import make_layout
from ..spmm.exchange.index_map import places_of
from ..spmm.kernels.buffers import BufferPool
from ..spmm.kernels.csr import LocalCSR
from ..spmm.operator.features import SparseRows
from ..spmm.operator.subgraph import Block, SubgraphSpMM
from ..spmm.operator.timing import Operations
from .part_rows import PartRows, joined, part_operator
from .parts import Parts
from .tensors import check_fits, check_sums, features, labels, negative_sums


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """The own rows of part p of the operators of the whole graph, for layers of one hop and of none.

    node_m   (m,) int64, original ids: own nodes, then the halo's that own rows read, each by rising id.
    wide     (n, m), all entries of own rows: its outputs are exact where its inputs are.
    local    (n, n), for layers that do not multiply.
    y_n      labels of own nodes, or None; split_n: (n,) int8, or None.
    """

    p: int
    node_m: np.ndarray
    wide: SubgraphSpMM
    local: SubgraphSpMM
    y_n: torch.Tensor | None
    split_n: np.ndarray | None

    @property
    def n(self) -> int:
        """Own nodes."""
        return self.wide.n


class OwnRowsReader:
    """Opens the own rows of parts, and finds where the rows of a halo are.

    Args: norms  that the model multiplies with, None for the normalisation in the options of the parts.
    n_features, is_sparse, task  of X and of the labels.
    owner_N      (N,) int32; place_N: (N,), the place of each node among the own nodes of its part. 8 bytes per node.
    Raises: UsageError for parts without halo, or on a device; GraphError without features.
    """

    def __init__(self, parts: Parts, norms: Sequence[Norm | None]):
        if not parts.hops:
            raise UsageError("layer by layer, parts need a halo: Parts(folder, comm, hops=1)")
        if parts.how.device != "cpu":
            raise UsageError(f"layer by layer requires --device cpu; got {parts.how.device}")
        self.parts, self.pool = parts, BufferPool()
        self.dtype = getattr(torch, parts.how.dtype)
        self.default = parts.how.operator
        self.norms = tuple(dict.fromkeys(norm or self.default for norm in norms))
        facts = parts.source.facts
        self.n_features, self.is_sparse, self.task = facts.n_features, facts.is_sparse, facts.task
        if not self.n_features:
            raise GraphError(f"{parts.name} has no features; partition the graph again with --features FILE")
        partition = parts.source.partition
        self.owner_N, self.place_N = partition.owner_N, np.empty(parts.n_nodes, np.int32)
        for q in range(parts.k):
            own_n = partition.own(q)
            self.place_N[own_n] = np.arange(len(own_n), dtype=np.int32)

    def open(self, p: int, input_hops: int | None = None) -> tuple[OwnRows, torch.Tensor | SparseRows | None]:
        """Return the own rows of a part, and X as a layer reads it where that is requested.

        Args:   input_hops  0: X of the own nodes; 1: and of the halo after them; None: no X.
        Raises: PartitionError naming file and node for damaged arrays; InputError for features that the dtype cannot hold.
        """
        parts, dtype = self.parts, self.dtype
        check_rank(p, parts.k)
        torch.set_num_threads(parts.how.threads)
        block, sums_n3, halo = parts.source.part(p)
        X = None if input_hops is None else self._features(block, halo, input_hops)
        rows = own_part_rows(block, sums_n3, halo)
        y_n, split_n = parts.labels(block, rows.n_own)
        del block, halo
        threads, order = parts.how.threads, parts.how.order
        layout = make_layout(SelfCommunicator(), ProcessGrid(1), "columns", dtype, self.pool, threads, order)
        A = part_operator(rows, layout, self.norms[0])
        made = {how: _first_rows(A.with_norm(how).A_oo, rows.n_own) for how in self.norms}
        n, m = rows.n_own, len(rows.node_m)
        given = {"pool": self.pool, "dtype": dtype, "threads": threads, "ops": Operations()}
        named = {"operators": None, "default": self.default, "label": f"part {p}"}
        wide = Block((n, m), rows.node_m, made=made, **named, **given)
        local = Block((n, n), rows.node_m[:n], **named, **given)
        give_back_memory()
        return OwnRows(p, rows.node_m, SubgraphSpMM(wide), SubgraphSpMM(local), labels(y_n, dtype), split_n), X

    def _features(self, block: RowBlock, halo: Halo, hops: int) -> torch.Tensor | SparseRows:
        how = self.parts.how
        chosen_g = np.flatnonzero(halo.hop_g == 1) if hops else np.empty(0, np.int64)
        X = joined(block.X_nF, halo, chosen_g)
        if how.feature_norm == "none":
            check_fits(np.concatenate([block.own_n, halo.node_g[chosen_g]]), X, self.dtype)
        else:
            check_sums([negative_sums(block.own_n, block.X_nF)])
        return features(X, how.feature_norm, self.pool, self.dtype, self.parts.how.threads)

    def one_node(self) -> tuple[SubgraphSpMM, torch.Tensor | SparseRows]:
        """Return the operator of a graph of one node with a self-loop, in every normalisation, and zero features, (1, F)."""
        X, eye = np.zeros((1, self.n_features), np.float32), sp.eye_array(1, format="csr")
        X = features(sp.csr_array(X) if self.is_sparse else X, "none", self.pool, self.dtype, 1)
        made = {how: LocalCSR(eye, self.dtype, 1) for how in self.norms}
        block = Block(
            (1, 1), np.zeros(1, np.int64), None, self.default, "one node", self.pool, self.dtype, 1, Operations(), made
        )
        return SubgraphSpMM(block), X

    def halo_nodes(self, p: int) -> int:
        """Return the nodes of other parts that the own rows of part p read."""
        source = self.parts.source
        return (
            self.parts.sizes(p)["g"] if source.facts.hops == 1 else int(np.count_nonzero(source.part(p)[2].hop_g == 1))
        )

    def owners(self, node_g: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Return (part, which of the nodes it owns, their places among its own nodes) for each part that owns some."""
        owner_g = self.owner_N[node_g]
        order_g = np.argsort(owner_g, kind="stable")
        parts, starts = np.unique(owner_g[order_g], return_index=True)
        which = np.split(order_g, starts[1:]) if len(parts) else []
        return [(int(q), of_q, self.place_N[node_g[of_q]]) for q, of_q in zip(parts, which)]


def own_part_rows(block: RowBlock, sums_n3: np.ndarray, halo: Halo) -> PartRows:
    """Return the own rows of a part, complete, and of nodes of the halo the diagonal alone, which sums of A + I need."""
    is_near_g = halo.hop_g == 1
    node_m = np.concatenate([block.own_n, halo.node_g[is_near_g]])
    sums_m3 = np.concatenate([sums_n3, halo.sums_g3[is_near_g]])
    n, m, A = len(block.own_n), len(node_m), block.A_nN
    loops = n + np.flatnonzero(~np.isnan(sums_m3[n:, 2]))
    index = np.int64 if A.nnz + m >= 2**31 else np.int32
    indices = np.concatenate([places_of(node_m, A.indices, block.n_nodes), loops]).astype(index, copy=False)
    data = np.concatenate([A.data, sums_m3[loops, 2].astype(A.data.dtype)])
    per_m = np.zeros(m + 1, np.int64)
    per_m[1 : n + 1] = np.diff(A.indptr)
    per_m[loops + 1] = 1
    A_mm = sp.csr_array((data, indices, np.cumsum(per_m).astype(index)), shape=(m, m))
    A_mm.sort_indices()
    is_whole_m = np.arange(m) < n
    return PartRows(node_m, n, A_mm, sums_m3, is_whole_m, None)


def _first_rows(A: LocalCSR, n: int) -> LocalCSR:
    """Return the first n rows of A over the same arrays."""
    end = int(A.indptr[n])
    weights = None if A.weights is None else A.weights[:end]
    return LocalCSR.trusted((n, A.shape[1]), A.indptr[: n + 1], A.indices[:end], weights, A.dtype, A.threads)
