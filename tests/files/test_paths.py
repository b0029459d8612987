"""No link leads out of a folder, and only regular files are opened."""

import os

import pytest

from kinfold.files.atomic import truncate_file, write_text
from kinfold.files.paths import UnsafePathError, append_text, make_folder, read_bytes, remove_file
from tests.files.victims import victim_is_unchanged

ACTIONS = {
    "read": lambda path, within: read_bytes(path, within),
    "append": lambda path, within: append_text(path, "more", within),
    "cut": lambda path, within: truncate_file(path, 1, within),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_link_in_place_of_a_file_is_refused(action, folder):
    os.symlink(folder.parent / "victim" / "file", folder / "log")
    with pytest.raises(UnsafePathError, match=r"folder/log is a symbolic link, and no link is followed inside of"):
        ACTIONS[action](folder / "log", folder)
    assert victim_is_unchanged(folder)


@pytest.mark.parametrize("action", [*ACTIONS, "write", "make", "remove"])
def test_a_link_in_place_of_a_folder_is_refused(action, folder):
    os.symlink(folder.parent / "victim", folder / "inner")
    actions = ACTIONS | {
        "write": lambda path, within: write_text(path, "other", within),
        "make": lambda path, within: make_folder(path, within),
        "remove": lambda path, within: remove_file(path, within),
    }
    with pytest.raises(UnsafePathError, match=r"folder/inner is a symbolic link"):
        actions[action](folder / "inner" / "file", folder)
    assert victim_is_unchanged(folder)


@pytest.mark.parametrize("name", ["../victim/file", "/etc/hostname"])
def test_a_name_that_leaves_the_folder_is_refused(name, folder):
    for action in ACTIONS.values():
        with pytest.raises(UnsafePathError, match=r"leads out of|lies outside of"):
            action(folder / name, folder)
    assert victim_is_unchanged(folder)


def test_a_second_name_of_a_file_is_not_changed_through_this_one(folder):
    os.link(folder.parent / "victim" / "file", folder / "log")
    with pytest.raises(UnsafePathError, match="has a second name"):
        append_text(folder / "log", "more", folder)
    truncate_file(folder / "log", 3, folder)
    append_text(folder / "log", "!", folder)
    assert (folder / "log").read_text() == "pre!"
    assert victim_is_unchanged(folder)


def test_a_pipe_is_refused_and_not_waited_for(folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(UnsafePathError, match="pipe is not a regular file"):
        read_bytes(folder / "pipe", folder)
    with pytest.raises(UnsafePathError, match="pipe is not a regular file"):
        read_bytes(folder / "pipe")
