"""Which product of a chain A H W comes first, and why."""

import pytest

from spgnn.cost.schedule import block_order, chain_order, check_order, keeps_sparse, order_reason
from spgnn.errors import UsageError


def test_the_narrower_side_travels_and_at_equal_widths_the_product_with_w_comes_first():
    assert [chain_order(f, c) for f, c in ((8, 9), (9, 8), (8, 8))] == ["spmm_first", "gemm_first", "gemm_first"]


def test_an_input_without_gradient_travels_once_where_that_is_less_than_twice_the_output():
    assert [chain_order(f, 16, is_hidden=False) for f in (30, 32, 33)] == ["spmm_first", "spmm_first", "gemm_first"]


def test_a_block_that_reads_many_more_rows_than_it_makes_multiplies_with_a_first():
    assert block_order((1000, 5000), 4000, 256, 40) == "spmm_first" != chain_order(256, 40)
    assert block_order((1000, 5000), 50_000_000, 256, 40) == "gemm_first", "where products with A take longer"


@pytest.mark.parametrize("is_hidden", [True, False])
def test_a_square_block_has_the_order_of_any_operator(is_hidden):
    for f, c in ((8, 9), (9, 8), (8, 8), (32, 16), (33, 16), (31, 16), (128, 256)):
        assert block_order((500, 500), 3000, f, c, is_hidden) == chain_order(f, c, is_hidden=is_hidden)


def test_a_sparse_input_is_multiplied_with_w_first_unless_a_x_is_kept():
    assert chain_order(1000, 16, is_sparse=True) == "gemm_first"
    assert chain_order(1000, 16, is_kept=True, is_sparse=True) == "spmm_first"
    assert keeps_sparse(400, 50, 50) and not keeps_sparse(401, 50, 50)
    with pytest.raises(UsageError, match="X is sparse"):
        check_order("spmm_first", is_kept=False, is_sparse=True)


@pytest.mark.parametrize("facts, reason", [
    ((128, 16, "spmm_first", True, False, False, False), "computed once and kept"),
    ((128, 16, "spmm_first", False, False, True, True), "as asked"),
    ((128, 16, "gemm_first", False, True, False, False), "X is sparse"),
    ((128, 16, "gemm_first", False, False, True, False), "16 <= 128"),
    ((16, 128, "spmm_first", False, False, True, False), "16 < 128"),
    ((30, 16, "spmm_first", False, False, False, False), "30 once <= 16 forward and back"),
])  # fmt: skip
def test_every_order_has_a_reason(facts, reason):
    assert reason in order_reason(*facts)
