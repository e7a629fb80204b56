"""The history of figures: none is worse than recorded, and one that is gets a line with figure, before and now."""

import pytest
from scripts import script

history = script("bench/history")


@pytest.mark.slow
def test_no_figure_is_worse_than_the_recorded_one():
    worse = history.changes(history.read(history.FILE), history.figures())["worse"]
    assert not worse, "accept by runs/bench/history --accept:\n" + "\n".join(worse)


@pytest.mark.parametrize("now, tolerance, found", [
    (103, 0.02, {"worse": ["a: rows: 100 before, 103 now (+3.00%)"], "better": []}),
    (97, 0.02, {"worse": [], "better": ["a: rows: 100 before, 97 now (-3.00%)"]}),
    (102, 0.02, {"worse": [], "better": []}),
])  # fmt: skip
def test_a_figure_is_worse_or_better_beyond_its_tolerance(tmp_path, now, tolerance, found):
    history.write(tmp_path / "kept.tsv", {"a: rows": (100, tolerance), "compile: CPU seconds": (9, 0.1)})
    assert history.changes(history.read(tmp_path / "kept.tsv"), {"a: rows": (now, tolerance)}) == found
