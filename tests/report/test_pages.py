"""Pages and figures: whole, valid, nothing outside is referred to, whatever names are in them."""

import base64
import re
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from spgnn.errors import ResourceError
from spgnn.report.figures import draw
from spgnn.report.page import Page, runs_page
from spgnn.report.runs import Run

VOID = {"meta", "link", "img"}


class Checker(HTMLParser):
    """Counts elements, and notes what is open at the wrong end, or refers to anything."""

    def __init__(self):
        super().__init__()
        self.open, self.faults, self.images = [], [], []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.open += [] if tag in VOID else [tag]
        self.images += [values["src"]] if tag == "img" else []
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            if not values.get(name, "data:").startswith("data:"):
                self.faults.append(f"<{tag} {name}={values[name][:40]}>")
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
    without_pictures = re.sub(r"base64,[A-Za-z0-9+/=]*", "", html)
    assert not re.search(r"https?:|//|@import|url\(|javascript:", without_pictures)
    return checker


def run_of(graph: str, **values) -> Run:
    """A training that has not ended, of 30 epochs."""
    records = [
        {"epoch": e, "loss": 9 / e, "val": e / 30, "epoch_s": 0.1, "bytes_sent": 5} | values for e in range(1, 31)
    ]
    return Run("folder", {"graph": graph}, {}, records, {}, {})


HOSTILE = [r"a$\foo$b", "\x1b[2J\n", "_a", "<b>&", "\udcff", "g" * 250, "\u202egnp"]


@pytest.mark.slow
def test_the_figures_of_hostile_names_are_inside_the_page_valid_and_repeat_to_the_byte():
    pytest.importorskip("matplotlib")
    runs = {name: run_of(name) for name in HOSTILE}
    figures = draw(runs)
    assert figures == draw(runs) and list(figures) == ["learning.png", "learning.svg", "cost.png", "cost.svg"]
    html = runs_page(runs, figures).html()
    for image, name in zip(checked(html).images, ("learning.svg", "cost.svg"), strict=True):
        kind, _, data = image.partition(",")
        content = base64.b64decode(data, validate=True)
        assert kind == "data:image/svg+xml;base64" and content == figures[name]
        assert 600 < float(ElementTree.fromstring(content).get("width")[:-2]) < 900  # points
    assert "default-src 'none'" in html and "color-scheme: light dark" in html and "<b>" not in html


def test_text_of_others_is_escaped():
    page = Page("<script>alert(1)</script>", '"><img src=x>')
    page.section("a & b", "1 < 2")
    page.properties({"<b>": "<i>"})
    page.table([{"x": "<u>", "y": None}], {"x": "<s>", "y": "y"})
    page.shaded(np.ones((2, 2)), ["<b>", "<i>"], 1, str)
    page.figure(b"<svg>", '"><script>')
    checked(page.html())
    assert not re.search("<(script|u|b|i|s)>", page.html())


def test_numbers_of_a_column_have_as_many_decimals():
    page = Page("t")
    page.table([{"x": 123.456, "n": 12345, "b": True}, {"x": 1.0, "n": None, "b": False}], dict(zip("xnb", "xnb")))
    page.table([{"x": 0.12345}, {"x": 1.0}], {"x": "x"})  # a score of 1 has the decimals of the others
    cells = re.findall(r"<td[^>]*>([^<]*)", page.html())
    assert cells == ["123.5", "12,345", "yes", "1.0", "&ndash;", "no", "0.123", "1.000"]


def test_cells_are_shaded_by_the_root_of_their_share_and_zeros_are_empty():
    page = Page("t")
    page.shaded(np.array([[0.0, 1.0], [0.25, 1.0]]), ["a", "n" * 99], 1.0, "{:.0%}".format)
    cells = re.findall(r'<td style="--s:([.\d]+)">([^<]*)</td>', page.html())
    assert cells == [("0.00", ""), ("0.60", "100%"), ("0.30", "25%"), ("0.60", "100%")]
    assert f"<th>{'n' * 27}...</th>" in page.html() and 'class="shaded long"' in page.html()


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ResourceError, match=r"pip install 'spgnn\[plot\]'"):
        draw({"a": run_of("g")})
