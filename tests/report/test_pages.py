"""Pages: whole, valid, every picture inside, no reference to a network; pictures as files."""

import base64
import re
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

import spgnn
from spgnn.analysis.study import Study
from spgnn.errors import ResourceError, UsageError
from spgnn.report import style
from spgnn.report.page import Page
from spgnn.report.study_report import pictures, study_page

pytestmark = pytest.mark.slow
VOID = {"meta", "link", "img", "br", "source"}


class Checker(HTMLParser):
    """Counts elements, and notes what is open at the wrong end, or refers to anything."""

    def __init__(self):
        super().__init__()
        self.open, self.faults, self.images, self.ids, self.links = [], [], [], set(), []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.open += [] if tag in VOID else [tag]
        self.ids |= {values["id"]} if "id" in values else set()
        self.images += [values["srcset"]] if tag == "source" else [values["src"]] if tag == "img" else []
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


def test_the_page_has_every_picture_inside_for_two_widths_and_refers_to_nothing(records, html):
    images = checked(html).images
    assert len(images) == 2 * len(pictures(records)) == 4
    for narrow, wide in zip(images[::2], images[1::2]):
        for image, least, most in ((narrow, 200, 285), (wide, 600, 900)):
            kind, _, data = image.partition(",")
            root = ElementTree.fromstring(base64.b64decode(data, validate=True))
            assert kind == "data:image/svg+xml;base64" and least < float(root.get("width")[:-2]) < most  # points
    assert "default-src 'none'" in html and "volumes &#x27;a b&#x27; &lt;x&gt;" in html


def test_pages_and_pictures_have_a_colour_for_light_and_for_dark(records, html):
    assert "color-scheme: light dark" in html and "@media (prefers-color-scheme: dark)" in html
    svg = pictures(records)["sweep"].svg(1)
    rules = re.search(r"<style>(:root.*?)</style>", svg)[1]
    light, dark = (dict(re.findall(r"(--c\w+):(#\w+);", part)) for part in rules.split("@media"))
    assert light.keys() == dark.keys() == set(re.findall(r"var\((--c\w+)\)", svg))
    assert not re.search(r"(fill|stroke): #", svg)
    for name, colour in dark.items():  # the strong ones are bright on dark; the grid is faint
        rgb = bytes.fromhex(colour[1:])
        assert (max(rgb) + min(rgb) > 300) == (light[name] != "#e8e8e8"), name


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
    page.table([{"x": 0.12345}, {"x": 1.0}], {"x": "x"})  # a score of 1 has the decimals of the others
    page.table([{"x": 100.0}], {"x": "x"})
    cells = re.findall(r"<td[^>]*>([^<]*)", page.html())
    assert cells == ["123.5", "12,345", "yes", "1.0", "&ndash;", "no", "0.123", "1.000", "100.00"]


def test_pictures_are_files_that_repeat_to_the_byte(records, tmp_path):
    picture = pictures(records)["sweep"]
    for suffix in style.FORMATS:
        one, two = (picture.save(tmp_path / f"{i}{suffix}").read_bytes() for i in (1, 2))
        assert one == two and len(one) > 5000
    with pytest.raises(UsageError, match="expected a file name ending in .png or .svg"):
        picture.save(tmp_path / "x.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.png", "1.svg", "2.png", "2.svg"]


def test_shaded_tables_show_numbers_where_they_are_small_and_say_them_where_they_are_large():
    for n, is_shown in ((2, True), (16, True), (17, False)):
        page, values = Page("t"), np.diag(np.arange(1.0, n + 1))
        page.heats({"<b>": values}, ["<i>long"] * n, n, "{:.0f} kB".format)
        html = page.html()
        checked(html)
        cells = re.findall(r'<td( style="--s:[.\d]+")?( class="deep")?( title="[^"]*")?>([^<]*)</td>', html)[1:]
        assert len(cells) == n * n and cells[1] == ("", "", "", "") and "<b>" not in html and "<i>" not in html
        assert cells[-1][:2] == (' style="--s:1.00"', ' class="deep"')
        assert cells[0][2:] == (("", "1 kB") if is_shown else (' title="1 kB"', ""))
    assert 'class="long"' in html and html.count("<caption>") == 1


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
