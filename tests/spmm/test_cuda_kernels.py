"""The CUDA kernels, run on the CPU from their .cu sources, equal the float64 product and the C++ kernels."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from emulated_cuda import RecordingLauncher, emulated_kernels

from spgnn.errors import ShapeError
from spgnn.spmm.kernels import reference
from spgnn.spmm.kernels.cpu import HostKernels
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.kernels.cuda.kernels import CudaKernels

pytestmark = pytest.mark.slow

F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
TOLERANCE = {F32: 1e-5, F64: 1e-12, BF16: 1e-2}
# (type of X, of out, columns): packs of 1, 2, 4 and 8, few and all lanes, several packs per lane, several tiles.
SHAPES = [(F32, F32, 16), (F32, F32, 41), (F32, F32, 602), (BF16, BF16, 64), (BF16, F32, 64), (F64, F64, 6)]
LENGTHS = [0, 1, 3, 0, 17, 260, 1300, 5, 16, 40, 2, 257, 0]  # short, long, cut in two and in six, and empty rows
HOST = HostKernels()


def matrix(lengths=LENGTHS, m=1400, seed=0, is_weighted=True) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([np.sort(rng.choice(m, length, replace=False)) for length in lengths]).astype(np.int32)
    values = rng.standard_normal(len(indices)) if is_weighted else np.ones(len(indices))
    return sp.csr_array((values, indices, indptr), shape=(len(lengths), m))


def between_guards(n: int, F: int, dtype, fill=float("nan")) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix of NaN within a larger block of it, and the block: what is written beside the matrix shows."""
    block = torch.full((64 + n * F + 64,), float("nan"), dtype=dtype)
    inner = block[64 : 64 + n * F].view(n, F)
    inner.fill_(fill)
    return inner, block


def assert_guards_hold(block: torch.Tensor) -> None:
    assert block[:64].isnan().all() and block[-64:].isnan().all()


def difference(got, expected) -> float:
    return float(np.abs(got.double().numpy() - expected).max() / max(np.abs(expected).max(), 1e-30))


@pytest.fixture(scope="module")
def kernels():
    """Emulated kernels whose threads run in a shuffled order; all instances compiled at once."""
    recorder = RecordingLauncher()
    recorded = CudaKernels(torch.device("cpu"), recorder)
    for x_dtype, y_dtype, F in SHAPES:
        for is_weighted in (True, False):
            A = LocalCSR(matrix(is_weighted=is_weighted), BF16 if BF16 in (x_dtype, y_dtype) else x_dtype)
            recorded.spmm(A, torch.empty(1400, F, dtype=x_dtype), torch.empty(len(LENGTHS), F, dtype=y_dtype))
    kernels = emulated_kernels(order=7)
    for source, names in recorder.names_by_source().items():
        kernels.launcher.load(source, names)
    return kernels


def test_spmm_equals_the_float64_product_at_every_width_and_type(kernels):
    rng = np.random.default_rng(1)
    for x_dtype, y_dtype, F in SHAPES:
        stored = BF16 if BF16 in (x_dtype, y_dtype) else x_dtype
        sums = F64 if stored == F64 else F32
        X = torch.from_numpy(rng.standard_normal((1400, F))).to(x_dtype)
        for is_weighted in (True, False):
            A = LocalCSR(matrix(is_weighted=is_weighted), stored)
            product = A.to_scipy().astype(np.float64) @ X.double().numpy()
            out, block = between_guards(len(LENGTHS), F, y_dtype)
            kernels.spmm(A, X, out)
            assert_guards_hold(block)
            assert difference(out, product) <= TOLERANCE[stored], (x_dtype, y_dtype, F, is_weighted)
            bias, add = (
                torch.from_numpy(rng.standard_normal(F)).to(sums),
                torch.from_numpy(rng.standard_normal(out.shape)).to(sums),
            )
            before = torch.from_numpy(rng.standard_normal(out.shape)).to(y_dtype)
            out.copy_(before)
            kernels.spmm(A, X, out, accumulate=True, bias_F=bias, relu=True, add_nF=add)
            expected = np.maximum(product + before.double().numpy() + add.double().numpy() + bias.double().numpy(), 0)
            assert_guards_hold(block)
            assert difference(out, expected) <= TOLERANCE[stored], (x_dtype, y_dtype, F, is_weighted)


def test_spmm_touches_no_memory_but_its_arguments(kernels):
    A, X, out = LocalCSR(matrix()), torch.randn(1400, 41), torch.empty(len(LENGTHS), 41)
    bias, add = torch.randn(41), torch.randn(out.shape)
    kernels.prepare(A)
    plan, items_M, joins_J = kernels._plan(A)
    partial = torch.empty(plan.n_slots, 41)
    kernels.launcher.allow(
        items_M, joins_J, kernels.upload(A.indices), kernels.upload(A.weights), X, out, bias, add, partial
    )
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("spgnn.spmm.kernels.cuda.kernels.torch.empty", lambda *shape, **kind: partial)
            kernels.spmm(A, X, out, bias_F=bias, add_nF=add)
    finally:
        kernels.launcher.buffers = None
    assert (
        difference(
            out, A.to_scipy().astype(np.float64) @ X.double().numpy() + add.double().numpy() + bias.double().numpy()
        )
        < 1e-5
    )


def test_an_unaligned_matrix_is_read_in_smaller_words(kernels):
    A, storage = LocalCSR(matrix()), torch.randn(1400 * 64 + 1)
    X, out = storage[1:].view(1400, 64), torch.full((len(LENGTHS), 64), float("nan"))
    kernels.spmm(A, X, out)
    assert difference(out, A.to_scipy().astype(np.float64) @ X.double().numpy()) < 1e-5
    assert ", 1, 32, 1, 2, true>" in kernels.launcher.names[-2]


@pytest.mark.parametrize("shape", [(0, 5, 6), (5, 0, 6), (1, 1, 1), (4, 3, 0)])
def test_spmm_of_empty_and_tiny_blocks(kernels, shape):
    n, m, F = shape
    out = torch.full((n, F), float("nan"))
    kernels.spmm(LocalCSR(sp.csr_array((n, m), dtype=np.float32)), torch.ones(m, F), out)
    assert torch.equal(out, torch.zeros(n, F))


def test_float64_stands_alone(kernels):
    with pytest.raises(ShapeError, match="float64 stands alone"):
        kernels.spmm(LocalCSR(matrix()), torch.ones(1400, 4, dtype=F64), torch.empty(len(LENGTHS), 4))


@pytest.mark.parametrize("dtype, F", [(F32, 4), (BF16, 5), (torch.uint8, 9)])
def test_take_rows_copies_the_bits_of_rows_in_any_order(kernels, dtype, F):
    X = (torch.arange(11 * F) % 250).view(11, F).to(dtype)
    rows, out = np.array([10, 0, 0, 7]), torch.empty(4, F, dtype=dtype)
    kernels.take_rows(X, rows, out)
    assert torch.equal(out, X[rows])


@pytest.mark.parametrize("dtype, n, C", [(F64, 3, 1), (F32, 600, 37), (BF16, 600, 16)])
def test_mask_sum_masks_and_adds_columns_as_the_cpu_does(kernels, dtype, n, C):
    G, H = torch.randn(2, n, C, generator=torch.Generator().manual_seed(0)).to(dtype)
    out, block = between_guards(n, C, dtype)
    sums = kernels.mask_sum(G, H, out)
    assert_guards_hold(block)
    assert torch.equal(out, torch.where(H > 0, G, 0))
    exact = torch.where(H > 0, G, 0).double().sum(0).numpy()
    np.testing.assert_allclose(sums.double().numpy(), exact, rtol=1e-5, atol=1e-4 if dtype != F64 else 1e-11)
    np.testing.assert_allclose(
        kernels.mask_sum(G, None, None).double().numpy(), G.double().sum(0).numpy(), rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize("types", [(BF16, BF16), (BF16, F32), (F32, F32)])
def test_finish_adds_the_bias_and_rounds_as_the_cpu_does(kernels, types):
    Z, bias = torch.randn(70, 47).to(types[0]), torch.randn(47)
    got, expected = torch.empty(70, 47, dtype=types[1]), (Z.float() + bias).relu().to(types[1])
    kernels.finish(Z, got, bias, relu=True)
    assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype, rate", [(F32, 0.0), (F64, 0.3), (BF16, 0.9)])
def test_dropout_has_the_mask_and_the_bits_of_the_cpu(kernels, dtype, rate):
    node = np.array([0, 5, 123456789012, 7, 99], np.int64)
    X, got, expected = torch.randn(5, 45).to(dtype), torch.empty(5, 45, dtype=dtype), torch.empty(5, 45, dtype=dtype)
    kernels.drop(X, got, node, 2**63 + 11, rate)
    HOST.drop(X, expected, node, 2**63 + 11, rate)
    assert torch.equal(got, expected)
    np.testing.assert_array_equal(
        (got != 0).numpy(), reference.drop_mask(node, 45, 2**63 + 11, rate) & (X != 0).numpy()
    )


@pytest.mark.parametrize("is_weighted", [True, False])
def test_dropout_of_sparse_rows_has_the_values_of_the_cpu_and_their_transpose(kernels, is_weighted):
    A = LocalCSR(matrix([3, 0, 40], m=50, is_weighted=is_weighted))
    node = np.array([4, 8, 15], np.int64)
    got, expected = kernels.drop_csr(A, node, 7, 0.5), HOST.drop_csr(A, node, 7, 0.5)
    np.testing.assert_array_equal(got.weights.numpy(), expected.weights)
    np.testing.assert_array_equal(got.transposed().weights.numpy(), expected.transposed().weights)


@pytest.mark.parametrize("dtype, C", [(F64, 1), (F64, 40), (F32, 129)])
def test_softmax_xent_equals_torch_in_value_and_gradient(kernels, dtype, C):
    rng = np.random.default_rng(0)
    Z = torch.from_numpy(rng.standard_normal((61, C)) * 8).to(dtype)
    Z[0], Z[1, 0] = 1000.0, -1000.0
    y = torch.from_numpy(rng.integers(-1, C, 61))
    G, block = between_guards(61, C, dtype)
    loss = kernels.softmax_xent(Z, y, 0.25, G)
    assert_guards_hold(block)
    expected, gradient = reference.softmax_xent(Z.numpy(), y.numpy(), 0.25)
    assert abs(float(loss) - expected) <= (1e-5 if dtype == F32 else 1e-12) * max(expected, 1)
    np.testing.assert_allclose(G.numpy(), gradient, atol=3e-7 if dtype == F32 else 1e-14)
    assert kernels.softmax_xent(Z, y, 0.25, Z) == loss and torch.equal(Z, G)  # over the logits


def test_softmax_xent_lets_a_nan_through_and_gives_one_for_a_label_beyond_the_columns(kernels):
    Z, G = torch.zeros(9, 4), torch.empty(9, 4)
    assert kernels.softmax_xent(Z, torch.full((9,), 4), 1.0, G).isnan()
    Z[8, 2] = float("nan")
    assert kernels.softmax_xent(Z, torch.zeros(9, dtype=torch.int64), 1.0, G).isnan()


@pytest.mark.parametrize("name, dtype", [("bfloat16", F32), ("float16", F64), ("int8", BF16)])
def test_rows_on_the_wire_have_the_bytes_of_the_cpu(kernels, name, dtype):
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.standard_normal((9, 33)) * 10.0 ** rng.integers(-9, 6, (9, 1))).to(dtype)
    X[0], X[1, 1], X[2, 2] = 0, float("inf"), float("nan")
    width = 37 if name == "int8" else 66
    for residual in (None, torch.from_numpy(rng.standard_normal((9, 33))).float()):
        rows, kept = [], []
        for who in (kernels, HOST):
            out, left = torch.zeros(9, width, dtype=torch.uint8), None if residual is None else residual.clone()
            who.encode(name, X, out, left)
            rows.append(out), kept.append(left)
        assert torch.equal(rows[0], rows[1])
        if residual is not None:
            torch.testing.assert_close(kept[0], kept[1], rtol=1e-6, atol=1e-30, equal_nan=True)
        got, expected = torch.empty(9, 33, dtype=dtype), torch.empty(9, 33, dtype=dtype)
        kernels.decode(name, rows[1], got), HOST.decode(name, rows[1], expected)
        assert torch.equal(got.nan_to_num(7), expected.nan_to_num(7))
