"""CITATION.cff, CHANGELOG.md and THIRD_PARTY.md agree with the package."""

import re
import tomllib

import pytest
import yaml

import kinfold
from tests.packaging.absent import PROJECT, ROOT

TABLES = ROOT / "src" / "kinfold" / "papers" / "tables"


@pytest.fixture
def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_newest_release_of_the_changelog_is_the_version_of_the_package():
    released = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert released[0] == kinfold.__version__
    assert len(released) == len({*released})


def test_version_and_license_are_those_of_the_package(citation):
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert citation["version"] == kinfold.__version__
    assert citation["license"] == PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in PROJECT["authors"]]


def test_every_paper_with_tables_is_a_reference(citation):
    papers = {tomllib.loads(file.read_text())["table"]["paper"] for file in TABLES.glob("*/*.toml")}
    assert len(papers) > 3
    for reference in citation["references"]:
        first, title = reference["authors"][0]["family-names"], reference["title"]
        matching = {line for line in papers if line.startswith(f"{first} et al., {title} (")}
        assert any(str(reference["year"]) in line for line in matching)
        papers -= matching
    assert not papers


def test_references_have_what_the_format_requires(citation):
    for reference in citation["references"]:
        assert reference["type"] == "conference-paper"
        assert all({*author} == {"family-names", "given-names"} for author in reference["authors"])


def test_every_figure_of_the_documentation_is_accounted_for():
    notices = (ROOT / "THIRD_PARTY.md").read_text()
    figures = [path for path in (ROOT / "docs").rglob("*") if path.suffix in (".png", ".svg", ".jpg")]
    assert figures
    for path in figures:
        assert str(path.relative_to(ROOT)) in notices, f"say in THIRD_PARTY.md where {path.name} comes from"
