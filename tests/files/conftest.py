"""A folder from another person, whose links point at a file of the user."""

import pytest


@pytest.fixture
def folder(tmp_path):
    """A folder from another person, beside a victim that its links point at."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"
