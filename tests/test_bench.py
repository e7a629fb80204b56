"""Scripts of runs/bench and runs/analysis: their numbers follow from one another and from spgnn's own."""

import json

import numpy as np
import pytest
from scripts import RUNS, printed, script


@pytest.mark.slow
def test_each_idea_sends_what_its_widths_say(monkeypatch, capsys):
    words = "--graphs sbm:n=300 -k 4 --repeat 1 --json".split()
    record = json.loads(printed(script("bench/volume"), monkeypatch, capsys, *words)[1])
    row, ideas = 4 * record["columns"], list(record["ideas"].values())
    widths = {"plain": 300 + 16 + 16, "CAGNET": 300 + 16 + 16 + 24, "adjoint": 2 * 300 + 2 * 16}
    assert record["baselines"] == {name: row * width for name, width in widths.items()}
    assert ideas[:3] == [row * 4 * 16, row * 2 * 16, 4 * record["cover"] * 2 * 16]
    assert ideas[3:] == [ideas[2] // 2]
    assert record["cover"] < record["columns"]


@pytest.mark.slow
def test_the_gradient_of_all_clusters_is_the_exact_one(monkeypatch, capsys):
    """The default of 20 clusters has all nodes of a small graph; walks of 30 have not."""
    words = (
        "--graph sbm:n=300,classes=3,features=8,degree=8,seed=0 --samplers cluster,walk --budget 30 --draws 3 --json"
    )
    _, text = printed(script("bench/gradients"), monkeypatch, capsys, *words.split())
    every, walk = map(json.loads, text.splitlines())
    for key in ("cosine", "norm", "mean_cosine", "mean_norm"):
        assert every[key] == pytest.approx(1, abs=1e-4)
    assert every["nodes"] == 300 and walk["nodes"] < 40 and walk["cosine"] < 0.9
    assert walk["mean_norm"] < walk["norm"], "the average of several has less variance"


def test_cosines_and_norms_are_those_of_hand():
    """(3, 0) and (0, 4) against (0, 2): cosines 0 and 1; their mean (1.5, 2) has 4/5."""
    found = script("bench/gradients").summary(np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([0.0, 2.0]))
    expected = {"cosine": 0.5, "deviation": 0.5, "norm": 1.75, "mean_cosine": 0.8, "mean_norm": 1.25}
    assert found == pytest.approx(expected, rel=1e-12)


def test_the_tissue_of_the_slide_is_the_notebooks():
    notebook = json.loads((RUNS.parent / "docs/gallery/slide.ipynb").read_text(encoding="utf-8"))
    (source,) = [text for cell in notebook["cells"] if (text := "".join(cell["source"])).startswith("draw = ")]
    made = {"np": np, "cells": 500, "genes": 60, "regions": 8}
    exec(source, made)
    for name, values in zip(("place", "counts", "region"), script("bench/slide").tissue(500), strict=True):
        np.testing.assert_array_equal(values, made[name])
