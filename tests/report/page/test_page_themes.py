"""The page of a report in the dark, on paper and on a narrow screen."""

import io

import pytest
from PIL import Image

from kinfold.report.page import write_page
from tests.report import fake_content
from tests.report.browser_pages import HOSTILE, open_page, wait_for_change


def test_dark_follows_the_system_and_the_switch(browser, usual):
    paper = "getComputedStyle(document.body).backgroundColor"
    with open_page(browser, usual, color_scheme="dark") as shown:
        dark = shown.evaluate(paper)
        map_dark = shown.locator(".stage canvas").first.screenshot()
        shown.locator("button.theme").click()
        light = shown.evaluate(paper)
        assert light != dark
        assert wait_for_change(shown.locator(".stage canvas").first, map_dark)
        shown.reload()
        shown.wait_for_selector("html[data-ready]")
        assert shown.evaluate(paper) == light  # the choice is kept
    with open_page(browser, usual, color_scheme="light") as shown:
        assert shown.evaluate(paper) == light
        shown.emulate_media(color_scheme="dark")
        shown.wait_for_function(f"dark => {paper} === dark", arg=dark)
        shown.emulate_media(media="print", color_scheme="dark")
        assert shown.evaluate(paper) == light  # paper is white


def test_on_paper_nothing_is_cut_off_and_controls_are_gone(browser, usual):
    with open_page(browser, usual, width=760, color_scheme="dark") as shown:
        shown.emulate_media(media="print", color_scheme="dark")
        assert shown.evaluate("document.documentElement.scrollWidth") <= 760
        for control in ("nav", ".tools", ".zoom", "button.theme"):
            assert not shown.locator(control).first.is_visible(), control


def test_a_table_that_goes_on_to_the_right_says_so_until_its_end(browser, usual):
    """Its right edge is darker than the paper while there is more."""
    with open_page(browser, usual, width=500) as shown:
        table = shown.locator(".across").first
        assert table.evaluate("one => one.scrollWidth > one.clientWidth")
        more = edge_of(table)
        table.evaluate("one => one.scrollLeft = one.scrollWidth")
        assert more < edge_of(table) - 30


def edge_of(table):
    """The brightness at the lower right corner, below all text."""
    picture = Image.open(io.BytesIO(table.screenshot())).convert("L")
    return picture.getpixel((picture.width - 2, picture.height - 4))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(browser, usual, theme):
    """WCAG: 4.5 for text, 3 for lines of figures."""
    with open_page(browser, usual, color_scheme=theme) as shown:
        read = "name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
        papers = [shown.evaluate(read, name) for name in ("--paper", "--raised")]
        for name, least in [("ink", 7), ("soft", 4.5), ("right", 4.5), ("accent", 4.5), ("wrong", 3)]:
            for paper in papers:
                assert contrast(shown.evaluate(read, f"--{name}"), paper) >= least, name
        for number in range(8):
            assert contrast(shown.evaluate(read, f"--s{number}"), papers[0]) >= 3, number


def contrast(one, two):
    def brightness(color):
        parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((brightness(one), brightness(two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("classes", [12, HOSTILE])
def test_a_narrow_screen_never_scrolls_sideways(browser, folder, classes):
    content = fake_content.make_content(classes=classes)
    content["missing"] = ["w" * 150]
    path = write_page(content, folder / "narrow.html")
    with open_page(browser, path, width=400, height=800, has_touch=True, is_mobile=True) as shown:
        for button in shown.locator("#results button.open").all()[:2]:
            button.click()
        shown.locator("#results summary").click()
        canvas = shown.locator(".stage canvas").first
        canvas.scroll_into_view_if_needed()
        canvas.tap(position=canvas.evaluate("canvas => canvas.whereIs(3)"))
        assert shown.locator(".panel .tile.query").count() == 1
        assert shown.evaluate("document.documentElement.scrollWidth") == 400
        beyond = shown.evaluate(
            """() => [...document.querySelectorAll('body *')]
            .filter(one => !one.closest('.across, pre, .unseen, .skip, .below'))
            .filter(one => one.getBoundingClientRect().right > 401)
            .map(one => `${one.tagName}.${one.className}`)"""
        )
        assert beyond == []
