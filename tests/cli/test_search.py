"""`kinfold search` on real runs, against a search by hand."""

import csv
import json
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from kinfold.report.neighbor_grid import RIGHT, WRONG
from kinfold.training import Run, train
from kinfold.training.run_folder import RunFolder
from tests.cli.runs import SHORT, feature_file, feature_run, glyph_files, image_run, run


@pytest.fixture
def own_run(tmp_path):
    """A copy of the picture run, to be changed."""
    shutil.copytree(image_run(), tmp_path / "run", ignore=shutil.ignore_patterns("cache"))
    return tmp_path / "run"


def found_in(capsys, monkeypatch, *arguments):
    code, printed, errors = run(capsys, monkeypatch, "search", *arguments, "--json")
    assert code == 0, errors
    return json.loads(printed)


def by_hand(query, gallery, leave_out=None, distance="cosine"):
    """All positions, closest first, and their scores, in numpy and float64."""
    query, gallery = query.astype(np.float64), gallery.astype(np.float64)
    if distance == "euclidean":
        scores = np.linalg.norm(gallery - query, axis=1)
        order = np.argsort(scores, kind="stable")
    else:
        scores = gallery @ query / (np.linalg.norm(gallery, axis=1) * np.linalg.norm(query))
        order = np.argsort(-scores, kind="stable")
    order = order[order != leave_out]
    return order.tolist(), scores[order].tolist()


def agrees(found, order, scores, measure="similarity"):
    rows = found["neighbors"]
    assert [row["rank"] for row in rows] == [*range(1, len(rows) + 1)]
    assert [row["index"] for row in rows] == order[: len(rows)]
    assert [row[measure] for row in rows] == pytest.approx(scores[: len(rows)], abs=1e-5)


def test_an_item_of_the_gallery_is_not_its_own_neighbour(capsys, monkeypatch):
    space = Run.open(image_run())
    data = space.data("test")
    rows = space.embed(data).numpy()
    found = found_in(capsys, monkeypatch, image_run(), "#17", "--k", "5")
    agrees(found, *by_hand(rows[17], rows, leave_out=17))
    assert found["items"] == len(data)
    assert found["query"]["index"] == 17
    for row in [found["query"], *found["neighbors"]]:
        assert row["class"] == data.classes[int(data.labels[row["index"]])]
        assert row["file"] == str(data.items[row["index"]].path)
    assert [row["same_class"] for row in found["neighbors"]] == [
        row["class"] == found["query"]["class"] for row in found["neighbors"]
    ]
    # the number alone, and the file of that item, ask the same
    assert found_in(capsys, monkeypatch, image_run(), "17", "--k", "5") == found
    assert found_in(capsys, monkeypatch, image_run(), found["query"]["file"], "--k", "5") == found


def test_an_image_from_elsewhere(tmp_path, capsys, monkeypatch):
    space = Run.open(image_run())
    data = space.data("test")
    picture = tmp_path / "new.png"
    shutil.copy(data.items[40].path, picture)
    found = found_in(capsys, monkeypatch, image_run(), picture)
    rows = space.embed(data).numpy()
    agrees(found, *by_hand(rows[40], rows))
    assert found["neighbors"][0]["similarity"] == pytest.approx(1)
    assert found["query"] == {"index": None, "class": None, "file": str(picture)}
    assert {row["same_class"] for row in found["neighbors"]} == {None}
    assert len(found["neighbors"]) == 10


def test_arrays_as_queries_of_a_run_on_images(tmp_path, capsys, monkeypatch):
    space = Run.open(image_run())
    data = space.data("test")
    rows = space.embed(data).numpy()
    np.save(tmp_path / "embedding.npy", rows[3].astype(np.float64))
    agrees(found_in(capsys, monkeypatch, image_run(), tmp_path / "embedding.npy"), *by_hand(rows[3], rows))
    with Image.open(data.items[5].path) as picture:
        np.save(tmp_path / "pixels.npy", np.asarray(picture))
    agrees(found_in(capsys, monkeypatch, image_run(), tmp_path / "pixels.npy"), *by_hand(rows[5], rows))


@pytest.mark.parametrize(("distance", "measure"), [("cosine", "similarity"), ("euclidean", "distance")])
def test_features(distance, measure, tmp_path, capsys, monkeypatch):
    space = Run.open(feature_run(distance))
    data = space.data("test")
    rows = space.embed(data).numpy()
    found = found_in(capsys, monkeypatch, feature_run(distance), "#30", "-k", "7")
    agrees(found, *by_hand(rows[30], rows, 30, distance), measure)
    assert found["distance"] == distance
    assert found["neighbors"][0]["file"] is None
    np.save(tmp_path / "row.npy", data.items[30][None])
    found = found_in(capsys, monkeypatch, feature_run(distance), tmp_path / "row.npy", "-k", "7")
    agrees(found, *by_hand(rows[30], rows, None, distance), measure)


def test_other_splits_and_all_of_them(capsys, monkeypatch):
    space = Run.open(image_run())
    train_rows, test_rows = (space.embed(space.data(split)).numpy() for split in ("train", "test"))
    found = found_in(capsys, monkeypatch, image_run(), "#2", "--split", "train")
    agrees(found, *by_hand(train_rows[2], train_rows, 2))
    whole = np.concatenate([train_rows, test_rows])
    last = len(whole) - 1
    found = found_in(capsys, monkeypatch, image_run(), f"#{last}", "--split", "all")
    agrees(found, *by_hand(whole[last], whole, last))
    assert found["query"]["file"] == str(space.data("test").items[len(test_rows) - 1].path)


def test_another_gallery(tmp_path, own_run, capsys, monkeypatch):
    space = Run.open(own_run)
    data = space.data("train")
    query = data.items[0].path
    # the same pictures in classes, without classes, and in a table
    found = found_in(capsys, monkeypatch, own_run, query, "--gallery", glyph_files(), "--split", "train")
    rows = space.embed(data).numpy()
    agrees(found, *by_hand(rows[0], rows, 0))
    loose = tmp_path / "loose"
    loose.mkdir()
    for index in range(20):
        shutil.copy(data.items[index].path, loose / f"{index:03}.png")
    found = found_in(capsys, monkeypatch, own_run, query, "--gallery", loose)
    agrees(found, *by_hand(rows[0], rows[:20]))
    assert {row["class"] for row in found["neighbors"]} == {None}
    with open(tmp_path / "table.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows([f"loose/{index:03}.png", index % 2] for index in range(20))
    found = found_in(capsys, monkeypatch, own_run, "#0", "--gallery", tmp_path / "table.csv")
    agrees(found, *by_hand(rows[0], rows[:20], 0))
    assert found["query"]["class"] == "0"
    found = found_in(capsys, monkeypatch, feature_run(), "#1", "--gallery", feature_file(), "--split", "test")
    assert found["neighbors"] == found_in(capsys, monkeypatch, feature_run(), "#1")["neighbors"]


def test_the_gallery_is_embedded_once_and_anew_when_weights_or_pictures_change(tmp_path, capsys, monkeypatch):
    pictures = tmp_path / "pictures"
    shutil.copytree(glyph_files(), pictures)
    shutil.copytree(image_run(), tmp_path / "run", ignore=shutil.ignore_patterns("cache"))
    own = tmp_path / "run"
    configuration = own / "configuration.toml"
    configuration.write_text(configuration.read_text().replace(str(glyph_files()), str(pictures)))
    embedded = []
    embed = Run.embed

    def counting(self, dataset, progress=None):
        embedded.append(len(dataset))
        return embed(self, dataset, progress)

    monkeypatch.setattr(Run, "embed", counting)
    first = found_in(capsys, monkeypatch, own, "#3")
    assert embedded == [first["items"]]
    assert found_in(capsys, monkeypatch, own, "#3") == first
    assert len(embedded) == 1
    (kept,) = (own / "cache").iterdir()
    assert kept.name == "embeddings-test.safetensors"

    # a damaged file is made anew, be it cut or of one bit
    content = kept.read_bytes()
    kept.write_bytes(content[:100])
    assert found_in(capsys, monkeypatch, own, "#3") == first
    assert len(embedded) == 2
    kept.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert found_in(capsys, monkeypatch, own, "#3") == first
    assert len(embedded) == 3

    # another picture under the same name
    changed = Path(first["neighbors"][0]["file"])
    Image.new("L", (28, 28), 200).save(changed)
    assert found_in(capsys, monkeypatch, own, "#3")["neighbors"][0]["file"] != str(changed)
    assert len(embedded) == 4

    # other weights take the place of the old ones
    place = RunFolder(own)
    state = place.read_weights(place.model)
    weights = {key: value * 1.5 if value.is_floating_point() else value for key, value in state["model"].items()}
    place.finish(state["step"], weights, place.read_scores())
    found_in(capsys, monkeypatch, own, "#3")
    assert len(embedded) == 5
    assert [*(own / "cache").iterdir()] == [kept]


@pytest.mark.parametrize("name", ["cache", "cache/embeddings-test.safetensors"])
def test_the_gallery_is_not_kept_behind_a_link(name, own_run, tmp_path, capsys, monkeypatch):
    (tmp_path / "victim").mkdir()
    (own_run / name).parent.mkdir(exist_ok=True)
    os.symlink(tmp_path / "victim" / ("" if name == "cache" else "file"), own_run / name)
    code, _, errors = run(capsys, monkeypatch, "search", own_run, "#3", "--json")
    assert code == 2
    assert f"{own_run / name} is a symbolic link" in errors
    assert not [*(tmp_path / "victim").iterdir()]


def test_a_run_that_cannot_be_written_to_is_searched_all_the_same(own_run, capsys, monkeypatch):
    (own_run / "cache").write_text("in the way")
    code, printed, errors = run(capsys, monkeypatch, "search", own_run, "#3", "--json")
    assert code == 0
    assert "not kept for the next search" in errors
    assert json.loads(printed)["neighbors"] == found_in(capsys, monkeypatch, image_run(), "#3")["neighbors"]


def test_a_table_for_people(capsys, monkeypatch):
    code, printed, _ = run(capsys, monkeypatch, "search", feature_run(), "#1", "--k", "3")
    assert code == 0
    found = found_in(capsys, monkeypatch, feature_run(), "#1", "--k", "3")
    assert f"#1, class {found['query']['class']}, in the test split of" in printed
    for row in found["neighbors"]:
        assert f"{row['similarity']:.4f}" in printed
        assert f"#{row['index']} " in printed
    assert found["query"]["class"] == "[bold]dog"
    assert "[bold]dog" in printed  # a name, not markup


def test_the_grid_frames_right_and_wrong_neighbours(tmp_path, capsys, monkeypatch):
    path = tmp_path / "grid.png"
    found = found_in(capsys, monkeypatch, image_run(), "#17", "--k", "60", "--grid", path)
    assert found["grid"] == str(path)
    assert {row["same_class"] for row in found["neighbors"]} == {True, False}
    with Image.open(path) as grid:
        colours = {colour for _, colour in grid.getcolors(1 << 20)}
    assert {RIGHT, WRONG} <= colours
    code, printed, _ = run(capsys, monkeypatch, "search", feature_run(), "#1", "--grid", tmp_path / "text.png")
    assert code == 0
    assert "the query and 10 neighbors" in printed
    assert (tmp_path / "text.png").is_file()


def test_photographs_of_birds(tmp_path, capsys, monkeypatch):
    path = Path(os.environ.get("KINFOLD_TEST_DATA") or "nowhere") / "cub200_2011_s96.tar"
    if not path.exists():
        pytest.skip("KINFOLD_TEST_DATA does not point to a folder with cub200_2011_s96.tar")
    root = tmp_path / "birds"
    with tarfile.open(path) as archive:
        for member in archive:
            species = Path(member.name).parent.name
            if member.isfile() and species[:3] in ("001", "002", "003", "101", "102", "103"):
                target = root / ("train" if species < "1" else "test") / species / Path(member.name).name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.extractfile(member).read())
    data = {"name": "folder", "root": str(root), "validation": 0.0}
    sampler = {"name": "spc", "batch_size": 12, "per_class": 4}
    train({**SHORT, "data": data, "model": {"backbone": "conv4", "dim": 8}, "sampler": sampler}, tmp_path / "run")
    query = next((root / "test").glob("101*/*.jpg"))
    found = found_in(capsys, monkeypatch, tmp_path / "run", query, "--grid", tmp_path / "birds.png")
    assert found["query"]["class"] == query.parent.name
    assert str(query) not in [row["file"] for row in found["neighbors"]]
    space = Run.open(tmp_path / "run")
    rows = space.embed(space.data("test")).numpy()
    agrees(found, *by_hand(rows[found["query"]["index"]], rows, found["query"]["index"]))
    with Image.open(tmp_path / "birds.png") as grid:
        assert grid.size[0] > 1000


def test_mistakes_end_with_code_two_and_a_way_out(tmp_path, capsys, monkeypatch):
    (tmp_path / "text.png").write_text("no picture")
    np.save(tmp_path / "short.npy", np.zeros(3))
    np.save(tmp_path / "square.npy", np.zeros((3, 3)))
    np.save(tmp_path / "empty.npy", np.full(8, np.nan))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    picture = next((glyph_files() / "test").rglob("*.png"))
    for arguments, hint in [
        ([tmp_path, "#1"], "is not the folder of a run"),
        ([image_run(), "#999999"], "there is no item 999999"),
        ([image_run(), tmp_path / "nothing.png"], "there is no file"),
        ([image_run(), "#-1"], "there is no file"),
        ([image_run(), tmp_path / "text.png"], "is not an image"),
        ([image_run(), "#1", "--split", "tests"], "did you mean 'test'"),
        ([image_run(), "#1", "--split", "validation"], "has no split 'validation'"),
        ([image_run(), "#1", "--gallery", "glyps"], "did you mean 'glyphs'"),
        ([image_run(), "#1", "--k", "0"], "k must be at least 1"),
        ([image_run(), "#1", "--grid", "grid.jpg"], ".png"),
        ([image_run(), "#1", "--grid", tmp_path / "nowhere" / "grid.png"], "there is no folder"),
        ([image_run(), "#1", "--gallery", feature_file()], "embeds images, but rows holds features"),
        ([feature_run(), "#1", "--gallery", glyph_files()], "embeds features, but glyphs holds images"),
        ([feature_run(), picture], "embeds features, not images"),
        ([feature_run(), tmp_path / "short.npy"], "(B, 12)"),
        ([image_run(), tmp_path / "short.npy"], "has 3 numbers, but an embedding of this run has 8"),
        ([image_run(), tmp_path / "square.npy"], "one row of finite numbers"),
        ([image_run(), tmp_path / "empty.npy"], "one row of finite numbers"),
        ([image_run(), tmp_path / "objects.npy"], "not an .npy file of plain numbers"),
    ]:
        code, printed, errors = run(capsys, monkeypatch, "search", *arguments)
        assert (code, printed) == (2, ""), arguments
        assert hint in errors
        assert "Traceback" not in errors


def test_help_has_an_example(capsys, monkeypatch):
    code, printed, _ = run(capsys, monkeypatch, "search", "--help")
    assert code == 0
    assert "kinfold search runs/birds wren.jpg --grid wren.png" in printed


def test_nothing_draws_from_the_global_generator(capsys, monkeypatch):
    before = torch.get_rng_state()
    found_in(capsys, monkeypatch, feature_run(), "#1")
    assert torch.equal(torch.get_rng_state(), before)
