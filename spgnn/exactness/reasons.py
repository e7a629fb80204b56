"""Likely reasons why a module depends on the ranks, found by running it on other ranks, graphs and inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from .compared import Compared, compare
from .watched import ONE, Call, Key, RankPass, Shift, Task, World, apart, both_ways, halves, nodes_of, run_world

RANDOM = (
    "random numbers that are no function of the original node ids, such as those of torch's dropout: use A.drop, or the "
    "dropout of a Stack"
)
UNSTEADY = "two runs on one rank differ: it is made or computed with random numbers without a seed, or keeps state"
RANK = "it depends on the number of the rank: a buffer or attribute that each rank has made for itself"
ROW_NUMBERS = "it reads the number of a row on its rank as the id of the node; A.node_n has the ids"
ORDER = "it depends on the order of the rows on a rank, as cumsum, Conv1d and recurrent layers do"
STATISTIC = "a statistic of the rows of one rank, such as a mean or a batch norm; add it up over all ranks"
SIZE = "it counts rows or ranks, such as len(H); the graph has the number of nodes of all ranks"
SYMMETRY = "it assumes that A is symmetric: it is exact where every edge has both directions, and wrong on this graph"
NO_GHOSTS = "it does not read the rows of other ranks: an exchange is missing; use A @ H, or A.fetch(H)"
DEGREE = "it counts the nonzeros of own columns alone, as a degree; add those of ghost columns"
GHOSTS = "it is exact where no edge joins two ranks: what it reads of other ranks is wrong"
PARTIAL = "wrong in 1.5D alone: weights act on rows of columns, of which a rank has a part; let them act before"
DETACHED = (
    "the gradient of the rows of other ranks is lost, as by detach: it is exact where no edge joins two ranks, so the "
    "adjoint of an exchange is missing"
)
NOT_SUMMED = "a number of all ranks, such as a sum of all rows, whose gradient is not summed over the ranks"
MEAN_LOSS = "the loss is the mean over the rows of a rank; return the sum, which is divided by the count of all ranks"
OTHER_LOSS = "the sum of the ranks' losses is not the loss of all rows: is it a sum over rows?"
DECODER = "the score of a pair depends on more than the two rows and the relation"
OWN_BUFFER = "a buffer per rank: it is made of the rows of one rank; make it of sums over all ranks"


@dataclass(frozen=True)
class Fault:
    """A task that failed on a world; failing: (edges, whether 1.5D) of all worlds that fail."""

    task: Task
    world: World
    tolerance: float
    failing: set[tuple[str, bool]]


def why_forward(fault: Fault, call: Call) -> str:
    """Return the likely reason why what a call returns differs while what it reads does not."""
    same, other = (_differs_twice(fault, seeds) for seeds in ((1, 1), (1, 2)))
    if same or other:
        return UNSTEADY if same else RANDOM
    if all(is_grid for _, is_grid in fault.failing):
        return PARTIAL
    if {edges for edges, _ in fault.failing} == {"one-way"}:
        return SYMMETRY
    halves_of = (_of_halves(fault, is_swapped) for is_swapped in (False, True))
    kept, swapped = (found.calls[call.number].outputs.ranks for found in halves_of)
    if kept or swapped:
        return _of_own_rows(fault, call, kept, swapped)
    if _is_exact_with_both(fault):
        return SYMMETRY
    reads, reads_others = _reads(fault, call, ONE), _reads(fault, call, fault.world)
    if reads is False:
        return DEGREE
    return NO_GHOSTS if reads and reads_others is False else GHOSTS


def _of_own_rows(fault: Fault, call: Call, kept: frozenset[int], swapped: frozenset[int]) -> str:
    """Return why a call is wrong where no edge joins two ranks, from the ranks that are wrong on a world and its mirror."""
    graph = apart(fault.task.graph, halves(fault.task.graph.n_nodes, False).owner_N)
    reads = _reads(replace(fault, task=replace(fault.task, graph=graph)), call, ONE, halves(graph.n_nodes, False))
    if kept == frozenset({1}) and swapped == frozenset({1}):
        return RANK
    if kept == frozenset({1}) and swapped == frozenset({0}):  # the rows that are not first in the graph
        return ORDER if reads else ROW_NUMBERS
    return STATISTIC if reads else SIZE


def why_backward(fault: Fault) -> str:
    """Return the likely reason why gradients differ while all that is computed does not."""
    if all(is_grid for _, is_grid in fault.failing):
        return PARTIAL
    if {edges for edges, _ in fault.failing} == {"one-way"}:
        return SYMMETRY
    if _of_halves(fault).gradient > fault.tolerance:
        return NOT_SUMMED
    return SYMMETRY if _is_exact_with_both(fault, "gradient") else DETACHED


def why_loss(fault: Fault) -> str:
    """Return the likely reason why the loss differs while what the model returns does not."""
    one, ranks = run_world(ONE, fault.task)[0], run_world(fault.world, fault.task)
    counted = [of for of in ranks if of.is_counted]
    mean = sum(of.loss * of.labelled for of in counted) / max(sum(of.labelled for of in counted), 1)
    return MEAN_LOSS if abs(mean - one.loss) <= 1e-6 * abs(one.loss) else OTHER_LOSS


def _differs_twice(fault: Fault, seeds: tuple[int, int]) -> bool:
    """Return whether two runs on one rank differ, whose torch generators have these seeds."""
    found = []
    for seed in seeds:
        torch.manual_seed(seed)
        found.append(run_world(ONE, fault.task)[0])
    return compare(found[0], found[1:], fault.tolerance).outputs > fault.tolerance


def _of_halves(fault: Fault, is_swapped: bool = False) -> Compared:
    """Return how two ranks that no edge joins differ from one."""
    world = halves(fault.task.graph.n_nodes, is_swapped)
    task = replace(fault.task, graph=apart(fault.task.graph, world.owner_N))
    return compare(run_world(ONE, task)[0], run_world(world, task), fault.tolerance)


def _is_exact_with_both(fault: Fault, what: str = "outputs") -> bool:
    """Return whether a model that fails is exact once every edge has both directions."""
    graph = both_ways(fault.task.graph)
    if graph is None:
        return False
    task = replace(fault.task, graph=graph)
    found = compare(run_world(ONE, task)[0], run_world(fault.world, task), fault.tolerance)
    return getattr(found, what) <= fault.tolerance


def _reads(fault: Fault, call: Call, world: World, parts: World | None = None) -> bool | None:
    """Return whether rows of part 0 change what the call returns for nodes of other parts; None: it reads no rows.

    Args: parts  the parts; None: of the world that fails.
    """
    owner_N = (parts or fault.world).owner_N
    before = run_world(world, fault.task)
    inputs = before[0].by_key[call.key].inputs
    lengths = {len(before[0].own_n), *before[0].columns, *before[0].nonzeros}
    chosen = next((number for number, rows in enumerate(inputs) if rows.edges or len(rows.value) in lengths), None)
    if chosen is None:
        return None

    def delta(ids: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        moved = np.cos(ids[:, None] + np.arange(int(np.prod(shape[1:]))))  # the same on any ranks
        return (moved * (owner_N[ids] == 0)[:, None]).reshape(shape)

    after = run_world(world, replace(fault.task, shift=Shift(call.key, chosen, False, delta)))
    return any(_changed(a, b, call.key, owner_N) for a, b in zip(before, after))


def _changed(before: RankPass, after: RankPass, key: Key, owner_N: np.ndarray) -> bool:
    """Return whether what a call returned for nodes outside of part 0 has changed on a rank."""
    for a, b in zip(before.by_key[key].outputs, after.by_key[key].outputs):
        others = owner_N[nodes_of(len(a.value), a.edges, before.own_n, before.nonzeros, len(owner_N))] != 0
        if len(a.value) >= len(others) and not np.array_equal(*(rows.value[: len(others)][others] for rows in (a, b))):
            return True
    return False
