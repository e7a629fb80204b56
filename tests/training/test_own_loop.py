"""The custom loop in docs/api.md learns the same on any ranks, 1.5D included."""

import re
from pathlib import Path

import pytest

import spgnn

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


@pytest.fixture(scope="module")
def source():
    text = PAGE.read_text(encoding="utf-8").split("### A custom loop")[1]
    return re.search(r"```python\n(.*?)```", text, re.S)[1]


@pytest.mark.parametrize("ranks, replication", [(3, 1), (4, 2)])
def test_the_loop_learns_the_same_on_any_ranks(source, ranks, replication):
    names = {}
    exec(compile(source, str(PAGE), "exec"), names)
    alone = names["body"](spgnn.dist.SelfCommunicator())
    assert spgnn.run_threads(ranks, names["body"], replication) == pytest.approx([alone] * ranks, rel=1e-5)
