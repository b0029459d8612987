"""The map on the page of a report, in a real browser: hover, click, search, zoom."""

import re

import pytest

from kinfold.report.page import write_page
from tests.report import fake_content
from tests.report.browser_pages import click_point, find_isolated, open_page, wait_for_change


def test_hovering_shows_the_image_and_the_class(browser, usual):
    content = fake_content.make_content()
    space = content["spaces"][0]
    with open_page(browser, usual) as shown:
        item = find_isolated(content)[0]
        canvas = shown.locator(".stage canvas").first
        canvas.scroll_into_view_if_needed()
        canvas.hover(position=canvas.evaluate("(canvas, item) => canvas.whereIs(item)", item))
        tip = shown.locator(".stage .readout")
        assert tip.is_visible()
        assert tip.inner_text().strip() == space["classes"][space["labels"][item]]
        shown.wait_for_function(
            "() => { const c = document.querySelector('.stage .readout canvas');"
            " return c && c.getContext('2d').getImageData(24, 24, 1, 1).data[3] === 255; }"
        )
        shown.mouse.move(2, 2)
        assert tip.is_hidden()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("pictures", [None, 0])
def test_clicking_a_point_shows_its_neighbors(browser, folder, packed, pictures):
    content = fake_content.make_content()
    path = write_page(
        fake_content.make_content(packed=packed, pictures=pictures), folder / f"click-{packed}-{pictures}.html"
    )
    space = content["spaces"][0]
    candidates = find_isolated(content)
    mixed = [item for item in candidates if 0 < sum(_list_correct(space, item)) < 10]
    item = mixed[0]
    with open_page(browser, path) as shown:
        click_point(shown, item)
        panel = shown.locator(".panel")
        tiles = panel.locator(".tiles .tile")
        assert panel.locator(".what .class").inner_text() == space["classes"][space["labels"][item]]
        assert ["right" in tile.get_attribute("class").split() for tile in tiles.all()] == _list_correct(space, item)
        assert panel.locator("canvas").count() == (11 if pictures is None else 0)
        if pictures == 0:
            names = [tile.locator(".instead").inner_text() for tile in tiles.all()]
            assert names == [space["classes"][label] for label in space["neighbor_labels"][item]]
        # right and wrong differ without color too
        styles = {
            kind: panel.locator(f".tiles .tile.{kind}").first.evaluate("tile => getComputedStyle(tile).borderTopStyle")
            for kind in ("right", "wrong")
        }
        assert styles == {"right": "solid", "wrong": "dashed"}
        first = space["neighbors"][item][0]
        tiles.first.click()  # a neighbor is a query too
        assert ["right" in tile.get_attribute("class").split() for tile in tiles.all()] == _list_correct(space, first)
        shown.locator(".stage canvas").first.press("Escape")
        assert tiles.count() == 0


def _list_correct(space, item):
    return [label == space["labels"][item] for label in space["neighbor_labels"][item]]


def test_neighbors_that_are_not_on_the_map_are_shown_but_cannot_be_chosen(browser, folder):
    content = fake_content.make_content()
    space = content["spaces"][0]
    item = find_isolated(content)[0]
    space["neighbors"][item][2] = -1 - space["neighbor_labels"][item][2]
    with open_page(browser, write_page(content, folder / "beyond.html")) as shown:
        click_point(shown, item)
        tiles = shown.locator(".panel .tiles .tile")
        assert [tile.evaluate("tile => tile.tagName") for tile in tiles.all()].count("SPAN") == 1
        assert tiles.nth(2).evaluate("tile => tile.tagName") == "SPAN"


def test_classes_are_found_by_a_part_of_their_name(browser, folder):
    names = ["Sooty Albatross", "Laysan albatross", "Straße", "Wren"]
    content = fake_content.make_content(classes=names)
    labels = content["spaces"][0]["labels"]
    with open_page(browser, write_page(content, folder / "search.html")) as shown:
        box = shown.locator(".search input")
        before = shown.locator(".stage canvas").first.screenshot()
        box.fill("ALBATROSS")
        options = shown.locator(".matches [role=option]")
        assert options.locator("bdi").all_inner_texts() == names[:2]
        box.press("ArrowDown")
        box.press("ArrowDown")
        box.press("Enter")
        assert shown.locator(".matches").is_hidden()
        assert f"{names[1]} {labels.count(1)} items" in shown.locator(".panel").inner_text()
        assert wait_for_change(shown.locator(".stage canvas").first, before)
        box.fill("wre")
        box.press("Enter")
        assert names[3] in shown.locator(".panel").inner_text()
        box.fill("nothing of the kind")
        assert options.count() == 0
        assert "no class" in shown.locator(".matches").inner_text()
        shown.locator(".panel .tiles button.tile").first.click()  # without a pointer on the map, too
        assert shown.locator(".panel .tile.query").count() == 1


def test_the_map_zooms_by_wheel_keys_and_buttons_and_pans_by_drag(browser, usual):
    with open_page(browser, usual) as shown:
        canvas = shown.locator(".stage canvas").first
        canvas.scroll_into_view_if_needed()
        shown.wait_for_timeout(300)  # a page that is still scrolling keeps the wheel
        apart = (
            "canvas => Math.hypot(canvas.whereIs(0).x - canvas.whereIs(1).x, canvas.whereIs(0).y - canvas.whereIs(1).y)"
        )
        start = canvas.evaluate(apart)
        box = canvas.bounding_box()
        shown.mouse.move(box["x"] + 300, box["y"] + 300)
        top = shown.evaluate("scrollY")
        shown.mouse.wheel(0, -300)
        shown.wait_for_function(f"start => ({apart})(document.querySelector('.stage canvas')) > start * 1.2", arg=start)
        assert shown.evaluate("scrollY") == top
        before = canvas.evaluate("canvas => canvas.whereIs(0)")
        shown.mouse.down()
        shown.mouse.move(box["x"] + 340, box["y"] + 320, steps=4)
        shown.mouse.up()
        after = canvas.evaluate("canvas => canvas.whereIs(0)")
        assert (after["x"] - before["x"], after["y"] - before["y"]) == pytest.approx((40, 20), abs=1)
        assert shown.locator(".panel .tile").count() == 0  # a drag is no click
        canvas.press("0")
        assert canvas.evaluate(apart) == pytest.approx(start)
        canvas.press("+")
        assert canvas.evaluate(apart) == pytest.approx(1.5 * start)
        shown.get_by_role("button", name="show all").click()
        assert canvas.evaluate(apart) == pytest.approx(start)


def test_the_map_zooms_by_two_fingers_and_one_still_scrolls_the_page(browser, usual):
    with open_page(browser, usual, width=400, height=800, has_touch=True, is_mobile=True) as shown:
        canvas = shown.locator(".stage canvas").first
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        apart = "canvas => Math.abs(canvas.whereIs(0).x - canvas.whereIs(1).x)"
        start = canvas.evaluate(apart)
        assert canvas.evaluate("canvas => canvas.style.touchAction") == "pan-y"
        fingers = shown.context.new_cdp_session(shown)

        def touch(kind, reach=None):
            points = (
                []
                if reach is None
                else [{"x": middle[0] + side * reach, "y": middle[1], "id": side} for side in (0, 1)]
            )
            for point in points[:1]:
                point["x"] -= reach
            fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", 20)
        for reach in (25, 30, 35, 40):
            touch("touchMove", reach)
        touch("touchEnd")
        assert canvas.evaluate(apart) == pytest.approx(2 * start, rel=0.15)
        assert canvas.evaluate("canvas => canvas.style.touchAction") == "none"
        assert shown.locator(".panel .tile").count() == 0  # a pinch is no tap


def test_one_choice_of_a_space_holds_for_all_sections(browser, usual):
    with open_page(browser, usual) as shown:
        selects = shown.locator("label.choice", has_text=re.compile("^embedding space")).locator("select")
        assert selects.count() == 4
        selects.nth(2).select_option("1")
        assert [select.input_value() for select in selects.all()] == ["1"] * 4
        assert "multi-similarity, seed 0" in shown.locator("#map .lead").inner_text()


def test_a_confused_pair_is_shown_on_the_map(browser, usual):
    pair = fake_content.make_content()["spaces"][0]["confused"][0]
    with open_page(browser, usual) as shown:
        shown.locator("#queries button.pair").first.click()
        assert shown.locator(".panel p .class").all_inner_texts() == [pair["first"], pair["second"]]


def test_images_can_replace_dots(browser, usual):
    with open_page(browser, usual) as shown:
        canvas = shown.locator(".stage canvas").first
        canvas.scroll_into_view_if_needed()
        dots = canvas.screenshot()
        shown.get_by_label("images", exact=True).check()
        assert wait_for_change(canvas, dots)
