"""Folders and prefixes of train, valid and test: triples, or a user and items, and what of them is said."""

import gzip

import numpy as np
import pytest
import tiny_files as tiny
from command_line import run

from spgnn.data import convert, detect_format, load_graph, load_native
from spgnn.errors import FormatError, InputError, UsageError

TRIPLES = {"train": "arb brc arb csc bsa brc", "valid": "cra", "test": "arb drd atc"}  # 3 doubled, 2 loops
EDGES = "arb0 arb0 arb2 atc2 brc0 brc0 bsa0 cra1 csc0 drd2".split()
NOTES = (
    "2 triples are in a file twice, and stay: (a, r, b)", "2 triples are of an entity with itself, and stay: (c, s, c)",
    "1 triple is in valid or test, and in an earlier file too: (a, r, b)", "1 entity is only in valid or test: d",
    "1 relation is only in valid or test: t", "1 interaction is in a file twice, and stay: user 0, item 2",
    "1 interaction is in valid or test, and in an earlier file too: user 0, item 2",
    "2 items are of no user in train: 3", "2 users are without an item in train: 2",
)  # fmt: skip


def write(folder, parts=TRIPLES, ending=".tsv", prefix="", by="\t"):
    for name, triples in parts.items():
        text = "".join(by.join(triple) + "\n" for triple in triples.split()).encode()
        (folder / f"{prefix}{name}{ending}").write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    return folder / prefix.rstrip("_.-") if prefix else folder


def listed(graph):
    src, at = np.repeat(graph.ids, np.diff(graph.A.indptr)), graph.edge_ids
    relation = np.array(graph.edge_classes)[graph.edge_y[at]]
    return sorted(map("{}{}{}{}".format, src, relation, graph.ids[graph.A.indices], graph.edge_split[at]))


@pytest.mark.parametrize("ending, prefix, by, valid", [
    (".tsv", "", "\t", "valid"), (".txt", "", "\t", "val"), (".txt", "", " ", "dev"), (".csv", "", ",", "valid"),
    (".tsv.gz", "kg_", "\t", "valid"), (".csv", "kg-", ",", "dev"), (".txt.gz", "my.kg.", "  ", "val"),
])  # fmt: skip
def test_each_line_is_an_edge_with_its_relation_and_all_is_counted(tmp_path, capsys, ending, prefix, by, valid):
    parts = {valid if name == "valid" else name: triples for name, triples in TRIPLES.items()}
    assert detect_format(path := write(tmp_path, parts, ending, prefix, by)) == "triples"
    graph = load_graph(path)
    assert listed(graph) == EDGES and graph.edge_attr.shape == (10, 0) and graph.ids.tolist() == [*"abcd"]
    assert [*graph.meta["official_split"].values()] == [2, 1, 2, 1, 1] and graph.edge_y[:4].tolist() == [0, 0, 0, 1]
    assert sorted(capsys.readouterr().err.splitlines()) == sorted(f"spgnn: {note}" for note in NOTES[:5])


def test_a_folder_of_triples_is_converted_whole_and_each_part_is_one_file(tmp_path):
    report = convert(write(tmp_path), tmp_path / "g")
    assert report["edge_train"] == 6 and len(report["notes"]) == 5 and listed(load_native(tmp_path / "g")) == EDGES
    for how, error in (("refuse", "2 edges are duplicates of others"), ("sum", "no option of the format triples")):
        with pytest.raises(InputError if how == "refuse" else UsageError, match=error):
            load_graph(tmp_path, duplicates=how)
    (tmp_path / "dev.txt").write_text("a\tr\tb\n")
    with pytest.raises(FormatError, match="dev.txt and valid.tsv are one part of the split; remove one"):
        load_graph(tmp_path)
    (tmp_path / "train.tsv").unlink()
    with pytest.raises(FormatError, match="has no train file, there is dev.txt, valid.tsv, test.tsv; expected"):
        load_graph(tmp_path)


@pytest.mark.parametrize("ending, lines, names", [
    (".csv", ["head,relation,tail", '"x, y",knows,"say ""hi"""', "z,knows,z"], ['say "hi"', "x, y", "z"]),
    (".csv", ["tail,head,rel", "b,a,knows"], ["a", "b"]), (".txt", ["7 likes 12", "7.0 likes 100"], [7, 12, 100]),
    (".tsv", ['5" disk\tis\t#1', "%a\tis\tNA"], ["#1", "%a", '5" disk', "NA"]),  # neither quotes nor comments
    (".nt", ["<x:a> <p> <x:b> .", "# none", '_:n <p> "5 . # \\" <"@en .', '<x:a> <p> "1"^^<int>.  # odd'],
     ['"1"^^<int>', '"5 . # \\" <"@en', "<x:a>", "<x:b>", "_:n"]),
])  # fmt: skip
def test_names_of_any_form_are_entities(tmp_path, ending, lines, names):
    (tmp_path / f"train{ending}").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    graph = load_graph(tmp_path, format="triples")
    assert graph.ids.tolist() == names
    assert lines[0] != "tail,head,rel" or (graph.A[0, 1] and "(tail, head, rel) was taken" in graph.meta["notes"][0])


@pytest.mark.parametrize("ending, lines, said", [
    (".tsv", "a\tr\tb\n\na\tb", ":3: 2 fields; expected head, relation, tail, separated by tabs"),
    (".csv", "a,r,b\na,r,b,c", ":2: 4 fields; expected head, relation, tail, separated by commas"),
    (".csv", "head,rel,tail\na,r,b\na,,b", ":3: a field is empty"), (".tsv", "a\t \tb", ":1: a field is empty"),
    (".tsv", "a\tr\tb\na\tr\t", ":2: a field is empty"), (".txt", "a r b\na r b c", ":2: 4 fields"),
    (".nt", "<a> <p> <b> .\n<a>\t<p>\t<b>", ":2: no statement of N-Triples;"), (".tsv", "head\trel\ttail", ": holds no triple"),
    (".tsv", "", ": the file is empty"), (".tsv", "a\tr\t\xff", ": is not UTF-8"),
])  # fmt: skip
def test_a_line_without_three_fields_is_named(tmp_path, ending, lines, said):
    write(tmp_path, {"train": "arb", "valid": "arb"})
    (tmp_path / f"test{ending}").write_text(lines, encoding="latin-1")
    with pytest.raises(FormatError, match=f"test{ending}{said}"):
        load_graph(tmp_path)


def test_a_file_of_n_triples_is_split_at_random_and_predicted_by_its_names(tmp_path, capsys):
    lines = [f"<x:{i}> <p> <x:{(i + step) % 9}> ." for i in range(9) for step in (1, 2, 3)]
    lines += [r'<x:\u00e9> <p> "a\\u00e9 \u0022"@en . # one', "<x:é> <p> <x:é> .", "_:b <q> <x:0>."]
    (tmp_path / "kg.nt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    graph = load_graph(tmp_path / "kg.nt.gz")
    assert graph.edge_split is None and [*graph.ids[[0, -2, -1]]] == [r'"a\\u00e9 \u0022"@en', "<x:é>", "_:b"]
    assert graph.meta["official_split"] | {"literals": 1, "self_loops": 1} == graph.meta["official_split"]
    train = ["train", tmp_path / "kg.nt.gz", "--task", "links", "--features", "embedding", "--epochs", "1"]
    assert run(capsys, *train, "--hidden", "4", "--out", tmp_path / "run")[0] == 0
    assert run(capsys, "predict", tmp_path / "run", "--top", "1", "--out", tmp_path / "top.csv")[0] == 0
    rows = [line.split(",") for line in (tmp_path / "top.csv").read_text(encoding="utf-8").splitlines()[1:]]
    assert rows and {row[1] for row in rows} <= {"<p>", "<q>"} and {"<x:é>", "_:b"} & {row[0] for row in rows}


def test_a_line_of_a_user_and_items_is_an_edge_to_each(tmp_path, capsys):
    graph = load_graph(tiny.write_official(tmp_path, "0 1 2 2\n3\n\n1 0", "1 3\n0 2 4\n"))
    src, at = np.repeat(np.arange(9), np.diff(graph.A.indptr)), graph.edge_ids
    edges = [(0, 1, 0), (0, 2, 0), (0, 2, 0), (0, 2, 2), (0, 4, 2), (1, 0, 0), (1, 3, 2)]
    assert sorted(zip(src, graph.A.indices - 4, graph.edge_split[at])) == edges and graph.edge_y is None
    assert (
        graph.meta["bipartite"] == {"sources": 4, "names": ["user", "item"]} and graph.meta["format"] == "interactions"
    )
    assert [*graph.ids[[0, 3, 4, 8]]] == ["user:0", "user:3", "item:0", "item:4"]
    assert sorted(capsys.readouterr().err.splitlines()) == sorted(f"spgnn: {note}" for note in NOTES[5:])


@pytest.mark.parametrize("train, error", [
    ("0 1 a\n", "train.txt:1: number is 'a'; expected a finite number"), ("0 1\n1.5 2\n", "train.txt:2: .*an integer"),
    ("0\n1\n", "0 interactions, users up to 1"), ("0 99999999999\n", "items up to 99999999999; .* without gaps"),
    ("0 1 2\n3 4 5\n", "could be interactions or triples; name one with format"), ("", "the file is empty"),
])  # fmt: skip
def test_what_is_no_list_of_items_is_refused(tmp_path, train, error):
    path = tiny.write_official(tmp_path, train, "0\n")
    with pytest.raises(FormatError, match=error):
        load_graph(path, format=None if "could" in error else "interactions")


@pytest.mark.data
@pytest.mark.parametrize("path, sizes, parts, counts", [
    ("knowledge/fb15k237", (14_541, 310_116), [272_115, 17_535, 20_466], [0, 0, 1806, 36, 0]),
    ("recommender/gowalla", (29_858 + 40_981, 1_027_370), [810_128, 0, 217_242], [0, 0, 0, 0]),
])  # fmt: skip
def test_published_splits_have_the_published_sizes(data_dir, path, sizes, parts, counts):
    graph = load_graph(data_dir / path)
    assert (graph.n_nodes, graph.nnz) == sizes and np.bincount(graph.edge_split).tolist() == parts
    assert [*graph.meta["official_split"].values()] == counts
