"""Averaging of models trained on parts: where it is full-graph training, and that it depends on the parts alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import random_graph
from part_folders import parts_of
from worlds import parallel

import spgnn
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import Parts, distribute, merge_parts
from spgnn.errors import GraphError, NumericalError, RankError, ResourceError, SpgnnError, UsageError, together
from spgnn.layers import GCN, SAGE, Layer, Stack
from spgnn.partition import part_graph, save_partition
from spgnn.training.parts.inference import LayerwiseScorer
from spgnn.training.trainer import parts_trainer, weights_of

pytestmark = pytest.mark.slow
KINDS = {"undirected": {"use": "undirected"}, "weighted directed": {"weighted": True, "sparse": True}}


def cut(k, kind="undirected", **more):
    graph = random_graph(n=50, edges=140, seed=4, **KINDS[kind] | more)
    return graph, part_graph(graph, k, "random", seed=1)


def without_training(graph, nodes):
    split = np.array(graph.split)
    split[nodes] = 1
    return replace(graph, split=split)


def model_of(kind="undirected", dropout=0.3):
    if kind == "undirected":
        return Stack(GCN(6, 5, act="relu"), GCN(5, 3), dropout=dropout)
    return Stack(SAGE(6, 5, act="relu"), SAGE(5, 3), dropout=dropout)


def trainer_of(graph, partition, comm, kind="undirected", hops=2, model=None, **options):
    parts = parts_of(graph, partition, comm, hops=hops, dtype="float64", threads=1)
    defaults = {"epochs": 5, "lr": 0.1, "weight_decay": 0.01, "prune": "never"}  # pruned parts take longer to open
    return parts_trainer(model_of(kind) if model is None else model, parts, TrainConfig(**defaults | options))


def trained(graph, partition, comm, kind="undirected", **options):
    trainer = trainer_of(graph, partition, comm, kind, **options)
    return trainer, trainer.fit()


def whole(graph, kind="undirected", **options):
    model = model_of(kind)
    dgraph = distribute(graph, SelfCommunicator(), dtype="float64", threads=1)
    history = spgnn.train(model, dgraph, **{"epochs": 5, "lr": 0.1, "weight_decay": 0.01} | options)
    return history, weights_of(model)


def check_same(history, model, expected, weights, tolerance=1e-10, names=("loss", "train", "val", "test")):
    for name in names:
        got = [record[name] for record in history.records]
        np.testing.assert_allclose(got, [r[name] for r in expected.records], atol=tolerance, rtol=0, err_msg=name)
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(value, weights[name], atol=tolerance, rtol=0, err_msg=name)


SGD = {"optimizer": "sgd"}
AS_WHOLE = [(1, SGD), (2, SGD), (4, SGD | {"prune": "always"}), (8, SGD)]
AS_WHOLE += [(4, {"sync": "gradients"}), (4, {"hops": 0, "correct": "drift"})]  # with any optimizer


@parallel([1, 2, 3], mpi=[2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k, options", AS_WHOLE, ids=str)
def test_steps_of_parts_that_are_averaged_every_epoch_are_those_of_full_graph_training(comm, kind, k, options):
    graph, partition = cut(k, kind)
    expected, weights = whole(graph, kind, **SGD if "optimizer" in options else {})
    trainer, history = trained(graph, partition, comm, kind, **options)
    scores = ("train", "val", "test")  # losses with drift correction are those of the parts, which lack edges
    check_same(history, trainer.model, expected, weights, names=scores if "correct" in options else ("loss", *scores))
    assert history.bytes_sent == history.bytes_predicted and (history.bytes_sent == 0 or "correct" in options)


def test_drift_correction_stays_where_the_whole_graph_is_stationary():
    graph, partition = cut(3)
    dgraph = distribute(graph, SelfCommunicator(), dtype="float64", threads=1)
    model = Stack(GCN(6, 3))  # its loss is convex
    found = TrainConfig(epochs=1500, lr=1.0, optimizer="sgd", weight_decay=0.05, eval_every=1500)
    spgnn.Trainer(model, dgraph, found).fit()
    start = weights_of(model)
    moved = {}
    for correct in ("none", "drift"):
        model.load_state_dict(start)
        options = {"model": model, "optimizer": "sgd", "weight_decay": 0.05, "epochs": 20, "interval": 10}
        trainer, _ = trained(graph, partition, SelfCommunicator(), hops=0, correct=correct, **options)
        moved[correct] = max(float((trainer.last_state[name] - start[name]).abs().max()) for name in start)
    assert moved["drift"] < 1e-9 < 1e-3 < moved["none"]


OPTIONS = [{"interval": 2}, {"interval": 2, "correct": "drift"}, {"sync": "gradients"}]


@parallel([3], mpi=[2])
def test_the_result_depends_on_the_parts_and_not_on_the_ranks(comm):
    graph, partition = cut(4)
    for options in OPTIONS:
        alone, expected = trained(graph, partition, SelfCommunicator(), hops=1, **options)
        trainer, history = trained(graph, partition, comm, hops=1, **options)
        check_same(history, trainer.model, expected, alone.model.state_dict())
        assert len({round(record["loss"], 12) for record in history.records}) == len(history.records)


class Uneven(GCN):
    """A GCN that cannot run without data on rank 1."""

    def forward(self, A, H):
        if self.rank == 1 and H.device.type == "meta":
            raise ValueError("no data")
        return super().forward(A, H)


@parallel([2], mpi=[2])
def test_a_model_that_cannot_run_without_data_on_one_rank_alone_is_trained(comm):
    graph, partition = cut(3)
    first = Uneven(6, 5, act="relu")
    first.rank = comm.rank
    _, history = trained(graph, partition, comm, model=Stack(first, GCN(5, 3)))
    _, expected = trained(graph, partition, comm, model=Stack(GCN(6, 5, act="relu"), GCN(5, 3)))
    assert [record["loss"] for record in history.records] == [record["loss"] for record in expected.records]


class Normed(torch.nn.Module):
    """relu(batch_norm(A X W)) W: a module with buffers, floating and integer."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = GCN(6, 5), torch.nn.BatchNorm1d(5), GCN(5, 3)
        with torch.no_grad():
            for number, weight in enumerate(self.parameters()):
                weight.copy_(torch.linspace(-1, 1, weight.numel()).sin().reshape(weight.shape) + 0.1 * number)

    def forward(self, A, X):
        return self.last(A, torch.relu(self.norm(self.first(A, X))))


@parallel([3], mpi=[])
def test_buffers_are_averaged_as_weights_are(comm):
    graph, partition = cut(4)
    for options in ({"interval": 2}, {"sync": "gradients"}):
        alone, expected = trained(graph, partition, SelfCommunicator(), model=Normed(), **options)
        trainer, history = trained(graph, partition, comm, model=Normed(), **options)
        check_same(history, trainer.model, expected, alone.model.state_dict())
        assert int(trainer.last_state["norm.num_batches_tracked"]) == 5
        assert float(trainer.last_state["norm.running_mean"].abs().max()) > 0


@parallel([1, 4], mpi=[])
def test_ranks_without_parts_and_parts_without_training_nodes_change_nothing(comm):
    for k in (1, 3, 60):  # of 60 parts, some are empty
        owner_N = np.arange(50) % k
        graph = without_training(cut(1)[0], owner_N == 2)
        expected, weights = whole(graph, optimizer="sgd")
        trainer, history = trained(graph, spgnn.Partition(owner_N, k), comm, optimizer="sgd")
        check_same(history, trainer.model, expected, weights)
        assert 2 not in trainer.steps.part_steps.own


@parallel([3], mpi=[])
def test_a_folder_of_fewer_parts_than_ranks_and_parts_that_are_opened_in_turn_train_alike(comm, tmp_path):
    path = tmp_path / f"{comm.size}"
    for k in (2, 7):
        graph, partition = cut(k)
        together(comm, lambda: save_partition(partition, path / str(k), graph, hops=2), root=0)  # noqa: B023
        expected, history = trained(graph, partition, comm, interval=2)
        losses = [record["loss"] for record in history.records]
        for memory in ("", "1KB"):
            parts = Parts(path / str(k), comm, hops=2, dtype="float64", threads=1)
            config = TrainConfig(
                epochs=5, lr=0.1, weight_decay=0.01, interval=2, memory=memory, prune="never", evaluation="together"
            )
            trainer = parts_trainer(model_of(), parts, config)
            steps, opened = trainer.steps.part_steps, []
            assert steps.keeps_open == (memory == "" or len(steps.own) < 2)
            trainer.fit(lambda record: opened.append(len(steps.opened)))  # noqa: B023
            assert opened == [len(steps.own) if steps.keeps_open else 0] * 3
            assert [record["loss"] for record in trainer.history.records] == losses
            for name, value in trainer.last_state.items():
                assert torch.equal(value, expected.last_state[name])


@parallel([1, 2], mpi=[])
def test_bytes_of_averages_are_counted_as_predicted(comm):
    graph, partition = cut(3)
    n_weights = 6 * 5 + 5 + 5 * 3 + 3
    for options in OPTIONS + [{"optimizer": "sgd"}]:
        trainer, history = trained(graph, partition, comm, **options)
        n_sums = len(history.records)
        has_moments = not {"sync", "optimizer"} & set(options)
        steps = 4 if has_moments else 0
        expected = 8 * (n_weights * (1 + 2 * has_moments) + steps + 1)
        facts = trainer.steps.facts(history.records)
        assert facts["sync_bytes"] == facts["sync_bytes_predicted"] == expected * n_sums
        assert [record["sync_bytes"] for record in history.records] == [expected] * len(history.records)
        assert all(record["local_s"] > 0 for record in history.records)
        if "correct" not in options:
            assert history.bytes_sent == history.bytes_predicted == 0


def test_runs_end_at_multiples_of_the_interval_and_a_longer_training_trains_each_epoch_once():
    graph, partition = cut(1)
    expected, _ = whole(graph, epochs=8)
    trainer, history = trained(graph, partition, SelfCommunicator(), interval=2)
    assert [record["epoch"] for record in history.records] == [2, 4, 5]
    state = trainer.state_dict()
    longer = trainer_of(graph, partition, SelfCommunicator(), interval=2, epochs=8)
    longer.load_state_dict(state)
    records = longer.fit().records
    assert [record["epoch"] for record in records] == [2, 4, 5, 6, 8]
    losses = [expected.records[record["epoch"] - 1]["loss"] for record in records]
    np.testing.assert_allclose([record["loss"] for record in records], losses, atol=1e-10)


@parallel([1, 2], mpi=[])
@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_a_training_goes_on_bitwise_on_as_many_ranks_and_alike_on_others(comm, number):
    graph, partition = cut(4)
    make = lambda comm: trainer_of(graph, partition, comm, hops=1, epochs=6, **OPTIONS[number])
    losses = lambda trainer: [record["loss"] for record in trainer.fit().records]
    states, trainer, other = {}, make(comm), make(comm)
    history = trainer.fit(lambda record: states.update({record["epoch"]: trainer.state_dict()}))
    expected = [record["loss"] for record in history.records]
    other.load_state_dict(states[2])
    assert losses(other) == expected
    for name, value in other.last_state.items():
        assert torch.equal(value, trainer.last_state[name])
    if comm.size > 1:  # from one rank to several
        alone = make(SelfCommunicator())
        alone.fit(lambda record: states.update({record["epoch"]: alone.state_dict()}))
        again = make(comm)
        again.load_state_dict(states[2])
        np.testing.assert_allclose(losses(again), expected, atol=1e-10)


class Fragile(Layer):
    """Z = A (H W), which fails in some training passes."""

    fails = 0  # on this rank; no argument, as those are the same on all

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.W, self.calls = self.weight(f_in, f_out), 0

    def forward(self, A, H):
        if self.training and not H.is_meta:
            self.calls += 1
            if self.calls == self.fails:
                raise ValueError("a layer of a user")
        return A @ (H @ self.W)


@parallel([1, 2, 3], mpi=[2], timeout=60)
def test_an_error_in_a_part_ends_all_ranks_and_names_rank_part_and_epoch(comm):
    rng = np.random.default_rng(5)
    for _ in range(10):
        k, rank, calls = int(rng.integers(1, 7)), int(rng.integers(comm.size)), int(rng.integers(1, 9))
        interval, sync = int(rng.integers(1, 4)), str(rng.choice(["weights", "gradients"]))
        graph, partition = cut(k)
        if rank >= k:
            continue
        n_parts = len(range(rank, k, comm.size))
        fails = calls if comm.rank == rank else 0
        layer = Fragile(6, 3)
        layer.fails = fails
        model = Stack(layer)
        interval = 1 if sync == "gradients" else interval
        with pytest.raises(SpgnnError) as raised:
            trained(graph, partition, comm, model=model, epochs=9, interval=interval, sync=sync)
        run, call = divmod(calls - 1, n_parts * interval)
        part = rank + comm.size * (call // interval)
        epoch = run * interval + call % interval + 1
        assert f"rank {rank}, part {part}, epoch {epoch}: ValueError: a layer of a user" in str(raised.value)
        assert isinstance(raised.value, RankError) == (comm.rank != rank)
        comm.barrier()


class Large(GCN):
    """A GCN for which rank 0 has no memory, but where it is run without data or on one node."""

    hops = 1

    def forward(self, A, H):
        if self.rank == 0 and H.device.type != "meta" and len(H) > 1:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
        return super().forward(A, H)


@parallel([1, 2], mpi=[])
@pytest.mark.parametrize("evaluation", ["together", "layerwise"])
def test_too_little_memory_for_a_part_is_exit_code_4_on_all_ranks(comm, evaluation):
    graph, partition = cut(3)
    first = Large(6, 5)
    first.rank = comm.rank
    with pytest.raises((ResourceError, RankError), match="rank 0, part 0, epoch 1: out of memory; give more") as raised:
        trained(graph, partition, comm, model=Stack(first, GCN(5, 3)), hops=1, evaluation=evaluation)
    assert raised.value.exit_code == 4
    parts = parts_of(graph, partition, comm, dtype="float64", threads=1)
    with pytest.raises(
        (ResourceError, RankError), match="rank 0, part 0: out of memory; partition the graph"
    ) as raised:
        LayerwiseScorer(Stack(first, GCN(5, 3)).double(), parts).counts()
    assert raised.value.exit_code == 4


@parallel([1, 2], mpi=[])
def test_a_loss_that_is_not_finite_names_rank_part_and_epoch(comm):
    graph, partition = cut(2)
    where = rf"rank {comm.rank}, part {comm.rank}, epoch \d+: the loss is (nan|inf)"
    with pytest.raises((NumericalError, RankError), match=where) as raised:
        trained(graph, partition, comm, lr=1e29, optimizer="sgd", weight_decay=1.0, epochs=20, interval=20)
    assert raised.value.exit_code == 5


def test_options_that_do_not_fit_are_refused_by_name():
    graph, partition = cut(2)
    comm = SelfCommunicator()
    with pytest.raises(UsageError, match="interval requires mode average"):
        spgnn.train(model_of(), distribute(graph, comm), interval=2)
    refused = {
        "interval=2 has no effect with sync gradients": {"sync": "gradients", "interval": 2},
        "correct drift has no effect with sync gradients": {"sync": "gradients", "correct": "drift"},
        "correct drift passes over the whole graph": {"correct": "drift", "evaluation": "layerwise"},
        "omit sampler walk": {"sampler": "walk", "sync": "gradients"},
        "memory = 'much'": {"memory": "much"},
        "split = 'random', but Parts chose 'auto'": {"split": "random"},
        "does not read 'hops'; give it to distribute, Parts": {"hops": 2},
    }
    for text, options in refused.items():
        with pytest.raises(UsageError, match=text):
            spgnn.train(model_of(), parts_of(graph, partition, comm), epochs=1, **options)


@parallel([1, 2], mpi=[])
def test_parts_without_a_training_node_or_labels_are_refused_on_all_ranks(comm):
    graph, partition = cut(2)
    graph = without_training(graph, slice(None))
    with pytest.raises(GraphError, match="no training node has a label"):
        trained(graph, partition, comm)
    bare = spgnn.Graph(graph.A, X=graph.X, name="bare", edges=graph.edges)
    with pytest.raises(GraphError, match="has no labels"):
        trained(bare, partition.owner_N, comm)


@parallel([1, 2], mpi=[])
def test_a_split_that_is_drawn_is_that_of_the_parts_whatever_the_seed_of_training(comm):
    graph, partition = cut(3)
    parts = parts_of(graph, partition, comm, split="random", seed=5)
    dgraph = merge_parts(parts)
    np.testing.assert_array_equal(dgraph.split_n, parts.drawn_N[dgraph.node_n])
    assert spgnn.train(model_of(), parts, epochs=2, seed=7).records[-1]["epoch"] == 2
