"""CITATION.cff and THIRD_PARTY.md say what the package says."""

import tomllib

import pytest
import yaml

import kinfold
from tests.packaging.absent import PROJECT, ROOT

PAPERS = ROOT / "src" / "kinfold" / "recipes" / "papers"


@pytest.fixture
def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_version_and_licence_are_those_of_the_package(citation):
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert citation["version"] == kinfold.__version__
    assert citation["license"] == PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in PROJECT["authors"]]


def test_every_paper_with_tables_is_a_reference(citation):
    told = {tomllib.loads(file.read_text())["table"]["paper"] for file in PAPERS.glob("*/*.toml")}
    assert len(told) > 3
    for reference in citation["references"]:
        first, title = reference["authors"][0]["family-names"], reference["title"]
        of_this = {line for line in told if line.startswith(f"{first} et al., {title} (")}
        assert any(str(reference["year"]) in line for line in of_this)
        told -= of_this
    assert not told


def test_references_have_what_the_format_requires(citation):
    for reference in citation["references"]:
        assert reference["type"] == "conference-paper"
        assert all({*author} == {"family-names", "given-names"} for author in reference["authors"])


def test_every_figure_of_the_documentation_is_accounted_for():
    told = (ROOT / "THIRD_PARTY.md").read_text()
    pictures = [path for path in (ROOT / "docs").rglob("*") if path.suffix in (".png", ".svg", ".jpg")]
    assert pictures
    for path in pictures:
        assert str(path.relative_to(ROOT)) in told, f"say in THIRD_PARTY.md where {path.name} comes from"
