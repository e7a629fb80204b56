"""The order of nodes by part, its inverse, and which graphs a partition accepts."""

import numpy as np

from spgnn.graph import graph_from_coo
from spgnn.partition import Partition, partition_of


def random_directed(n=60, seed=0):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, n, (2, 4 * n))
    return graph_from_coo(src, dst, n, edges="directed")


def test_order_and_rank_are_inverse_and_stable_inside_a_part():
    part = partition_of(random_directed(6), np.array([1, 0, 2, 0, 1, 1]))
    np.testing.assert_array_equal(part.order_N, [1, 3, 0, 4, 5, 2])
    np.testing.assert_array_equal(part.rank_N[part.order_N], np.arange(6))
    np.testing.assert_array_equal(part.own(1), [0, 4, 5])
    np.testing.assert_array_equal(part.sizes_k, [2, 3, 1])


def test_order_is_right_at_the_largest_number_of_parts():
    part = Partition(np.array([8191, 3, 300, 0, 8191]), 8192)
    np.testing.assert_array_equal(part.order_N, [3, 1, 2, 0, 4])
    assert part.own(8191).tolist() == [0, 4]
