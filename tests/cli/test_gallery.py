"""`kinfold gallery`: what the commands print and how they fail."""

import json

import numpy as np

from kinfold import Gallery
from tests.cli.runs import feature_file, feature_run, glyph_files, image_run, run


def test_a_gallery_of_images_is_built_extended_searched_and_shortened(capsys, monkeypatch, tmp_path):
    folder, photos = tmp_path / "glyphs.gallery", glyph_files() / "test"
    code, out, _ = run(capsys, monkeypatch, "gallery", "build", folder, photos, "--run", image_run())
    count = len([*photos.rglob("*.png")])
    assert code == 0
    assert f"{count} added, {count} items of 8 classes" in out
    code, out, _ = run(capsys, monkeypatch, "gallery", "add", folder, photos, "--run", image_run())
    assert (code, "0 added" in out) == (0, True), "the same command again adds nothing"
    picture = sorted((glyph_files() / "train").rglob("*.png"))[0]
    options = ["--run", image_run(), "--label", "new"]
    code, out, _ = run(capsys, monkeypatch, "gallery", "add", folder, picture, *options, "--json")
    assert (code, json.loads(out)["added"], json.loads(out)["classes"]) == (0, 1, 9)
    code, out, _ = run(
        capsys, monkeypatch, "gallery", "search", folder, picture, "--run", image_run(), "-k", 3, "--json"
    )
    best = json.loads(out)["queries"][0][0]
    assert (best["label"], best["path"]) == ("new", str(picture.resolve()))
    assert round(best["similarity"], 5) == 1
    code, out, _ = run(capsys, monkeypatch, "gallery", "remove", folder, "--label", "new")
    assert (code, f"1 removed, {count} left" in out) == (0, True)
    code, out, _ = run(capsys, monkeypatch, "gallery", "info", folder, "--verify")
    assert (code, f"items: {count}" in out) == (0, True)


def test_a_gallery_of_embeddings_needs_no_run(capsys, monkeypatch, tmp_path):
    out_file = tmp_path / "test.npz"
    assert run(capsys, monkeypatch, "embed", feature_run(), "--split", "test", "--out", out_file)[0] == 0
    code, out, _ = run(capsys, monkeypatch, "gallery", "build", tmp_path / "g", out_file)
    assert (code, "60 added, 60 items of 3 classes" in out) == (0, True)
    with np.load(out_file) as arrays:
        np.save(tmp_path / "query.npy", arrays["embeddings"][:2])
        labels = arrays["labels"][:2].tolist()
    code, out, _ = run(capsys, monkeypatch, "gallery", "search", tmp_path / "g", tmp_path / "query.npy", "-k", 1)
    assert code == 0
    assert all(label in out for label in labels)
    # the file holds the fingerprint of the run, so that the run can be used too, and another one cannot
    with np.load(feature_file()) as arrays:
        np.save(tmp_path / "row.npy", arrays["embeddings"][0])
    same = run(capsys, monkeypatch, "gallery", "search", tmp_path / "g", tmp_path / "row.npy", "--run", feature_run())
    assert same[0] == 0
    Gallery.create(tmp_path / "other", dim=4, fingerprint="0" * 32)
    code, _, errors = run(capsys, monkeypatch, "gallery", "add", tmp_path / "other", out_file)
    assert (code, "cannot be compared" in errors) == (2, True)


def test_embeddings_without_labels_get_the_class_that_is_given(capsys, monkeypatch, tmp_path):
    np.savez(tmp_path / "wrens.npz", embeddings=np.eye(4, dtype=np.float32))
    code, _, errors = run(
        capsys, monkeypatch, "gallery", "build", tmp_path / "g", tmp_path / "wrens.npz", "--label", "wren"
    )
    assert code == 0, errors
    assert Gallery.open(tmp_path / "g").classes == ["wren"]


def test_mistakes_are_explained(capsys, monkeypatch, tmp_path):
    for arguments, message in [
        (["search", tmp_path, "x.npy"], "is not a gallery"),
        (["build", tmp_path / "g", glyph_files()], "give the run that embeds"),
        (["build", tmp_path / "e", feature_file(), "--run", feature_run("euclidean")], "compares by cosine"),
        (["info", tmp_path], "kinfold gallery build"),
    ]:
        code, _, errors = run(capsys, monkeypatch, "gallery", *arguments)
        assert code == 2
        assert message in errors
        assert not (tmp_path / "g").exists()
