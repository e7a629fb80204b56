"""The schedule sends the narrower side, counts 2 (L - 1) exchanges, and is the one that training follows."""

import pytest

from spgnn.cost.schedule import chain_order, keeps_sparse, plan_layers
from spgnn.errors import UsageError


@pytest.mark.parametrize("widths", [(300, 16, 24), (8, 64, 64, 5), (1, 1)])
def test_a_fixed_input_costs_two_exchanges_for_each_layer_but_the_first(widths):
    plans = plan_layers(widths)
    assert sum(p.exchanges_forward + p.exchanges_backward for p in plans) == 2 * (len(plans) - 1)
    assert plans[0].is_kept and all(p.width == min(p.f_in, p.f_out) for p in plans[1:])


def test_input_dropout_makes_the_first_layer_travel_where_it_is_cheaper():
    wide, narrow = (plan_layers(w, input_is_fixed=False)[0] for w in ((300, 16), (30, 16)))
    assert (wide.order, wide.width, wide.exchanges_forward, wide.exchanges_backward) == ("gemm_first", 16, 1, 1)
    assert (narrow.order, narrow.width, narrow.exchanges_forward, narrow.exchanges_backward) == ("spmm_first", 30, 1, 0)


def test_sparse_input_is_multiplied_first_unless_its_product_is_kept():
    assert plan_layers((1000, 16, 7), sparse_input=True, keep_sparse=False)[0].order == "gemm_first"
    assert plan_layers((1000, 16, 7), sparse_input=True)[0].is_kept
    assert keeps_sparse(400, 50, 50) and not keeps_sparse(401, 50, 50)


def test_order_of_a_hidden_chain_follows_the_width():
    assert [chain_order(f, c) for f, c in ((8, 9), (9, 8), (8, 8))] == ["spmm_first", "gemm_first", "gemm_first"]


def test_every_plan_says_why():
    assert all(p.why for p in plan_layers((300, 16, 24, 8), input_is_fixed=False))


@pytest.mark.parametrize("widths", [(3,), (), (3, 0), (-1, 4)])
def test_widths_that_make_no_layers_are_refused(widths):
    with pytest.raises(UsageError, match="at least two positive widths"):
        plan_layers(widths)
