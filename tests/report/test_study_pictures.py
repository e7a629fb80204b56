"""Pictures of a study: right where nothing is sent, and readable with long names and odd letters."""

import itertools

import numpy as np
import pytest

import spgnn
from spgnn.analysis.study import Study
from spgnn.report import style
from spgnn.report.study_report import heatmap, pictures, study_page, sweep

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.slow

LONG = "volume:objective=cover:effort=2.0:send=False:receive=True:start=metis"
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


def test_a_heatmap_shows_what_is_sent_where_the_first_method_sends_nothing(cliques):
    cells = of(cliques, scheme="columns", k=2)
    figure = heatmap(cells)
    quiet, busy = (axis.images[0].get_array() for axis in figure.axes[:2])
    assert np.ma.count(quiet) == 0
    assert np.allclose(busy.filled(0), np.array(cells[1]["rows_PP"]) * 300 * 4 / 1e3) and np.ma.count(busy) == 2
    assert "kB" in figure.axes[-1].get_ylabel()
    written = [text.get_text() for text in figure.axes[1].texts if text.get_text()]
    assert written == [style.number(value) for value in busy.compressed()]
    assert drawn(heatmap(of(cliques, scheme="columns", k=1)))


def test_a_sweep_draws_the_values_of_each_method_and_names_those_that_send_nothing(cliques):
    figure = sweep(of(cliques, scheme="columns"), "method", "columns")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["random", "metis: sends nothing"]
    total, copies = figure.axes[0].lines[0].get_ydata(), figure.axes[3].lines[0].get_ydata()
    found = of(cliques, scheme="columns", method="random")
    assert np.isnan(total[0]) and total[1] == pytest.approx(1e3 * found[1]["total_mb"])
    assert list(copies) == [record["replication_factor"] for record in found]
    assert "4 bytes per entry" in figure.get_suptitle() and "300 columns" in figure.get_suptitle()
    silent = sweep(of(cliques, method="metis"), "scheme", "metis")
    assert [text.get_text() for axis in silent.axes for text in axis.texts] == ["nothing is sent"] * 2
    assert silent.axes[3].get_title(loc="left") == "work imbalance"


def test_letters_of_a_name_are_no_formula(named, tmp_path):
    for name, draw in pictures(named).items():
        figure = draw()
        assert style.save(figure, tmp_path / f"{name}.png").stat().st_size > 1000
        assert ODD in figure.get_suptitle()


def test_texts_stay_inside_the_picture_and_titles_clear_of_each_other(named):
    for name, draw in pictures(named, 4).items():
        figure = drawn(draw())
        written = [figure._suptitle, *(text for legend in figure.legends for text in legend.get_texts())]
        of_axes = (text for axis in figure.axes for text in (axis.title, axis._left_title, axis.yaxis.label))
        written += [text for text in of_axes if text.get_text()]
        boxes = [text.get_window_extent() for text in written]
        width, height = figure.canvas.get_width_height()
        assert all(-1 <= b.x0 and b.x1 <= width + 1 and -1 <= b.y0 and b.y1 <= height + 1 for b in boxes), name
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2)), name
        panels = [axis for axis in figure.axes if axis.get_label() != "<colorbar>"]
        assert all(axis.get_window_extent().width > 0.12 * width for axis in panels), name


def test_a_page_has_the_pictures_that_its_lines_have_data_for(cliques):
    assert list(pictures(cliques)) == ["sweep", "sweep_schemes", "heatmap"]
    assert list(pictures(of(cliques, k=2))) == ["heatmap"]
    assert list(pictures(of(cliques, scheme="cover"))) == ["sweep", "heatmap"]
    without = [{key: value for key, value in record.items() if key != "rows_PP"} for record in cliques]
    assert list(pictures(without)) == ["sweep", "sweep_schemes"]
    assert study_page(of(without, k=2)).pictures == 0


def test_the_heatmap_shows_the_largest_k_up_to_16_or_the_one_that_is_asked_for(cliques):
    larger = [record | {"k": {1: 32, 2: 64}[record["k"]], "rows_PP": []} for record in cliques]
    assert "k\u00a0=\u00a02" in pictures(cliques + larger)["heatmap"]().get_suptitle()
    assert "k\u00a0=\u00a01" in pictures(cliques + larger, 1)["heatmap"]().get_suptitle()
    assert "heatmap" not in pictures(larger)


def test_one_node_and_graphs_without_edges_draw_too():
    for graph, k in ((spgnn.load_graph("path:n=1"), 1), (spgnn.graph_from_coo([], [], 5), 2)):
        for draw in pictures(lines(graph, (k,), ("block", "spring"))).values():
            drawn(draw())
