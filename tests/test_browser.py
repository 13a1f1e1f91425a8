"""The built site in Chromium, on wide and narrow screens, light and dark: `make docs docs-test`."""

import json
import re
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

SITE = Path(__file__).parent.parent / "docs" / "_build" / "html"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 400, "height": 800}
WITHOUT_FORMULA = (
    "[...document.querySelectorAll('.math')].filter((e) => !e.querySelector('mjx-container')).map((e) => e.innerText)"
)


def built_pages():
    """Return the pages of the last build, without those that an earlier build has left behind."""
    if not (SITE / "searchindex.js").exists():
        return []
    names = json.loads(re.search(r'"?docnames"?:\s*(\[.*?\])', (SITE / "searchindex.js").read_text()).group(1))
    return [f"{name}.html" for name in names] + ["genindex.html", "search.html", "reproduction/report.html"]


PAGES = built_pages()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed"),
    pytest.mark.skipif(not PAGES, reason="the site is not built: make docs"),
]


@pytest.fixture(scope="module")
def address():
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def context(browser, address):
    """A window that has no network except for the site. Requests to other hosts fail, and so does the test."""
    window = browser.new_context(viewport=WIDE, color_scheme="light")
    window.route(lambda url: not url.startswith(address), lambda route: route.abort())
    yield window
    window.close()


@pytest.fixture
def page(context):
    tab = context.new_page()
    tab.problems = []
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.on("requestfailed", lambda request: tab.problems.append(f"failed: {request.url}"))
    tab.on("response", lambda got: got.status >= 400 and tab.problems.append(f"{got.status}: {got.url}"))
    yield tab
    tab.close()


def open_page(page, url):
    page.goto(url)
    page.evaluate("() => window.MathJax?.startup?.promise")
    return page


def contrast(page):
    """Return the contrast between text and background, as WCAG defines it."""
    return page.evaluate(
        """() => {
            const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
                .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
                .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
            const text = light(numbers(getComputedStyle(document.querySelector("h1")).color));
            const page = light(numbers(getComputedStyle(document.body).backgroundColor));
            return (Math.max(text, page) + 0.05) / (Math.min(text, page) + 0.05);
        }"""
    )


def background(page):
    return sum(map(float, re.findall(r"[\d.]+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]))


def overflowing(page):
    """Return the elements of the text that are wider than the screen, and neither they nor a parent in it scrolls."""
    return page.evaluate(
        """() => {
            const wide = document.documentElement.clientWidth;
            const scrolls = (e) => !e.matches("article, main, body")
                && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
            const cut = [...document.querySelectorAll("article *:not(mjx-assistive-mml, mjx-assistive-mml *)")]
                .filter((e) => e.getBoundingClientRect().right > wide + 1 && e.checkVisibility() && !scrolls(e))
                .map((e) => e.tagName + "." + e.className + ": " + e.innerText?.slice(0, 40)).slice(0, 5);
            return document.documentElement.scrollWidth > wide ? ["the page", ...cut] : cut;
        }"""
    )


@pytest.mark.parametrize("name", PAGES)
def test_page_can_be_read_on_every_screen(page, address, name):
    open_page(page, address + name)
    assert page.locator("h1").count() == 1 and page.title()
    assert page.evaluate("[...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src)") == []
    assert page.evaluate(WITHOUT_FORMULA) == [] and page.locator("mjx-merror").all_inner_texts() == []
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        assert overflowing(page) == [], size
        cut = "[...document.querySelectorAll('pre')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
        assert page.evaluate(f"{cut}.map((e) => e.innerText.slice(0, 60))") == [], size
    if name != "reproduction/report.html":  # the report has one theme
        for theme in ("dark", "light"):
            page.evaluate("(theme) => { document.documentElement.dataset.theme = theme }", theme)
            assert contrast(page) > 7 and (background(page) < 200) == (theme == "dark"), theme
    assert page.problems == []


@pytest.mark.parametrize("name", ["start.html", "command-line.html", "gallery/plot_00_table.html"])
def test_code_can_be_copied(page, address, name):
    open_page(page, address + name)
    blocks = page.locator("div.highlight pre").count()
    assert blocks and page.locator("div.highlight button.copybtn").count() == blocks


def test_copy_leaves_the_prompt_out(page, address):
    open_page(page, address + "command-line.html")
    button = page.locator("div.highlight-console button.copybtn").first
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address.rstrip("/"))
    button.click(force=True)
    assert page.evaluate("navigator.clipboard.readText()").startswith("robustfd train")


@pytest.mark.parametrize("word, found", [("certificate", "certificate.html"), ("whiten", "LowRankPlusIdentity")])
def test_search_finds(page, address, word, found):
    open_page(page, f"{address}search.html?q={word}")
    page.wait_for_selector("#search-results li a")
    page.wait_for_function("document.querySelector('#search-results .search-summary')?.innerText.match(/\\d+/)")
    links = page.eval_on_selector_all("#search-results li a", "all => all.map((a) => a.href)")
    assert any(found in link for link in links), links


def test_links_and_anchors_lead_somewhere(page, address):
    """Read the pages as they were written: scripts add no links."""
    ids, links = {}, []
    for name in PAGES:
        text = (SITE / name).read_text()
        ids[address + name] = {*re.findall(r'\bid="([^"]+)"', text), *re.findall(r'\bname="([^"]+)"', text), "", "top"}
        for link in re.findall(r'<a\b[^>]*\bhref="([^"]+)"', text):
            links.append((name, urljoin(address + name, link.replace("&amp;", "&"))))
    broken = set()
    for name, link in links:
        target, anchor = urldefrag(link)
        if not target.startswith(address):
            continue
        file = SITE / unquote(target.removeprefix(address).split("?")[0] or "index.html")
        known = ids.get(target if target != address else address + "index.html")
        if not file.exists() or (known is not None and unquote(anchor) not in known):
            broken.add(f"{name}: {link.removeprefix(address)}")
    assert sorted(broken) == []
