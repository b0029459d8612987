"""What stands at the axes, headings and lists of a page: units, whole steps, shares up to one, how many are alike."""

import re

from kinfold.report.page import write_page
from tests.report import fake_content
from tests.report.browser_pages import open_page


def ticks(figure):
    """(those of the x axis, those of the y axis), as numbers."""
    texts = figure.locator(".plot > svg text.tick:not(.name)").evaluate_all(
        "all => all.map(one => [one.getAttribute('text-anchor'), one.getAttribute('y'), one.textContent])"
    )
    lowest = max(float(y) for _, y, _ in texts)
    values = [(float(y) == lowest, float(text.replace("\N{MINUS SIGN}", "-"))) for _, y, text in texts]
    return [value for across, value in values if across], [value for across, value in values if not across]


def figure_named(shown, name):
    return shown.locator("figure", has=shown.locator(f"figcaption bdi:text-is('{name}')")).first


def training_chart(title, *series, scale="linear", limits=None, **changes):
    y = fake_content.make_axis(title, scale=scale, limits=limits)
    return fake_content.make_chart(title, fake_content.make_axis("step", integer=True), y, [*series], **changes)


def test_fractions_end_at_one_and_steps_are_integers(browser, folder):
    content = fake_content.make_content(points=30)
    line = fake_content.make_series
    content["charts"]["training"] = [
        training_chart("validation recall@1", line("a", [3, 4], [1.0, 1.0]), limits=[0, 1]),
        training_chart("validation map@r", line("a", [4], [0.97]), limits=[0, 1]),
        training_chart("validation ami", line("a", [0, 9], [-0.2, 0.1]), limits=[0, 1]),
    ]
    for chart in content["charts"]["diagnostics"]:
        for series in chart["series"]:
            series["y"] = [1.0]
    with open_page(browser, write_page(content, folder / "shares.html")) as shown:
        for name in ("validation recall@1", "validation map@r"):
            across, up = ticks(figure_named(shown, name))
            assert across
            assert all(value == round(value) for value in across), name
            assert max(up) <= 1, name
        assert min(ticks(figure_named(shown, "validation ami"))[1]) < 0  # a value below zero stays in view
        for name in ("recall@k", "ROC", "precision and recall"):
            assert max(ticks(figure_named(shown, name))[1]) <= 1
        scattered = shown.locator("#spectra figure", has=shown.locator("circle.method"))
        assert max(ticks(scattered)[1]) <= 1


def test_losses_of_different_size_are_all_seen(browser, folder):
    content = fake_content.make_content(points=30)
    steps, bands = [10, 20, 30, 40], ([0.7, 0.2, 0, 0.1], [0.9, 0.4, 0, 0.2])
    large = fake_content.make_series("large", steps, [11.0, 9.0, 7.0, 5.0], 0)
    small = fake_content.make_series("small", steps, [0.8, 0.3, 0, 0.1], 1, *bands)
    content["charts"]["training"] = [training_chart("loss", large, small, scale="log", note="log scale")]
    with open_page(browser, write_page(content, folder / "losses.html")) as shown:
        figure = figure_named(shown, "loss")
        assert "log scale" in figure.locator("figcaption").inner_text()
        path = figure.locator(".plot > svg path.line").nth(1).get_attribute("d")
        heights = [float(height) for height in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
        assert max(heights) - min(heights) > 60  # of 250 pixels
        assert path.count("M") == 2  # zero is a gap
        assert "NaN" not in figure.locator(".plot > svg").inner_html()


def test_the_sorted_column_is_marked(browser, folder):
    content = fake_content.make_content(points=30)
    content["tables"][0]["sorted"] = "recall@1"
    with open_page(browser, write_page(content, folder / "sorted.html")) as shown:
        heads = shown.locator("#results table.data").first.locator("th[aria-sort]")
        assert [(head.inner_text().strip(), head.get_attribute("aria-sort")) for head in heads.all()] == [
            ("recall@1, %", "descending")
        ]


def test_references_do_not_count_as_repeats(browser, folder):
    content = fake_content.make_content(points=30)
    table = content["tables"][0]
    cells = {key: {**cell, "half_width": None, "count": 1} for key, cell in table["rows"][0]["cells"].items()}
    beside = {"method": "pixels", "cells": cells, "command": "", "configuration": "", "quoted": None, "reference": True}
    table["rows"].append(beside)
    with open_page(browser, write_page(content, folder / "reference.html")) as shown:
        assert "means over 3 repeats" in shown.locator("#results .notes").inner_text()
        assert "n = " not in shown.locator("#results table.data").first.inner_text()
        assert "pixels" in shown.locator("#results table.data").first.inner_text()


def test_comparisons_have_a_unit_and_every_p_as_many_digits(browser, usual):
    with open_page(browser, usual) as shown:
        shown.locator("#results details.comparisons summary").click()
        table = shown.locator("#results details.comparisons table")
        heads = [head.strip() for head in table.locator("thead th").all_inner_texts()]
        assert "first minus second, percentage points" in heads
        for row in table.locator("tbody tr").all():
            cells = row.locator("th, td").all_inner_texts()
            for title in ("p", "p, corrected"):
                assert re.fullmatch(r"\d\.\d{3}|< 0\.001", cells[heads.index(title)].strip())


def test_ties_are_counted(browser, folder):
    content = fake_content.make_content(points=30)
    space = content["spaces"][0]
    for one in space["best"]:
        one["value"] = 1.0
    space["ties"] = {"best": 1608, "worst": 1}
    with open_page(browser, write_page(content, folder / "alike.html")) as shown:
        text = shown.locator("#queries").inner_text()
        assert (
            "1,608 queries share the average precision 1.00, and 8 of them are shown: those with more positives" in text
        )
        assert text.count("share the average precision") == 1


def test_counts_of_confused_classes_say_what_they_count(browser, usual):
    pair = fake_content.make_content()["spaces"][0]["confused"][0]
    with open_page(browser, usual) as shown:
        text = shown.locator("#queries .pair .number").first.inner_text()
    assert text == f"{pair['count']} queries, {100 * pair['share']:.0f} % of both"
