"""Frontier sampling as Algorithm 2 has it, in plain Python and in NumPy: what the fast one is compared with.

Shapes: N nodes, M nodes of the frontier.
"""

from __future__ import annotations

import numpy as np


def algorithm_2(indptr, indices, budget: int, frontier: int, rng: np.random.Generator) -> list[int]:
    """Return the first frontier and the popped nodes in their order.

    Source: GraphSAINT (Zeng et al. 2021), Algorithm 2; its lines are numbered.
    """
    FS = [int(v) for v in rng.choice(len(indptr) - 1, frontier, replace=False)]  # 1
    V = list(FS)  # 2
    for _ in range(budget - frontier):  # 3
        degrees = [indptr[v + 1] - indptr[v] for v in FS]
        if sum(degrees) == 0:
            break
        slot = rng.choice(frontier, p=np.array(degrees) / sum(degrees))  # 4
        u = FS[slot]
        FS[slot] = int(indices[indptr[u] + rng.integers(degrees[slot])])  # 5, 6
        V.append(u)  # 7
    return V


def algorithm_2_numpy(indptr, indices, budget: int, frontier: int, rng: np.random.Generator) -> np.ndarray:
    """Return the same by cumulated degrees and one search in them for each step, as a NumPy user writes it."""
    FS_M = rng.choice(len(indptr) - 1, frontier, replace=False)
    degree_M = indptr[FS_M + 1] - indptr[FS_M]
    V = [FS_M.copy()]
    for _ in range(budget - frontier):
        ends_M = np.cumsum(degree_M)
        if ends_M[-1] == 0:
            break
        slot = np.searchsorted(ends_M, rng.integers(ends_M[-1]), side="right")
        u = FS_M[slot]
        fresh = indices[indptr[u] + rng.integers(degree_M[slot])]
        FS_M[slot], degree_M[slot] = fresh, indptr[fresh + 1] - indptr[fresh]
        V.append(u)
    return np.hstack(V)
