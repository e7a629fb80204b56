"""A X in place of X: kept after the graph is gone, X given up where nothing reads it, the loss's gradient over the logits."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from command_line import in_python
from graphs import random_graph
from models import Custom
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import GCN, Layer, Stack
from spgnn.spmm.chains.loss import cross_entropy
from spgnn.spmm.kernels.buffers import BufferPool
from spgnn.training import Trainer


def graph_of(**options):
    return random_graph(n=40, edges=160, use="undirected", **options)


def model(**options):
    return Stack(GCN(6, 5, act="relu"), GCN(5, 3), **options)


def trainer_of(
    comm, *, release: bool, keep_later: bool = False, net=None, prune="never", **options
) -> tuple[Trainer, bool]:
    dgraph = distribute(graph_of(), comm, method="random", keep=not keep_later, **options)
    if keep_later:
        dgraph.keep()
    trainer = Trainer(net or model(), dgraph, TrainConfig(epochs=4, lr=0.1, prune=prune))
    return trainer, release and trainer.release_input()


@parallel([1, 3, 4], mpi=[3])
@pytest.mark.parametrize("prune", ["never", "always"])
def test_a_training_without_x_is_the_same_to_the_bit(comm, prune):
    for c in [c for c in (1, 2) if comm.size % (c * c) == 0]:
        (whole, _), (less, is_released) = (
            trainer_of(comm, release=r, keep_later=r, prune=prune, replication=c) for r in (False, True)
        )
        assert is_released
        assert whole.dgraph.setup_bytes == less.dgraph.setup_bytes and (
            c * c == comm.size or less.dgraph.setup_bytes > 0
        )
        X = less.dgraph.X
        assert X.untyped_storage().nbytes() <= X.element_size() and X.shape == whole.dgraph.X.shape
        assert [r["loss"] for r in whole.fit().records] == [r["loss"] for r in less.fit().records]
        assert torch.equal(whole.logits(), less.logits())


@parallel([1, 2], mpi=[])
def test_reading_an_x_that_was_given_up_is_an_error(comm):
    trainer, _ = trainer_of(comm, release=True)
    A, X = trainer.dgraph.A, trainer.dgraph.X
    assert not (A @ X).isnan().any()  # the kept product
    for read in (
        lambda: model(dropout=0.5)(A, X),
        lambda: Trainer(model(), distribute(graph_of(), comm, method="random", keep=False), TrainConfig()).model(
            other, X
        ),
        lambda: other @ X,
        lambda: Stack(GCN(6, 6, residual=True), GCN(6, 3))(A, X),
        lambda: Trainer(model(dropout=0.5), trainer.dgraph, TrainConfig(prune="always")),
    ):
        other = distribute(graph_of(), comm, method="random", keep=False).A
        with pytest.raises(UsageError, match="X was released after A X was cached"):
            read()
    assert torch.isnan(X).all()  # whatever else reads it sees that


@pytest.mark.parametrize("net, options", [
    (lambda: model(dropout=0.5), {}),
    (lambda: Stack(GCN(6, 6, residual=True), GCN(6, 3)), {}),
    (lambda: Stack(Custom(6, 5), GCN(5, 3)), {}),
    (model, {"keep": False}),
    (model, {"sparse": True}),
])  # fmt: skip
def test_x_stays_where_something_reads_it(net, options):
    graph = graph_of(sparse=options.get("sparse", False))
    dgraph = distribute(graph, SelfCommunicator(), keep=options.get("keep", True))
    trainer = Trainer(net(), dgraph, TrainConfig(epochs=2))
    assert not trainer.release_input()
    assert np.isfinite([r["loss"] for r in trainer.fit().records]).all()


def test_the_caller_s_graph_keeps_its_x():
    graph = graph_of()
    before = graph.X.copy()
    trainer = Trainer(model(), distribute(graph, SelfCommunicator(), locality=False), TrainConfig(epochs=1))
    assert trainer.release_input()
    np.testing.assert_array_equal(graph.X, before)


PEAK = """
import sys
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.machine import peak_rss_mb
from spgnn.experiment import run
folder = sys.argv[1]
start = peak_rss_mb()
run(folder + "/edges.npz", TrainConfig(epochs=2, hidden=int(sys.argv[2]), features=folder + "/X.npy", labels=folder + "/y.npy", dropout=0.0), SelfCommunicator())
print(peak_rss_mb() - start)
"""


@pytest.mark.parametrize("hidden, times", [(4, 2), (256, 3)])
def test_a_training_from_files_holds_x_and_a_x_for_a_while_then_a_x_and_its_buffers(tmp_path, hidden, times):
    n, F = 120_000, 256
    rng = np.random.default_rng(0)
    A = sp.csr_array((np.ones(2 * n, np.float32), (rng.integers(0, n, 2 * n), rng.integers(0, n, 2 * n))), shape=(n, n))
    sp.save_npz(tmp_path / "edges.npz", sp.csr_matrix(A))
    np.save(tmp_path / "X.npy", rng.standard_normal((n, F), dtype=np.float32))
    np.save(tmp_path / "y.npy", rng.integers(0, 4, n))
    done = in_python(PEAK, tmp_path, hidden)
    assert done.returncode == 0, done.stderr
    taken, x = float(done.stdout), n * F * 4 / 1e6
    assert taken < times * x + 80, (taken, x)


def test_the_gradient_of_the_loss_is_written_over_logits_that_no_backward_reads():
    dgraph = distribute(graph_of(), SelfCommunicator())
    net, y_n = model(), dgraph.y_n
    Z_nC = net(dgraph.A, dgraph.X)
    logits = Z_nC.detach().clone().requires_grad_()
    apart = cross_entropy(logits, y_n, 40, BufferPool())
    apart.backward()
    loss = cross_entropy(Z_nC, y_n, 40, BufferPool())
    assert loss.item() == apart.item() and torch.equal(Z_nC.detach(), logits.grad)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    squares = (Z := net(dgraph.A, dgraph.X)).pow(2).sum()  # keeps Z for its own backward
    cross_entropy(Z, y_n, 40, BufferPool())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.backward()


class Squashed(GCN):
    """Writes over what the chain gave."""

    def forward(self, A, H_nF):
        return torch.sigmoid_(A.chain(H_nF, self.W_FC, self.b_C))


def test_a_layer_may_write_over_what_its_chain_gave():
    trainer = Trainer(
        Stack(GCN(6, 5, act="relu"), Squashed(5, 3)),
        distribute(graph_of(), SelfCommunicator()),
        TrainConfig(epochs=3, lr=0.1),
    )
    losses = [r["loss"] for r in trainer.fit().records]
    assert losses[2] < losses[1] < losses[0]


def test_logits_that_a_layer_made_itself_stay():
    Z = (torch.randn(5, 3, requires_grad=True) * 2).tanh()
    before = Z.detach().clone()
    cross_entropy(Z, torch.tensor([0, 1, 2, -1, 0]), 4, BufferPool()).backward()
    assert torch.equal(Z.detach(), before)


class Wrapped(Layer):
    """A Stack in a layer that names another operator: its GCNs multiply with that of the graph."""

    operator = "loops"

    def __init__(self):
        super().__init__(6, 3)
        self.stack = model()

    def forward(self, A, H):
        return self.stack(A, H)


@parallel([1, 2], mpi=[])
@pytest.mark.parametrize("is_stacked", [False, True])
def test_the_product_that_is_cached_is_the_one_that_the_layers_read(comm, is_stacked):
    losses = []
    for release in (False, True):
        trainer, _ = trainer_of(comm, release=release, net=Stack(Wrapped()) if is_stacked else Wrapped())
        assert list(trainer.dgraph.A.fixed_input.products) == [trainer.dgraph.A.name] == ["gcn"]
        losses.append([record["loss"] for record in trainer.fit().records])
    assert losses[0] == losses[1]


class Doubled(Layer):
    """Z = A H W, and 2 H in place of H, in training or in evaluation alone."""

    def __init__(self, in_training: bool):
        super().__init__(6, 3)
        self.W_FC, self.in_training = self.weight(6, 3), in_training

    def forward(self, A, H):
        Z = (A @ H) @ self.W_FC
        if self.training == self.in_training:
            H.mul_(2)
        return Z


@parallel([1, 2], mpi=[])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("in_training", [False, True])
def test_a_model_that_changes_x_in_place_is_refused(comm, keep, in_training):
    dgraph = distribute(graph_of(), comm, method="random", keep=keep)
    with pytest.raises(UsageError, match="the model changed X, its input, in place"):
        Trainer(Stack(Doubled(in_training)), dgraph, TrainConfig(epochs=1, lr=0.1)).fit()


@pytest.mark.parametrize(
    "mode, said",
    [(torch.no_grad, "training needs gradients"), (torch.inference_mode, "X was made in torch.inference_mode")],
)
def test_a_training_without_gradients_is_refused(mode, said):
    with pytest.raises(UsageError, match=said), mode():
        trainer_of(SelfCommunicator(), release=False)[0].fit()
