"""The folder of a run: nothing of an earlier one stays, nobody writes into it, a full disk is told with the file, weights are as they were."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from graphs import random_graph
from worlds import parallel

from spgnn import cli
from spgnn.config import TrainConfig
from spgnn.data import load_graph
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import ResourceError, UsageError
from spgnn.experiment import checkpoint, predict, run
from spgnn.experiment.checkpoint import best_checkpoint, load_checkpoint
from spgnn.experiment.folder import Log
from spgnn.layers import GCN, Stack
from spgnn.training.trainer import Trainer

SOURCE = "sbm:n=60,seed=1"


def trained(folder, **options):
    run(SOURCE, TrainConfig(**({"epochs": 2, "hidden": 4, "out": str(folder)} | options)), SelfCommunicator())


def test_a_link_to_checkpoints_elsewhere_is_kept_and_what_it_holds_is_not(tmp_path):
    trained(tmp_path / "run", epochs=60)
    (tmp_path / "run" / "checkpoints").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    trained(tmp_path / "run", epochs=1)
    assert (tmp_path / "run" / "checkpoints").is_symlink()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["epoch-000001"]
    assert load_checkpoint(best_checkpoint(tmp_path / "run" / "checkpoints"))[1]["epoch"] == 1


def test_whoever_may_read_one_file_of_a_run_may_read_all(tmp_path):
    trained(tmp_path / "run")
    modes = {path.stat().st_mode for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert modes == {(tmp_path / "run" / "env.json").stat().st_mode}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may remove anything")
def test_checkpoints_that_cannot_be_removed_end_the_training(tmp_path):
    trained(tmp_path / "run")
    (tmp_path / "run" / "checkpoints").chmod(0o500)
    with pytest.raises(ResourceError, match="--out"):
        trained(tmp_path / "run")
    (tmp_path / "run" / "checkpoints").chmod(0o700)


def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "sync", full)
        with pytest.raises(ResourceError, match="epoch-000001: cannot be written: No space left"):
            trained(tmp_path / "run")
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []

    class Full:
        def write(self, text):
            raise OSError(28, "No space left on device")

        def close(self):
            pass

    def opened(self, *args, make=Log.__init__):
        make(self, *args)
        self.file.close()
        self.file = Full()

    monkeypatch.setattr(Log, "__init__", opened)
    with pytest.raises(ResourceError, match="metrics.jsonl: cannot be written: No space left"):
        trained(tmp_path / "run")


def test_the_config_of_a_run_does_not_replace_its_results_unless_that_is_asked_for(tmp_path, capsys):
    trained(tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    assert cli.main(["train", "--config", str(config), "--epochs", "1"]) == 2
    assert "would be replaced; choose a folder with --out" in capsys.readouterr().err
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    for out in ("run", "other"):
        assert cli.main(["train", "--config", str(config), "--epochs", "1", "--out", str(tmp_path / out)]) == 0
        assert len((tmp_path / out / "metrics.jsonl").read_text().splitlines()) == 1


@parallel([2], mpi=[])
def test_a_run_is_predicted_without_the_machine_file_that_it_was_trained_with(comm, tmp_path):
    from spgnn.cost.machines import load_machine

    if comm.rank == 0:
        (tmp_path / "here.toml").write_text(load_machine("laptop").to_toml())
        trained(tmp_path / "run", machine=str(tmp_path / "here.toml"))
        (tmp_path / "here.toml").unlink()
    comm.barrier()
    assert predict(str(tmp_path / "run"), comm)["n"] == 60


def test_residuals_of_a_wire_are_of_one_training():
    def ranks(comm, both):
        dgraph = distribute(random_graph(use="undirected"), comm, method="block", wire="int8")
        trainers = [
            Trainer(Stack(GCN(6, 4, act="relu"), GCN(4, 3)), dgraph, TrainConfig(seed=seed)) for seed in range(1 + both)
        ]
        return [[trainer.step(epoch) for trainer in trainers][0] for epoch in (1, 2, 3)]

    from spgnn.dist import run_threads

    np.testing.assert_array_equal(run_threads(2, ranks, False)[0], run_threads(2, ranks, True)[0])


def test_a_weight_that_is_not_contiguous_trains():
    model = Stack(GCN(6, 4, act="relu"), GCN(4, 3))
    model.layers[0].W_FC = torch.nn.Parameter(torch.zeros(4, 6).t())
    trainer = Trainer(model, distribute(random_graph(), SelfCommunicator()), TrainConfig())
    assert np.isfinite(trainer.step(1)) and model.layers[0].W_FC.is_contiguous()


def test_features_of_another_byte_order_are_taken():
    graph = random_graph()
    swapped = graph.X.astype(">f8")
    object.__setattr__(graph, "X", swapped)
    assert torch.equal(
        distribute(graph, SelfCommunicator(), dtype=torch.float64, locality=False).X, torch.tensor(random_graph().X)
    )


def test_an_error_on_ranks_that_are_threads_ends_python_as_an_error_does():
    body = "from spgnn.experiment import run; from spgnn.config import TrainConfig; import spgnn, torch\n"
    body += "def wrong(comm): d = spgnn.distribute(spgnn.load_graph('sbm:n=60'), comm, method='block'); spgnn.train(spgnn.Stack(spgnn.layers.GCN(16, 9)), d)\n"
    body += "spgnn.run_threads(3, wrong)"
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "the last layer writes one a class" in done.stderr, done.stderr


def test_a_module_with_an_attribute_called_widths_is_no_stack():
    class Mine(torch.nn.Module):
        widths = (6, 3)

        def __init__(self):
            super().__init__()
            self.layer = GCN(6, 3)

        def forward(self, A, X):
            return self.layer(A, X)

    assert np.isfinite(Trainer(Mine(), distribute(random_graph(), SelfCommunicator()), TrainConfig()).step(1))


def test_trace_and_predictions_do_not_fall_into_checkpoints(tmp_path):
    trained(tmp_path / "run")
    with pytest.raises(UsageError, match="is a file of the run"):
        predict(str(tmp_path / "run"), SelfCommunicator(), out=str(tmp_path / "run" / "checkpoints" / "p.npy"))
    with pytest.raises(UsageError, match="is a name that --out"):
        trained(tmp_path / "run", trace=str(tmp_path / "run" / "checkpoints" / "t.json"))


def test_predictions_are_not_written_where_the_embeddings_cannot_be(tmp_path):
    trained(tmp_path / "run")
    before = (tmp_path / "run" / "predictions.npy").stat().st_mtime_ns
    with pytest.raises(ResourceError, match="--embeddings .*nowhere/e.npy: no such folder"):
        predict(str(tmp_path / "run"), SelfCommunicator(), embeddings=str(tmp_path / "nowhere" / "e.npy"))
    assert (tmp_path / "run" / "predictions.npy").stat().st_mtime_ns == before


def test_weights_of_float64_predict_as_they_were_trained(tmp_path):
    trained(tmp_path / "run", dtype="float64")
    predict(str(tmp_path / "run"), SelfCommunicator(), embeddings=str(tmp_path / "e.npy"))
    dgraph = distribute(load_graph(SOURCE).with_edges("undirected"), SelfCommunicator(), dtype=torch.float64)
    model = Stack(GCN(dgraph.n_features, 4, act="relu"), GCN(4, dgraph.n_classes)).double()
    model.load_state_dict(load_checkpoint(best_checkpoint(tmp_path / "run" / "checkpoints"))[0])
    embeddings_NF = dgraph.collect(model.embed(dgraph.A, dgraph.X).detach().numpy())
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), embeddings_NF, rtol=1e-12, atol=1e-14)
