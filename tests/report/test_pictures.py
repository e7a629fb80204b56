"""The pictures of a study: right where nothing is sent, and readable with long names, odd letters and many ranks."""

import itertools

import numpy as np
import pytest

import spgnn
from spgnn.analysis.study import Study, study
from spgnn.report import drawings, matrices, style
from spgnn.report.study_report import pictures

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.slow

LONG = "volume:objective=cover:effort=2.0:send=False:receive=True:start=metis"
ODD = r"a$\foo$b"


@pytest.fixture(scope="module")
def cliques():
    """Two cliques of ten nodes, which metis cuts into two parts without an edge between."""
    edges = [(o + a, o + b) for o in (0, 10) for a, b in itertools.combinations(range(10), 2)]
    return study(spgnn.graph_from_coo(*zip(*edges), 20), (1, 2), ("metis", "random"), ("columns", "cover"))


@pytest.fixture(scope="module")
def named():
    """A study of which every name is long, and odd."""
    graph = spgnn.load_graph("sbm:n=90,classes=3,seed=1")
    found = study(graph, (2, 4), ("metis", LONG, "spring"), ("columns", "cover"))
    return Study(found.graph | {"name": ODD + "g" * 110}, found.made, found.cases, found.cuts, found.stored_BB)


def drawn(figure):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()
    return figure


def texts(axis, letter="y"):
    drawn(axis.figure)
    ticks = axis.yaxis if letter == "y" else axis.xaxis
    low, high = sorted(axis.get_ylim() if letter == "y" else axis.get_xlim())
    return [tick.label1.get_text() for tick in ticks.get_major_ticks() if low <= tick.get_loc() <= high]


def test_a_heatmap_shows_what_is_sent_where_the_first_method_sends_nothing(cliques):
    figure = matrices.heatmap(cliques, "columns", 2)
    quiet, busy = (axis.images[0].get_array() for axis in figure.axes[:2])
    assert np.ma.count(quiet) == 0
    rows_PP = cliques.of("columns", 2, 1)[1].rows_PP
    assert np.allclose(busy.filled(0), rows_PP * 300 * 4 / 1e3) and rows_PP.any()
    for figure in (figure, matrices.heatmap(cliques, "columns", 1), drawings.sweep(cliques, "columns")):
        assert "4 bytes per entry" in figure.get_suptitle()


def test_a_sweep_names_the_methods_that_send_nothing(cliques):
    legend = drawings.sweep(cliques, "columns").legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["random", "metis: sends nothing"]
    silent = drawings.sweep_schemes(cliques, "metis")
    assert [text.get_text() for axis in silent.axes for text in axis.texts] == ["nothing is sent"] * 2


def test_nothing_is_drawn_as_0_on_axes_that_have_none(cliques):
    of_one, of_two = drawings.tradeoff(cliques, "columns").axes
    assert texts(of_one) == ["0"] and texts(of_two)[0] == "0" and len(texts(of_two)) > 1
    assert not any("e-" in text for axis in drawings.loads(cliques, "columns", 1).axes for text in texts(axis))


def test_letters_of_a_name_are_no_formula(named, tmp_path):
    for name, draw in pictures(named).items():
        assert style.save(draw(), tmp_path / f"{name}.png").stat().st_size > 1000
    assert ODD in drawings.loads(named, "columns").get_suptitle()


def test_texts_stay_inside_the_picture_and_titles_clear_of_each_other(named):
    for name, draw in pictures(named, 4).items():
        figure = drawn(draw())
        written = [figure._suptitle, *(text for legend in figure.legends for text in legend.get_texts())]
        written += [
            text
            for axis in figure.axes
            for text in (axis.title, axis._left_title, axis._right_title, axis.yaxis.label)
            if text.get_text()
        ]
        boxes = [text.get_window_extent() for text in written]
        width, height = figure.canvas.get_width_height()
        outside = [
            text
            for text, box in zip(written, boxes)
            if box.x0 < -1 or box.x1 > width + 1 or box.y0 < -1 or box.y1 > height + 1
        ]
        assert not outside, name
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2)), name
        assert all(
            axis.get_window_extent().width > 0.12 * width for axis in figure.axes if axis.get_label() != "<colorbar>"
        ), name


def test_a_heatmap_of_many_ranks_adds_them_up_in_squares(cliques):
    ranks, rng = 500, np.random.default_rng(0)
    case = cliques.of("columns", 2, 1)[1]
    rows_PP = (rng.random((ranks, ranks)) < 0.05).astype(np.int64)
    one = Study(cliques.graph, cliques.made, [type(case)(case.record | {"k": ranks}, rows_PP, np.ones(ranks))])
    figure = drawn(matrices.heatmap(one, "columns", ranks))
    cells = figure.axes[0].images[0].get_array()
    assert cells.shape == (125, 125) and cells.sum() == pytest.approx(rows_PP.sum() * 1.2)
    assert "4 ranks to 4 ranks" in figure.axes[1].get_ylabel()
    image = np.asarray(figure.axes[0].images[0].make_image(figure.canvas.get_renderer())[0])
    assert (image[..., 3] > 0).mean() == pytest.approx(np.ma.count(cells) / cells.size, abs=0.05)
    shown = texts(figure.axes[0], "x")
    assert shown == ["0", "125", "250", "375"]


def test_text_is_broken_after_a_mark_where_there_is_one():
    assert (
        style.wrap("metis:objective=vol: 3 MB", style.text_inches("metis:objective=vo", 10), 10)
        == "metis:objective=\nvol: 3 MB"
    )
    assert style.wrap("abcdef", style.text_inches("abcd", 10), 10) == "abcd\nef"
    assert style.wrap("WWW", 0.01, 10) == "W\nW\nW"
    assert style.wrap("a b\nc", 1, 10) == "a b\nc"


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_graph_without_edges_has_no_picture_of_clusters():
    names = pictures(found := study(spgnn.load_graph("path:n=1"), (1,), ("spring", "block"), ("columns",)))
    assert "clusters" not in names and all(cut.clusters is None for cut in found.cuts)
    for make in names.values():
        drawn(make())
