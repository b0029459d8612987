"""A page in a real browser, and ways to reach what is on it."""

import shutil
from contextlib import contextmanager

import pytest

from kinfold.report.page import write_page

from . import fake_content

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
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("pages are tested in chromium, which is not on the path")
    with playwright.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=found, headless=True, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def open_page(browser, path, width=1200, height=900, **options):
    """The page, ready; afterwards nothing may have gone wrong and nothing may have been asked of the network."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    shown = context.new_page()
    wrong, requests = [], []
    shown.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    shown.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
    context.on("request", lambda request: requests.append(request.url))
    shown.goto(path.as_uri())
    shown.wait_for_selector("html[data-ready]")
    try:
        yield shown
    finally:
        context.close()
    assert wrong == []
    assert {url for url in requests if not url.startswith("data:image/")} == {path.as_uri()}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="session")
def usual(folder):
    return write_page(fake_content.make_content(), folder / "usual.html")


def click_point(shown, place):
    canvas = shown.locator(".stage canvas").first
    canvas.scroll_into_view_if_needed()
    canvas.click(position=canvas.evaluate("(canvas, place) => canvas.whereIs(place)", place))


def changed(canvas, before, patience=100):
    """Whether what is painted becomes another picture within some frames."""
    for _ in range(patience):
        if canvas.screenshot() != before:
            return True
        canvas.evaluate("() => new Promise(requestAnimationFrame)")
    return False


def alone(content):
    """Places of points that no other point hides, so that a click cannot mean another."""
    at = list(zip(content["spaces"][0]["map"]["x"], content["spaces"][0]["map"]["y"], strict=True))
    return [
        place
        for place, (x, y) in enumerate(at)
        if all((x - a) ** 2 + (y - b) ** 2 > 0.03**2 for other, (a, b) in enumerate(at) if other != place)
    ]
