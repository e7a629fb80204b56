"""Frontier sampling as the paper has it, in plain Python: what the fast one is compared with.

Shapes: N nodes, M nodes of the frontier.
Source: GraphSAINT (Zeng et al. 2021), Algorithms 2 to 4; their lines are numbered.
"""

from __future__ import annotations

import numpy as np

NULL = -1
ETA = 3.0  # pins of the Dashboard over those that M nodes of mean degree need


def algorithm_2(indptr, indices, budget: int, frontier: int, rng: np.random.Generator) -> list[int]:
    """Return the first frontier and the popped nodes in their order."""
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


class Dashboard:
    """Pops a slot of the frontier with probability deg / sum of deg: a slot has deg pins, and a random pin selects it.

    Departures from Algorithm 4: where a node does not fit after a clean-up the board doubles. The paper gives such a
    node the pins that are left, which is another distribution. Probes stay below the last pin in use.
    """

    def __init__(self, n_pins: int):
        self.DB = np.full(n_pins, NULL)  # slot of each pin
        self.IA: list[list] = []  # [first pin, degree, slot, it is in the frontier] of each node that was added
        self.used = self.live = self.cleanups = 0

    def pop(self, rng: np.random.Generator) -> int:
        """Remove a slot and return it; NULL if no node of the frontier has neighbours."""
        if not self.live:
            return NULL
        while (slot := int(self.DB[rng.integers(self.used)])) == NULL:  # 3 to 9
            pass
        tile = next(tile for tile in self.IA if tile[2:] == [slot, True])  # 12
        self.DB[tile[0] : tile[0] + tile[1]] = NULL  # 13 to 15
        self.live -= tile[1]
        tile[3] = False  # 16
        return slot

    def add(self, slot: int, degree: int) -> None:
        if degree > len(self.DB) - self.used:  # Alg. 3, line 23
            self.clean_up()
            while degree > len(self.DB) - self.used:
                self.DB = np.append(self.DB, np.full(len(self.DB), NULL))
        if degree:
            self.IA.append([self.used, degree, slot, True])  # 31, 32
            self.DB[self.used : self.used + degree] = slot  # 33 to 35
            self.used += degree
            self.live += degree

    def clean_up(self) -> None:
        tiles, self.IA = [tile for tile in self.IA if tile[3]], []
        self.DB[:] = NULL  # 20
        self.used = self.live = 0
        for _, degree, slot, _ in tiles:  # 21 to 27
            self.add(slot, degree)
        self.cleanups += 1


def dashboard_walk(indptr, indices, budget: int, frontier: int, rng: np.random.Generator) -> tuple:
    """Run Algorithm 2 on the Dashboard: (first frontier, slot that each step popped, node put there, the Dashboard)."""
    degree_N = np.diff(indptr)
    board = Dashboard(max(1, int(ETA * frontier * degree_N.mean())))  # Alg. 3, lines 1 and 2
    FS = [int(v) for v in rng.choice(len(degree_N), frontier, replace=False)]  # 4
    start, slots, nodes = list(FS), [], []
    for slot, v in enumerate(FS):  # 8 to 18
        board.add(slot, int(degree_N[v]))
    for _ in range(budget - frontier):  # 20
        slot = board.pop(rng)  # 21
        if slot == NULL:
            break
        u = FS[slot]
        FS[slot] = int(indices[indptr[u] + rng.integers(degree_N[u])])  # 22
        board.add(slot, int(degree_N[FS[slot]]))  # 27
        slots.append(slot)
        nodes.append(FS[slot])
    return start, slots, nodes, board
