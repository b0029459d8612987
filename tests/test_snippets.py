"""Every Python snippet of the README and the documentation runs, file by file, top to bottom."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kinfold

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPET = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_run(page, tmp_path, monkeypatch, own_names):
    snippets = SNIPPET.findall(page.read_text())
    monkeypatch.chdir(tmp_path)
    page_as_module = ModuleType("snippet")  # what a snippet registers is found there by its name
    monkeypatch.setitem(sys.modules, "snippet", page_as_module)
    for number, snippet in enumerate(snippets, start=1):
        exec(compile(snippet, f"{page.name}, snippet {number}", "exec"), vars(page_as_module))


@pytest.mark.slow
def test_snippets_pass_strict_mypy_as_users_run_it(tmp_path):
    for page in PAGES:
        name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
        (tmp_path / f"{name}.py").write_text(_blank_out_prose(page.read_text()))
    # libraries without types are allowed: scikit-learn, pyarrow and onnxruntime have none
    options = ["--strict", "--disable-error-code=import-untyped", "--cache-dir=cache", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, "."]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def _blank_out_prose(text):
    """Leave the snippets of a page at their lines, so that errors have the line numbers of the page."""
    lines = [""] * len(text.splitlines())
    for snippet in SNIPPET.finditer(text):
        first = text.count("\n", 0, snippet.start(1))
        for number, line in enumerate(snippet[1].splitlines(), start=first):
            lines[number] = line
    return "\n".join(lines) + "\n"


def test_every_local_link_leads_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_loss_has_a_page_with_its_measured_cost():
    headings = ["Definition", "Options", "When to use it", "Relatives", "Cost", "Example", "Paper", "Reference"]
    overview = (ROOT / "docs" / "losses" / "index.md").read_text()
    for name in kinfold.list("losses"):
        if name.startswith("dro-"):  # they share one
            assert f"`{name}`" in (ROOT / "docs" / "dro.md").read_text()
            continue
        page = (ROOT / "docs" / "losses" / f"{name}.md").read_text()
        assert re.findall(r"^## (.*)$", page, flags=re.MULTILINE) == headings
        assert f"]({name}.md)" in overview
        assert f"::: kinfold.losses.{name.replace('-', '_')}\n" in page
        cost = re.search(r"<!-- cost -->(.*)<!-- /cost -->", page, flags=re.DOTALL)
        assert cost
        assert f"| {name} |" in cost[1], f"python -m benchmarks.docs fills the cost of {name}"


def test_every_metric_is_defined_in_the_documentation():
    page = (ROOT / "docs" / "evaluation.md").read_text()
    for name in kinfold.list("metrics"):
        assert f"`{name}`" in page, name
    assert "| float32 product alone (the floor) |" in page, "python -m benchmarks.docs fills the cost"
