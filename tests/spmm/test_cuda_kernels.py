"""The CUDA kernels equal the float64 product and the C++ kernels: emulated on the CPU from their .cu sources, and on a device."""

from pathlib import Path

import kernel_reference as reference
import numpy as np
import pytest
import scipy.sparse as sp
import torch

import spgnn
from spgnn.errors import ShapeError
from spgnn.spmm.kernels.cpu import HostKernels
from spgnn.spmm.kernels.csr import LocalCSR

pytestmark = pytest.mark.slow

F32, F64, BF16, F16, NAN = torch.float32, torch.float64, torch.bfloat16, torch.float16, float("nan")
TOLERANCE = {F32: 1e-5, F64: 1e-12, BF16: 1e-2, F16: 2e-3}
# (type of X, of out, columns): packs of 1, 2, 4 and 8, few and all lanes, several packs per lane, several tiles.
SHAPES = [(F32, F32, 16), (F32, F32, 41), (F32, F32, 602), (BF16, BF16, 64), (BF16, F32, 64), (F64, F64, 6)]
LENGTHS = [0, 1, 3, 0, 17, 260, 1300, 5, 16, 40, 2, 257, 0]  # short, long, cut in two and in six, and empty rows
GRAPHS = ["path:n=1", "path:n=50", "star:n=5000", "grid:rows=30,cols=40", "complete:n=60", "sbm:n=2000,seed=0"]
GRAPHS += ["random_directed:n=3000,degree=7", "rmat:scale=14,degree=16"]
WIDTHS = [1, 3, 8, 16, 41, 47, 64, 100, 128, 256, 300, 602, 1024]
DEVICE = pytest.param("cuda", marks=pytest.mark.gpu)
HOST = HostKernels()
emulated = pytest.mark.parametrize("kernels", ["emulated"], indirect=True)
on_device = pytest.mark.parametrize("kernels", [DEVICE], indirect=True)


def matrix(lengths=LENGTHS, m=1400, is_weighted=True) -> sp.csr_array:
    rng = np.random.default_rng(0)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([np.sort(rng.choice(m, length, replace=False)) for length in lengths]).astype(np.int32)
    values = rng.standard_normal(len(indices)) if is_weighted else np.ones(len(indices))
    return sp.csr_array((values, indices, indptr), shape=(len(lengths), m))


def block(A: sp.csr_array, x_dtype=F32, y_dtype=F32) -> LocalCSR:
    return LocalCSR(A, BF16 if BF16 in (x_dtype, y_dtype) else x_dtype)


def poisoned(kernels, n: int, C: int, dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix of NaN within a larger block of it, and the block: what is written beside the matrix shows."""
    around = torch.full((64 + n * C + 64,), NAN, dtype=dtype, device=kernels.device)
    return around[64 : 64 + n * C].view(n, C), around


def assert_guards_hold(around: torch.Tensor) -> None:
    assert around[:64].isnan().all() and around[-64:].isnan().all()


def difference(got, expected) -> float:
    """max |got - expected| over max |expected|; NaN where one is."""
    return float(np.abs(got.double().cpu().numpy() - expected).max() / max(np.abs(expected).max(), 1e-30))


def check(kernels, A: sp.csr_array, F: int, x_dtype, y_dtype=None) -> None:
    """Hold A X, overwriting and with everything that is fused, against float64 on the CPU; twice the same bits."""
    y_dtype = y_dtype or x_dtype
    A, generator = block(A, x_dtype, y_dtype), torch.Generator().manual_seed(F)
    draw = lambda *shape: torch.randn(*shape, dtype=F64, generator=generator)
    sums, tolerance = (F64 if x_dtype == F64 else F32), max(TOLERANCE[x_dtype], TOLERANCE[y_dtype])
    X = draw(A.shape[1], F).to(x_dtype)
    product = A.to_scipy().astype(np.float64) @ X.double().numpy()
    X, (out, around), (again, _) = X.to(kernels.device), *(poisoned(kernels, A.shape[0], F, y_dtype) for _ in range(2))
    kernels.spmm(A, X, out), kernels.spmm(A, X, again)
    assert_guards_hold(around)
    assert difference(out, product) <= tolerance and torch.equal(out, again), (F, x_dtype)
    bias, add, before = draw(F).to(sums), draw(*out.shape).to(sums), draw(*out.shape).to(y_dtype)
    out.copy_(before)
    kernels.spmm(A, X, out, True, bias.to(kernels.device), relu=True, add_nF=add.to(kernels.device))
    assert_guards_hold(around)
    expected = (torch.from_numpy(product) + before.double() + add.double() + bias.double()).relu().numpy()
    assert difference(out, expected) <= tolerance, (F, x_dtype)


def test_spmm_equals_the_float64_product_at_every_width_and_type(kernels):
    for x_dtype, y_dtype, F in SHAPES:
        for is_weighted in (True, False):
            check(kernels, matrix(is_weighted=is_weighted), F, x_dtype, y_dtype)


@on_device
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("dtype", [F32, F64, BF16, F16])
def test_spmm_equals_float64_over_the_gallery(kernels, name, dtype):
    A = spgnn.load_graph(name).A
    for F in WIDTHS if A.nnz < 50_000 else (1, 16, 41, 128, 256):
        for values in (np.random.default_rng(0).standard_normal(A.nnz), np.ones(A.nnz)):
            check(kernels, sp.csr_array((values, A.indices, A.indptr), shape=A.shape), F, dtype)


@on_device
@pytest.mark.data
@pytest.mark.parametrize("path", ["arxiv_graphsaint", "edge_lists/cnr-2000.txt.gz"])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_spmm_equals_float64_on_real_graphs(kernels, data_dir, path, dtype):
    for F in (16, 64, 128, 256):
        check(kernels, spgnn.load_graph(Path(data_dir) / path).with_edges("undirected").A, F, dtype)


@on_device
def test_kernels_run_on_torchs_current_stream(kernels):
    A, X = LocalCSR(spgnn.load_graph("rmat:scale=14,degree=16").A), torch.randn(1 << 14, 128, device=kernels.device)
    expected, out = torch.empty(2, 1 << 14, 128, device=kernels.device)
    kernels.spmm(A, X, expected)
    torch.cuda.synchronize(kernels.device)
    side = torch.cuda.Stream(kernels.device)
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        late = torch.zeros_like(X).copy_(X)  # behind the sleep on this stream; a kernel elsewhere would read zeros
        kernels.spmm(A, late, out)
    side.synchronize()
    assert torch.equal(out, expected)


@emulated
def test_spmm_touches_no_memory_but_its_arguments(kernels, monkeypatch):
    A, X, out = LocalCSR(matrix()), torch.randn(1400, 41), torch.empty(len(LENGTHS), 41)
    bias, add = torch.randn(41), torch.randn(out.shape)
    kernels.prepare(A)
    plan, items_M, joins_J = kernels._plan(A)
    partial = torch.empty(plan.n_slots, 41)
    arguments = items_M, joins_J, kernels.upload(A.indices), kernels.upload(A.weights), X, out, bias, add, partial
    spans = [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in arguments]
    monkeypatch.setattr(kernels.launcher, "buffers", spans)
    monkeypatch.setattr("spgnn.spmm.kernels.cuda.kernels.torch.empty", lambda *shape, **kind: partial)
    kernels.spmm(A, X, out, bias_F=bias, add_nF=add)
    assert difference(out, A.to_scipy().astype(np.float64) @ X.double().numpy() + (add + bias).double().numpy()) < 1e-5


@emulated
def test_an_unaligned_matrix_is_read_in_smaller_words(kernels):
    A, storage = LocalCSR(matrix()), torch.randn(1400 * 64 + 1)
    X, out = storage[1:].view(1400, 64), torch.full((len(LENGTHS), 64), NAN)
    kernels.spmm(A, X, out)
    assert difference(out, A.to_scipy().astype(np.float64) @ X.double().numpy()) < 1e-5
    assert ", 1, 32, 1, 2, true>" in kernels.launcher.names[-2]


@pytest.mark.parametrize("shape", [(0, 5, 6), (5, 0, 6), (1, 1, 1), (4, 3, 0)])
def test_spmm_of_empty_and_tiny_blocks(kernels, shape):
    n, m, F = shape
    out, _ = poisoned(kernels, n, F, F32)
    kernels.spmm(LocalCSR(sp.csr_array((n, m), dtype=np.float32)), torch.ones(m, F, device=kernels.device), out)
    assert torch.equal(out, torch.zeros_like(out))


def test_float64_stands_alone(kernels):
    with pytest.raises(ShapeError, match="float64 stands alone"):
        kernels.spmm(LocalCSR(matrix()), torch.ones(1400, 4, dtype=F64), torch.empty(len(LENGTHS), 4))


@pytest.mark.parametrize("dtype, F", [(F32, 4), (BF16, 5), (torch.uint8, 9)])
def test_take_rows_copies_the_bits_of_rows_in_any_order(kernels, dtype, F):
    X = (torch.arange(11 * F) % 250).view(11, F).to(dtype).to(kernels.device)
    rows, out = np.array([10, 0, 0, 7]), torch.empty(4, F, dtype=dtype, device=kernels.device)
    kernels.take_rows(X, rows, out)
    assert torch.equal(out, X[rows])


@pytest.mark.parametrize("act", [1, 2])
@pytest.mark.parametrize("dtype, n, C", [(F64, 3, 1), (F32, 600, 37), (BF16, 600, 16)])
def test_mask_sum_masks_and_adds_columns_as_the_cpu_does(kernels, dtype, n, C, act):
    G, H = torch.randn(2, n, C, generator=torch.Generator().manual_seed(0)).to(kernels.device, dtype)
    out, around = poisoned(kernels, n, C, dtype)
    tolerance = dict(rtol=1e-5, atol=1e-4 if dtype != F64 else 1e-11)
    masked, sums = torch.empty(n, C, dtype=dtype), kernels.mask_sum(G, H, out, act=act)
    HOST.mask_sum(G.cpu(), H.cpu(), masked, act=act)
    masked = masked.to(kernels.device)
    assert_guards_hold(around)
    assert torch.equal(out, masked) if act == 1 else torch.allclose(out, masked, rtol=1e-2 if dtype == BF16 else 1e-6)
    assert torch.equal(masked, torch.where(H > 0, G, 0)) == (act == 1)
    torch.testing.assert_close(sums.double(), masked.double().sum(0), **tolerance)
    torch.testing.assert_close(kernels.mask_sum(G, None, None).double(), G.double().sum(0), **tolerance)


@pytest.mark.parametrize("act", [torch.relu, torch.nn.functional.elu])
@pytest.mark.parametrize("types", [(BF16, BF16), (BF16, F32), (F32, F32)])
def test_finish_adds_the_bias_and_rounds_as_the_cpu_does(kernels, types, act):
    Z, bias = torch.randn(70, 47).to(kernels.device, types[0]), torch.randn(47, device=kernels.device)
    got, expected = torch.empty(70, 47, dtype=types[1], device=kernels.device), act(Z.float() + bias).to(types[1])
    kernels.finish(Z, got, bias, act=1 if act is torch.relu else 2)
    torch.testing.assert_close(got, expected, rtol=1e-2 if types[1] == BF16 else 1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype, rate", [(F32, 0.0), (F64, 0.3), (BF16, 0.9)])
def test_dropout_has_the_mask_and_the_bits_of_the_cpu(kernels, dtype, rate):
    node = np.array([0, 5, 123456789012, 7, 99], np.int64)
    X, expected = torch.randn(5, 45).to(dtype), torch.empty(5, 45, dtype=dtype)
    got, _ = poisoned(kernels, 5, 45, dtype)
    kernels.drop(X.to(kernels.device), got, node, 2**63 + 11, rate)
    HOST.drop(X, expected, node, 2**63 + 11, rate)
    assert torch.equal(got.cpu(), expected)
    mask = reference.drop_mask(node, 45, 2**63 + 11, rate)
    np.testing.assert_array_equal((got != 0).cpu().numpy(), mask & (X != 0).numpy())


@pytest.mark.parametrize("is_weighted", [True, False])
def test_dropout_of_sparse_rows_has_the_values_of_the_cpu_and_their_transpose(kernels, is_weighted):
    A, node = LocalCSR(matrix([3, 0, 40], m=50, is_weighted=is_weighted)), np.array([4, 8, 15], np.int64)
    got, expected = kernels.drop_csr(A, node, 7, 0.5), HOST.drop_csr(A, node, 7, 0.5)
    for ours, theirs in ((got, expected), (got.transposed(), expected.transposed())):
        np.testing.assert_array_equal(ours.weights.cpu().numpy(), theirs.weights)


@pytest.mark.parametrize("dtype, C", [(F64, 1), (F64, 40), (F32, 129)])
def test_softmax_xent_equals_torch_in_value_and_gradient(kernels, dtype, C):
    rng = np.random.default_rng(0)
    Z, y = torch.from_numpy(rng.standard_normal((61, C)) * 8).to(dtype), torch.from_numpy(rng.integers(-1, C, 61))
    Z[0], Z[1, 0] = 1000.0, -1000.0
    expected, gradient = reference.softmax_xent(Z.numpy(), y.numpy(), 0.25)
    Z, y, (G, around) = Z.to(kernels.device), y.to(kernels.device), poisoned(kernels, 61, C, dtype)
    loss = kernels.softmax_xent(Z, y, 0.25, G)
    assert_guards_hold(around)
    assert abs(float(loss) - expected) <= (1e-5 if dtype == F32 else 1e-12) * max(expected, 1)
    np.testing.assert_allclose(G.cpu().numpy(), gradient, atol=3e-7 if dtype == F32 else 1e-14)
    assert kernels.softmax_xent(Z, y, 0.25, Z) == loss and torch.equal(Z, G)  # over the logits


def test_softmax_xent_lets_a_nan_through_and_gives_one_for_a_label_beyond_the_columns(kernels):
    Z, G = torch.zeros(2, 9, 4, device=kernels.device)
    assert kernels.softmax_xent(Z, torch.full((9,), 4, device=kernels.device), 1.0, G).isnan()
    Z[8, 2] = NAN
    assert kernels.softmax_xent(Z, torch.zeros(9, dtype=torch.int64, device=kernels.device), 1.0, G).isnan()


@pytest.mark.parametrize("name, dtype", [("bfloat16", F32), ("float16", F64), ("float16", BF16)])
def test_rows_on_the_wire_have_the_bytes_of_the_cpu(kernels, name, dtype):
    rng, rows = np.random.default_rng(0), []
    X = torch.from_numpy(rng.standard_normal((9, 33)) * 10.0 ** rng.integers(-9, 6, (9, 1))).to(dtype)
    X[0], X[1, 1], X[2, 2] = 0, float("inf"), NAN
    for who, device in ((kernels, kernels.device), (HOST, "cpu")):
        out = torch.zeros(9, 66, dtype=torch.uint8, device=device)
        who.encode(name, X.to(device), out)
        rows.append(out.cpu())
    if name == "bfloat16" and kernels.device.type != "cpu":  # NaN has other bits there
        rows[0] = torch.where(rows[0].view(BF16).isnan(), rows[1].view(BF16), rows[0].view(BF16)).view(torch.uint8)
    assert torch.equal(*rows)
    got, expected = torch.empty(9, 33, dtype=dtype, device=kernels.device), torch.empty(9, 33, dtype=dtype)
    kernels.decode(name, rows[1].to(kernels.device), got), HOST.decode(name, rows[1], expected)
    assert torch.equal(got.cpu().nan_to_num(7), expected.nan_to_num(7))
