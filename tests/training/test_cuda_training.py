"""Training on a device gives the CPU's losses, logits and bytes; its memory, transports and commands."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

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
from spgnn.experiment.memory_check import explaining_memory
from spgnn.layers import GAT, GCN, GINE, MLP, PNA, SAGE, EdgeEncoder, EdgeMLP, Stack, Transformer
from spgnn.spmm.kernels.cuda.placement import CudaDriver
from spgnn.training import Trainer
from spgnn.training.steps.captured import CapturedStep

TESTS = Path(__file__).parents[1]
CUDA = torch.device("cuda", 0)
ONE_OWNS_LITTLE = np.repeat(np.array([0, 1, 2], np.int32), (30, 29, 1))
CASES = [  # ranks, options, relative difference of losses
    (1, {"norm": "layer", "residual": True, "optimizer": "sgd"}, 1e-11),
    (1, {"prune": "always", "sparse": True, "dropout": 0.3}, 1e-11),
    (1, {"dtype": torch.bfloat16, "sparse": True, "residual": True}, 2e-2),
    (1, {"dtype": torch.float32, "dropout": 0.3}, 1e-5),
    (4, {"scheme": "cover", "replication": 2, "dropout": 0.3}, 1e-11),
    (2, {"scheme": "broadcast", "prune": "always"}, 1e-11),
    (2, {"scheme": "columns", "dtype": torch.float32, "wire": "bfloat16", "wire_gradients": "float16"}, 1e-4),
    (3, {"scheme": "columns", "owner": ONE_OWNS_LITTLE}, 1e-11),
    (1, {"model": "gat", "dropout": 0.3}, 1e-10),
    (2, {"model": "gat", "prune": "always"}, 1e-10),
    (2, {"model": "gatv2", "dropout": 0.3}, 1e-10),
    (1, {"model": "gat", "dtype": torch.bfloat16}, 3e-2),
    (1, {"model": "max"}, 1e-10),
    (3, {"model": "max", "scheme": "columns", "prune": "always"}, 1e-10),
    (1, {"model": "edges"}, 1e-9),
    (2, {"model": "edges"}, 1e-9),
    (2, {"model": "mesh"}, 1e-9),
]
TRAIN = ["train", "sbm:n=300,seed=0", "--hidden", "16", "--device", "cuda", "--out", "none", "--json"]


@pytest.fixture(autouse=True)
def device(request):
    if request.node.get_closest_marker("gpu") and (problem := CudaDriver().problem()):
        pytest.skip(problem)


def graph_with_edges():
    """A graph with three attributes of each edge."""
    rng = np.random.default_rng(0)
    src, dst = np.unique(rng.integers(0, 60, (2, 400)), axis=1)
    y, X = rng.integers(0, 3, 60), rng.standard_normal((60, 9))
    edge_attr = rng.standard_normal((len(src), 3))
    return spgnn.graph_from_coo(src, dst, 60, edge_attr=edge_attr, X=X, y=y, split=(y % 2).astype(np.int8)).with_edges(
        "directed"
    )


def layers_of(model: str, norm, residual, dropout: float) -> list:
    """Return two or three layers from 9 columns to 3."""
    if model == "max":
        return [SAGE(9, 8, aggregator="max", act="relu"), SAGE(8, 3, aggregator="max")]
    if model == "edges":
        return [Transformer(9, 8, 3, heads=2, act="relu"), PNA(8, 8, 3, act="relu"), GINE(8, 3, 3)]
    if model == "mesh":
        return [EdgeEncoder(3, 9, 9), EdgeMLP(9), EdgeMLP(9), MLP(9, 3)]
    if model.startswith("gat"):
        how = {"attention": "v2" if model == "gatv2" else "v1", "dropout": dropout}
        return [GAT(9, 8, heads=4, act="elu", **how), GAT(8, 3, heads=1, **how)]
    return [GCN(9, 9, act="relu", norm=norm, residual=residual), GCN(9, 8, act="relu"), GCN(8, 3)]


def trained(
    comm, device, around, *, model="gcn", sparse=False, dropout=0.0, norm=None, residual=False, owner=None, **options
):
    """Return losses, logits, bytes sent and predicted of four epochs."""
    graph = graph_with_edges() if model in ("edges", "mesh") else random_graph(n=60, edges=400, f=9, sparse=sparse)
    partition = None if owner is None else spgnn.partition.partition_of(graph, owner, comm.size)
    options = {"dtype": torch.float64, "method": "random", "partition": partition, "device": device} | options
    training = {name: options.pop(name) for name in ("prune", "optimizer") if name in options}
    with around() if device == "cuda" else contextlib.nullcontext():
        dgraph = spgnn.distribute(graph, comm, keep=dropout == 0, **options)
        model = Stack(*layers_of(model, norm, residual, dropout), dropout=dropout)
        history = spgnn.train(model, dgraph, epochs=4, lr=0.05, **training)
        with torch.no_grad():
            logits = dgraph.collect(model.eval()(dgraph.A, dgraph.X).double().cpu().numpy())
    assert (dgraph.A.device.type == "cpu") == (device == "cpu")
    return [record["loss"] for record in history.records], logits, history.bytes_sent, history.bytes_predicted


def check(ranks: int, options: dict, tolerance: float, around=contextlib.nullcontext) -> None:
    """Hold a training on the device against one on the CPU."""
    body = lambda comm, device: trained(comm, device, around, **options)
    if ranks == 1:
        expected, got = (body(SelfCommunicator(), device) for device in ("cpu", "cuda"))
    else:
        expected, got = (run_threads(ranks, lambda c, d=d: body(c, d), timeout=300)[0] for d in ("cpu", "cuda"))
    np.testing.assert_allclose(got[0], expected[0], rtol=tolerance)
    np.testing.assert_allclose(got[1], expected[1], rtol=10 * tolerance, atol=10 * tolerance)
    assert got[2] == expected[2] == got[3]


@pytest.mark.slow
def test_training_on_a_device_whose_tensors_do_not_mix_with_the_cpus_equals_the_cpus():
    pytest.importorskip("torch.utils.backend_registration")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    argv = [sys.executable, TESTS / "separate_device.py"]
    run = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    assert run.stdout.count("equal: ") == len(CASES)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=str)
def test_training_on_a_device_equals_the_cpus(case):
    ranks, options, tolerance = case
    check(ranks, options, 100 * tolerance)  # ranks share the device


@pytest.mark.gpu
@pytest.mark.data
def test_loss_curves_on_arxiv_equal_the_cpus(data_dir):
    graph = spgnn.load_graph(data_dir / "arxiv_graphsaint").with_edges("undirected")
    losses = []
    for device in ("cuda", "cpu"):
        dgraph = spgnn.distribute(graph, SelfCommunicator(), device=device)
        model = Stack(GCN(graph.n_features, 16, act="relu"), GCN(16, graph.n_classes))
        losses.append([record["loss"] for record in spgnn.train(model, dgraph, epochs=50, lr=0.01).records])
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("options", [{}, {"sparse": True}, {"prune": "always"}, {"dtype": torch.bfloat16}], ids=str)
def test_replayed_epochs_are_those_that_run_as_they_stand(options, dropout):
    def trained(is_captured):
        graph = random_graph(n=500, edges=4000, f=16, sparse=options.get("sparse", False))
        kind = {"dtype": options.get("dtype", torch.float32), "device": "cuda", "keep": dropout == 0}
        dgraph = spgnn.distribute(graph, SelfCommunicator(), **kind)
        model = Stack(GCN(16, 16, act="relu"), GCN(16, dgraph.n_classes), dropout=dropout)
        trainer = Trainer(model, dgraph, TrainConfig(epochs=20, prune=options.get("prune", "auto")))
        if is_captured:
            trainer.steps = CapturedStep(trainer.steps)
        return [(r["loss"], r["val"]) for r in trainer.fit().records], trainer.logits().clone()

    (expected, Z), (got, Z_captured) = trained(False), trained(True)
    assert got == expected and torch.equal(Z, Z_captured)


@pytest.mark.gpu
def test_nccl_of_one_rank_sums_broadcasts_and_copies():
    from spgnn.dist.device.device_communicator import DeviceCommunicator
    from spgnn.dist.device.nccl import NcclTransport
    from spgnn.spmm.kernels.cuda.launcher import CurrentStream

    comm = SelfCommunicator()
    nccl = DeviceCommunicator(comm, NcclTransport(comm, 0, CurrentStream(CUDA), 30.0))
    x, recv = torch.arange(6.0, device=CUDA).view(3, 2), torch.full((3, 2), float("nan"), device=CUDA)
    assert torch.equal(nccl.all_to_all(x, [3], recv, [3]), x)
    assert torch.equal(nccl.all_reduce(x.clone()), x) and torch.equal(nccl.broadcast(x.clone()), x)
    assert torch.equal(nccl.split(0).all_reduce(x.clone(), "max"), x)


@pytest.mark.gpu
@pytest.mark.mpi
@pytest.mark.parametrize("transport", ["staged", "nccl"])
def test_ranks_under_mpirun_equal_one_process(transport):
    if transport == "nccl" and torch.cuda.device_count() < 2:
        pytest.skip("NCCL needs a device for each rank")
    argv = [sys.executable, "-m", "spgnn", *TRAIN, "--epochs", "5"]
    one, two = (launch(n, argv, limit_s=300, env={"SPGNN_TRANSPORT": transport}) for n in (0, 2))
    assert one.code == two.code == 0, two.err
    first, second = (json.loads(run.out.splitlines()[-1]) for run in (one, two))
    assert first["val"] == pytest.approx(second["val"], abs=0.02) and second["bytes_sent"] == second["bytes_predicted"]


@pytest.mark.gpu
def test_the_command_trains_on_a_device_and_replays_to_the_same_summary(tmp_path, capsys):
    found = []
    for more in (["--out", str(tmp_path / "run")], ["--cuda-graph"]):
        assert cli.main([*TRAIN, "--epochs", "8", *more]) == 0
        found.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert all(found[0][key] == found[1][key] for key in ("train", "val", "test", "best_epoch"))
    assert found[0]["device"] == torch.cuda.get_device_name(0) and found[0]["peak_device_mb"] > 0
    assert cli.main(["predict", str(tmp_path / "run"), "--json"]) == 0


@pytest.mark.gpu
def test_a_device_that_is_too_small_is_one_error():
    dgraph = spgnn.distribute(random_graph(n=500, edges=4000, f=16), SelfCommunicator(), device="cuda")
    trainer = Trainer(Stack(GCN(16, 16, act="relu"), GCN(16, dgraph.n_classes)), dgraph, TrainConfig())
    message = "rank 0: out of memory on cuda:0, which has"
    with pytest.raises(ResourceError, match=message), explaining_memory(trainer):
        torch.empty(1 << 50, dtype=torch.uint8, device=CUDA)
