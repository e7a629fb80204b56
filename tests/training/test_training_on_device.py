"""On a device: losses equal the CPU's, ranks that share one equal one rank, NCCL answers, errors are one line."""

import json
import sys

import numpy as np
import pytest
import torch
from graphs import random_graph
from worlds import launch

import spgnn
from spgnn import cli
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.errors import ResourceError
from spgnn.experiment.device import explaining_memory
from spgnn.layers import GCN, Stack
from spgnn.spmm.kernels.cuda.placement import CudaDriver, device_communicator, place
from spgnn.training import Trainer
from spgnn.training.steps.captured import CapturedStep

pytestmark = pytest.mark.gpu

ORDER = pytest.mark.parametrize(
    "options", [{}, {"dropout": 0.3}, {"sparse": True}, {"norm": "layer", "residual": True}], ids=str
)


@pytest.fixture(autouse=True)
def device():
    problem = CudaDriver().problem()
    if problem:
        pytest.skip(problem)
    return torch.device("cuda", 0)


def losses(comm, device: str, graph, epochs=50, dtype=torch.float32, dropout=0.0, norm=None, residual=False, **options):
    dgraph = spgnn.distribute(graph, comm, method="random", dtype=dtype, device=device, keep=dropout == 0, **options)
    F, C = graph.n_features, graph.n_classes
    model = Stack(
        GCN(F, 16, act="relu", norm=norm, residual=residual), GCN(16, 16, act="relu"), GCN(16, C), dropout=dropout
    )
    history = spgnn.train(model, dgraph, epochs=epochs, lr=0.01)
    assert next(model.parameters()).device.type == device
    return [r["loss"] for r in history.records], history.bytes_sent, history.bytes_predicted


@ORDER
def test_loss_curves_equal_the_cpus_over_50_epochs(options):
    graph = random_graph(n=500, edges=4000, f=16, sparse=options.pop("sparse", False))
    got, expected = (losses(SelfCommunicator(), where, graph, **options)[0] for where in ("cuda", "cpu"))
    np.testing.assert_allclose(got, expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.data
def test_loss_curves_on_arxiv_equal_the_cpus(data_dir):
    graph = spgnn.load_graph(data_dir / "arxiv_graphsaint").with_edges("undirected")
    got, expected = (losses(SelfCommunicator(), where, graph)[0] for where in ("cuda", "cpu"))
    np.testing.assert_allclose(got, expected, rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [{}, {"dropout": 0.3}, {"sparse": True, "dropout": 0.3}, {"prune": "always"}, {"dtype": torch.bfloat16}],
    ids=str,
)
def test_replayed_epochs_are_those_that_run_as_they_stand(options):
    def trained(is_captured):
        graph = random_graph(n=500, edges=4000, f=16, sparse=options.get("sparse", False))
        dropout = options.get("dropout", 0.0)
        dgraph = spgnn.distribute(
            graph, SelfCommunicator(), device="cuda", keep=dropout == 0, dtype=options.get("dtype", torch.float32)
        )
        model = Stack(GCN(16, 16, act="relu"), GCN(16, dgraph.n_classes), dropout=dropout)
        trainer = Trainer(model, dgraph, TrainConfig(epochs=20, prune=options.get("prune", "auto")))
        if is_captured:
            trainer.steps = CapturedStep(trainer.steps)
        return [(r["loss"], r["val"]) for r in trainer.fit().records], trainer.logits().clone()

    (expected, Z), (got, Z_captured) = trained(False), trained(True)
    assert got == expected and torch.equal(Z, Z_captured)


def test_the_command_replays_and_gives_the_same_summary(capsys):
    argv = ["train", "sbm:n=300,seed=0", "--epochs", "8", "--hidden", "16", "--device", "cuda", "--json"]
    found = []
    for more in ([], ["--cuda-graph"]):
        assert cli.main(argv + more) == 0
        found.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert all(found[0][key] == found[1][key] for key in ("train", "val", "test", "best_epoch"))


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    "options", [{"scheme": "cover"}, {"scheme": "columns"}, {"scheme": "cover", "dropout": 0.3}], ids=str
)
def test_ranks_that_share_a_device_equal_one_rank(ranks, options):
    graph = random_graph(n=500, edges=4000, f=16)
    expected = losses(SelfCommunicator(), "cuda", graph, dtype=torch.float64, epochs=20, **options)[0]
    got, sent, predicted = run_threads(
        ranks, lambda comm: losses(comm, "cuda", graph, dtype=torch.float64, epochs=20, **options), timeout=300
    )[0]
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert sent == predicted


def test_replicated_ranks_equal_one_rank():
    graph = random_graph(n=500, edges=4000, f=16)
    expected = losses(SelfCommunicator(), "cuda", graph, dtype=torch.float64, epochs=10)[0]
    got = run_threads(
        4, lambda comm: losses(comm, "cuda", graph, dtype=torch.float64, epochs=10, replication=2), timeout=300
    )[0][0]
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_bfloat16_trains_near_float32():
    graph = random_graph(n=500, edges=4000, f=16)
    narrow, wide = (
        losses(SelfCommunicator(), "cuda", graph, dtype=dtype)[0] for dtype in (torch.bfloat16, torch.float32)
    )
    np.testing.assert_allclose(narrow, wide, rtol=0.05)


def test_nccl_of_one_rank_sums_broadcasts_and_copies(device):
    from spgnn.dist.device.device_communicator import DeviceCommunicator
    from spgnn.dist.device.nccl import NcclTransport
    from spgnn.spmm.kernels.cuda.launcher import CurrentStream

    comm = SelfCommunicator()
    nccl = DeviceCommunicator(comm, NcclTransport(comm, 0, CurrentStream(device), 30.0))
    x, recv = torch.arange(6.0, device=device).view(3, 2), torch.full((3, 2), float("nan"), device=device)
    assert torch.equal(nccl.all_to_all(x, [3], recv, [3]), x)
    assert torch.equal(nccl.all_reduce(x.clone()), x) and torch.equal(nccl.broadcast(x.clone()), x)
    part = nccl.split(0)
    assert torch.equal(part.all_reduce(x.clone(), "max"), x)
    nccl.transport.close()


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("transport", ["staged", "nccl"])
def test_ranks_under_mpirun_equal_one_process(tmp_path, transport):
    if transport == "nccl" and torch.cuda.device_count() < 2:
        pytest.skip("NCCL needs a device for each rank")
    argv = [
        sys.executable,
        "-m",
        "spgnn",
        "train",
        "sbm:n=300,seed=0",
        "--epochs",
        "5",
        "--hidden",
        "16",
        "--device",
        "cuda",
        "--json",
    ]
    one, two = (launch(n, argv, limit_s=300, env={"SPGNN_TRANSPORT": transport}) for n in (0, 2))
    assert one.code == two.code == 0, two.err
    first, second = (json.loads(run.out.splitlines()[-1]) for run in (one, two))
    assert first["val"] == pytest.approx(second["val"], abs=0.02) and second["bytes_sent"] == second["bytes_predicted"]


def test_the_command_trains_on_a_device_and_says_which(tmp_path, capsys):
    assert (
        cli.main(
            [
                "train",
                "sbm:n=300,seed=0",
                "--epochs",
                "3",
                "--hidden",
                "16",
                "--device",
                "cuda",
                "--out",
                str(tmp_path / "run"),
                "--json",
            ]
        )
        == 0
    )
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["device"] == torch.cuda.get_device_name(0) and summary["peak_device_mb"] > 0
    assert cli.main(["predict", str(tmp_path / "run"), "--json"]) == 0


def test_a_device_that_is_too_small_is_one_error_with_the_arithmetic(device):
    dgraph = spgnn.distribute(random_graph(n=500, edges=4000, f=16), SelfCommunicator(), device="cuda")
    trainer = Trainer(Stack(GCN(16, 16, act="relu"), GCN(16, dgraph.n_classes)), dgraph, TrainConfig())
    with (
        pytest.raises(ResourceError, match="rank 0: out of memory on cuda:0.* GB by prediction"),
        explaining_memory(trainer),
    ):
        torch.empty(1 << 50, dtype=torch.uint8, device=device)


def test_a_rank_of_one_process_has_the_first_device():
    placement = place(SelfCommunicator(), "cuda")
    assert placement.device == torch.device("cuda", 0) and placement.sharers == 1
    assert device_communicator(SelfCommunicator(), placement).size == 1
