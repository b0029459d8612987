"""The notebooks of the documentation run from top to bottom, each as one user of the library would work."""

import json
import re
from pathlib import Path

import pytest
from tools.notebook_pages import on_page_markdown, render_notebook
from tools.notebooks import FOLDER, run_notebook

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:.*cannot be compared statistically.*")
def test_notebook_runs(path, tmp_path, own_names):
    before = json.loads(path.read_text())
    after = run_notebook(path, tmp_path)
    cells = [cell for cell in after["cells"] if cell["cell_type"] == "code"]
    assert [cell["source"] for cell in after["cells"]] == [cell["source"] for cell in before["cells"]]
    assert sum(bool(cell["outputs"]) for cell in cells) > len(cells) / 2


def test_there_is_a_notebook_for_every_user():
    assert {path.stem for path in NOTEBOOKS} == {"new-loss", "better-space", "your-training-loop", "read-a-space"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_stores_outputs_and_no_paths_of_a_machine(path):
    text = path.read_text()
    assert not re.search(r"/(tmp|home|root|Users|work|usr)/", text)
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            assert cell["execution_count"], "python -m tools.notebooks stores the outputs"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_notebook_is_linked(page):
    text = (ROOT / page).read_text()
    for path in NOTEBOOKS:
        assert f"notebooks/{path.name})" in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_somewhere(path):
    cells = json.loads(path.read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", text):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_page_of_a_notebook_has_its_cells_and_outputs_in_their_order(path):
    page, start = render_notebook(path), 0
    for cell in json.loads(path.read_text())["cells"]:
        outputs = [output.get("text") or output["data"]["text/plain"] for output in cell.get("outputs", [])]
        for text in (cell["source"], *outputs):
            start = page.index("".join(text).rstrip(), start)
    assert f'<a href="../{path.name}" download>' in page[start:]


def test_an_output_that_a_page_cannot_show_is_an_error(tmp_path):
    output = {"output_type": "display_data", "data": {"image/png": ""}}
    cell = {"cell_type": "code", "source": ["1"], "outputs": [output]}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell]}))
    with pytest.raises(ValueError, match=r"a\.ipynb has an output that is not text: display_data"):
        render_notebook(tmp_path / "a.ipynb")


def test_links_to_notebooks_lead_to_their_pages():
    assert on_page_markdown("[a](notebooks/new-loss.ipynb), [b](a.md)") == "[a](notebooks/new-loss.md), [b](a.md)"
