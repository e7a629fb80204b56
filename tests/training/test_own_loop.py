"""The custom loop in docs/custom_layers.md prints what is shown there, and learns the same on any ranks, 1.5D included."""

import re
from pathlib import Path

import pytest

import spgnn

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "custom_layers.md"


@pytest.fixture(scope="module")
def blocks():
    text = PAGE.read_text(encoding="utf-8").split("## A custom loop")[1]
    return re.match(r".*?```python\n(.*?)```\n```\n(.*?)```", text, re.S).groups()


def test_the_loop_prints_what_its_page_says(blocks, capsys):
    source, printed = blocks
    exec(compile(source, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("ranks, replication", [(3, 1), (4, 2)])
def test_the_loop_learns_the_same_on_any_ranks(blocks, ranks, replication):
    names = {}
    exec(compile(blocks[0], str(PAGE), "exec"), names)
    alone = names["body"](spgnn.dist.SelfCommunicator())
    assert spgnn.run_threads(ranks, names["body"], replication) == pytest.approx([alone] * ranks, rel=1e-5)
