"""Reference scores beside those of runs."""

import shutil

import pytest

from kinfold.report import collect_content


@pytest.mark.parametrize("text", ["", "[]", '{"data": "rows"}', '{"data": "rows", "rows": {"a": [{"recall@1": "x"}]}}'])
def test_references_that_cannot_be_read_are_left_out(finished, tmp_path, text):
    shutil.copytree(finished.folder, tmp_path / "run")
    (tmp_path / "run" / "references.json").write_text(text)
    assert [row["method"] for row in collect_content(tmp_path / "run")["tables"][0]["rows"]] == ["margin"]
