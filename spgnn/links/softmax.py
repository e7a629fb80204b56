"""softmax_loss: the cross-entropy of a target among all candidates, in blocks of queries and candidates.

Shapes: t own links, q queries of all ranks in a round, n own rows, c of them that are candidates, F columns.
"""

from __future__ import annotations

import numpy as np
import torch

from ..distgraph import DistGraph
from ..graph.links import Links
from ..layers.decoders import Decoder
from ..spmm.kernels import _kernels
from .scored_pairs import RowOwners

QUERIES, NUMBERS = 512, 1 << 22  # links in a round, each rank; scores at once


def softmax_loss(
    decoder: Decoder,
    links: Links,
    dgraph: DistGraph,
    rows: RowOwners,
    Z_nF: torch.Tensor,
    links_t: np.ndarray,
    size: int,
) -> tuple[float, torch.Tensor, int]:
    """Return this rank's part of sum over links and directions of -s + log sum_j exp(s_j), over size and directions.

    (h, r, ?) and, unless sources are users, (?, r, t). Also the gradient of the own rows (n, F), and the
    bytes of the exchange of rows. Candidates stay on their ranks; queries travel, and their gradients are added up.
    Source: 1-vs-all, Lacroix et al. 2018, eq. (4). Collective.
    """
    comm, threads, n = dgraph.comm, dgraph.A.threads, len(Z_nF)
    source_t, target_t, relation_t = (of[links_t] for of in (links.source_T, links.target_T, links.relation_T))
    exchange = rows.exchange(source_t, target_t)
    table_mF, ways = exchange.fetch(Z_nF), (False,) if links.is_directed_query else (False, True)
    G_mF, scale = torch.zeros_like(table_mF), 1 / (size * len(ways))
    first, last = links.among
    is_candidate = (dgraph.node_n >= first) & (dgraph.node_n < last)
    of_c = np.arange(n) if is_candidate.all() else np.flatnonzero(is_candidate)
    C_cF, G_cF = Z_nF[of_c], torch.zeros((len(of_c), Z_nF.shape[1]), dtype=Z_nF.dtype)
    total = 0.0
    rounds = int(max(comm.all_gather(np.array([-(-len(links_t) // QUERIES)]))))
    for number in range(rounds):
        block = slice(number * QUERIES, (number + 1) * QUERIES)
        of = relation_t[block]
        index = np.concatenate([rows.places(ends[block], exchange) for ends in (source_t, target_t)])
        H = table_mF[torch.from_numpy(index)].requires_grad_()
        heads, tails = H.split([len(of), len(of)])
        for is_reversed in ways:
            x_tF = decoder.query(tails if is_reversed else heads, torch.from_numpy(of), is_reversed)
            own = (x_tF * (heads if is_reversed else tails)).sum(1)
            x_qF = torch.from_numpy(comm.all_gather(x_tF.detach().contiguous().numpy()))
            counts = comm.all_gather(np.array([len(of)]))
            lse_q, dx_qF = _over_candidates(comm, x_qF, C_cF, G_cF, scale)
            start = int(counts[: comm.rank].sum())
            mine = slice(start, start + len(of))
            total += scale * float((lse_q[mine] - own.detach()).sum())
            torch.autograd.backward(
                [own, x_tF], [torch.full_like(own, -scale), dx_qF[mine]], retain_graph=not is_reversed
            )
        assert H.grad is not None
        _kernels.add_rows(H.grad.numpy(), index, G_mF.numpy(), threads)
    G_nF = exchange.give_back(G_mF, threads)
    G_nF[of_c] += G_cF
    return total, G_nF, exchange.sent_bytes(Z_nF.shape[1], Z_nF.element_size())


def _over_candidates(comm, x_qF: torch.Tensor, C_cF: torch.Tensor, G_cF: torch.Tensor, scale: float):
    """Return log sum_j exp <x, C_j> over all ranks (q,), and scale times its gradient (q, F); add the gradient of C to G. Collective."""
    step = max(1, NUMBERS // max(1, len(x_qF)))
    blocks = [slice(start, start + step) for start in range(0, len(C_cF), step)]
    top_q = x_qF.new_full((len(x_qF),), -torch.inf)
    for of in blocks:
        top_q = torch.maximum(top_q, (x_qF @ C_cF[of].T).amax(1))
    comm.all_reduce(top_q, "max")
    sum_q = torch.zeros_like(top_q)
    for of in blocks:
        sum_q += (x_qF @ C_cF[of].T - top_q[:, None]).exp_().sum(1)
    comm.all_reduce(sum_q)
    lse_q, dx_qF = top_q + sum_q.log(), torch.zeros_like(x_qF)
    for of in blocks:
        P_qc = (x_qF @ C_cF[of].T - lse_q[:, None]).exp_().mul_(scale)
        dx_qF += P_qc @ C_cF[of]
        G_cF[of] += P_qc.T @ x_qF
    comm.all_reduce(dx_qF)
    return lse_q, dx_qF
