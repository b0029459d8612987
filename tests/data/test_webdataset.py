"""WebDataset shards: plain files in tars, read from their place, never unpickled."""

import io
import json
import os
import tarfile

import numpy as np
import pytest
from PIL import Image

from kinfold.data import Batches, convert, load
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.data.webdataset import TarImages

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 12, 3), dtype=np.uint8)
LABELS = ["0", "0", "1", "1", "2", "2"]


def encode(pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_shard(path, members, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def samples(first=0, last=6, **more):
    for index in range(first, last):
        yield f"s{index:03}.png", encode(PIXELS[index])
        yield f"s{index:03}.cls", LABELS[index].encode()
        yield from ((f"s{index:03}.{extension}", content) for extension, content in more.items())


@pytest.fixture
def shard(tmp_path):
    return write_shard(tmp_path / "birds.tar", samples())


def test_images_and_classes_are_read_from_their_place_in_the_shard(shard):
    dataset = load("webdataset", shard)
    assert isinstance(dataset.items, TarImages)
    assert dataset.classes == ("0", "1", "2")
    assert dataset.labels.tolist() == [0, 0, 1, 1, 2, 2]
    batch = next(iter(Batches(dataset, workers=0)))
    assert np.array_equal(batch.images.permute(0, 2, 3, 1).numpy(), PIXELS)
    part = dataset.where(np.arange(6) % 2 == 1)
    assert np.array_equal(next(iter(Batches(part))).images.permute(0, 2, 3, 1).numpy(), PIXELS[1::2])
    assert str(dataset.items[2]) == "birds.tar row 3: s002.png"


@pytest.mark.parametrize("root", ["", "part-{000..001}.tar", "part-*.tar", "list"])
def test_several_shards_are_one_dataset(tmp_path, root):
    parts = [
        write_shard(tmp_path / "part-000.tar", samples(0, 4)),
        write_shard(tmp_path / "part-001.tar", samples(4, 6)),
    ]
    dataset = load("webdataset", parts if root == "list" else tmp_path / root)
    assert len(dataset) == 6
    assert np.array_equal(next(iter(Batches(dataset))).images.permute(0, 2, 3, 1).numpy(), PIXELS)


def test_folders_of_splits_are_the_splits(tmp_path):
    for name, first in (("train", 0), ("test", 4)):
        (tmp_path / name).mkdir()
        write_shard(tmp_path / name / "a.tar", samples(first, first + 2))
    dataset = convert(tmp_path)
    assert dataset.split.tolist() == ["train", "train", "test", "test"]


def test_classes_may_stand_in_json_or_text(tmp_path):
    about = json.dumps({"species": "wren", "family": "small", "set": "test"}).encode()
    path = write_shard(tmp_path / "a.tar", samples(json=about, txt=b" crow \n"))
    columns = {"label": "json.species", "coarse": "json.family", "split": "json.set"}
    dataset = load("webdataset", path, columns=columns)
    assert (dataset.classes, dataset.coarse_classes, {*dataset.split}) == (("wren",), ("small",), {"test"})
    assert load("webdataset", path, columns={"label": "txt"}).classes == ("crow",)
    only_json = [("a.png", encode(PIXELS[0])), ("a.json", b'{"label": 3}')]
    assert load("webdataset", write_shard(tmp_path / "b.tar", only_json)).classes == ("3",)


@pytest.mark.parametrize("extension", ["pkl", "pyd", "PICKLE", "pth", "pt"])
def test_pickles_are_refused_and_not_opened(tmp_path, extension):
    path = write_shard(tmp_path / "a.tar", [*samples(), (f"s000.{extension}", b"cos\nsystem\n(S'touch x'\ntR.")])
    with pytest.raises(ValueError, match=r"refused: 's000.*' is a pickle, which could run code. Write samples with"):
        load("webdataset", path)


def test_other_files_are_not_read(tmp_path):
    path = write_shard(tmp_path / "a.tar", [*samples(), ("s000.mp3", b"123"), ("README", b"hello"), (".hidden", b"")])
    assert len(load("webdataset", path)) == 6


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    path = write_shard(tmp_path / "a.tar", samples())
    with tarfile.open(path, "a") as archive:
        entry = tarfile.TarInfo("t.png")
        entry.type, entry.linkname = kind, "/etc/passwd"
        archive.addfile(entry)
    with pytest.raises(ValueError, match=r"'t.png' is a link, a device or a sparse file"):
        load("webdataset", path)


def test_large_and_cut_members_are_refused(tmp_path, monkeypatch):
    path = write_shard(tmp_path / "a.tar", samples())
    monkeypatch.setattr("kinfold.data.webdataset.LARGEST_IMAGE", 20)
    with pytest.raises(ValueError, match=r"has .* bytes, more than 20"):
        load("webdataset", path)
    monkeypatch.undo()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(path.read_bytes()[:600])
    with pytest.raises(ValueError, match=r"cut.tar is cut short"):
        load("webdataset", cut)
    monkeypatch.setattr("kinfold.data.webdataset.LARGEST_TEXT", 2)
    with pytest.raises(ValueError, match=r"'s000.json' has 20 bytes, more than 2"):
        load("webdataset", write_shard(tmp_path / "b.tar", samples(json=b"x" * 20)))


@pytest.mark.parametrize(
    ("members", "options", "message"),
    [
        ([("a.cls", b"1")], {}, "the sample 'a.cls' has no image"),
        ([("a.png", b"")], {}, "where is the class of a sample.*has an image alone"),
        ([("a.png", b""), ("a.cls", b"1"), ("b.png", b"")], {}, "the sample 'b.png' has no .cls"),
        ([("a.png", b""), ("a.jpg", b""), ("a.cls", b"1")], {}, "has two images; say which one"),
        ([("a.png", b""), ("a.cls", b"\xff")], {}, "'a.cls' is not text"),
        ([("a.png", b""), ("a.json", b"[1]")], {}, "the .json of 'a.png' is not a JSON object"),
        ([("a.png", b""), ("a.json", b"{}")], {"columns": {"label": "json.x"}}, "has no 'x' in its .json"),
        ([("a.png", b""), ("a.cls", b"")], {}, "cls must be text or a number"),
        ([("a.png", b""), ("a.cls", b"1")], {"columns": {"labels": "cls"}}, "unknown column 'labels'"),
        ([("README", b"")], {}, "holds no samples"),
    ],
)
def test_samples_that_are_not_complete_are_named(tmp_path, members, options, message):
    path = write_shard(tmp_path / "a.tar", members)
    with pytest.raises(ValueError, match=message):
        load("webdataset", path, **options)


def test_two_images_are_told_apart_by_the_extension(tmp_path):
    members = [("a.seg.png", encode(PIXELS[1])), ("a.png", encode(PIXELS[0])), ("a.cls", b"1")]
    dataset = load("webdataset", write_shard(tmp_path / "a.tar", members))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(dataset.items[0].content))), PIXELS[0])
    other = load("webdataset", tmp_path / "a.tar", columns={"image": "seg.png"})
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(other.items[0].content))), PIXELS[1])


def test_compressed_and_foreign_files_are_refused(tmp_path):
    write_shard(tmp_path / "a.tar", samples(), "w:gz")
    with pytest.raises(ValueError, match=r"a.tar is compressed.*decompress it first"):
        load("webdataset", tmp_path / "a.tar")
    (tmp_path / "b.tar").write_bytes(b"no tar" * 400)
    with pytest.raises(ValueError, match=r"b.tar is neither a tar nor a zip file"):
        load("webdataset", tmp_path / "b.tar")
    os.mkfifo(tmp_path / "c.tar")
    with pytest.raises(ValueError, match=r"there is no shard|not a regular file"):
        load("webdataset", tmp_path / "c.tar")
    with pytest.raises(ValueError, match="no file matches"):
        load("webdataset", tmp_path / "none-*.tar")


def test_the_fingerprint_notices_another_shard(tmp_path, shard):
    same = compute_fingerprint(load("webdataset", shard))
    assert compute_fingerprint(load("webdataset", shard)) == same
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "birds.tar").write_bytes(shard.read_bytes())
    assert compute_fingerprint(load("webdataset", tmp_path / "copy" / "birds.tar")) == same
    write_shard(shard, samples(txt=b"more"))
    assert compute_fingerprint(load("webdataset", shard)) != same
