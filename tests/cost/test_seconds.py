"""The cost model against sums done by hand, and its limits."""

from dataclasses import replace

import numpy as np
import pytest

from spgnn.cost.machines import load_machine, this_host
from spgnn.cost.seconds import (
    LayerWork,
    RankProduct,
    all_reduce_seconds,
    choose_scheme,
    epoch_seconds,
    exchange_seconds,
    gemm_seconds,
    product_seconds,
    spmm_seconds,
)

# Round constants: 1 s a remote message and 0.1 s a local one, 10 and 100 bytes/s, a card of 15 bytes/s.
SLOW = dict(latency_s=1.0, bandwidth=10.0, card_bandwidth=15.0, local_latency_s=0.1, local_bandwidth=100.0)


def machine(ranks_per_host=1, **changes):
    return replace(load_machine("ethernet-1g"), ranks_per_host=ranks_per_host, **(SLOW | changes))


def product(P=2, width=4, own=1000, ghost=100, rows=50, rows_PP=None, **changes) -> RankProduct:
    full = lambda x: np.full(P, x, np.int64)
    if rows_PP is None:
        rows_PP = 10 * (1 - np.eye(P, dtype=np.int64))
    values = dict(
        width=width, own_P=full(own), ghost_P=full(ghost), out_P=full(rows), table_P=full(rows), rows_PP=rows_PP,
        row_bytes=4 * width,
    )  # fmt: skip
    return RankProduct(**values | changes)


def test_an_exchange_takes_alpha_a_message_and_the_bytes_of_the_busiest_rank():
    bytes_PP = np.array([[0, 30, 20], [5, 0, 0], [0, 40, 0]])
    # Rank 1 receives 70 in two messages; it has the most messages too.
    assert exchange_seconds(machine(), bytes_PP) == pytest.approx(2 * 1.0 + 70 / 10)


def test_ranks_of_a_host_share_its_card_and_talk_beside_it():
    m = machine(ranks_per_host=2)
    local = np.zeros((4, 4), int)
    local[0, 1] = 50
    assert exchange_seconds(m, local) == pytest.approx(0.1 + 50 / 100)
    remote = np.zeros((4, 4), int)
    remote[0, 2] = remote[1, 3] = 60
    assert exchange_seconds(m, remote) == pytest.approx(1.0 + 120 / 15), "the card, not the ranks' own 60 / 10"
    assert exchange_seconds(m, local + remote) == pytest.approx(1.1 + 120 / 15)


def test_the_all_reduce_grows_with_the_logarithm_of_the_ranks_and_one_rank_needs_none():
    assert all_reduce_seconds(machine(), 1, 1e6) == 0
    assert all_reduce_seconds(machine(), 8, 40) == pytest.approx(2 * 3 * 1.0 + 2 * 7 / 8 * 40 / 10)
    assert all_reduce_seconds(machine(ranks_per_host=8), 8, 40) == pytest.approx(2 * 3 * 0.1 + 2 * 7 / 8 * 40 / 100)


def test_rows_out_of_the_cache_are_read_at_the_rate_of_memory():
    m = replace(machine(), spmm_cached=100.0, spmm_memory=10.0, nonzero_s=1.0, cache_bytes=400.0)
    assert spmm_seconds(m, 3, 25, table_rows=4) == pytest.approx(3 * (1 + 100 / 100))
    assert spmm_seconds(m, 3, 25, table_rows=8) == pytest.approx(3 * (1 + 50 / 100 + 50 / 10))


def test_a_narrow_dense_product_runs_slower_a_flop():
    m = replace(machine(), gemm_float32=1e9, gemm_bfloat16=4e9, stream=1e30)
    wide, narrow = gemm_seconds(m, 1, 256, 256), gemm_seconds(m, 1, 256, 8)
    assert wide == pytest.approx(2 * 256 * 256 * (1 + 8 / 256) / 1e9)
    assert narrow == pytest.approx(2 * 2 * 256 * 8 / 1e9)
    assert gemm_seconds(m, 1, 256, 256, itemsize=2) == pytest.approx(wide / 4)


def test_an_exchange_hides_behind_the_own_block_only_with_overlap():
    m = machine()
    beside, after = (product_seconds(m, product(), overlap=overlap) for overlap in (True, False))
    assert after.hidden == 0 and after.epoch_s == pytest.approx(after.spmm + after.exchange)
    assert (
        beside.hidden == pytest.approx(min(beside.exchange, beside.spmm), rel=0.2)
        and 0 < beside.hidden <= beside.exchange
    )
    assert beside.epoch_s == pytest.approx(after.epoch_s - beside.hidden)
    much = replace(m, bandwidth=1e12, card_bandwidth=1e12, latency_s=1e-12)
    fast = product_seconds(much, product(own=10**6))
    assert fast.hidden == pytest.approx(fast.exchange) and fast.epoch_s == pytest.approx(fast.spmm)


def chain(f_in, f_out, products=(), left=None, P=2):
    """A layer A H W + b, whose X has no gradient where no product is given."""
    left_P = None if left is None else np.full(P, left)
    dense = tuple((f_in, f_out, left_P, is_gradient) for is_gradient in (False, True, True)[: 2 + bool(products)])
    return LayerWork(products, dense, np.full(P, 1000), f_out, f_out, f_in * f_out + f_out)


def layers(P=2, passes=2, **changes):
    return [chain(128, 16, P=P), chain(16, 40, (product(P, 16, **changes),) * passes, P=P)]


def test_an_evaluation_is_the_forward_part_alone():
    training, evaluation = (epoch_seconds(machine(), layers(passes=n), training=n == 2) for n in (2, 1))
    assert evaluation.exchange == pytest.approx(training.exchange / 2)
    assert evaluation.all_reduce == 0 and evaluation.epoch_s < training.epoch_s


def test_sums_over_process_rows_are_not_hidden():
    sums = np.array([[0, 25], [25, 0]])
    time = epoch_seconds(machine(), layers(sum_PP=sums, sum_bytes=64))
    assert time.sums == pytest.approx(2 * (1 + 25 * 64 / 10))


def test_sparse_features_cost_their_nonzeros_not_their_width():
    _, *rest = layers()
    first = lambda f_in, nnz: chain(f_in, 16, left=nnz)
    time = epoch_seconds(machine(), [first(100_000, 5000), *rest])
    # The weights of 100,000 features still pass through the optimiser; their flops do not.
    assert time.gemm == epoch_seconds(machine(), [first(128, 1), *rest]).gemm
    assert time.spmm > epoch_seconds(machine(), [first(100_000, 50), *rest]).spmm


def counts(columns, cover, moved, ghost=4000):
    """The counts of two ranks, which send each other as many rows and multiply `moved` nonzeros for the other."""
    pairs = lambda rows: np.array([[0, rows], [rows, 0]])
    of = {"columns_PP": pairs(columns), "cover_PP": pairs(cover), "moved_PP": np.array([[0, moved[0]], [moved[1], 0]])}
    return of | {name: np.full(2, size) for name, size in (("own_nnz", 10**5), ("ghost_nnz", ghost), ("n", 100))}


def test_cover_is_chosen_where_its_bytes_save_more_than_its_work_costs():
    network = load_machine("ethernet-1g")
    name, why = choose_scheme(counts(1000, 600, (1000, 1000)), network, 4)
    assert name == "cover"
    assert "one product of width 64 on ethernet-1g" in why and "104,000 nonzeros" in why
    # The same bytes, but all the work on one rank.
    assert choose_scheme(counts(1000, 995, (10**8, 0), ghost=10**8), network, 4)[0] == "columns"
    assert choose_scheme(counts(1000, 1000, (0, 0)), network, 4)[0] == "columns", "on a tie nothing moves"


@pytest.mark.parametrize("n_cores, rate, name", [(2, 117e6, "two-tier"), (1, 117e6, "cover"), (1, 6e6, "two-tier")])
def test_ranks_that_take_turns_on_a_core_gather_and_spread_rows_where_the_wire_is_slow(n_cores, rate, name):
    """4 ranks on 2 hosts: two-tier saves a fifth of what crosses."""
    pairs = lambda rows: np.kron(1 - np.eye(2, dtype=int), np.full((2, 2), rows))
    nothing = np.zeros((4, 4), int)
    of = {"cover_PP": pairs(2500), "moved_PP": nothing, "two_tier_PP": pairs(2000), "two_tier_moved_PP": nothing}
    of |= {name: np.full(4, size) for name, size in (("own_nnz", 10**6), ("ghost_nnz", 10**5), ("n", 10**5))}
    hosts = replace(this_host(n_cores), bandwidth=rate, card_bandwidth=rate).placed(2)
    assert choose_scheme(of, hosts, 4)[0] == name


def test_rows_of_two_tiers_are_gathered_and_spread_before_and_after_they_cross():
    rows_PP = np.zeros((4, 4), np.int64)
    rows_PP[0, 1], rows_PP[0, 2], rows_PP[2, 3] = 40, 100, 40  # ranks 0 and 1 are a host
    quick = machine(2, spmm_cached=1e30, spmm_memory=1e30, nonzero_s=1e-30, stream=1e30)
    relayed = product(P=4, rows_PP=rows_PP, width=1, is_relayed=True)
    inside, between = 0.1 + 160 / 100, 1 + 400 / 10
    assert product_seconds(quick, relayed).exchange == pytest.approx(inside + between)
    assert product_seconds(quick, replace(relayed, is_relayed=False)).exchange == pytest.approx(0.1 + between)
