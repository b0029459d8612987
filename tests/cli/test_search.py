"""`kinfold search` on real runs, against a naive search."""

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
def copied_run(tmp_path):
    """A copy of the image run that a test may change."""
    shutil.copytree(image_run(), tmp_path / "run", ignore=shutil.ignore_patterns("cache"))
    return tmp_path / "run"


def search(capsys, monkeypatch, *arguments):
    code, printed, errors = run(capsys, monkeypatch, "search", *arguments, "--json")
    assert code == 0, errors
    return json.loads(printed)


def rank_naively(query, gallery, leave_out=None, distance="cosine"):
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


def assert_neighbors(result, order, scores, measure="similarity"):
    rows = result["neighbors"]
    assert [row["rank"] for row in rows] == [*range(1, len(rows) + 1)]
    assert [row["index"] for row in rows] == order[: len(rows)]
    assert [row[measure] for row in rows] == pytest.approx(scores[: len(rows)], abs=1e-5)


def test_an_item_of_the_gallery_is_not_its_own_neighbor(capsys, monkeypatch):
    opened_run = Run.open(image_run())
    data = opened_run.data("test")
    rows = opened_run.embed(data).numpy()
    result = search(capsys, monkeypatch, image_run(), "#17", "--k", "5")
    assert_neighbors(result, *rank_naively(rows[17], rows, leave_out=17))
    assert result["items"] == len(data)
    assert result["query"]["index"] == 17
    for row in [result["query"], *result["neighbors"]]:
        assert row["class"] == data.classes[int(data.labels[row["index"]])]
        assert row["file"] == str(data.items[row["index"]].path)
    assert [row["same_class"] for row in result["neighbors"]] == [
        row["class"] == result["query"]["class"] for row in result["neighbors"]
    ]
    # the number alone and the file of that item are the same query
    assert search(capsys, monkeypatch, image_run(), "17", "--k", "5") == result
    assert search(capsys, monkeypatch, image_run(), result["query"]["file"], "--k", "5") == result


def test_an_image_outside_the_gallery_can_be_a_query(tmp_path, capsys, monkeypatch):
    opened_run = Run.open(image_run())
    data = opened_run.data("test")
    image = tmp_path / "new.png"
    shutil.copy(data.items[40].path, image)
    result = search(capsys, monkeypatch, image_run(), image)
    rows = opened_run.embed(data).numpy()
    assert_neighbors(result, *rank_naively(rows[40], rows))
    assert result["neighbors"][0]["similarity"] == pytest.approx(1)
    assert result["query"] == {"index": None, "class": None, "file": str(image)}
    assert {row["same_class"] for row in result["neighbors"]} == {None}
    assert len(result["neighbors"]) == 10


def test_arrays_can_be_queries_of_a_run_on_images(tmp_path, capsys, monkeypatch):
    opened_run = Run.open(image_run())
    data = opened_run.data("test")
    rows = opened_run.embed(data).numpy()
    np.save(tmp_path / "embedding.npy", rows[3].astype(np.float64))
    assert_neighbors(search(capsys, monkeypatch, image_run(), tmp_path / "embedding.npy"), *rank_naively(rows[3], rows))
    with Image.open(data.items[5].path) as image:
        np.save(tmp_path / "pixels.npy", np.asarray(image))
    assert_neighbors(search(capsys, monkeypatch, image_run(), tmp_path / "pixels.npy"), *rank_naively(rows[5], rows))


@pytest.mark.parametrize(("distance", "measure"), [("cosine", "similarity"), ("euclidean", "distance")])
def test_features_can_be_queries_of_a_run_on_features(distance, measure, tmp_path, capsys, monkeypatch):
    opened_run = Run.open(feature_run(distance))
    data = opened_run.data("test")
    rows = opened_run.embed(data).numpy()
    result = search(capsys, monkeypatch, feature_run(distance), "#30", "-k", "7")
    assert_neighbors(result, *rank_naively(rows[30], rows, 30, distance), measure=measure)
    assert result["distance"] == distance
    assert result["neighbors"][0]["file"] is None
    np.save(tmp_path / "row.npy", data.items[30][None])
    result = search(capsys, monkeypatch, feature_run(distance), tmp_path / "row.npy", "-k", "7")
    assert_neighbors(result, *rank_naively(rows[30], rows, None, distance), measure=measure)


def test_any_split_and_all_splits_can_be_the_gallery(capsys, monkeypatch):
    opened_run = Run.open(image_run())
    train_rows, test_rows = (opened_run.embed(opened_run.data(split)).numpy() for split in ("train", "test"))
    result = search(capsys, monkeypatch, image_run(), "#2", "--split", "train")
    assert_neighbors(result, *rank_naively(train_rows[2], train_rows, 2))
    whole = np.concatenate([train_rows, test_rows])
    last = len(whole) - 1
    result = search(capsys, monkeypatch, image_run(), f"#{last}", "--split", "all")
    assert_neighbors(result, *rank_naively(whole[last], whole, last))
    assert result["query"]["file"] == str(opened_run.data("test").items[len(test_rows) - 1].path)


def test_another_dataset_can_be_the_gallery(tmp_path, copied_run, capsys, monkeypatch):
    opened_run = Run.open(copied_run)
    data = opened_run.data("train")
    query = data.items[0].path
    # the same images in classes, without classes, and in a table
    result = search(capsys, monkeypatch, copied_run, query, "--gallery", glyph_files(), "--split", "train")
    rows = opened_run.embed(data).numpy()
    assert_neighbors(result, *rank_naively(rows[0], rows, 0))
    loose = tmp_path / "loose"
    loose.mkdir()
    for index in range(20):
        shutil.copy(data.items[index].path, loose / f"{index:03}.png")
    result = search(capsys, monkeypatch, copied_run, query, "--gallery", loose)
    assert_neighbors(result, *rank_naively(rows[0], rows[:20]))
    assert {row["class"] for row in result["neighbors"]} == {None}
    with open(tmp_path / "table.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows([f"loose/{index:03}.png", index % 2] for index in range(20))
    result = search(capsys, monkeypatch, copied_run, "#0", "--gallery", tmp_path / "table.csv")
    assert_neighbors(result, *rank_naively(rows[0], rows[:20], 0))
    assert result["query"]["class"] == "0"
    result = search(capsys, monkeypatch, feature_run(), "#1", "--gallery", feature_file(), "--split", "test")
    assert result["neighbors"] == search(capsys, monkeypatch, feature_run(), "#1")["neighbors"]


def test_the_gallery_is_embedded_again_only_when_weights_or_images_change(tmp_path, capsys, monkeypatch):
    images = tmp_path / "pictures"
    shutil.copytree(glyph_files(), images)
    shutil.copytree(image_run(), tmp_path / "run", ignore=shutil.ignore_patterns("cache"))
    run_folder = tmp_path / "run"
    configuration = run_folder / "configuration.toml"
    configuration.write_text(configuration.read_text().replace(str(glyph_files()), str(images)))
    embedded = []
    embed = Run.embed

    def embed_and_count(self, dataset, progress=None):
        embedded.append(len(dataset))
        return embed(self, dataset, progress)

    monkeypatch.setattr(Run, "embed", embed_and_count)
    first = search(capsys, monkeypatch, run_folder, "#3")
    assert embedded == [first["items"]]
    assert search(capsys, monkeypatch, run_folder, "#3") == first
    assert len(embedded) == 1
    (cached,) = (run_folder / "cache").iterdir()
    assert cached.name == "embeddings.safetensors"

    # a truncated or changed file is written again
    content = cached.read_bytes()
    cached.write_bytes(content[:100])
    assert search(capsys, monkeypatch, run_folder, "#3") == first
    assert len(embedded) == 2
    cached.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert search(capsys, monkeypatch, run_folder, "#3") == first
    assert len(embedded) == 3

    # another image under the same name
    changed = Path(first["neighbors"][0]["file"])
    Image.new("L", (28, 28), 200).save(changed)
    assert search(capsys, monkeypatch, run_folder, "#3")["neighbors"][0]["file"] != str(changed)
    assert len(embedded) == 4

    # other weights replace the old ones
    folder = RunFolder(run_folder)
    state = folder.read_weights(folder.model)
    weights = {key: value * 1.5 if value.is_floating_point() else value for key, value in state["model"].items()}
    folder.finish(state["step"], weights, folder.read_scores())
    search(capsys, monkeypatch, run_folder, "#3")
    assert len(embedded) == 5
    assert [*(run_folder / "cache").iterdir()] == [cached]


@pytest.mark.parametrize("name", ["cache", "cache/embeddings.safetensors"])
def test_gallery_embeddings_are_not_cached_through_a_link(name, copied_run, tmp_path, capsys, monkeypatch):
    (tmp_path / "victim").mkdir()
    (copied_run / name).parent.mkdir(exist_ok=True)
    os.symlink(tmp_path / "victim" / ("" if name == "cache" else "file"), copied_run / name)
    code, _, errors = run(capsys, monkeypatch, "search", copied_run, "#3", "--json")
    assert code == 2
    assert f"{copied_run / name} is a symbolic link" in errors
    assert not [*(tmp_path / "victim").iterdir()]


def test_a_run_that_cannot_be_written_to_can_be_searched(copied_run, capsys, monkeypatch):
    (copied_run / "cache").write_text("in the way")
    code, printed, errors = run(capsys, monkeypatch, "search", copied_run, "#3", "--json")
    assert code == 0
    assert "not kept for the next time" in errors
    assert json.loads(printed)["neighbors"] == search(capsys, monkeypatch, image_run(), "#3")["neighbors"]


def test_search_prints_a_table(capsys, monkeypatch):
    code, printed, _ = run(capsys, monkeypatch, "search", feature_run(), "#1", "--k", "3")
    assert code == 0
    result = search(capsys, monkeypatch, feature_run(), "#1", "--k", "3")
    assert f"#1, class {result['query']['class']}, in the test split of" in printed
    for row in result["neighbors"]:
        assert f"{row['similarity']:.4f}" in printed
        assert f"#{row['index']} " in printed
    assert result["query"]["class"] == "[bold]dog"
    assert "[bold]dog" in printed  # a name, not markup


def test_the_grid_frames_right_and_wrong_neighbors(tmp_path, capsys, monkeypatch):
    path = tmp_path / "grid.png"
    result = search(capsys, monkeypatch, image_run(), "#17", "--k", "60", "--grid", path)
    assert result["grid"] == str(path)
    assert {row["same_class"] for row in result["neighbors"]} == {True, False}
    with Image.open(path) as grid:
        colors = {color for _, color in grid.getcolors(1 << 20)}
    assert {RIGHT, WRONG} <= colors
    code, printed, _ = run(capsys, monkeypatch, "search", feature_run(), "#1", "--grid", tmp_path / "text.png")
    assert code == 0
    assert "the query and 10 neighbors" in printed
    assert (tmp_path / "text.png").is_file()


def test_photographs_of_birds_are_searched(tmp_path, capsys, monkeypatch):
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
    result = search(capsys, monkeypatch, tmp_path / "run", query, "--grid", tmp_path / "birds.png")
    assert result["query"]["class"] == query.parent.name
    assert str(query) not in [row["file"] for row in result["neighbors"]]
    opened_run = Run.open(tmp_path / "run")
    rows = opened_run.embed(opened_run.data("test")).numpy()
    assert_neighbors(result, *rank_naively(rows[result["query"]["index"]], rows, result["query"]["index"]))
    with Image.open(tmp_path / "birds.png") as grid:
        assert grid.size[0] > 1000


def test_mistakes_end_with_code_two_and_a_hint(tmp_path, capsys, monkeypatch):
    (tmp_path / "text.png").write_text("no picture")
    np.save(tmp_path / "short.npy", np.zeros(3))
    np.save(tmp_path / "square.npy", np.zeros((3, 3)))
    np.save(tmp_path / "empty.npy", np.full(8, np.nan))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    image = next((glyph_files() / "test").rglob("*.png"))
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
        ([feature_run(), image], "embeds features, not images"),
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
    search(capsys, monkeypatch, feature_run(), "#1")
    assert torch.equal(torch.get_rng_state(), before)
