"""A folder of tables with keys: rows are nodes, foreign keys are relations, and what does not fit is named by its cell."""

import json

import numpy as np
import pandas as pd
import pytest
from command_line import run

from spgnn import from_pandas, load_graph, part_graph
from spgnn.data import convert, load_native
from spgnn.data.table_schema import drawn, holds_tables, read_schema
from spgnn.errors import FormatError, InputError, UsageError

SHOP = {
    "customers.csv": "id,city,age\n1,ulm,30\n2,bonn,\n3,ulm,41\n4,bonn,25\n",
    "products.csv": "code,price\np1,2.5\np2,0\np3,7\n",
    "orders.csv": (
        "order_id,date,customer_id,product,returned,comment\n"
        "11,2024-01-05,1,p1,yes,a\n12,2024-02-01,2,p2,no,b\n13,2024-02-09,1,,no,c\n14,2024-03-01,4,NULL,,d\n"
        "15,2024-03-02,4,p1,yes,e\n"
    ),
    "tables.toml": (
        'target = "orders.returned"\nmissing = "zero"\n[table.customers]\nfile = "customers.csv"\nkey = "id"\n'
        '[table.products]\nfile = "products.csv"\nkey = "code"\n[table.orders]\nfile = "orders.csv"\nkey = "order_id"\n'
        'time = "date"\nforeign = {"customer_id" = "customers", "product" = "products"}\n'
    ),
}
CELL = "orders.csv: table 'orders', column"


def shop(folder, *changes):
    """Write the shop, with changes (file, old text, new text)."""
    (path := folder / "shop").mkdir(exist_ok=True)
    for name, text in SHOP.items():
        for file, old, new in changes:
            assert file != name or old in text
            text = text.replace(old, new) if file == name else text
        (path / name).write_text(text)
    return path


def edges(graph):
    """The edges of a graph by the ids of their ends, and the names of their relations, as they are listed."""
    rows, columns = graph.A.nonzero()
    listed = sorted(zip(graph.edge_ids, rows, columns))
    return [(graph.ids[u], graph.edge_classes[graph.edge_y[e]], graph.ids[v]) for e, u, v in listed]


def test_rows_are_nodes_and_foreign_keys_relations(tmp_path):
    graph = load_graph(shop(tmp_path))
    buyer, item = "orders customer_id customers", "orders product products"
    assert graph.name == "shop" and graph.meta.get("typed")
    assert graph.ids.tolist() == ["1", "2", "3", "4", "p1", "p2", "p3", "11", "12", "13", "14", "15"]
    assert graph.meta["node_types"] == {"names": ["customers", "products", "orders"], "starts": [0, 4, 7, 12]}
    assert graph.edge_classes == (buyer, item) and graph.edge_y.tolist() == [0] * 5 + [1] * 3
    assert edges(graph) == [
        ("11", buyer, "1"), ("12", buyer, "2"), ("13", buyer, "1"), ("14", buyer, "4"), ("15", buyer, "4"),
        ("11", item, "p1"), ("12", item, "p2"), ("15", item, "p1"),
    ]  # fmt: skip
    A = np.zeros((12, 12))
    A[[7, 8, 9, 10, 11, 7, 8, 11], [0, 1, 0, 3, 3, 4, 5, 4]] = 1
    assert np.array_equal(graph.A.toarray(), A)
    names = ("customers.city=bonn", "customers.city=ulm", "customers.age", "products.price", "orders")
    X = np.zeros((12, 5))
    X[:4, :3], X[4:7, 3], X[7:, 4] = [[0, 1, 30], [1, 0, 0], [0, 1, 41], [1, 0, 25]], [2.5, 0, 7], 1
    assert graph.feature_names == names and np.array_equal(graph.X.toarray(), X)
    assert graph.classes == ("no", "yes") and graph.y.tolist() == [-1] * 7 + [1, 0, 0, -1, 1]
    assert graph.split is None and graph.meta["label"] == "returned"
    both = graph.with_edges("both")
    assert both.nnz == 2 * graph.nnz and np.count_nonzero(both.edge_ids < 0) == graph.nnz


def test_what_has_no_edge_or_is_not_read_is_noted(tmp_path):
    stores = ("tables.toml", "[table.orders]", '[table.stores]\nfile = "stores.csv"\n[table.orders]')
    (shop(tmp_path, stores) / "stores.csv").write_text("name,size\na,1\nb,2\n")
    graph = load_graph(tmp_path / "shop")
    assert graph.notes()[:6] == [
        "columns that are not read: stores.name, orders.comment",
        f"{tmp_path}/shop/customers.csv: table 'customers': features of 1 missing value of age are 0",
        "orders.product: empty in 2 of 5 rows, which have no such edge",
        "table 'customers': 1 of 4 rows have no edge",
        "table 'products': 1 of 3 rows have no edge",
        "type stores: no edge reaches its 2 nodes",
    ]
    assert graph.ids[7:9].tolist() == ["stores:0", "stores:1"]  # stores have no key


@pytest.mark.parametrize("changes, error", [
    ([("tables.toml", 'key = "id"', "features = [1]")], "table 'customers': features = .1.; expected a list of columns"),
    ([("customers.csv", "30", "inf")], "customers.csv: table 'customers': column 'age' is inf for node 1; expected finite"),
    ([("tables.toml", "zero", "refuse")], "customers.csv: table 'customers': column 'age' has no value for 1 nodes, node 2"),
    ([("tables.toml", "zero", "zeros")], "tables.toml: missing = 'zeros' is not known; did you mean 'zero'"),
    ([("tables.toml", "orders.returned", "order.returned")], "target = 'order.returned'; expected TABLE.COLUMN.*'orders'"),
    ([("tables.toml", "time =", "times =")], "table 'orders': unknown key 'times'; did you mean 'time'"),
    ([("tables.toml", 'key = "id"', 'key = ["id"]')], "table 'customers': key = .'id'.; expected text"),
    ([("tables.toml", 'file = "orders.csv"', 'file = "order.csv"')], "table 'orders': no table .*order.csv; expected file"),
    ([("tables.toml", "[table.orders]", '[table."or ders"]')], "table 'or ders': names of tables have no blanks"),
    ([("tables.toml", "missing =", 'split = "products.code"\nmissing =')], "a split of the table of the target"),
])  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path, changes, error):
    with pytest.raises((InputError, UsageError), match=error):
        load_graph(shop(tmp_path, *changes))


PART = [("orders.csv", "comment", "part"), ("tables.toml", "missing =", 'split = "orders.part"\nmissing =')]
ROLES_OF = [("orders.csv", f",{x}\n", f",{y}\n") for x, y in zip("abcde", ("test", "test", "train", "", "test"))]


@pytest.mark.parametrize("command, code, changes, said", [
    ("convert", 3, [("tables.toml", 'key = "code"', 'key = "cod"')], "table 'products': no column 'cod' in products.csv (key)"),
    ("convert", 3, [("orders.csv", "12,2024", "11,2024")], f"{CELL} 'order_id', row 2 (line 3): the key 11 of row 1 again"),
    ("convert", 3, [("orders.csv", "14,", " ,"), ("orders.csv", "15,", ",")],
     f"{CELL} 'order_id', row 4 (line 5): no key; expected one in each row, 2 of 5 have none"),
    ("convert --features FOLDER/X.npy", 3, [], "X.npy: shape (11, 2), expected (12, F): shop has 12 nodes"),
    ("convert", 3, [("orders.csv", "01,2,p", "01,8,p"), ("orders.csv", "02,4", "02,9")],
     f"{CELL} 'customer_id', row 2 (line 3): 8 is no key of customers (column 'id'), as 2 of 5 cells; expected one of its 4"),
    ("convert", 3, [("orders.csv", ",1,p1", ",ann,p1")],
     f"{CELL} 'customer_id', row 1 (line 2): 'ann' is no key of customers (column 'id'), as 1 of 5 cells; expected one of its 4"),
    ("convert --cutoff date=2024-02-20", 0, [], "cutoff date=2024-02-20: 2 rows are after it, 3 of 16 messages are dropped"),
    ("train", 0, [("tables.toml", ', "product" = "products"', "")], "type products: no edge reaches its 3 nodes"),
    ("train", 0, [*PART, *ROLES_OF], "relation orders product products: its 3 edges of targets are of test alone"),
    ("convert", 3, [("orders.csv", "2024-02-09", "2024-02-30")], f"{CELL} 'date', row 3 (line 4): '2024-02-30'; expected dates"),
    ("convert", 3, [("tables.toml", '= "products"', '= "product"')],
     "tables.toml: table 'orders': foreign names no table 'product'; did you mean 'products'?"),
    ("convert", 3, [("tables.toml", '"product" =', '"prodct" =')],
     "tables.toml: table 'orders': no column 'prodct' in orders.csv (foreign); did you mean 'product'?"),
    ("train", 0, [("tables.toml", "time =", 'features = ["returned"]\ntime =')],
     "tables.toml: table 'orders': 'returned' is the target, and left out of its features"),
    ("train", 3, [("tables.toml", "orders.returned", "orders.retuned")],
     "tables.toml: table 'orders': no column 'retuned' in orders.csv (target); did you mean 'returned'?"),
    ("convert", 3, [("products.csv", "p1,2.5\np2,0\np3,7\n", "")], "products.csv: holds no row below its names"),
    ("convert", 3, [("customers.csv", "30", "thirty"), ("tables.toml", 'key = "id"', 'key = "id"\nfeatures = ["age"]')],
     "customers.csv: table 'customers': column 'age': row 1 is 'thirty'; expected a finite number"),
    ("convert", 3, [("orders.csv", ",2,p2,no", ",2,no")], "orders.csv:3: cannot be read as a table: CSV parse error: Row #2: Expect"),
])  # fmt: skip
def test_a_planted_fault_is_named(tmp_path, capsys, command, code, changes, said):
    path = shop(tmp_path, *changes)
    np.save(tmp_path / "X.npy", np.zeros((11, 2), np.float32))
    to = {"convert": [tmp_path / "g"], "train": ["--model", "rgcn", "--hidden", 4, "--epochs", 1, "--out", "none"]}
    name, *options = command.replace("FOLDER", str(tmp_path)).split()
    found, _, err = run(capsys, name, path, *to[name], *options)
    assert found == code and err.count(said) == 1, err


def messages(graph):
    """Who reads whom."""
    return {(graph.ids[u], graph.ids[v]) for u, v in zip(*graph.A.nonzero())}


def test_rows_after_the_cutoff_are_not_read_and_their_targets_are_test(tmp_path):
    path = shop(tmp_path)
    every = messages(load_graph(path).with_edges("both"))
    for cutoff in ("date=2024-02-20", "orders.date=2024-02-20"):
        convert(path, tmp_path / "g", cutoff=cutoff)
        graph = load_graph(path, cutoff=cutoff)
        for kept in (graph, load_native(tmp_path / "g"), graph.with_edges("both")):
            assert every - messages(kept) == {("4", "14"), ("4", "15"), ("p1", "15")} and kept.nnz == 13
            assert np.count_nonzero(kept.edge_ids >= 0) == 8
        assert f"cutoff {cutoff}: 2 rows are after it, 3 of 16 messages are dropped, test targets: 1" in graph.notes()
        assert [*graph.split[:7], *sorted(graph.split[7:10]), *graph.split[10:]] == [-1] * 7 + [0, 0, 1, -1, 2]
        assert len(np.unique(part_graph(graph, 2).owner_N)) == 2
        with pytest.raises(UsageError, match="edges are 'undirected' already"):
            graph.with_edges("in")
    in_toml = shop(tmp_path, ("tables.toml", "missing =", 'cutoff = "date=2024-02-20"\nmissing ='))
    assert np.array_equal(load_graph(in_toml).split, graph.split)
    assert load_graph(in_toml, cutoff="date=2025-01-01").nnz == 16
    for wrong, error in (("dat=2024", "'dat' is no time of a table.*orders.date"), ("date=x", "'x' is no date32")):
        with pytest.raises(FormatError, match=error):
            load_graph(path, cutoff=wrong)
    with pytest.raises(UsageError, match="cutoff is no option of the format edges"):
        load_graph(path / "orders.csv", cutoff="date=2024-02-20")
    with pytest.raises(UsageError, match="cutoff date=2024-02-20 is for folders of tables"):
        from_pandas(pd.DataFrame({"source": [0], "target": [1]}), cutoff="date=2024-02-20")


def test_rows_without_a_time_are_as_late_as_those_that_they_name(tmp_path):
    lines = '[table.lines]\nfile = "lines.csv"\nforeign = {order = "orders", product = "products"}\n[table.products]'
    path = shop(tmp_path, ("tables.toml", "[table.products]", lines))
    (path / "lines.csv").write_text("order,product\n11,p1\n15,p3\n")
    every, kept = load_graph(path).with_edges("both"), load_graph(path, cutoff="date=2024-02-20")
    dropped = {("orders:15", "lines:1"), ("products:p3", "lines:1"), ("products:p1", "orders:15")}
    assert messages(every) - messages(kept) == dropped | {("customers:4", "orders:14"), ("customers:4", "orders:15")}


def test_a_row_before_the_cutoff_does_not_read_a_later_one_that_it_names(tmp_path):
    last = 'key = "id"\ntime = "date"\nforeign = {last = "orders"}'
    path = shop(tmp_path, ("tables.toml", 'key = "id"', last))
    (path / "customers.csv").write_text("id,date,last\n1,2024-01-01,13\n2,2024-01-01,\n4,2024-01-01,15\n")
    found = messages(load_graph(path, cutoff="date=2024-02-20"))
    assert {("1", "13"), ("13", "1"), ("15", "4")} <= found and ("4", "15") not in found


def test_a_given_split_holds_before_the_cutoff(tmp_path):
    parts = [("orders.csv", f",{x}\n", f",{y}\n") for x, y in zip("abcde", ("train", "val", "test", "", "train"))]
    path = shop(tmp_path, *parts, *PART)
    assert load_graph(path).split.tolist() == [-1] * 7 + [0, 1, 2, -1, 0]
    assert load_graph(path, cutoff="date=2024-02-20").split.tolist() == [-1] * 7 + [0, 1, 2, -1, 2]


def test_keys_of_two_tables_get_the_names_of_their_tables(tmp_path):
    shared = [("orders.csv", f"{order},2024", f"{order - 10},2024") for order in range(11, 16)]
    numbers = ("tables.toml", 'target = "orders.returned"', 'target = "products.price"')
    graph = load_graph(shop(tmp_path, *shared, numbers))
    assert graph.ids[[0, 4, 7]].tolist() == ["customers:1", "products:p1", "orders:1"]
    assert np.array_equal(graph.y, [np.nan] * 4 + [2.5, 0, 7] + [np.nan] * 5, equal_nan=True) and graph.is_regression
    assert graph.feature_names[3:] == ("products", "orders.returned=no", "orders.returned=yes")


def test_features_are_those_that_are_named(tmp_path):
    named = ("tables.toml", 'key = "id"', 'key = "id"\nfeatures = ["city"]\none_hot = ["age"]')
    names = [f"customers.{name}" for name in ("city=bonn", "city=ulm", "age=25", "age=30", "age=41")]
    assert [*load_graph(shop(tmp_path, named)).feature_names[:5]] == names


def test_tables_of_any_kind_of_file_are_one_graph(tmp_path):
    from pyarrow import csv, parquet

    given, path = load_graph(shop(tmp_path)), tmp_path / "shop"
    orders = csv.read_csv(path / "orders.csv")
    parquet.write_table(orders.set_column(1, "date", orders["date"].cast("string")), path / "orders.parquet")
    (path / "customers.tsv").write_text(SHOP["customers.csv"].replace(",", "\t"))
    text = SHOP["tables.toml"].replace("customers.csv", "customers.tsv").replace("orders.csv", "orders.parquet")
    (path / "tables.toml").write_text(text)
    convert(path, tmp_path / "g")
    for graph in (load_graph(path), load_native(tmp_path / "g")):
        assert edges(graph) == edges(given) and np.array_equal(graph.X.toarray(), given.X.toarray())
        assert graph.y.tolist() == given.y.tolist() and graph.meta["node_types"] == given.meta["node_types"]
    assert load_graph(path, cutoff="date=2024-02-20").nnz == 13  # of dates that are text


@pytest.mark.slow
def test_rows_without_a_target_are_predicted_and_no_others(tmp_path, capsys):
    path, run_folder, out = shop(tmp_path), tmp_path / "run", tmp_path / "p.csv"
    (path / "tables.toml").unlink()
    assert run(capsys, "info", path, "--write")[0] == 0
    toml = (path / "tables.toml").read_text()
    assert (
        'features = ["age"]\none_hot = ["city"]\n[table.customers.scale]' in toml
        and 'features = []\none_hot = ["returned"]' in toml
    )
    (path / "tables.toml").write_text(toml.replace('# target = "TABLE.COLUMN"', 'target = "orders.returned"'))
    assert "'returned' is the target, and left out of its features" in str(load_graph(path).notes())
    assert run(capsys, "train", path, "--model", "hgt", "--epochs", 1, "--hidden", 8, "--out", run_folder)[0] == 0
    assert [line.split(",")[0] for line in (run_folder / "predictions.csv").read_text().split()][1:4] == [
        "11",
        "12",
        "13",
    ]
    lines = [line.split(",") for line in SHOP["orders.csv"].split()]
    (path / "customers.csv").write_text("id,city,age\n1,ulm,30\n4,ulm,25\n")  # of few values
    for column in ([""], []):  # empty, and missing
        rows = [",".join([*line[:4], *("returned" if line == lines[0] else of for of in column)]) for line in lines]
        (path / "orders.csv").write_text("\n".join(rows[:2] + rows[4:]) + "\n")
        assert run(capsys, "predict", run_folder, "--graph", path, "--out", out)[0] == 0
        assert [line.split(",")[0] for line in out.read_text().split()] == ["id", "11", "14", "15"]
        code, _, err = run(capsys, "train", path, "--epochs", 1)
        assert (
            code == 3 and "shop has no labels; give them with --labels FILE, of tables by target in tables.toml" in err
        )
        assert (
            "column 'returned': no row has a target" if column else "no column 'returned' in orders.csv (target)"
        ) in err
    swapped = (path / "tables.toml").read_text().split("\n\n")
    (path / "tables.toml").write_text("\n\n".join([swapped[0], *swapped[:0:-1]]))
    code, _, err = run(capsys, "predict", run_folder, "--graph", path, "--out", out)
    assert (
        code == 3
        and "of which 'products' is not the run's or has another place; expected, in this order: customers" in err
    )


def test_numbers_are_scaled_as_tables_toml_has_it_and_an_empty_cell_is_the_mean(tmp_path):
    path = shop(tmp_path, ("tables.toml", 'key = "id"', 'key = "id"\nscale = {"age" = [32.0, 4]}'))
    graph = load_graph(path)
    assert graph.X.toarray()[:4, graph.feature_names.index("customers.age")].tolist() == [-0.5, 0, 2.25, -1.75]
    (path / "tables.toml").write_text((path / "tables.toml").read_text().replace("4]", "0]"))
    with pytest.raises(
        FormatError, match=r"table 'customers': scale of 'age' is .32.0, 0.; expected .mean, deviation."
    ):
        load_graph(path)


def test_a_key_may_have_several_columns_and_keys_that_no_row_has_may_be_empty(tmp_path, capsys):
    visits = '[table.visits]\nfile = "visits.csv"\nforeign = {"city+day" = "weather"}\n[table.orders]'
    weather = '[table.weather]\nfile = "weather.csv"\nkey = "city+day"\n' + visits
    path = shop(tmp_path, ("tables.toml", "[table.orders]", weather))
    (path / "weather.csv").write_text("city,day,rain\nulm,1,0.5\nulm,2,1.5\nbonn,1,2\n")
    (path / "visits.csv").write_text("day,city\n2,ulm\n1,bonn\n,ulm\n3,ulm\n")
    cell = (
        f"{path}/visits.csv: table 'visits', column 'city+day', row 4 (line 5): 'ulm+3' is no key of weather (column "
    )
    fault = f"{cell}'city+day'), as 1 of 3 cells"
    code, _, err = run(capsys, "convert", path, tmp_path / "g")
    assert code == 3 and f"{fault}; expected one of its 3, such as 'ulm+1', or an empty cell, or unknown = " in err
    toml = (path / "tables.toml").read_text()
    (path / "tables.toml").write_text(f'unknown = "empty"\n{toml}')
    graph = load_graph(path)
    assert [(u, v) for u, r, v in edges(graph) if "visits" in r] == [
        ("visits:0", "weather:ulm+2"),
        ("visits:1", "weather:bonn+1"),
    ]
    assert f"{fault}, which have no such edge" in graph.notes()
    (path / "tables.toml").write_text(f'unknown = "drop"\n{toml}')
    with pytest.raises(FormatError, match='unknown = \'drop\'; expected "refuse", or "empty"'):
        load_graph(path)


def test_edges_are_not_predicted_with_a_cutoff(tmp_path, capsys):
    convert(shop(tmp_path), tmp_path / "g", cutoff="date=2024-02-20")
    for how in ("--task links --features embedding", "--on edges"):
        code, _, err = run(capsys, "train", tmp_path / "g", *how.split(), "--epochs", 1)
        assert code == 3 and "was read with --cutoff date=2024-02-20, which guards targets of rows" in err


def test_the_schema_is_drawn_in_80_columns(tmp_path, capsys):
    path = shop(tmp_path, ("orders.csv", "02,4", "02,9"))
    code, out, _ = run(capsys, "info", path)
    assert code == 0 and max(map(len, out.splitlines())) <= 80
    assert "customers: 4 rows of customers.csv\n  key       id\n  features  city (2 values), age (1 empty)\n" in out
    for line in (
        "time         date, 2024-01-05 to 2024-03-02", "features     none", "target       returned, 1 empty",
        "customer_id  -> customers, 4 edges, 1 unknown", "product      -> products, 3 edges, 2 empty", "left out     comment",
    ):  # fmt: skip
        assert f"  {line}\n" in out
    assert "row 5 (line 6): 9 is no key" in " ".join(out.split())
    foreign = json.loads(run(capsys, "info", path, "--json")[1])["foreign"]
    assert [(of["edges"], of["empty"], of["unknown"]) for of in foreign] == [(4, 0, 1), (3, 2, 0)]


def test_tables_toml_is_guessed_and_written_once(tmp_path, capsys):
    (path := shop(tmp_path) / "tables.toml").unlink()
    given = drawn(read_schema(path.parent))
    assert holds_tables(path.parent) and run(capsys, "info", path.parent)[1] == f"{given}\n" and not path.exists()
    assert run(capsys, "info", path.parent, "--write")[0] == 0 and drawn(read_schema(path.parent)) == given
    path.write_text(path.read_text().replace('# target = "TABLE.COLUMN"', 'target = "orders.returned"'))
    assert sorted(edges(load_graph(path.parent))) == sorted(edges(load_graph(shop(tmp_path))))
    assert "tables.toml is there already" in run(capsys, "info", path.parent, "--write")[2]
    assert "no folder of tables" in run(capsys, "info", tmp_path / "none", "--write")[2] and not holds_tables(tmp_path)


def test_keys_are_guessed_by_names_and_by_values(tmp_path):
    (tmp_path / "people.csv").write_text("person_id,boss\n101,\n205,101\n309,101\n")
    (tmp_path / "cities.csv").write_text("city_id,label\n1,a\n2,b\n3,a\n")
    rows = ["1,205,2,home,101,2,1", "2,101,3,work,205,3,2", "3,309,1,home,999,3,4", "1,309,2,home,101,2,2"]
    (tmp_path / "visits.csv").write_text(
        "\n".join(["count,who,city,kind,guest_person_id,v_dogkey,n_calls", *rows]) + "\n"
    )
    (tmp_path / "dogs.csv").write_text("d_dogkey,name\n1,a\n2,a\n3,b\n8,b\n9,b\n20,b\n")
    spec = read_schema(tmp_path).spec
    keys = [of.get("key") for of in spec["table"].values()]
    assert spec["target"] == "cities.label" and keys == ["city_id", "d_dogkey", "person_id", None]
    assert spec["table"]["people"]["foreign"] == {"boss": "people"}
    # count is 1 to 3 as city_id is, by chance; who has values of person_id; of guest_person_id one is unknown;
    # v_dogkey is named as d_dogkey, though cities have its values too; those of n_calls are keys of dogs by chance
    assert spec["table"]["visits"]["foreign"] == {
        "who": "people", "city": "cities", "guest_person_id": "people", "v_dogkey": "dogs",
    }  # fmt: skip


def test_parts_of_one_parquet_table_are_a_graph_and_tables_with_other_columns_are_not(tmp_path):
    import pyarrow
    from pyarrow import parquet

    for name in ("a", "b"):
        parquet.write_table(pyarrow.table({"source": [0], "target": [1]}), tmp_path / f"{name}.parquet")
    assert not holds_tables(tmp_path) and load_graph(tmp_path).n_nodes == 2
    parquet.write_table(pyarrow.table({"id": [0, 1]}), tmp_path / "c.parquet")
    assert holds_tables(tmp_path)
