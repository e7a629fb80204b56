"""The HTML report in a headless Chromium: every picture is there, no request leaves, nothing complains."""

import re

import pytest
from chromium import Browser, chromium

import spgnn
from spgnn.analysis.study import study
from spgnn.report.study_report import study_page

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="there is no chromium; apt-get install chromium"),
]
IMAGES = "[...document.images].map(i => [i.complete, i.naturalWidth, i.naturalHeight, i.clientWidth, i.alt.length])"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# What Chromium itself asks on its start, whatever the page: the time, its account, its search engine.
ITS_OWN = re.compile(r"(GET http://|CONNECT )([a-z0-9-]+\.)*(google|googleapis|gstatic|gvt1)\.com[:/]")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    pytest.importorskip("matplotlib")
    graph = spgnn.load_graph("sbm:n=200,classes=3,degree=6,seed=2")
    page = study_page(study(graph, (2, 4), ("spring",), ("columns", "cover"), made={"command": "volumes"}))
    return page.save(tmp_path_factory.mktemp("page") / "report.html"), page.pictures


@pytest.mark.parametrize("width", [1280, 390])
def test_every_picture_is_there_no_request_leaves_and_nothing_complains(browser, report, width):
    path, count = report
    browser.connections()
    browser.open(path.as_uri(), width)
    images = browser.evaluate(IMAGES)
    assert len(images) == count == 8
    assert all(
        complete and wide > 400 and high > 200 and shown > 0.9 * min(wide / 2, width) and alt
        for complete, wide, high, shown, alt in images
    )
    assert browser.requests() == [path.as_uri()]
    assert not [line for line in browser.connections() if not ITS_OWN.match(line)]
    assert browser.complaints() == []
    assert browser.evaluate(OVERFLOW) == 0  # tables and pictures scroll by themselves
    assert browser.evaluate("[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))")


def test_a_page_that_asks_for_something_is_seen(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<img src='http://pictures.invalid/x.png'><script>console.error('broken')</script>")
    browser.open(page.as_uri())
    assert browser.evaluate(IMAGES)[0][1] == 0
    assert "http://pictures.invalid/x.png" in browser.requests()
    assert any("pictures.invalid" in line and not ITS_OWN.match(line) for line in browser.connections())
    assert any("broken" in text for text in browser.complaints())


def test_the_page_s_policy_stops_what_would_ask(browser, report, tmp_path):
    path, _ = report
    page = tmp_path / "injected.html"
    page.write_text(path.read_text().replace("</body>", "<img src='http://pictures.invalid/y.png'></body>"))
    browser.connections()
    browser.open(page.as_uri())
    assert not any("pictures.invalid" in line for line in browser.connections())
    assert any("Content Security Policy" in text for text in browser.complaints())
