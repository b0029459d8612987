"""A feature file is complete, holds every item once, and is written by one process; its parts are checked."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from kinfold.data import Rows, create_dataset
from kinfold.data.column_files import read_columns
from kinfold.embedding import Encoder, embed_to_file, flatten_pixels, writer
from kinfold.files.paths import UnsafePathError

COUNT = 40


@pytest.fixture
def dataset(monkeypatch):
    monkeypatch.setattr(writer, "PART_SIZE", 8)
    rows = np.arange(COUNT * 3, dtype=np.uint8).reshape(COUNT, 1, 3)
    return create_dataset("rows", Rows(rows), [f"class {i // 4}" for i in range(COUNT)], ["train"] * COUNT)


def make_encoder(model=flatten_pixels):
    return Encoder(model, None, {})


class StoppedError(Exception):
    pass


def stop_after(batches):
    """An encoder that is interrupted after some batches."""
    sizes = []

    def model(images):
        sizes.append(len(images))
        if len(sizes) > batches:
            raise StoppedError
        return flatten_pixels(images)

    return make_encoder(model)


def write_parts(dataset, out):
    """Write sixteen items in two parts, and return their folder."""
    with pytest.raises(StoppedError):
        embed_to_file(dataset, out, stop_after(5), batch_size=4)
    folder = out.with_name(f"{out.name}.parts")
    assert sorted(path.name for path in folder.glob("*.npz")) == ["000000000000.npz", "000000000008.npz"]
    return folder


def is_complete(out):
    with np.load(out) as file:
        rows = np.arange(COUNT * 3).reshape(COUNT, 3).astype(np.float32) / 255
        return np.array_equal(file["index"], np.arange(COUNT)) and np.allclose(file["embeddings"][:, :3], rows)


def test_a_second_writer_of_the_same_file_is_refused_and_disturbs_nothing(dataset, tmp_path):
    out, refused = tmp_path / "f.npz", []
    second = (
        "import sys; import numpy as np; from kinfold.data import Rows, create_dataset\n"
        "from kinfold.embedding import Encoder, embed_to_file, flatten_pixels\n"
        "data = create_dataset('rows', Rows(np.zeros((40, 1, 3), dtype=np.uint8)), ['a'] * 40, ['train'] * 40)\n"
        "embed_to_file(data, sys.argv[1], Encoder(flatten_pixels, None, {}))"
    )

    def model(images):
        if not refused:
            with pytest.raises(ValueError, match=r"another process is writing .*f.npz; wait for it"):
                embed_to_file(dataset, out, make_encoder(), batch_size=4)
            second_process = subprocess.run(
                [sys.executable, "-c", second, out], capture_output=True, text=True, timeout=120
            )
            refused.append(second_process.stderr)
        return flatten_pixels(images)

    embed_to_file(dataset, out, make_encoder(model), batch_size=4)
    assert f"another process is writing {out}" in refused[0]
    assert is_complete(out)
    assert [*tmp_path.iterdir()] == [out]
    embed_to_file(dataset, out, make_encoder(), batch_size=4)  # afterwards it may be written again
    assert is_complete(out)


@pytest.mark.slow
def test_two_commands_at_once_leave_one_complete_file(tmp_path):
    out = tmp_path / "f.npz"
    command = [sys.executable, "-m", "kinfold", "embed", "glyphs", "--split", "test", "--gray", "--out", str(out)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ended = [(process.communicate(timeout=300)[1], process.returncode) for process in both]
    assert sorted(code for _, code in ended) in ([0, 2], [0, 0])  # the second may have started after the first ended
    for errors, code in ended:
        assert code == 0 or f"another process is writing {out}" in errors
    with np.load(out) as file:
        assert np.array_equal(file["index"], np.arange(len(file["labels"])))
        assert len(file["embeddings"]) == len(file["index"])
    assert [*tmp_path.iterdir()] == [out]


def test_a_truncated_or_changed_part_is_named(dataset, tmp_path):
    folder = write_parts(dataset, tmp_path / "f.npz")
    part = folder / "000000000008.npz"
    content = part.read_bytes()
    for damaged in (content[:50], b"", content[:100] + bytes([content[100] ^ 1]) + content[101:]):
        part.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"{part} is damaged: .* Delete {folder} and embed again"):
            embed_to_file(dataset, tmp_path / "f.npz", make_encoder(), batch_size=4)
    part.unlink()
    with pytest.raises(ValueError, match=rf"{part} cannot be read: No such file"):
        embed_to_file(dataset, tmp_path / "f.npz", make_encoder(), batch_size=4)
    part.write_bytes(content)
    embed_to_file(dataset, tmp_path / "f.npz", make_encoder(), batch_size=4)
    assert is_complete(tmp_path / "f.npz")


def test_parts_that_hold_an_item_twice_are_refused(dataset, tmp_path):
    folder = write_parts(dataset, tmp_path / "f.npz")
    listed = json.loads((folder / "list.json").read_text())
    # the first part again in place of the second, as two writers would leave it
    shutil.copy(folder / listed[0]["file"], folder / listed[1]["file"])
    (folder / "list.json").write_text(json.dumps([listed[0], {**listed[0], "file": listed[1]["file"]}]))
    with pytest.raises(ValueError, match=r"every item must be there once, in its order \(40 items, 40 rows\)"):
        embed_to_file(dataset, tmp_path / "f.npz", make_encoder(), batch_size=4)
    assert not (tmp_path / "f.npz").exists()


@pytest.mark.parametrize("name", ["about.json", "list.json"])
def test_malformed_json_files_of_the_parts_are_named(name, dataset, tmp_path):
    folder = write_parts(dataset, tmp_path / "f.npz")
    for content in (b"", b"[" * 100_000, b"3", b"null", b"\xff", b'[{"file": "../x.npz", "count": 8, "sha256": "0"}]'):
        (folder / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{folder / name} is (damaged|not valid|not a text file)"):
            embed_to_file(dataset, tmp_path / "f.npz", make_encoder(), batch_size=4)


@pytest.mark.parametrize("name", [".lock", "about.json", "list.json", "000000000008.npz", ""])
def test_no_link_among_the_parts_is_followed(name, dataset, tmp_path):
    folder = write_parts(dataset, tmp_path / "f.npz")
    victim = tmp_path / "victim"
    victim.mkdir()
    shutil.move(folder / name, victim / "target")
    os.symlink(victim / "target", folder / name if name else folder)
    before = {path: path.is_file() and path.read_bytes() for path in victim.rglob("*")}
    with pytest.raises(UnsafePathError, match="is a symbolic link"):
        embed_to_file(dataset, tmp_path / "f.npz", make_encoder(), batch_size=4)
    assert {path: path.is_file() and path.read_bytes() for path in victim.rglob("*")} == before


def test_only_listed_files_are_deleted_at_the_end(dataset, tmp_path):
    folder = write_parts(dataset, tmp_path / "f.npz")
    for name in ("mine.txt", "000000000003.npz"):
        (folder / name).write_text("mine")
    embed_to_file(dataset, tmp_path / "f.npz", make_encoder(), batch_size=4)
    assert is_complete(tmp_path / "f.npz")
    assert sorted(path.name for path in folder.iterdir()) == ["000000000003.npz", "mine.txt"]


def test_a_changed_feature_file_is_refused_and_files_without_a_checksum_are_read(dataset, tmp_path):
    out = tmp_path / "f.npz"
    embed_to_file(dataset, out, make_encoder(), batch_size=4)
    assert "sha256" not in read_columns(out).names
    with np.load(out) as file:
        arrays = dict(file)
    arrays["embeddings"][3, 1] += 1
    np.savez(out, **arrays)
    with pytest.raises(ValueError, match=r"f.npz is damaged: its arrays are not what was written \(sha256 differs\)"):
        read_columns(out)
    del arrays["sha256"]
    np.savez(out, **arrays)
    assert len(read_columns(out).require("embeddings")) == COUNT
