"""The recipe of the ICPP'24 paper's figures: its cost of the published programs."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "runs" / "papers" / "icpp24"
sys.path.insert(0, str(FOLDER))

from published import broadcast_seconds, published_epoch  # noqa: E402

from spgnn import load_graph  # noqa: E402
from spgnn.cost.machines import load_machine  # noqa: E402
from spgnn.cost.pairs import count_pairs, grid_of  # noqa: E402
from spgnn.partition import part_graph  # noqa: E402

MACHINE = load_machine("perlmutter-like")
WIDTHS = (300, 16, 16, 24)
RMAT = "rmat:scale=9,degree=8"


def counted(graph, k, scheme, method):
    return count_pairs(graph.A, part_graph(graph, k, method), grid_of(k, 1), scheme)


def test_broadcasts_take_the_logarithm_of_the_ranks_and_the_bytes_over_the_cards_of_a_host():
    one_host = broadcast_seconds(MACHINE, np.full(4, 1e9), grid_of(4, 1))
    assert one_host == pytest.approx(4 * 2 * MACHINE.local_latency_s + 4e9 / MACHINE.local_bandwidth)
    four = broadcast_seconds(MACHINE, np.full(16, 1e9), grid_of(16, 1))
    assert four == pytest.approx(16 * 4 * MACHINE.latency_s + 16e9 / MACHINE.card_bandwidth)
    # c = 4 on 16 ranks: each process column has one rank, and one card, of each host, and broadcasts one block of four.
    assert broadcast_seconds(MACHINE, np.full(4, 1e9), grid_of(4, 4)) == pytest.approx(
        2 * MACHINE.latency_s + 1e9 / MACHINE.bandwidth
    )
    assert broadcast_seconds(MACHINE, np.full(1, 1e9), grid_of(1, 1)) == 0


def test_copies_of_a_graph_multiply_what_a_machine_without_latency_takes():
    graph = load_graph(RMAT).with_edges("undirected")
    machine = replace(MACHINE, latency_s=1e-30, local_latency_s=1e-30, cache_bytes=1.0)
    for scheme, c in (("broadcast", 1), ("columns", 2), ("cover", 1)):
        one, ten = (
            published_epoch(machine, counted(graph, 8, scheme, "metis"), c, WIDTHS, copies, scheme == "broadcast")
            for copies in (1, 10)
        )
        assert ten.exchange == pytest.approx(10 * one.exchange) and ten.sums == pytest.approx(10 * one.sums)
        assert ten.spmm == pytest.approx(10 * one.spmm, rel=1e-4)
