"""Which product of a chain A H W comes first, and why."""

import pytest

from spgnn.cost.schedule import Way, block_order, chain_order, chain_way, keeps_sparse
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
    with pytest.raises(UsageError, match="needs a dense X"):
        chain_way((1000, 16), is_sparse=True, is_asked=True)


@pytest.mark.parametrize("way, reason", [
    (Way(128, 16, "spmm_first", "product"), "computed once and kept"),
    (chain_way((128, 16), is_asked=True), "as asked"),
    (chain_way((128, 16), is_sparse=True, has_gradient=False), "X is sparse"),
    (chain_way((128, 16)), "16 <= 128"),
    (chain_way((16, 128)), "16 < 128"),
    (chain_way((30, 16), is_hidden=False, has_gradient=False), "30 once <= 16 forward and back"),
    (chain_way((128, 16), "ghosts", is_dropped=True), "16 <= 128; ghost rows of X are cached and dropped out by their"),
    (chain_way((16, 128), "ghosts"), "X changes by dropout alone"),
])  # fmt: skip
def test_every_way_has_a_reason(way, reason):
    assert way.reason.startswith(reason) or reason in way.reason
