"""Pictures of a study: right where nothing is sent, and readable with long names and odd letters."""

import itertools
import re

import numpy as np
import pytest

import spgnn
from spgnn.analysis.study import Study
from spgnn.report import style
from spgnn.report.study_report import between_ranks, pictures, study_page, sweep

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.slow

LONG = "volume:objective=cover:effort=2.0:minimise=total:receive=True:start=metis"
ODD = r"a$\foo$b"


def lines(graph, ks, methods, schemes=("columns",)):
    return list(Study(ks=ks, methods=methods, schemes=schemes).lines(graph))


@pytest.fixture(scope="module")
def cliques():
    """Two cliques of ten nodes, which metis cuts into two parts without an edge between."""
    edges = [(o + a, o + b) for o in (0, 10) for a, b in itertools.combinations(range(10), 2)]
    return lines(spgnn.graph_from_coo(*zip(*edges), 20), (1, 2), ("metis", "random"), ("columns", "cover"))


@pytest.fixture(scope="module")
def named():
    """A study in which every name is long, and odd."""
    found = lines(
        spgnn.load_graph("sbm:n=90,classes=3,seed=1"), (2, 4), ("metis", LONG, "spring"), ("columns", "cover")
    )
    return [record | {"graph": ODD + "g" * 110} for record in found]


def of(records, **values):
    return [r for r in records if values.items() <= r.items()]


def drawn(figure):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()
    return figure


def test_the_volume_between_ranks_is_a_table_per_method_on_one_scale(cliques):
    html = study_page(cliques, 2).html()
    quiet, busy = re.findall(r'<table class="heat">.*?</table>', html, re.S)
    assert "metis: 0 kB" in quiet.replace("\u00a0", " ") and "--s" not in quiet  # nothing is sent
    rows_PP = of(cliques, scheme="columns", k=2, method="random")[0]["rows_PP"]
    sent = [style.number(rows_PP[q][1 - q] * 300 * 4 / 1e3) for q in range(2)]
    assert re.findall(r"<td style=[^>]*>([^<]*)", busy) == sent and ": kB that rank q" in html
    assert "Volume between ranks" not in study_page(cliques, 1).html()


def test_a_sweep_draws_the_values_of_each_method_and_names_those_that_send_nothing(cliques):
    figure = sweep(of(cliques, scheme="columns"), "method")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["random", "metis: sends nothing"]
    total, copies = figure.axes[0].lines[0].get_ydata(), figure.axes[3].lines[0].get_ydata()
    found = of(cliques, scheme="columns", method="random")
    assert np.isnan(total[0]) and total[1] == pytest.approx(1e3 * found[1]["total_mb"])
    assert list(copies) == [record["replication_factor"] for record in found]
    title = pictures(cliques)["sweep"].title
    assert "4 bytes per entry" in title and "300 columns" in title
    assert len(sweep(of(cliques, method="metis"), "scheme").axes) == 2  # no panels of zeros


def test_letters_of_a_name_are_no_formula(named, tmp_path):
    for name, picture in pictures(named).items():
        assert picture.save(tmp_path / f"{name}.png").stat().st_size > 1000
        assert ODD in picture.title and len(picture.svg(1)) > 1000


def test_texts_stay_inside_the_picture_and_titles_clear_of_each_other(named):
    for picture, layout in itertools.product(pictures(named).values(), ("titled", 1, 2)):
        with style.look():
            figure = drawn(picture.titled() if layout == "titled" else picture.draw(layout))
        written = [figure._suptitle] * bool(figure._suptitle)
        written += [text for legend in figure.legends for text in legend.get_texts()]
        of_axes = (text for axis in figure.axes for text in (axis.title, axis._left_title, axis.yaxis.label))
        written += [text for text in of_axes if text.get_text()]
        boxes = [text.get_window_extent() for text in written]
        width, height = figure.canvas.get_width_height()
        assert all(-1 <= b.x0 and b.x1 <= width + 1 and -1 <= b.y0 and b.y1 <= height + 1 for b in boxes)
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        assert all(axis.get_window_extent().width > 0.12 * width for axis in figure.axes)


def test_a_page_has_the_pictures_that_its_lines_have_data_for(cliques):
    assert list(pictures(of(cliques, method="random"))) == ["sweep", "sweep_schemes"]
    assert list(pictures(cliques)) == ["sweep"]  # metis, of which the schemes would be compared, sends nothing
    assert not pictures(of(cliques, k=2)) and not pictures(of(cliques, method="metis"))
    assert list(pictures(of(cliques, scheme="cover"))) == ["sweep"]


def test_the_ranks_shown_are_those_of_the_largest_k_up_to_16_or_of_the_one_that_is_asked_for(cliques):
    larger = [record | {"k": {1: 32, 2: 64}[record["k"]], "rows_PP": []} for record in cliques]
    assert [r["k"] for r in between_ranks(cliques + larger)] == [2, 2]
    assert not between_ranks(cliques, 1) and not between_ranks(larger) and not between_ranks(cliques + larger, 32)
    assert "Volume between ranks" not in study_page(larger).html()


def test_one_node_and_graphs_without_edges_draw_too():
    for graph, k in ((spgnn.load_graph("path:n=1"), 1), (spgnn.graph_from_coo([], [], 5), 2)):
        assert study_page(lines(graph, (k,), ("block", "spring"))).pictures == 0
        drawn(sweep(lines(graph, (k,), ("block", "spring")), "method"))
