"""What compares, predicts and shows a training of links: verify, measure, plan, the page, traces, errors."""

import json

import numpy as np
import pytest
from command_line import run

import spgnn
from spgnn.config import TrainConfig
from spgnn.dist import run_threads
from spgnn.errors import NumericalError
from spgnn.experiment import run as train
from spgnn.layers import GCN, Layer, Stack
from spgnn.layers.decoders import DistMult
from spgnn.layers.registry import ModelSpec
from spgnn.timeline.outputs import read_trace

GRAPH = "sbm:n=80,seed=0"
RNG = np.random.default_rng(2)
N, F, ENDS = 30, 4, RNG.integers(0, 30, (2, 90))


def triples(X=None):
    """A split graph of three relations."""
    return spgnn.split_links(spgnn.graph_from_coo(*ENDS, N, edge_y=ENDS.sum(axis=0) % 3, X=X), seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["distmult", "complex", "mlp"])
@pytest.mark.parametrize("family", ["gcn", "sage", "gat"])
def test_verify_passes_links_of_every_family_and_decoder(family, decoder):
    config = TrainConfig(model=family, hidden=F, on="links", decoder=decoder, **{"heads": 2} if family == "gat" else {})
    model, is_given = ModelSpec.of(config, F, F, triples(None)).build(), decoder != "complex"
    loss = "softmax" if decoder == "distmult" else "bpr" if decoder == "mlp" else None
    found = spgnn.verify(model, triples(RNG.standard_normal((N, F)) if is_given else None), task="links", loss=loss)
    assert found.ok, found
    assert {row.ranks for row in found.rows} == {2, 3, 5} and found.rows[0].gradient is not None


class OfItsRank(Layer):
    """H plus the first own node of a rank."""

    def forward(self, A, H_nF):
        return H_nF + float(A.node_n.min()) / N


class OfItsRows(DistMult):
    """A score that has the number of the pairs of a rank."""

    def score(self, H_pF, T_pF, relation_p):
        return super().score(H_pF, T_pF, relation_p) + 1 / len(H_pF)


class Lost(Layer):
    """Rows that get no gradient on several ranks."""

    def forward(self, A, H_nF):
        return H_nF if A.comm.size == 1 else H_nF.detach() + 0 * H_nF


FAULTS = [(OfItsRank, DistMult, "layers.0", "evaluation"), (Lost, DistMult, "layers.0", "gradient")]


@pytest.mark.slow
@pytest.mark.parametrize("layer, decoder, module, check", [*FAULTS, (GCN, OfItsRows, "decoder", "loss")])
def test_verify_names_the_part_of_a_model_of_links_that_reads_the_rank(layer, decoder, module, check):
    model = Stack(layer(F, F), GCN(F, F), decoder=decoder(F, 3))
    found = spgnn.verify(model, triples(), ranks=(1, 3), task="links")
    assert (found.finding.module, found.finding.check) == (module, check), found


@pytest.mark.slow
def test_verify_of_the_command_line_takes_links_and_their_runs(tmp_path, capsys):
    learned = ["--task", "links", "--features", "embedding"]
    line = ["verify", GRAPH, "--ranks", "2", *learned]
    assert "exact on these ranks" in run(capsys, *line, "--hidden", "4", "--decoder", "mlp")[1]
    assert run(capsys, "train", GRAPH, *learned, "--hidden", "4", "--epochs", "1", "--out", tmp_path / "run")[0] == 0
    code, out, _ = run(capsys, *line, tmp_path / "run", "--json")
    assert code == 0 and json.loads(out.splitlines()[-1])["ok"]


OPTIONS = [
    {"features": "embedding", "negatives": 3}, {"loss": "softmax", "model": "sage", "dtype": "float64"},
    {"features": "embedding", "model": "lightgcn", "loss": "bpr", "batch": 70, "split": "0.1,0.1,0.5"},
]  # fmt: skip


@pytest.mark.parametrize("P", [2, 3, 4])
@pytest.mark.parametrize("options", OPTIONS, ids=["bce", "softmax", "batches"])
def test_bytes_of_measure_are_those_that_the_first_epoch_sends(P, options, capsys):
    options = options | {"hidden": 6, "scheme": "cover", "seed": 2}
    line = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    code, out, _ = run(capsys, "measure", GRAPH, "--task", "links", "--ranks", str(P), *line, "--json")
    config = TrainConfig(**options, on="links", epochs=1, threads=1)
    summary = run_threads(P, lambda comm: train(GRAPH, config, comm))[0]
    assert code == 0 and json.loads(out)["bytes_per_epoch"] == summary["bytes_sent"] == summary["bytes_predicted"]


def test_plan_has_the_memory_of_links_and_refuses_what_they_have_not(capsys):
    line = ["plan", GRAPH, "--task", "links", "--ranks", "2", "--scheme", "cover", "--json"]
    planned = lambda *more: json.loads(run(capsys, *line, "--features", "embedding", "--hidden", *more)[1])
    small, large, batches = planned("8"), planned("16"), planned("8", "--batch", "100")
    of = lambda found: [found["memory_parts_mb"][part] for part in ("rows of pairs", "learned rows")]
    assert all(a > b > 0 for a, b in zip(of(large), of(small))) and batches["epoch_s"] > 2 * small["epoch_s"]
    assert of(json.loads(run(capsys, *line)[1]))[1] == 0
    assert "are options of --task links" in run(capsys, *line, "--task", "nodes", "--negatives", "2")[2]
    assert "requires --replication 1; got 2" in run(capsys, *line, "--replication", "2")[2]


def test_the_page_of_a_run_has_the_scores_of_links_and_what_leaks_and_its_trace_their_spans(tmp_path, capsys):
    for name, lines in {"train": [*range(12)], "valid": [12, 13], "test": [0, 14]}.items():
        text = "".join(f"{n % 5}\tr{n % 2}\t{n % 7 + 5}\n" for n in lines)
        (tmp_path / f"kg_{name}.tsv").write_text(text)
    line = ["train", tmp_path / "kg", "--task", "links", "--features", "embedding", "--hidden", "4", "--epochs", "2"]
    assert run(capsys, *line, "--out", tmp_path / "run", "--trace", tmp_path / "trace.json")[0] == 0
    assert {"pairs", "scores"} <= {event["name"] for event in read_trace(tmp_path / "trace.json")}
    assert run(capsys, "report", tmp_path / "run")[0] == 0
    page, summary = ((tmp_path / "run" / name).read_text() for name in ("report.html", "summary.json"))
    of = json.loads(summary)
    shown = [*of["notes"], "<td>2</td>", f"<td>{of['scores']['test']['mrr']:.3f}</td>", "mrr pessimistic"]
    assert all(text in page for text in shown) and "join nodes that a message" in page
    assert "<h2>Classes" not in page and "recall@20" not in page


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_what_is_not_finite_is_named_with_epoch_and_source(loss):
    graph = spgnn.split_links(spgnn.graph_from_coo(*ENDS, N, X=RNG.standard_normal((N, F))), seed=1)
    options = {"task": "links", "loss": loss, "lr": 1e30, "optimizer": "sgd", "epochs": 9}
    learn = lambda comm: spgnn.train(Stack(GCN(F, F, act="relu"), GCN(F, F)), spgnn.distribute(graph, comm), **options)
    with pytest.raises(NumericalError, match=r"epoch \d.*not finite.*output of layers\.\d"):
        run_threads(2, learn)
