"""What compares, predicts and shows a training of links: verify, measure, plan, the page, traces, errors."""

import json

import numpy as np
import pytest
from command_line import run

import spgnn
from spgnn.config import TrainConfig
from spgnn.layers import GCN, Layer, Stack
from spgnn.layers.decoders import DistMult
from spgnn.layers.registry import ModelSpec

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
    model, is_given = ModelSpec.of(config, F, F, 0, 3).build(), decoder != "complex"
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "layer, decoder, module, check",
    [
        (OfItsRank, DistMult, "layers.0", "evaluation"),
        (GCN, OfItsRows, "decoder", "loss"),
        (Lost, DistMult, "layers.0", "gradient"),
    ],
)
def test_verify_names_the_part_of_a_model_of_links_that_reads_the_rank(layer, decoder, module, check):
    model = Stack(layer(F, F), GCN(F, F), decoder=decoder(F, 3))
    found = spgnn.verify(model, triples(), ranks=(1, 3), task="links")
    assert (found.finding.module, found.finding.check) == (module, check), found


@pytest.mark.slow
def test_verify_of_the_command_line_takes_links_and_their_runs(tmp_path, capsys):
    line = ["verify", GRAPH, "--ranks", "2", "--task", "links"]
    code, out, _ = run(capsys, *line, "--features", "embedding", "--hidden", "4", "--loss", "softmax")
    assert code == 0 and "exact on these ranks" in out
    learned = ["--features", "embedding", "--hidden", "4"]
    assert run(capsys, "train", GRAPH, "--task", "links", *learned, "--epochs", "1", "--out", tmp_path / "run")[0] == 0
    code, out, _ = run(capsys, *line[:4], tmp_path / "run", "--json")
    assert code == 0 and json.loads(out.splitlines()[-1])["ok"]
