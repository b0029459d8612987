"""The page of an audit shows findings with their pictures, and its CSV text follows the choices of the reader."""

import csv
import io

import numpy as np
import pytest

from kinfold.audit import audit
from kinfold.data import Rows, create_dataset
from kinfold.report.audit_page import collect_findings, write_audit_page
from tests.report.browser_pages import HOSTILE, open_page


@pytest.fixture(scope="module")
def pictures():
    """Gray pictures with two copies, one of them in another class."""
    source = np.random.default_rng(0)
    images = source.integers(0, 255, (40, 24, 24), dtype=np.uint8)
    images[7], images[31] = images[3], images[12]
    names = [*HOSTILE[:3], "plain"]
    return create_dataset("pictures", Rows(images), [names[i // 10] for i in range(40)], ["train"] * 40)


def test_findings_have_the_pictures_of_both_items(pictures):
    result = audit(pictures)
    content = collect_findings(result, pictures)
    assert content["thumbnails"]["count"] == 4
    shown = {(f["kind"], f["item"]["row"], f["other"]["row"]) for f in content["findings"]}
    assert shown == {("duplicate", 7, 3), ("duplicate-across-classes", 12, 31), ("duplicate-across-classes", 31, 12)}
    assert len({f["item"]["thumbnail"] for f in content["findings"]}) == 3
    few = collect_findings(result, pictures, most=1)
    assert len(few["findings"]) == 1
    assert len(few["csv"]) == 3
    assert any("1 of 3 findings" in sentence for sentence in few["missing"])


def test_features_are_shown_by_row_and_class(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    rows[4] = rows[3]
    dataset = create_dataset("rows", Rows(rows), np.arange(30) // 10, ["train"] * 30)
    content = collect_findings(audit(dataset), dataset)
    assert content["thumbnails"] is None
    assert "features, not images" in content["missing"][0]
    with pytest.raises(ValueError, match="the audit is of 30 items"):
        write_audit_page(audit(dataset), dataset.where(np.arange(30) < 10), tmp_path / "page.html")


def test_the_csv_text_follows_the_ticks(browser, folder, pictures):
    result = audit(pictures)
    result.to_csv(folder / "audit.csv")
    page = write_audit_page(result, pictures, folder / "audit.html")
    with open_page(browser, page) as shown:
        assert shown.locator(".finding canvas.picture").count() == 6
        area = shown.locator("textarea.csv")
        assert area.input_value() == (folder / "audit.csv").read_text()  # character for character
        assert "3 items will be left out" in shown.locator("#csv").inner_text()
        shown.locator("#duplicate input").uncheck()
        assert "2 items will be left out" in shown.locator("#csv").inner_text()
        shown.locator("#csv button").click()
        rows = [*csv.DictReader(io.StringIO(area.input_value()))]
        assert {row["row"]: row["drop"] for row in rows} == {"7": "no", "12": "yes", "31": "yes"}
