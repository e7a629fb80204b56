"""The pairs of a training step: positives and negatives, the rows that they need, and the gradient back.

Shapes: n own rows, m rows of a table, p pairs, F columns, P ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ..distgraph import DistGraph
from ..errors import GraphError
from ..graph import Graph
from ..graph.links import MESSAGE, TRAIN, Links
from ..spmm.kernels import _kernels
from .negatives import Negatives

AT_ONCE = 1 << 19  # numbers of the rows of pairs that are scored at once


class RowOwners:
    """Where the rows of all nodes are: on which rank, and which row there. Collective.

    place_N, owner_N  (N,) place of a node among the own rows of its rank, and the rank.
    """

    def __init__(self, dgraph: DistGraph):
        self.comm, self.n, N = dgraph.comm, len(dgraph.node_n), dgraph.n_nodes
        ids, n_P = self.comm.all_gather(dgraph.node_n), self.comm.all_gather(np.array([self.n]))
        self.owner_N, self.place_N = np.empty(N, np.int32), np.empty(N, np.int64)
        self.owner_N[ids] = np.repeat(np.arange(self.comm.size), n_P)
        self.place_N[ids] = np.concatenate([np.arange(n) for n in n_P])
        self._row_N = None if self.comm.size == 1 else np.zeros(N, np.int64)  # of the last exchange

    def exchange(self, *node_p: np.ndarray) -> RowExchange:
        """Return the exchange of the rows of some nodes, which may be there several times. Collective."""
        if self.comm.size == 1:
            return RowExchange(self, np.empty(0, np.int32))
        is_needed = np.zeros(len(self.owner_N), bool)
        for nodes in node_p:
            is_needed[nodes] = True
        other = np.flatnonzero(is_needed & (self.owner_N != self.comm.rank))
        return RowExchange(self, other[np.argsort(self.owner_N[other], kind="stable")])

    def places(self, node_p: np.ndarray, exchange: RowExchange) -> np.ndarray:
        """Return the rows of the table of the exchange of nodes that it has, (p,) int64."""
        if self._row_N is None:
            return self.place_N[node_p]
        self._row_N[exchange.node_g] = self.n + np.arange(len(exchange.node_g))
        return np.where(self.owner_N[node_p] == self.comm.rank, self.place_N[node_p], self._row_N[node_p])


class RowExchange:
    """Rows that this rank needs and others own: one exchange of exactly these, and of their gradients back.

    node_g   their nodes, by owner. Rows of the table: the own n rows, then these. Collective, as its methods.
    """

    def __init__(self, rows: RowOwners, node_g: np.ndarray):
        self.comm, self.n, self.node_g, size = rows.comm, rows.n, node_g, rows.comm.size
        if size == 1:
            return
        self.recv_P = np.bincount(rows.owner_N[node_g], minlength=size)
        self.send_P = np.ascontiguousarray(self.comm.all_gather(self.recv_P).reshape(size, size)[:, self.comm.rank])
        asked = np.empty(int(self.send_P.sum()), np.int32)
        self.comm.all_to_all(node_g.astype(np.int32), self.recv_P, asked, self.send_P)
        self.sent_places = rows.place_N[asked]

    def sent_bytes(self, F: int, itemsize: int) -> int:
        """Return the bytes that this rank sends in a step: the ids that it asks for, rows, and gradients of rows."""
        if self.comm.size == 1:
            return 0
        return 4 * len(self.node_g) + (len(self.sent_places) + len(self.node_g)) * F * itemsize

    def fetch(self, Z_nF: torch.Tensor) -> torch.Tensor:
        """Return the table (m, F): Z itself on one rank."""
        if self.comm.size == 1:
            return Z_nF
        recv_gF = np.empty((len(self.node_g), Z_nF.shape[1]), Z_nF.numpy().dtype)
        self.comm.all_to_all(Z_nF.numpy()[self.sent_places], self.send_P, recv_gF, self.recv_P)
        return torch.cat([Z_nF, torch.from_numpy(recv_gF)])

    def give_back(self, G_mF: torch.Tensor, threads: int) -> torch.Tensor:
        """Return the gradient of the own rows (n, F), from the gradients of the tables of all ranks."""
        if self.comm.size == 1:
            return G_mF
        own, back = G_mF[: self.n], np.empty((len(self.sent_places), G_mF.shape[1]), G_mF.numpy().dtype)
        self.comm.all_to_all(G_mF.numpy()[self.n :], self.recv_P, back, self.send_P)
        _kernels.add_rows(back, self.sent_places, own.numpy(), threads)
        return own


def negatives_of(links: Links, K: int, seed: int, roles: tuple[int, ...] = (TRAIN, MESSAGE)) -> Negatives:
    """Return what draws negatives of links that are no links of some roles: of either end, of users the items."""
    rows = lambda of: (of.indptr.astype(np.int64), of.indices.astype(np.int32))
    known = rows(links.known(roles, by_relation=False))
    if links.n_sources:
        return Negatives(known, links.among, K, seed)
    back = known if links.is_both else rows(links.known(roles, True, by_relation=False))
    return Negatives(known, links.among, K, seed, "either", back)


def check_negatives(graph: Graph) -> None:
    """Raise GraphError where a training link of a split graph has no negative: both ends are linked with all nodes."""
    links = graph.links
    assert links is not None
    train = links.of(TRAIN)
    ends = links.source_T[train], links.target_T[train]
    if len(lost := np.flatnonzero(~negatives_of(links, 1, 0).is_possible(*ends))):
        names = [end[lost[0]] if graph.ids is None else graph.ids[end[lost[0]]] for end in ends]
        what = "every item" if links.n_sources else "every node"
        raise GraphError(
            f"{graph.name}: {len(lost):,} of {len(train):,} training links have no negative, such as {names[0]} - {names[1]}, "
            f"linked with {what}; train with --loss softmax, which needs none, or leave them out"
        )


@dataclass(frozen=True, slots=True)
class Pairs:
    """Positives of this rank and k negatives of each: rows of a table.

    source_p, target_p  (p,), relation_p (p,); negative_pk: the row that takes the place of an end; is_source_pk: of the source.
    """

    source_p: np.ndarray
    target_p: np.ndarray
    relation_p: np.ndarray
    negative_pk: np.ndarray
    is_source_pk: np.ndarray

    def blocks(self, F: int):
        """Yield the pairs some at a time."""
        size = max(1, AT_ONCE // ((2 + self.negative_pk.shape[1]) * max(F, 1)))
        for start in range(0, len(self.source_p), size):
            of = slice(start, start + size)
            yield Pairs(*(getattr(self, name)[of] for name in self.__slots__))


def bce(positive_p: torch.Tensor, negative_pk: torch.Tensor) -> torch.Tensor:
    """Return the sum of -log sigmoid(s) of positives and -log(1 - sigmoid(s)) of negatives, over 1 + k."""
    softplus = torch.nn.functional.softplus
    return (softplus(-positive_p).sum() + softplus(negative_pk).sum()) / (1 + negative_pk.shape[1])


def bpr(positive_p: torch.Tensor, negative_pk: torch.Tensor) -> torch.Tensor:
    """Return the sum of -log sigmoid(s_positive - s_negative), the mean over k. Source: Rendle et al. 2009, eq. (5)."""
    return torch.nn.functional.softplus(negative_pk - positive_p[:, None]).sum() / negative_pk.shape[1]


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
LOSSES: dict[str, Loss] = {"bce": bce, "bpr": bpr}


def pair_loss(
    decoder, loss, table_mF: torch.Tensor, G_mF: torch.Tensor, pairs: Pairs, scale: float, threads: int
) -> float:
    """Return scale * loss of the pairs, and add its gradient to G of the table and to the weights of the decoder.

    Args: loss  (positive_p, negative_pk) -> sum over positives.
    No array of all pairs times F: blocks of pairs are scored one after the other.
    """
    total, F = 0.0, table_mF.shape[1]
    for block in pairs.blocks(F):
        p, k = block.negative_pk.shape
        other, is_source = block.negative_pk.ravel(), block.is_source_pk.ravel()
        parts = [block.source_p, block.target_p, other]
        if is_source.any():
            parts[2:] = (
                np.where(is_source, other, block.source_p.repeat(k)),
                np.where(is_source, block.target_p.repeat(k), other),
            )
        index = np.concatenate(parts)
        rows = np.empty((len(index), F), table_mF.numpy().dtype)
        _kernels.take_rows(table_mF.numpy(), index, rows, threads)
        H = torch.from_numpy(rows).requires_grad_()
        source, target, *ends = H.split([p, p, *[p * k] * (len(parts) - 2)])
        relation = torch.from_numpy(block.relation_p)
        positive_p = decoder.score(source, target, relation)
        each = lambda M: M if k == 1 else M.repeat_interleave(k, dim=0)
        left, right = ends if len(ends) == 2 else (each(source), *ends)
        negative_pk = decoder.score(left, right, each(relation)).view(p, k)
        value = loss(positive_p, negative_pk) * scale
        value.backward()
        assert H.grad is not None
        _kernels.add_rows(H.grad.numpy(), index, G_mF.numpy(), threads)
        total += float(value.detach())
    return total
