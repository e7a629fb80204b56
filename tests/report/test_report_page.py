"""The HTML report: whole, valid, without any reference to a network, and each picture in it; the pictures as files."""

import base64
import io
import re
import sys
from html.parser import HTMLParser

import pytest

import spgnn
from spgnn.analysis.study import study
from spgnn.errors import ResourceError, UsageError
from spgnn.report import style
from spgnn.report.page import Page
from spgnn.report.study_report import READING, pictures, study_page

pytestmark = pytest.mark.slow
VOID = {"meta", "link", "img", "br"}


class Checker(HTMLParser):
    """Counts elements, and notes what is open at the wrong end, or refers to anything."""

    def __init__(self):
        super().__init__()
        self.open, self.faults, self.images, self.ids, self.links = [], [], [], set(), []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.open += [] if tag in VOID else [tag]
        self.ids |= {values["id"]} if "id" in values else set()
        if tag == "img":
            self.images.append(values)
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            value = values.get(name)
            if value and value.startswith("#"):
                self.links.append(value[1:])
            elif value and not value.startswith("data:"):
                self.faults.append(f"<{tag} {name}={value[:40]}>")
        if tag in ("script", "iframe", "object", "embed", "base", "form") or any(
            name.startswith("on") for name in values
        ):
            self.faults.append(f"<{tag}>")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}>")


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert not checker.faults and not checker.open
    assert set(checker.links) <= checker.ids
    without_pictures = re.sub(r"base64,[A-Za-z0-9+/=]*", "", html)
    assert not re.search(r"https?:|//|@import|url\(|javascript:", without_pictures)
    return checker


@pytest.fixture(scope="module")
def found():
    pytest.importorskip("matplotlib")
    graph = spgnn.load_graph("sbm:n=200,classes=3,degree=6,seed=2")
    return study(
        graph, (4, 8), ("metis:objective=vol", "spring"), ("columns", "cover"), made={"command": "volumes 'a b' <x>"}
    )


@pytest.fixture(scope="module")
def html(found):
    return study_page(found).html()


def test_the_report_has_every_picture_inside_and_refers_to_nothing(found, html):
    from PIL import Image

    images = checked(html).images
    assert len(images) == len(READING) == len(pictures(found))
    for image in images:
        kind, _, data = image["src"].partition(",")
        assert kind == "data:image/png;base64" and len(image["alt"]) > 30
        picture = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
        picture.load()
        assert min(picture.size) > 200 and len(picture.getcolors(1 << 24)) > 3
    assert "default-src 'none'" in html and "volumes &#x27;a b&#x27; &lt;x&gt;" in html


def test_its_tables_show_the_numbers_of_the_records(found, html):
    for record in found.records:
        assert f"<td>{record['messages']:,}</td>" in html and f">{record['bytes_per_epoch']:,}</td>" in html
        assert f">{record['edge_cut']:,}</td>" in html


def test_text_of_others_is_escaped():
    page = Page("<script>alert(1)</script>", '"><img src=x>')
    page.section("a & b", "1 < 2")
    page.properties({"<b>": "<i>"})
    page.table([{"x": "<u>", "y": None}], {"x": "<s>", "y": "y"})
    page.folded("<p>", "</pre><b>")
    assert checked(page.html()).images == []
    assert "<script>" not in page.html() and "<u>" not in page.html()


def test_the_least_of_a_group_is_marked_and_ties_of_all_are_not():
    page = Page("t")
    page.table(
        [{"g": 1, "x": 3}, {"g": 1, "x": 2}, {"g": 2, "x": 5}, {"g": 2, "x": 5}],
        {"g": "g", "x": "x"},
        best=("x",),
        group="g",
    )
    assert re.findall(r'<td class="best">([^<]*)', page.html()) == ["2"]


def test_pictures_are_files_that_repeat_to_the_byte(found, tmp_path):
    draw = pictures(found, 4)["clusters"]
    for suffix in style.FORMATS:
        one, two = (style.save(draw(), tmp_path / f"{i}{suffix}").read_bytes() for i in (1, 2))
        assert one == two and len(one) > 5000
    with pytest.raises(UsageError, match="expected a file name ending in .png or .svg"):
        style.save(draw(), tmp_path / "x.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.png", "1.svg", "2.png", "2.svg"]


def test_names_beside_points_do_not_cover_each_other():
    from spgnn.report.placing import place_labels

    figure = style.new_figure(5, 4)
    axis = figure.subplots()
    points = [(x, 1 + 0.05 * x) for x in (1, 1.2, 1.4, 5, 5.1, 9)]
    axis.plot(*zip(*points), "o")
    place_labels(axis, points, ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"], ["#000000"] * 6)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axis.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_one_k_one_rank_and_graphs_without_edges_draw_too():
    for graph, k in ((spgnn.load_graph("path:n=2"), 1), (spgnn.graph_from_coo([], [], 5), 2)):
        small = study(graph, (k,), ("block",), ("columns",))
        assert checked(study_page(small).html()).images


def test_without_matplotlib_the_message_says_what_to_install(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ResourceError, match=r"pip install 'spgnn\[plot\]'"):
        study_page(found)
