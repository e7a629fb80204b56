"""Pages: whole, valid, every picture inside, no reference to a network; pictures as files."""

import base64
import io
import re
import sys
from html.parser import HTMLParser

import pytest

import spgnn
from spgnn.analysis.study import Study
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
        if tag in ("script", "iframe", "object", "embed", "base", "form") or any(n.startswith("on") for n in values):
            self.faults.append(f"<{tag}>")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}>")


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert not checker.faults and not checker.open
    assert set(checker.links) == checker.ids
    without_pictures = re.sub(r"base64,[A-Za-z0-9+/=]*", "", html)
    assert not re.search(r"https?:|//|@import|url\(|javascript:", without_pictures)
    return checker


@pytest.fixture(scope="module")
def records():
    pytest.importorskip("matplotlib")
    asked = Study(ks=(8, 4), methods=("metis:objective=vol", "spring"), schemes=("columns", "cover"))
    lines = list(asked.lines(spgnn.load_graph("sbm:n=200,classes=3,degree=6,seed=2")))
    return [line | {"made": {"command": "volumes 'a b' <x>"}} for line in lines]


@pytest.fixture(scope="module")
def html(records):
    return study_page(records).html()


def test_the_page_has_every_picture_inside_and_refers_to_nothing(records, html):
    from PIL import Image

    images = checked(html).images
    assert len(images) == len(READING) == len(pictures(records))
    for image in images:
        kind, _, data = image["src"].partition(",")
        assert kind == "data:image/png;base64" and len(image["alt"]) > 30
        picture = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
        picture.load()
        assert min(picture.size) > 200 and len(picture.getcolors(1 << 24)) > 3
    assert "default-src 'none'" in html and "volumes &#x27;a b&#x27; &lt;x&gt;" in html


def test_its_tables_show_the_numbers_of_the_lines_by_k(records, html):
    for record in records:
        assert f"<td>{record['messages']:,}</td>" in html and f">{record['bytes_per_epoch']:,}</td>" in html
        assert f">{record['edge_cut']:,}</td>" in html
    ks = re.findall(r"<tr[^>]*><td>(\d)</td>", html)
    assert ks == list("44448888" + "4488")


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
    rows = [{"g": g, "x": x} for g, x in ((1, 3), (1, 2), (1, None), (2, 5), (2, 5), (1, 9))]
    page.table(rows, {"g": "g", "x": "x"}, best=("x",), group=("g",))
    assert re.findall(r'<td class="best">([^<]*)', page.html()) == ["2"]
    assert re.findall(r'<tr class="first"><td>(.)', page.html()) == ["2", "1"]


def test_numbers_of_a_column_have_as_many_decimals():
    page = Page("t")
    page.table([{"x": 123.456, "n": 12345, "b": True}, {"x": 1.0, "n": None, "b": False}], dict(zip("xnb", "xnb")))
    page.table([{"x": 0.12345}], {"x": "x"})
    page.table([{"x": 100.0}], {"x": "x"})
    cells = re.findall(r"<td[^>]*>([^<]*)", page.html())
    assert cells == ["123.5", "12,345", "yes", "1.0", "&ndash;", "no", "0.123", "100.00"]


def test_pictures_are_files_that_repeat_to_the_byte(records, tmp_path):
    draw = pictures(records, 4)["heatmap"]
    for suffix in style.FORMATS:
        one, two = (style.save(draw(), tmp_path / f"{i}{suffix}").read_bytes() for i in (1, 2))
        assert one == two and len(one) > 5000
    with pytest.raises(UsageError, match="expected a file name ending in .png or .svg"):
        style.save(draw(), tmp_path / "x.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.png", "1.svg", "2.png", "2.svg"]


def test_text_is_broken_after_a_mark_where_there_is_one():
    most = style.text_inches("metis:objective=vo", 10)
    assert style.wrap("metis:objective=vol: 3 MB", most, 10) == "metis:objective=\nvol: 3 MB"
    assert style.wrap("abcdef", style.text_inches("abcd", 10), 10) == "abcd\nef"
    assert style.wrap("WWW", 0.01, 10) == "W\nW\nW"
    assert style.wrap("a b\nc", 1, 10) == "a b\nc"


@pytest.mark.parametrize(
    "value, text", [(0, "0"), (12345.6, "12,346"), (45.67, "45.7"), (0.0123, "0.0123"), (2e-6, "2.0e-06")]
)
def test_numbers_of_axes_have_three_digits(value, text):
    assert style.number(value) == text


@pytest.mark.parametrize("mb, unit", [(0.4, (1e3, "kB")), (0.5, (1.0, "MB")), (2e4, (1e-3, "GB"))])
def test_bytes_of_axes_have_a_unit_of_their_size(mb, unit):
    assert style.byte_unit(mb) == unit


def test_without_matplotlib_the_message_says_what_to_install(records, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ResourceError, match=r"pip install 'spgnn\[plot\]'"):
        study_page(records)
