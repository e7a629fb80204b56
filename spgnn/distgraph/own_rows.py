"""The own rows of a part, complete, over own and halo columns: what a pass over the parts, layer by layer, multiplies with.

Shapes: N nodes, n own nodes, g nodes of the halo that own rows read, m = n + g, k parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from ..config.names import Norm
from ..dist import SelfCommunicator
from ..errors import GraphError, UsageError
from ..machine import give_back_memory
from ..partition.folder.blocks import Halo, check_rank
from ..spmm.kernels.csr import LocalCSR
from ..spmm.operator.features import SparseRows
from ..spmm.operator.subgraph import Block, SubgraphSpMM
from .assemble import assembled, features
from .distribute import layout_of
from .part_rows import joined, own_part_rows
from .parts import Parts


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """The own rows of part p of the operators of the whole graph, for layers of one hop and of none.

    node_m   (m,) int64, original ids: own nodes by rising id, then the halo's that own rows read, by owner and id.
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
    n_features, task  of X and of the labels; layout: of all parts, which share buffers.
    owner_N      (N,) int32; place_N: (N,), the place of each node among the own nodes of its part. 8 bytes per node.
    Raises: UsageError for parts without halo, or on a device; GraphError without features.
    """

    def __init__(self, parts: Parts, norms: Sequence[Norm | None]):
        if not parts.hops:
            raise UsageError("layer by layer, parts need a halo: Parts(folder, comm, hops=1)")
        if parts.how.device != "cpu":
            raise UsageError(f"layer by layer requires --device cpu; got {parts.how.device}")
        self.parts, default = parts, parts.how.operator
        self.norms = tuple(dict.fromkeys(norm or default for norm in norms))
        self.how = parts.how_alone(operator=self.norms[0], keep=False)
        self.layout = layout_of(SelfCommunicator(), self.how)
        shared = {name: getattr(self.layout, name) for name in ("pool", "dtype", "threads", "ops")}
        self._block = partial(Block, operators=None, default=default, **shared)
        self.n_features, self.task = parts.source.facts.n_features, parts.source.facts.task
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
        parts = self.parts
        check_rank(p, parts.k)
        torch.set_num_threads(self.how.threads)
        block, sums_n3, halo = parts.source.part(p)
        assert halo is not None
        rows = own_part_rows(block, sums_n3, halo, self._near(halo), input_hops)
        rows.y_n, rows.split_n = parts.labels(block, len(block.own_n))
        n, m = len(block.own_n), len(rows.node_n)
        del block, halo
        dgraph = assembled(rows, self.layout, self.how)
        made = {norm: _first_rows(dgraph.A.with_norm(norm).A_oo, n) for norm in self.norms}
        wide = self._block((n, m), dgraph.node_n, made=made, label=f"part {p}")
        local = self._block((n, n), dgraph.node_n[:n], label=f"part {p}")
        give_back_memory()
        return OwnRows(p, dgraph.node_n, SubgraphSpMM(wide), SubgraphSpMM(local), dgraph.y_n, dgraph.split_n), dgraph.X

    def input(self, p: int, input_hops: int) -> torch.Tensor | SparseRows | None:
        """Return X of a part that was opened before, as `open` does."""
        block, _, halo = self.parts.source.part(p)
        assert halo is not None
        X = joined(block.X_nF, halo, self._near(halo) if input_hops else np.empty(0, np.int64))
        return features(X, self.how.feature_norm, self.layout.pool, self.layout.dtype, self.how.threads)

    def halo_nodes(self, p: int) -> int:
        """Return the nodes of other parts that the own rows of part p read."""
        source = self.parts.source
        halo = None if source.facts.hops == 1 else source.part(p)[2]
        return self.parts.sizes(p)["g"] if halo is None else int(np.count_nonzero(halo.hop_g == 1))

    def halo_counts(self, p: int) -> np.ndarray:
        """Return how many of these nodes each part owns, (k,) int64."""
        halo = self.parts.source.part(p)[2]
        assert halo is not None
        return np.bincount(self.owner_N[halo.node_g[halo.hop_g == 1]], minlength=self.parts.k)

    def owners(self, node_g: np.ndarray) -> list[tuple[int, slice, np.ndarray]]:
        """Return (part, which rows of a halo it owns, their places among its own nodes) for each part that owns some."""
        places_g, ends = self.place_N[node_g], np.searchsorted(self.owner_N[node_g], np.arange(self.parts.k + 1))
        of_parts = [slice(first, end) for first, end in zip(ends, ends[1:])]
        return [(q, of, places_g[of]) for q, of in enumerate(of_parts) if of.stop > of.start]

    def _near(self, halo: Halo) -> np.ndarray:
        """Return which nodes of a halo own rows read, by owner, then by id."""
        near_g = np.flatnonzero(halo.hop_g == 1)
        return near_g[np.argsort(self.owner_N[halo.node_g[near_g]], kind="stable")]


def _first_rows(A: LocalCSR, n: int) -> LocalCSR:
    """Return the first n rows of A over the same arrays."""
    end = int(A.indptr[n])
    weights = A.weights
    assert weights is None or isinstance(weights, np.ndarray)  # on the CPU
    weights = None if weights is None else weights[:end]
    return LocalCSR.trusted(
        (n, A.shape[1]), A.indptr[: n + 1], A.indices[:end], weights, A.dtype, A.threads, is_fixed=False
    )
