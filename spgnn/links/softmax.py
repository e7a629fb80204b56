"""softmax_loss: the cross-entropy of a target among all candidates, in blocks of queries and candidates.

Shapes: t own links, b queries of this rank in a round, q of all ranks, n own rows, c of them that are candidates, F
columns.
"""

from __future__ import annotations

import numpy as np
import torch

from ..distgraph import DistGraph
from ..graph.links import Links
from ..layers.decoders import Decoder
from ..spmm.kernels import _kernels
from .scored_pairs import RowOwners

QUERIES, NUMBERS = 512, 1 << 25  # different queries in a round, each rank; scores at once


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
    bytes of the exchange of rows. Candidates stay on their ranks; different queries travel, and their gradients
    are added up.
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
    total, each = 0.0, lambda number: slice(number * QUERIES, (number + 1) * QUERIES)
    for is_reversed in ways:
        node_t, other_t = (target_t, source_t) if is_reversed else (source_t, target_t)
        keys, of_t, links_q = np.unique(
            node_t.astype(np.int64) * links.n_relations + relation_t, return_inverse=True, return_counts=True
        )
        order, starts = np.argsort(of_t, kind="stable"), np.concatenate([[0], np.cumsum(links_q)])
        for block in map(each, range(int(max(comm.all_gather(np.array([-(-len(keys) // QUERIES)])))))):
            links_b = links_q[block]
            at = order[starts[min(block.start, len(keys))] : starts[min(block.stop, len(keys))]]
            first = order[starts[:-1][block]]
            index = np.concatenate([rows.places(node_t[first], exchange), rows.places(other_t[at], exchange)])
            H = table_mF[torch.from_numpy(index)].requires_grad_()
            asking, asked = H.split([len(first), len(at)])
            x_bF = decoder.query(asking, torch.from_numpy(relation_t[first]), is_reversed)
            own = (x_bF.repeat_interleave(torch.from_numpy(links_b), dim=0) * asked).sum(1)
            x_qF = torch.from_numpy(comm.all_gather(x_bF.detach().contiguous().numpy()))
            counts = comm.all_gather(np.array([len(first)]))
            scale_q = torch.from_numpy(comm.all_gather(links_b) * scale).to(x_qF.dtype)
            lse_q, dx_qF = _over_candidates(comm, x_qF, C_cF, G_cF, scale_q)
            start = int(counts[: comm.rank].sum())
            mine = slice(start, start + len(first))
            total += float((lse_q[mine] * scale_q[mine]).sum()) - scale * float(own.detach().sum())
            torch.autograd.backward([own, x_bF], [torch.full_like(own, -scale), dx_qF[mine]])
            assert H.grad is not None
            _kernels.add_rows(H.grad.numpy(), index, G_mF.numpy(), threads)
    G_nF = exchange.give_back(G_mF, threads)
    G_nF[of_c] += G_cF
    return total, G_nF, exchange.sent_bytes(Z_nF.shape[1], Z_nF.element_size())


def _over_candidates(comm, x_qF: torch.Tensor, C_cF: torch.Tensor, G_cF: torch.Tensor, scale_q: torch.Tensor):
    """Return log sum_j exp <x, C_j> over all ranks (q,), and scale_q times its gradient (q, F). Collective.

    scale_q times the gradient of C is added to G.
    """
    step = max(1, NUMBERS // max(1, len(x_qF)))
    blocks = [slice(start, start + step) for start in range(0, len(C_cF), step)]
    made = [x_qF @ C_cF[of].T for of in blocks] if len(blocks) == 1 else []  # of one block scores are made once
    scores = lambda of: made[0] if made else x_qF @ C_cF[of].T
    top_q = x_qF.new_full((len(x_qF),), -torch.inf)
    for of in blocks:
        top_q = torch.maximum(top_q, scores(of).amax(1))
    comm.all_reduce(top_q, "max")
    sum_q = torch.zeros_like(top_q)
    for of in blocks:
        sum_q += scores(of).sub_(top_q[:, None]).exp_().sum(1)
    comm.all_reduce(sum_q)
    dx_qF, share_q1 = torch.zeros_like(x_qF), (scale_q / sum_q)[:, None]
    for of in blocks:
        P_qc = made[0] if made else scores(of).sub_(top_q[:, None]).exp_()
        P_qc *= share_q1
        dx_qF += P_qc @ C_cF[of]
        G_cF[of].addmm_(P_qc.T, x_qF)
    comm.all_reduce(dx_qF)
    return top_q + sum_q.log(), dx_qF
