"""Messages name an option as it was given: --edge-features on the command line, edge_features in Python."""

import pytest

import spgnn
import spgnn.config  # has the keywords, and is imported by what reads graphs
from spgnn.cli import main
from spgnn.errors import InputError

MESSAGES = {
    "give --labels FILE, --memory 3 or --edge-features": "give labels=FILE, memory=3 or edge_features",
    "give --nodes": "give n_nodes",
    "number them: spgnn convert F DST --relabel; or --id": "number them: spgnn convert F DST --relabel; or id",
    "`spgnn convert --relabel` or torchrun --nnodes": "`spgnn convert --relabel` or torchrun --nnodes",
    "column '--hidden' is missing; give --features FILE": "column '--hidden' is missing; give features=FILE",
    "/data/--features FILE.csv: no such file": "/data/--features FILE.csv: no such file",
}


@pytest.mark.parametrize("message", MESSAGES)
def test_in_python_options_are_keywords_but_for_those_of_commands(message):
    assert str(InputError(message)) == MESSAGES[message]


def test_the_command_line_and_python_each_name_what_they_take(tmp_path, capsys):
    (tmp_path / "e.csv").write_text("source,target\nann,bob\n")
    assert main(["convert", str(tmp_path / "e.csv"), str(tmp_path / "g"), "--weight", "w"]) == 3
    assert "(--weight)" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"\(weight\)"):
        spgnn.load_graph(tmp_path / "e.csv", weight="w")
