"""A process killed while it writes to a gallery loses nothing and duplicates nothing; writers are kept apart."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from kinfold import Gallery
from kinfold.files.locks import FolderLockedError
from kinfold.gallery import kept_index
from kinfold.gallery.folder import GalleryFolder
from tests.problems import generator


def rows(count, seed=0):
    return torch.randn(count, 6, generator=generator(seed))


def make(path, with_index=False):
    gallery = Gallery.create(path, dim=6)
    gallery.add(rows(8), ["a"] * 8, [f"old{i}" for i in range(8)])
    if with_index:
        gallery.build_index("faiss")
    return gallery


def kill_at(write, moment, change):
    """Make a change in another process, which kills itself at its write number `write`; False if it came to its end."""
    child = os.fork()
    if child == 0:
        replace, count = os.replace, 0

        def replace_or_die(source, target):
            nonlocal count
            count += 1
            if count == write and moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)
            if count == write:
                os.kill(os.getpid(), signal.SIGKILL)

        setattr(os, "replace", replace_or_die)  # noqa: B010
        change()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


CHANGES = {
    "add": lambda gallery: gallery.add(rows(5, seed=1), ["b"] * 5, [f"new{i}" for i in range(5)]),
    "replace": lambda gallery: gallery.add(rows(2, seed=1), ["b"] * 2, ["old1", "new"], existing="replace"),
    "remove": lambda gallery: gallery.remove(ids=["old1", "old2"]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("with_index", [False, True], ids=["", "with an index"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_kill_at_any_write_leaves_the_old_gallery_or_the_new_one(tmp_path, monkeypatch, change, moment, with_index):
    if with_index:
        pytest.importorskip("faiss")
        monkeypatch.setattr(kept_index, "MIN_CHANGES", 1)  # the index is written with every change
        monkeypatch.setattr(kept_index, "MAX_SHARE", 0.0)
    expected = make(tmp_path / "expected")
    before = {*expected.ids}
    CHANGES[change](expected)
    after = {*expected.ids}
    write, killed = 0, True
    while killed:
        write += 1
        path = tmp_path / f"{write}"
        make(path, with_index)
        killed = kill_at(write, moment, lambda path=path: CHANGES[change](Gallery.open(path)))
        reopened = Gallery.open(path)
        reopened.verify()
        assert {*reopened.ids} in (before, after)
        assert len(reopened.ids) == len({*reopened.ids})
        if {*reopened.ids} == before:
            CHANGES[change](reopened)  # the same command again
        assert {*reopened.ids} == after
        with GalleryFolder(path).edit():
            pass  # the next writer cleans up, whatever it does
        listed = {path.name for path in path.iterdir()}
        assert len(listed) == 2 + with_index + 2 * reopened.info()["chunks"], "files that nobody lists are left"
        if with_index:
            ids = [f"new{i}" for i in range(5)] if change == "add" else ["old5"]
            wanted = rows(5, seed=1) if change == "add" else rows(8)[5:6]
            assert [entry[0] for entry in reopened.search(wanted, 1, approximate=True).ids] == ids
    assert write >= 4


@pytest.mark.slow
def test_added_parts_survive_a_kill_and_are_not_added_again(tmp_path):
    """A real process adds one part after the other and is killed while it does."""
    program = """
import sys, torch
from kinfold import Gallery
gallery = Gallery.open(sys.argv[1])
for part in range(10_000):
    ids = [f"{part}-{i}" for i in range(50)]
    gallery.add(torch.randn(50, 6, generator=torch.Generator().manual_seed(part)), ["a"] * 50, ids, existing="skip")
    print(part, flush=True)
"""
    Gallery.create(tmp_path / "g", dim=6)
    finished = -1
    for parts in (2, 5):
        command = [sys.executable, "-c", program, str(tmp_path / "g")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            while finished < parts:
                finished = int(process.stdout.readline())
            process.kill()
        ids = Gallery.open(tmp_path / "g").ids
        assert len(ids) == len({*ids})
        assert {f"{part}-{i}" for part in range(finished + 1) for i in range(50)} <= {*ids}
        assert len(ids) % 50 == 0
        Gallery.open(tmp_path / "g").verify()


def test_two_writers_are_kept_apart(tmp_path):
    gallery = make(tmp_path / "g")
    with GalleryFolder(tmp_path / "g").edit():
        with pytest.raises(FolderLockedError, match="another process is writing"):
            gallery.add(rows(1), ["b"])
        with pytest.raises(FolderLockedError):
            gallery.remove(ids=["old1"])
        assert len(gallery.search(rows(1))) == 1, "reading needs no lock"
    gallery.add(rows(1), ["b"])
    assert len(gallery) == 9


def test_a_writer_sees_what_others_wrote_before(tmp_path):
    first, second = make(tmp_path / "g"), Gallery.open(tmp_path / "g")
    first.add(rows(1, seed=1), ["b"], ["first"])
    second.add(rows(1, seed=2), ["b"], ["second"])
    with pytest.raises(ValueError, match="already"):
        second.add(rows(1), ["b"], ["first"])
    assert {*Gallery.open(tmp_path / "g").ids} == {*(f"old{i}" for i in range(8)), "first", "second"}
