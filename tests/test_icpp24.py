"""The recipe of the ICPP'24 paper's figures: its cost of the published programs."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "runs" / "papers" / "icpp24"
sys.path.insert(0, str(FOLDER))

from published import broadcast_seconds, published_epoch, spgnn_epoch  # noqa: E402

from spgnn import load_graph  # noqa: E402
from spgnn.cost.machines import load_machine  # noqa: E402
from spgnn.cost.pairs import count_pairs, grid_of  # noqa: E402
from spgnn.partition import part_graph  # noqa: E402

MACHINE = load_machine("perlmutter-like")
WIDTHS = (300, 16, 16, 24)
RMAT, COMMUNITIES = "rmat:scale=9,degree=8", "sbm:n=512,classes=32,degree=12,inside=0.999,features=0"


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


def test_broadcasting_does_not_scale_and_parts_of_communities_do():
    graph = load_graph(COMMUNITIES).with_edges("undirected")
    times = {
        (scheme, method, k): published_epoch(
            MACHINE, counted(graph, k, scheme, method), 1, WIDTHS, 17_000, scheme == "broadcast"
        ).exchange
        for scheme, method in (("broadcast", "random"), ("columns", "random"), ("columns", "metis"))
        for k in (4, 16, 32)
    }
    assert times["broadcast", "random", 32] > times["broadcast", "random", 16] > times["broadcast", "random", 4]
    assert times["columns", "metis", 32] < times["columns", "random", 32] / 14


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


def test_the_schedule_makes_an_epoch_shorter_on_the_same_parts():
    graph = load_graph(RMAT).with_edges("undirected")
    one = counted(graph, 16, "cover", "metis")
    published, ours = published_epoch(MACHINE, one, 1, WIDTHS, 1000), spgnn_epoch(MACHINE, one, 1, WIDTHS, 1000)
    assert ours.epoch_s < published.epoch_s / 3 and published.hidden == 0 < ours.hidden
