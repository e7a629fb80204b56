"""The registry: a format is a name, a reader and a way to know it; what is unknown is said."""

import pytest

from spgnn.data import detect_format, formats, known_formats, load_graph, read_graph, reader
from spgnn.data.gallery import path as path_graph
from spgnn.errors import FormatError, InputError, ResourceError, UsageError


@pytest.fixture
def registry(monkeypatch):
    """A registry of this test's own."""
    monkeypatch.setattr(formats, "_registry", dict(known_formats()))
    return formats._registry


def test_the_formats_of_the_design_are_known():
    names = "planetoid gnn-benchmark graphsaint ogb heterophilous edges mtx metis scipy binary native".split()
    assert set(names) <= set(known_formats())
    assert all(known_formats()[name].looks_for for name in names)


def test_a_format_of_ones_own_works_everywhere(registry, tmp_path):
    def is_lengths(path):
        """A file .len with one number."""
        return path.suffix == ".len"

    @reader("length", detect=is_lengths)
    def read_length(path, progress):
        return path_graph(int(path.read_text()))

    (tmp_path / "g.len").write_text("4")
    assert detect_format(tmp_path / "g.len") == "length"
    graph = load_graph(tmp_path / "g.len")
    assert (graph.n_nodes, graph.meta["format"], graph.meta["source"]) == (4, "length", "g.len")
    with pytest.raises(UsageError, match="'native' is already registered by spgnn.data.native"):
        reader("native", detect=is_lengths)(read_length)


@pytest.mark.parametrize("raised, expected, message", [
    (ValueError("bad digit"), FormatError, "cannot be read as odd: ValueError: bad digit"),
    (EOFError("cut"), FormatError, "cannot be read as odd: EOFError: cut"),
    (MemoryError("9 TiB"), ResourceError, "does not fit into memory: 9 TiB"),
    (FileNotFoundError(2, "No such file", "role.json"), InputError, "role.json: no such file; odd needs it"),
    (FormatError("line 3 is wrong"), FormatError, "line 3 is wrong"),
])  # fmt: skip
def test_what_a_reader_raises_becomes_an_error_for_a_person(registry, tmp_path, raised, expected, message):
    @reader("odd", detect=lambda path: False)
    def read_odd(path, progress):
        raise raised

    with pytest.raises(expected, match=message):
        read_graph(tmp_path, "odd")


def test_a_file_of_no_known_format_lists_what_was_looked_for(tmp_path):
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(FormatError) as error:
        detect_format(tmp_path / "photo.png")
    for name, format in known_formats().items():
        assert f"{name} " in str(error.value) and format.looks_for in str(error.value)


def test_a_path_of_two_formats_asks_for_the_name(registry, tmp_path):
    reader("first", detect=lambda path: path.suffix == ".two")(lambda path, progress: path_graph(1))
    reader("second", detect=lambda path: path.suffix == ".two")(lambda path, progress: path_graph(2))
    (tmp_path / "g.two").touch()
    with pytest.raises(FormatError, match="could be first or second; name one with --format"):
        load_graph(tmp_path / "g.two")
    assert load_graph(tmp_path / "g.two", format="second").n_nodes == 2


def test_an_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'planetoid'"):
        read_graph(tmp_path, "planetiod")
