"""A page in a real browser, and helpers to use it."""

import shutil
from contextlib import contextmanager

import pytest

from kinfold.report.page import write_page
from tests.report import fake_content

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "\"quoted\" 'twice' & <b>bold</b>",
    "🦉 owl",
    "שלום עולם",
    "{{script}}",
    "line\u2028and\u2029paragraph",
    "",
    "javascript:alert(3)",
    "a" * 200,
]


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are tested in a browser driven by playwright")
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("pages are tested in chromium, which is not on the path")
    with playwright.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=executable, headless=True, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def open_page(browser, path, width=1200, height=900, **options):
    """Open a page; at the end it must have reported no problem and requested nothing from the network."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    shown = context.new_page()
    problems, requests = [], []
    shown.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    shown.on("pageerror", lambda error: problems.append(str(error)))
    shown.on("dialog", lambda dialog: (problems.append(f"dialog {dialog.message}"), dialog.dismiss()))
    context.on("request", lambda request: requests.append(request.url))
    shown.goto(path.as_uri())
    shown.wait_for_selector("html[data-ready]")
    try:
        yield shown
    finally:
        context.close()
    assert problems == []
    assert {url for url in requests if not url.startswith("data:image/")} == {path.as_uri()}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="session")
def usual(folder):
    return write_page(fake_content.make_content(), folder / "usual.html")


def click_point(shown, item):
    canvas = shown.locator(".stage canvas").first
    canvas.scroll_into_view_if_needed()
    canvas.click(position=canvas.evaluate("(canvas, item) => canvas.whereIs(item)", item))


def wait_for_change(canvas, before, patience=100):
    """Return whether the canvas changes within some frames."""
    for _ in range(patience):
        if canvas.screenshot() != before:
            return True
        canvas.evaluate("() => new Promise(requestAnimationFrame)")
    return False


def find_isolated(content):
    """Return points that no other point covers, so that a click cannot hit another."""
    at = list(zip(content["spaces"][0]["map"]["x"], content["spaces"][0]["map"]["y"], strict=True))
    return [
        item
        for item, (x, y) in enumerate(at)
        if all((x - a) ** 2 + (y - b) ** 2 > 0.03**2 for other, (a, b) in enumerate(at) if other != item)
    ]
