"""SamplerPool returns the subgraphs of its indices in order, whatever the threads; an error surfaces at its index."""

import threading
import time

import numpy as np
import pytest
from small_graphs import random_graph
from test_maker import check_same

from spgnn.errors import SamplerError, ShapeError, UsageError
from spgnn.samplers import Maker, SamplerPool, Subgraph, Walk


@pytest.fixture(scope="module")
def maker():
    graph = random_graph(use="undirected")
    return Maker(Walk(graph, budget=15), graph, graph.y >= 0, ["gcn", "none"])


class Recorded:
    """Draws empty subgraphs after a wait, and records which; draw number `bad` fails."""

    def __init__(self, wait=0.0, bad=None, error=ZeroDivisionError("by nothing")):
        self.wait, self.bad, self.error, self.begun, self.threads = wait, bad, error, [], set()

    def draw(self, seed, index):
        self.begun.append(index)
        self.threads.add(threading.current_thread())
        time.sleep(self.wait * (index % 3))  # later draws end before earlier ones
        if index == self.bad:
            raise self.error
        return Subgraph(index, np.zeros(0), (), (), np.zeros(0), np.zeros(0), seconds=0.25)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_subgraphs_are_the_same_for_any_number_of_threads(maker, threads):
    with SamplerPool(maker, seed=3, threads=threads) as pool:
        for index in range(12):
            check_same(pool.get(index), maker.draw(3, index))
    assert pool.sample_s > 0 and pool.sample_wait_s > 0


@pytest.mark.parametrize("threads", [1, 3])
def test_draws_are_returned_in_order_from_a_start_with_a_stride(threads):
    drawn = Recorded(0.002)
    with SamplerPool(drawn, 0, threads, start=5, stride=3) as pool:
        assert [pool.get(index).index for index in range(5, 41, 3)] == list(range(5, 41, 3))
        assert pool.sample_s == 12 * 0.25
        with pytest.raises(UsageError, match="subgraph 42 is asked of a pool whose next one is 41"):
            pool.get(42)
        assert pool.get(41).index == 41


def test_so_many_draws_are_prefetched_as_ahead_says():
    for ahead, threads, begun in ((3, 1, 4), (None, 2, 7)):
        drawn = Recorded()
        with SamplerPool(drawn, 0, threads, ahead) as pool:
            pool.get(0)
            limit = time.monotonic() + 5
            while len(drawn.begun) < begun and time.monotonic() < limit:
                time.sleep(0.001)
            time.sleep(0.01)
            assert sorted(drawn.begun) == list(range(begun))


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_surfaces_at_its_index_and_closes_the_pool(threads):
    drawn = Recorded(bad=3)
    with SamplerPool(drawn, 0, threads) as pool:
        for index in range(3):
            pool.get(index)
        with pytest.raises(SamplerError, match="subgraph 3: ZeroDivisionError: by nothing"):
            pool.get(3)
        with pytest.raises(UsageError, match="closed"):
            pool.get(4)
    assert not any(thread.is_alive() for thread in drawn.threads)


def test_errors_of_the_package_are_raised_as_they_are():
    with SamplerPool(Recorded(bad=0, error=ShapeError("of shape 2")), 0) as pool:
        with pytest.raises(ShapeError, match="^of shape 2$"):
            pool.get(0)


def test_close_joins_the_threads_and_drops_what_has_not_begun():
    drawn = Recorded(0.01)
    pool = SamplerPool(drawn, 0, threads=2, ahead=50)
    pool.get(0)
    pool.close()
    begun = len(drawn.begun)
    assert begun < 50 and not any(thread.is_alive() for thread in drawn.threads)
    pool.close()
    time.sleep(0.01)
    assert len(drawn.begun) == begun
    SamplerPool(drawn, 0).close()  # without a draw
    with SamplerPool(drawn, 0, threads=2) as pool:
        pool.get(0)
    assert pool.is_closed and not any(thread.is_alive() for thread in drawn.threads)


@pytest.mark.parametrize("given", [{"threads": 0}, {"ahead": -1}, {"seed": -1}, {"start": 0.5}, {"stride": 0}])
def test_numbers_out_of_range_are_refused(given):
    with pytest.raises(UsageError, match=f"{next(iter(given))} = "):
        SamplerPool(Recorded(), **({"seed": 0} | given))
