"""What names and pictures do to the page of a report (nothing), and what it loads (nothing)."""

import json
import socket

import pytest

from kinfold.report.page import write_page
from kinfold.report.page.html import ASSETS, AUDIT_SCRIPTS, SCRIPTS, embed_json
from tests.report import fake_content
from tests.report.browser_pages import HOSTILE, click_point, open_page


def hostile_content():
    content = fake_content.make_content(classes=HOSTILE)
    content |= {"title": HOSTILE[0], "missing": list(HOSTILE), "inflated": True}
    content["about"] |= {"folder": HOSTILE[1], "data": HOSTILE[:4], "protocol": HOSTILE[2]}
    table = content["tables"][0]
    table |= {"caption": HOSTILE[1], "notes": list(HOSTILE)}
    for one, name in zip(table["rows"], HOSTILE, strict=False):
        one |= {"method": name, "command": f"kinfold train {name}", "configuration": name * 2, "quoted": name}
        one["cells"]["recall@1"]["note"] = name
    table["columns"][0]["title"] = HOSTILE[0]
    for comparison, name in zip(table["comparisons"], HOSTILE, strict=False):
        comparison |= {"first": name, "second": name}
    charts = content["charts"]
    for figure in charts["training"]:
        figure |= {"title": HOSTILE[1], "x": fake_content.make_axis(HOSTILE[0])}
    for section in ("training", "diagnostics"):
        series = [one for chart in charts[section] for one in chart["series"]]
        for one, name in zip(series, HOSTILE, strict=False):
            one["name"] = name
    for named, key in [(content["spaces"], "name"), (charts["weights"], "title")]:
        for one, name in zip(named, HOSTILE, strict=False):
            one[key] = name
    space = content["spaces"][0]
    labels = {"x": fake_content.make_axis(HOSTILE[1], scale="log"), "y": fake_content.make_axis(HOSTILE[2])}
    charts["curves"][0] |= {"title": HOSTILE[0], "subject": HOSTILE[3], "note": HOSTILE[4], **labels}
    for query in space["worst"]:
        query["query"]["text"] = HOSTILE[1]
    return content


def test_hostile_names_are_shown_as_text_everywhere(browser, folder):
    with open_page(browser, write_page(hostile_content(), folder / "hostile.html")) as shown:
        shown.locator("#results summary").click()
        for button in shown.locator("#results button.open").all():
            button.click()
        click_point(shown, 0)
        shown.locator(".search input").fill("a")
        assert shown.locator("script").count() == 3  # theme, content, script: no name became one
        assert shown.locator("img, b, iframe, [onerror]").count() == 0
        assert shown.locator("h1").inner_text() == HOSTILE[0]
        assert shown.title() == HOSTILE[0]
        text = shown.locator("body").inner_text()
        for name in HOSTILE[:6]:
            assert name in text
        assert (
            shown.locator("bdi", has_text=HOSTILE[4]).first.evaluate("one => getComputedStyle(one).unicodeBidi")
            == "isolate"
        )


def test_images_come_from_inside_the_file_only(browser, folder):
    content = fake_content.make_content()
    content["thumbnails"]["sheets"] = ["http://127.0.0.1:9/sheet.png"]
    with open_page(browser, write_page(content, folder / "outside.html")) as shown:
        click_point(shown, 0)
        shown.wait_for_selector(".panel canvas.broken")


def test_the_policy_stops_what_would_slip_in(browser, usual):
    """Were markup from data ever to reach the page, it could neither run nor send anything: nobody calls the server."""
    context = browser.new_context()
    shown = context.new_page()
    shown.goto(usual.as_uri())
    shown.wait_for_selector("html[data-ready]")
    with socket.create_server(("127.0.0.1", 0)) as server:
        stopped = shown.evaluate(
            """async (port) => {
                const stopped = [];
                document.addEventListener('securitypolicyviolation', event => stopped.push(event.effectiveDirective));
                const script = document.createElement('script');
                script.textContent = 'window.slipped = true';
                const box = document.createElement('div');
                box.innerHTML = `<img src="http://127.0.0.1:${port}/x.png" onerror="window.slipped = true">`;
                document.body.append(script, box);
                await fetch(`http://127.0.0.1:${port}/`).catch(() => null);
                await new Promise(resolve => setTimeout(resolve, 100));
                return [...stopped, String(window.slipped)];
            }""",
            server.getsockname()[1],
        )
        context.close()
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert set(stopped) == {"script-src-elem", "script-src-attr", "img-src", "connect-src", "undefined"}


def test_embedded_json_gives_the_same_values_back_and_closes_no_element():
    value = {name: [name, 1.5, None] for name in [*HOSTILE, "\udcff"]}
    text = embed_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value
    assert json.loads(embed_json([float("nan"), float("-inf"), {"x": (float("inf"), 2.0)}])) == [
        None,
        None,
        {"x": [None, 2.0]},
    ]


def test_scripts_never_make_markup_or_ask_the_network():
    for name in {*SCRIPTS, *AUDIT_SCRIPTS, "theme"}:
        text = (ASSETS / f"{name}.js").read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "fetch(",
            "XMLHttp",
            "</script",
        ):
            assert word not in text, (name, word)
