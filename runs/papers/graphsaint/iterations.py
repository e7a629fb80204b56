"""What the GraphSAINT recipes share: samplers at the paper's sizes, timed iterations, and the paper's figures.

Shapes: N nodes, m nodes of a subgraph.
Source: Zeng et al., Accurate, efficient and scalable training of graph neural networks, 2021, section 7.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / name) for name in ("papers", "bench")]

from recipes import REPO, machine, table  # noqa: E402, F401  (the scripts of this folder import them from here)

from spgnn import samplers  # noqa: E402
from spgnn.graph import Graph  # noqa: E402
from spgnn.layers import SAGE, Stack  # noqa: E402
from spgnn.samplers import Maker, Sampler, SamplerPool  # noqa: E402
from spgnn.spmm.chains.loss import cross_entropy  # noqa: E402
from spgnn.spmm.kernels.buffers import make_pool  # noqa: E402
from spgnn.spmm.operator.subgraph import SubgraphOperators  # noqa: E402

BUDGET, FRONTIER = 8000, 1000  # n and m of sections 7.5 and 7.6
BATCH, NEAR, FAR = 512, 25, 10  # r, s of the last layer and of the others, section 7.7
FEATURES, CLASSES = 50, 2  # of its synthetic graphs

# Section 7.2: serial speed-up over the best baseline to its best accuracy less 0.0025.
SERIAL_SPEEDUP = {"PPI": 1.9, "Reddit": 7.8, "Yelp": 4.7, "Amazon": 2.1}
MARGIN = 0.0025
# Section 7.3, on 40 cores: about so many times the speed of one.
ON_40_CORES = {"iteration": 15.0, "edge": 20.0, "walk": 20.0}
ITERATION_MS = 100.0  # Figure 5, left: what an iteration converges to on 40 cores, hidden 512


def fanouts(layers: int) -> tuple[int, ...]:
    """Return the fan-outs of section 7.7, the input layer first."""
    return (FAR,) * (layers - 1) + (NEAR,)


def sampler_of(name: str, graph, train_N: np.ndarray, layers: int = 2, budget: int = BUDGET) -> Sampler:
    """Return a sampler at the paper's sizes."""
    if name == "neighbour":
        return samplers.Neighbour(graph, train_N, fanout=fanouts(layers), batch=BATCH)
    if name == "frontier":
        return samplers.Frontier(graph, budget=budget, frontier=min(FRONTIER, budget))
    return {"walk": samplers.Walk, "edge": samplers.Edge, "node": samplers.Node}[name](graph, budget=budget)


def random_task(A, share: float = 0.5, features: int = FEATURES, seed: int = 0):
    """Return (graph, train_N, X, y) with random features and labels, as the paper has them on synthetic graphs."""
    rng, N = np.random.default_rng(seed), A.shape[0]
    X = torch.from_numpy(rng.standard_normal((N, features), np.float32))
    return Graph(A, edges="undirected"), rng.random(N) < share, X, torch.from_numpy(rng.integers(0, CLASSES, N))


@dataclass(frozen=True, slots=True)
class Iteration:
    """Median milliseconds and mean sizes of an iteration: drawing by one thread, then forward, loss, backward and Adam.

    rows  input rows of each layer, outputs last.
    """

    sample_ms: float
    train_ms: float
    nodes: float
    nonzeros: float
    rows: tuple[float, ...]


def clock_of(threads: int) -> Callable[[], float]:
    """Return CPU seconds of the process for one thread, which other work on the machine changes little; else wall seconds."""
    return time.process_time if threads == 1 else time.perf_counter


def time_iterations(
    sampler, task, layers: int, hidden: int, threads: int, steps: int, clock: Callable[[], float] = time.perf_counter
) -> Iteration:
    """Train SAGE layers on `steps` subgraphs, after two that do not count."""
    graph, train_N, X, y = task
    torch.set_num_threads(threads)
    maker = Maker(sampler, graph, train_N, ["row"])
    widths = [X.shape[1], *[hidden] * (layers - 1), CLASSES]
    model = Stack(*[SAGE(f, c, act="relu") for f, c in zip(widths[:-1], widths[1:-1])], SAGE(widths[-2], CLASSES))
    optimizer, pool = torch.optim.Adam(model.parameters(), lr=0.01), make_pool(torch.device("cpu"), varies=True)
    drawn_s, train_s, sizes, rows = [], [], [], []
    for index in range(steps + 2):
        start = clock()
        subgraph = maker.draw(0, index)
        drawn = clock()
        optimizer.zero_grad()
        H = X[torch.from_numpy(subgraph.node_m)]
        Z = model(SubgraphOperators(subgraph, pool, torch.float32, threads, "row"), H)
        n = subgraph.shapes[-1][0]
        cross_entropy(Z, y[torch.from_numpy(subgraph.node_m[:n])], n, pool, threads).backward()
        optimizer.step()
        drawn_s.append(drawn - start)
        train_s.append(clock() - drawn)
        sizes.append((len(subgraph.node_m), sum(len(next(iter(b.values())).A.indices) for b in subgraph.blocks)))
        inputs = [m for _, m in subgraph.shapes] if sampler.n_blocks else [len(subgraph.node_m)] * layers
        rows.append([*inputs, n])
        del H, Z, subgraph
    nodes, nonzeros = np.mean(sizes[2:], axis=0)
    drawn_ms, train_ms = (1e3 * float(np.median(seconds[2:])) for seconds in (drawn_s, train_s))
    return Iteration(drawn_ms, train_ms, float(nodes), float(nonzeros), tuple(np.mean(rows[2:], axis=0)))


def subgraphs_per_s(sampler, task, threads: int, count: int) -> float:
    """Return subgraphs, ready for layers, that so many threads draw in a second."""
    graph, train_N, *_ = task
    with SamplerPool(Maker(sampler, graph, train_N, ["row"]), 0, threads, ahead=4 * threads) as pool:
        warm = 4 * threads + 4
        for index in range(warm):
            pool.get(index)
        start = time.perf_counter()
        for index in range(warm, warm + count):
            pool.get(index)
        return count / (time.perf_counter() - start)
