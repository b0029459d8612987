"""The page of a report in a real browser: what it shows, and what it says of what is not there."""

import copy
import re

import pytest

from kinfold.report.page import write_page
from kinfold.report.page.html import render_page
from tests.report import fake_content
from tests.report.browser_pages import click_point, open_page

NONE = "\N{EN DASH}"


def column(shown, title):
    """The cells below a heading of the first table, top to bottom."""
    heads = [head.strip() for head in shown.locator("#results table.data").first.locator("thead th").all_inner_texts()]
    rows = shown.locator("#results table.data").first.locator("tbody tr:first-child")
    return [row.locator("th, td").nth(heads.index(title)).inner_text().strip() for row in rows.all()]


def test_the_file_is_whole_and_says_where_it_may_load_from(tmp_path):
    path = write_page(fake_content.make_content(points=30), tmp_path / "report.html")
    assert path == tmp_path / "report.html"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    text = path.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "{{" not in text


@pytest.mark.parametrize("name", ["report.txt", "report"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"an \.html file"):
        write_page(fake_content.make_empty(), tmp_path / name)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        write_page(fake_content.make_empty(), tmp_path / "nowhere" / "report.html")


def test_a_page_opens_with_all_its_sections(browser, usual):
    with open_page(browser, usual) as shown:
        assert shown.title() == "glyphs"
        titles = ["Results", "Training", "Map", "Queries", "Curves", "Spectra", "Calibration", "Pair weights"]
        assert shown.locator("main h2").all_inner_texts() == titles
        assert shown.locator("nav a").all_inner_texts() == titles
        for curve in (
            "loss",
            "validation recall@1",
            "ROC",
            "precision and recall",
            "recall@k",
            "similarities",
            "singular values of the embedding space",
        ):
            figure = shown.locator("figure", has=shown.locator(f"figcaption bdi:text-is('{curve}')")).first
            assert figure.locator(".plot > svg path.line").count() >= 2, curve
        assert shown.locator("#training path.band").count() == 10
        assert shown.locator("#weights figure").count() == 5
        assert shown.locator("#calibration circle.dot").count() == 1  # the chosen point
        assert "at least this similarity" in shown.locator("#calibration li").first.inner_text()
        assert shown.locator(".absent").count() == 1  # the panel of the map, before anything is chosen


def test_cells_say_mean_half_width_and_what_was_published(browser, folder):
    content = fake_content.make_content(points=30)
    cell = content["tables"][0]["rows"][0]["cells"]["recall@1"]
    cell |= {"mean": 0.8614, "half_width": 0.0123, "published": 87.2, "printed": "87.20"}
    content["tables"][0]["rows"][2]["cells"]["recall@1"] |= {"published": 87.25}
    content["tables"][0]["rows"][1]["cells"]["recall@1"] |= {
        "mean": None,
        "note": "all seeds failed",
        "published": None,
    }
    with open_page(browser, write_page(content, folder / "cells.html")) as shown:
        cells = column(shown, "recall@1, %")
        assert cells[0] == "86.1 ± 1.2"
        assert cells[1].startswith(NONE)
        assert column(shown, "published")[:3] == ["87.20", "", "87.3"]
        assert shown.locator("#results td strong").all_inner_texts()[0] == "86.1"
        assert shown.locator("#results table.data").first.locator("td strong").count() == 1
        assert "1 all seeds failed" in shown.locator("#results .notes").inner_text()


def test_every_column_sorts_both_ways_and_what_is_missing_stays_last(browser, usual):
    with open_page(browser, usual) as shown:
        heads = shown.locator("#results table.data").first.locator("thead th")
        before = column(shown, "method")
        for item in range(heads.count()):
            heads.nth(item).locator("button").click()
            first = heads.nth(item).get_attribute("aria-sort")
            one = column(shown, "method")
            heads.nth(item).locator("button").press("Enter")
            assert {first, heads.nth(item).get_attribute("aria-sort")} == {"ascending", "descending"}
            assert shown.locator("#results table.data").first.locator("th[aria-sort]").count() == 1
            other = column(shown, "method")
            assert sorted(one) == sorted(other) == sorted(before)
            assert one != other
        heads.nth(1).locator("button").click()
        values = [text.split(" ")[0] for text in column(shown, "recall@1, %")]
        assert values[-1] == NONE  # the quoted row
        assert [float(value) for value in values[:-1]] == sorted((float(value) for value in values[:-1]), reverse=True)
        heads.nth(1).locator("button").click()
        assert column(shown, "recall@1, %")[-1] == NONE


def test_a_row_opens_to_its_command_and_configuration(browser, usual):
    expected = fake_content.make_content()["tables"][0]["rows"][1]
    with open_page(browser, usual, permissions=["clipboard-read", "clipboard-write"]) as shown:
        button = shown.locator("#results button.open").nth(1)
        assert shown.locator("#results pre").count() == 0
        button.focus()
        button.press("Enter")
        assert button.get_attribute("aria-expanded") == "true"
        assert shown.locator("#results pre").all_inner_texts() == [expected["command"], expected["configuration"]]
        shown.locator("#results button.copy").first.click()
        shown.wait_for_selector("button.copy:text-is('copied')")
        assert shown.evaluate("navigator.clipboard.readText()") == expected["command"]
        button.press("Enter")
        assert not shown.locator("#results pre").first.is_visible()
        assert shown.locator("#results button.open").count() == 5  # the quoted row has nothing to rerun


def test_charts_read_out_values_and_legends_toggle(browser, usual):
    series = fake_content.make_content()["charts"]["training"][0]["series"]
    with open_page(browser, usual) as shown:
        figure = shown.locator("#training figure").first
        figure.scroll_into_view_if_needed()
        box = figure.locator(".plot > svg").bounding_box()
        shown.mouse.move(box["x"] + box["width"] - 14, box["y"] + 60)
        readout = figure.locator(".readout")
        assert "step 3,950" in readout.inner_text()
        assert all(one["name"] in readout.inner_text() for one in series)
        lines = figure.locator(".plot > svg path.line").count()
        figure.locator("button.key").first.click()
        assert figure.locator("button.key").first.get_attribute("aria-pressed") == "false"
        assert figure.locator(".plot > svg path.line").count() == lines - 1
        figure.locator(".plot > svg").focus()
        shown.keyboard.press("Escape")
        assert readout.is_hidden()
        shown.keyboard.press("ArrowRight")
        assert readout.is_visible()
        assert series[0]["name"] + "\t" not in readout.inner_text()


def test_sections_without_data_say_so(browser, folder):
    with open_page(browser, write_page(fake_content.make_empty(), folder / "empty.html")) as shown:
        for section in ("results", "training", "map", "queries", "curves", "spectra", "calibration", "weights"):
            assert shown.locator(f"#{section} .absent").count() >= 1, section
        assert "interrupted before its first evaluation" in shown.locator("header .notice").inner_text()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", [*fake_content.make_empty()])
def test_a_content_without_one_part_still_opens(browser, folder, key):
    content = {name: value for name, value in fake_content.make_content(points=30).items() if name != key}
    with open_page(browser, write_page(content, folder / "part.html")) as shown:
        assert shown.locator("main section").count() == 8
        assert "could not be drawn" not in shown.locator("main").inner_text()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "key",
    ["map", "neighbors", "thumbnails", "best", "worst", "confused", "curves", "histogram", "spectra", "diagnostics"],
)
def test_a_space_without_one_part_still_opens(browser, folder, key):
    content = fake_content.make_content(points=30)
    charts = content["charts"]
    if key == "histogram":
        charts["curves"] = [chart for chart in charts["curves"] if chart["kind"] != "histogram"]
    elif key == "curves":
        charts["curves"] = [chart for chart in charts["curves"] if chart["kind"] == "histogram"]
    elif key in charts:
        charts[key] = []
    for space in content["spaces"]:
        if key in space:
            space[key] = [] if key in ("best", "worst", "confused") else None
        if key == "neighbors":
            space |= dict.fromkeys(("neighbor_labels", "neighbor_scores", "neighbor_thumbnails"))
    with open_page(browser, write_page(content, folder / "less.html")) as shown:
        assert "could not be drawn" not in shown.locator("main").inner_text()
        if key != "map":
            click_point(shown, 0)
            assert shown.locator(".panel .tile.query").count() == 1


def test_inflated_numbers_are_announced(browser, folder):
    content = fake_content.make_content(points=30)
    with open_page(browser, write_page(content, folder / "honest.html")) as shown:
        assert shown.locator("header .notice").count() == 0
    content |= {"inflated": True, "missing": ["inflated: chosen by the test classes"]}
    with open_page(browser, write_page(content, folder / "inflated.html")) as shown:
        assert "Inflated" in shown.locator("header .notice.strong").inner_text()
        assert shown.locator("header .notice").count() == 1


def test_one_seed_and_losses_that_were_no_numbers(browser, folder):
    content = fake_content.make_content(points=30, seeds=1)
    line = content["charts"]["training"][0]["series"][0]
    line["y"][20:40] = [float("nan")] * 20
    with open_page(browser, write_page(content, folder / "nan.html")) as shown:
        figure = shown.locator("#training figure").first
        assert figure.locator(".plot > svg path.line").first.get_attribute("d").count("M") == 2  # a gap, not a bridge
        assert shown.locator("#training path.band").count() == 0
        assert "±" not in shown.locator("#results table.data").first.inner_text()
        assert "one repeat each" in shown.locator("#results .notes").inner_text()


def test_many_methods_stay_readable(browser, folder):
    content = fake_content.make_content(points=30, methods=30)
    with open_page(browser, write_page(content, folder / "many.html")) as shown:
        figure = shown.locator("#training figure").first
        assert figure.locator("button.key").count() == 30
        assert figure.locator(".plot > svg path.line").count() == 8
        figure.get_by_role("button", name="all", exact=True).click()
        assert figure.locator(".plot > svg path.line").count() == 30
        looks = (
            shown.locator("#training figure")
            .first.locator("button.key path.line")
            .evaluate_all("all => all.map(one => one.getAttribute('class') + one.getAttribute('stroke-dasharray'))")
        )
        assert len(set(looks)) == 30


def test_two_writings_are_the_same_and_leave_the_content_alone():
    content = fake_content.make_content(points=30)
    before = copy.deepcopy(content)
    assert render_page(content) == render_page(content)
    assert content == before


@pytest.mark.slow
def test_ten_thousand_points_and_five_thousand_pictures_are_one_file_of_a_few_megabytes(browser, folder):
    content = fake_content.make_content(points=10_000, classes=200, pictures=5_000, spaces=1, packed=True)
    path = write_page(content, folder / "large.html")
    assert path.stat().st_size < 15e6
    with open_page(browser, path) as shown:
        click_point(shown, 77)
        assert shown.locator(".panel .tile.query").count() == 1


DRAWN = """all => {
    const blank = Object.assign(document.createElement("canvas"), {width: 48, height: 48}).toDataURL();
    return all.map(one => one.toDataURL() !== blank);
}"""


def test_pictures_are_drawn_when_they_come_near_the_view_and_all_of_them_for_print(browser, usual):
    with open_page(browser, usual, height=400) as shown:
        queries = shown.locator("#queries canvas.picture")
        assert not any(queries.evaluate_all(DRAWN))
        queries.first.scroll_into_view_if_needed()
        shown.wait_for_function(f"() => ({DRAWN})([document.querySelector('#queries canvas.picture')])[0]")
        assert not all(queries.evaluate_all(DRAWN))
        shown.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        shown.wait_for_function(
            f"() => ({DRAWN})([...document.querySelectorAll('#queries canvas.picture')]).every(Boolean)"
        )
