"""Common mistakes of new users: the command says what is wrong and what to do, and writes nothing."""

import numpy as np
import pytest
from PIL import Image

from tests.cli.runs import feature_rows, feature_run, run

LAST = ["--set", "evaluation.selection=last", "--set", "evaluation.patience=none"]
WILD = ["--set", "optimizer.name=sgd", "--set", "optimizer.lr=1e38"]
SHORT = ["--set", "training.steps=2", "--set", "model.dim=8"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with files of many kinds, most of them invalid."""
    monkeypatch.chdir(tmp_path)
    rows, labels = feature_rows()
    draw = np.random.default_rng(1)
    np.savez("rows.npz", embeddings=rows, labels=labels)
    np.savez("short.npz", embeddings=rows, labels=labels[:-1])
    np.savez("nan.npz", embeddings=np.where(np.arange(240)[:, None] == 3, np.nan, rows), labels=labels)
    np.savez("singles.npz", embeddings=rows, labels=np.arange(240))
    np.savez("names.npz", vectors=rows, species=labels)
    np.savez("one.npz", embeddings=rows, labels=np.full(240, "ant"))
    np.savez("line.npz", embeddings=rows[:, 0], labels=labels)
    np.savez("tests.npz", embeddings=rows, labels=labels, split=np.full(240, "test"))
    np.savez("equal.npz", embeddings=np.ones_like(rows), labels=labels)
    np.savez("bare.npz", embeddings=rows)
    np.save("alone.npy", rows)
    (tmp_path / "zero.npz").write_bytes(b"")
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "semicolon.csv").write_text("path;label\nphotos/a/0.png;a\n")
    (tmp_path / "text.npz").write_text("embeddings\n")
    for letter in "abcdefgh":
        (tmp_path / "photos" / letter).mkdir(parents=True)
        for number in range(4):
            pixels = draw.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / letter / f"{number}.png")
    (tmp_path / "photos" / "a" / "broken.png").write_bytes(b"not an image")
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.csv").write_text("file,class\nphotos/a/0.png,a\n")
    (tmp_path / "gone.csv").write_text("path,label\nphotos/a/99.png,a\nphotos/b/0.png,b\n")
    (tmp_path / "unnamed.toml").write_text('[loss]\nnam = "margin"\n')
    (tmp_path / "broken.toml").write_text('[loss\nname = "margin"\n')
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["trian", "glyphs"], "error: no such command 'trian'\nhelp: did you mean 'train'?\n"),
        (["train", "featurs"], "error: recipe 'featurs' not found\nhelp: did you mean 'features'?\n"),
        (["train", "features"], "Give its folder or file with --root on the command line"),
        (["train", "features", "--root", "nowhere.npz"], "there is no file"),
        (["train", "features", "--root", "short.npz"], "240 embeddings but labels of shape (239,)"),
        (["train", "features", "--root", "nan.npz"], "row 3 (counted from 0) of the embeddings in"),
        (["train", "features", "--root", "names.npz"], "--set data.options.columns.embedding=..."),
        (["train", "features", "--root", "alone.npy"], "--set data.options.labels=labels.npy"),
        (
            ["train", "features", "--root", "rows.npz", "--set", "data.columns.label=y"],
            "options of the dataset belong in options, as in --set",
        ),
        (
            ["train", "features", "--root", "rows.npz", "--loss", "tripplet"],
            "error: loss 'tripplet' not found\nhelp: did you mean 'triplet'?\n",
        ),
        (
            ["train", "features", "--root", "rows.npz", "--set", "loss.marign=1"],
            "no option 'marign'\nhelp: did you mean 'margin'?\nhelp: it takes margin, ",
        ),
        (["train", "features", "--root", "rows.npz", "--set", "training.steps=ten"], "must be an integer"),
        (["train", "features", "--root", "rows.npz", "--set", "steps=10"], "\nhelp: did you mean 'training.steps'?"),
        (["train", "features", "--root", "rows.npz", "--set", "steps"], "a change looks like loss.k=160"),
        (["train", "features", "--root", "rows.npz", "--set", "sampler.batch_size=81"], "batch_size=80 or 85"),
        (
            ["train", "features", "--root", "rows.npz", "--set", "sampler.per_class=80"],
            "so that there are no negatives",
        ),
        (
            ["train", "features", "--root", "rows.npz", "--loss", "lifted", "--set", "miner.name=semihard"],
            "use a miner that selects pairs (all, multi-similarity, semihard-pairs, distance-weighted-pairs), or none "
            "(--set miner.name=none)",
        ),
        (
            ["train", "features", "--root", "rows.npz", "--loss", "proxy-anchor", "--set", "miner.name=semihard"],
            "there is nothing to mine; leave the miner out (in a recipe: --set miner.name=none)",
        ),
        (
            ["train", "features", "--dry-run", "--set", "loss.marign=1"],
            "no option 'marign'\nhelp: did you mean 'margin'?\nhelp: it takes margin, ",
        ),
        (["train", "images", "--dry-run", "--set", "data.pipeline=studdy"], "\nhelp: did you mean 'study'?"),
        (
            ["train", "features", "--root", "rows.npz", "--set", "data.validation=0"],
            "do without: --set evaluation.selection=last --set evaluation.patience=none",
        ),
        (["train", "features", "--root", "rows.npz", "--from", "empty"], "empty is not the folder of a run"),
        (["train", "--resume", "RUN", "--from", "RUN"], "To begin a new run from its weights: kinfold train RECIPE"),
        (["train", "features", "--root", "singles.npz"], "no validation class has two items"),
        (
            ["train", "features", "--root", "singles.npz", *LAST],
            "every class has one item only, and 'margin' needs positive pairs",
        ),
        (["train", "features", "--root", "rows.npz", *LAST[:2]], "do without: --set evaluation.patience=none"),
        (["train"], "say what to train on: a recipe (kinfold train glyphs; kinfold list recipes shows all), data "),
        (["train", "--set", "training.steps=5"], "say what to train on"),
        (["train", "features", "--root", "rows.npz", "--set", "training.device=cuda:7"], "the device 'cuda:7' cannot"),
        (["train", "features", "--root", "rows.npz", "--set", "training.device=gpu"], "use 'cpu', or name no device"),
        (
            ["train", "features", "--root", "rows.npz", "--set", "loss.beta=big"],
            "'margin': beta must be a number, got 'big'",
        ),
        (
            ["train", "images", "--root", "list.csv", *SHORT],
            "is a table, not a folder of images: read it with --data table",
        ),
        (["train", "images", "--data", "table", "--root", "photos", *SHORT], "is a folder, not a table: images in one"),
        (["train", "unnamed.toml"], '[loss] needs a name, as in name = "..."'),
        (["train", "broken.toml"], "not valid TOML"),
        (["train", "rows.npz"], "rows.npz is data, not a recipe: kinfold train features --root rows.npz"),
        (["train", "photos"], "'photos' is data, not a recipe: kinfold train images --root photos"),
        (["train", "empty.toml"], "empty.toml is empty: `kinfold list recipes glyphs` prints a recipe"),
        (["train", "features", "--root", "row.npz"], "row.npz\nhelp: did you mean '"),
        (["train", "images", "--root", "rows.npz"], "is a feature file, not a folder of images"),
        (["train", "features", "--root", "one.npz"], "one has one training class, 'ant': give two at least"),
        (["train", "features", "--root", "zero.npz"], "zero.npz is empty: it has 0 bytes"),
        (["train", "images", "--data", "table", "--root", "semicolon.csv"], "separates its columns by ';'"),
        (
            ["train", "features", "--root", "rows.npz", "--lr", "1"],
            "help: it is a setting of the recipe: --set optimizer.lr=",
        ),
        (["train", "features", "--root", "rows.npz", "--batch-size", "9"], "--set sampler.batch_size="),
        (["train", "features", "--root", "rows.npz", "--set", "lr=1"], "help: did you mean 'optimizer.lr'?"),
        (["train", "features", "--root", "rows.npz", "--drop", "list.csv"], "a file that kinfold data audit --out"),
        (["train", "features", "--set", "evaluation.metrics=map@r"], 'must be a list, as in ["map@r"], got'),
        (["train", "images", "--root", "empty", *SHORT], "put them into one sub-folder for each class"),
        (["train", "images", "--data", "table", "--root", "list.csv", *SHORT], "--set data.options.columns.path=..."),
        (["train", "images", "--data", "table", "--root", "gone.csv", *SHORT], "99.png is missing"),
        (["train", "glyphs", "--resume", "runs/a"], "--resume continues a run as it was begun"),
        (["train", "--resume", "runs/zzz"], "not the folder of a run"),
        (
            ["evaluate", "rows.npz", "-m", "recall@one"],
            "error: unknown metric 'recall@one'\nhelp: did you mean 'recall@1'?",
        ),
        (["evaluate", "rows.npz", "--device", "cuda:7"], "the device 'cuda:7' cannot be used here"),
        (["evaluate", "text.npz"], "text.npz is not an .npz file of plain numbers and text: numpy.savez writes one"),
        (["evaluate", "list.csv"], "embeddings and labels belong in one .npz file: numpy.savez("),
        (
            ["evaluate", "nan.npz"],
            "row 3 (counted from 0) of embeddings holds NaN or infinite values (1 such from there on)",
        ),
        (["evaluate", "names.npz"], "among vectors, species; say which one it is, as in --embeddings-key vectors"),
        (["search", "RUN", "#9999"], "there is no item 9999"),
        (["search", "RUN", "wren.jpg"], "there is no file wren.jpg; a query is an image"),
        (["export", "RUN", "--out", "model.tflite"], "--out must end in .onnx or .pt2"),
        (["embed", "RUN", "--split", "tset", "--out", "e.npz"], "no split 'tset'; it has"),
        (["report", "empty"], "neither a run, nor a bench"),
        (["bench", "rows.npz"], "kinfold bench --losses margin,triplet --root rows.npz"),
        (["bench", "empty.toml"], "the file needs method, data"),
        (["evaluate", "photos"], "kinfold train and kinfold adapt write one"),
        (["evaluate", "line.npz"], "embeddings must be numbers of shape (N, d), got float32 (240,)"),
        (
            ["embed", "photos", "--out", "e.npz"],
            "photos is data: give the name of its reader and the path, folder --root",
        ),
        (["embed", "folder", "--root", "photos", "--out", "e.npz"], "broken.png is not an image"),
        (["embed", "features", "--root", "rows.npz", "--out", "rows.npz"], "would be lost: write to another file"),
        (["compress", "rows.npz", "--out", "rows.npz"], "would be lost: write to another file"),
        (["data", "audit", "table", "--root", "list.csv", "--out", "list.csv"], "would be lost: write to another file"),
        (
            ["data", "audit", "features", "--root", "rows.npz", "--out", "x/a.csv"],
            "there is no folder x to write a.csv to",
        ),
        (["compress", "rows.npz", "--out", "x/codes.npz"], "there is no folder x to write codes.npz to"),
        (["data", "check", "photos"], "photos is data: give the name of its reader and the path, folder --root photos"),
        (["gallery", "build", "g", "line.npz"], "embeddings must be numbers of shape (N, d)"),
        (["gallery", "build", "g", "photos", "--run", "RUN"], "embeds features, but photos holds images"),
        (["gallery", "build", "g", "gone.npz"], "there is no file or folder gone.npz"),
        (["gallery", "build", "list.csv", "rows.npz"], "list.csv is a file: name a folder"),
        (["report", "RUN", "--images", "gone", "--out", "r.html"], "there is no folder gone"),
        (["report", "RUN", "--figures", "list.csv", "--out", "r.html"], "list.csv is a file"),
        (["adapt", "tests.npz", "--out", "a"], "adapt learns from training rows"),
        (["adapt", "rows.npz", "--out", "list.csv"], "list.csv is a file: name a folder"),
        (["reproduce", "dro/table1", "--scale", "small", "--methods", "gone"], "there is no method 'gone'"),
        (["reproduce", "dro/table1", "--scale", "small", "--out", "list.csv"], "list.csv is a file"),
        (["check", "margin", "--set", "marign=1"], "Margin has no option 'marign'\nhelp: did you mean 'margin'?"),
        (["check", "margin", "--device", "gpu"], "the device 'gpu' cannot be used here"),
        (["board", "gone", "--out", "list.csv"], "list.csv is a file"),
        (["board", "gone", "--tolerance", "-1"], "--tolerance must be at least 0"),
        (["evaluate", "rows.npz", "--metrics", ","], "--metrics names no metric"),
        (["evaluate", "rows.npz", "--distance", "cosin"], "\nhelp: did you mean 'cosine'?"),
        (["evaluate", "rows.npz", "--intervals", "clases"], "\nhelp: did you mean 'classes'?"),
        (["evaluate", "tests.npz", "--split", "tset"], "\nhelp: did you mean 'test'?"),
        (["adapt", "rows.npz", "--out", "a", "--metrics", "recal@1"], "\nhelp: did you mean 'recall@1'?"),
        (["adapt", "rows.npz", "--out", "a", "--distance", "cosin"], "\nhelp: did you mean 'cosine'?"),
        (["adapt", "nan.npz", "--out", "a"], "row 3 (counted from 0) of the embeddings in"),
        (["adapt", "equal.npz", "--out", "a"], "all training rows of equal are equal: no map can separate their"),
        (["check", "margin", "--set", "margin=wide"], "margin must be a number, got 'wide'"),
        (["compress", "rows.npz", "--dims", "3,x"], "--dims must be integers, as in 512,128; got '3,x'"),
        (["compress", "rows.npz", "--metric", "nmi"], "nmi has no value for each query"),
        (["compress", "singles.npz"], "recall@1 has no value: no class has two items"),
        (["compress", "rows.npz", "--out", "codes.txt"], "--out writes an .npz file, got 'codes.txt'"),
        (["compress", "RUN", "--split", "train"], "the training classes say nothing about new classes"),
        (["gallery", "build", "g", "bare.npz"], "call it labels, or give the class of all rows, --label wren"),
        (["gallery", "build", "g", "rows.npz", "--label"], "help: `kinfold gallery build --help` shows all"),
        (["upgrade", "RUN", "RUN", "--out", "x/map.safetensors"], "there is no folder x to write map.safetensors to"),
        (["search", "RUN", "photos"], "error: photos is a folder; a query is an image, an .npy file"),
        (["calibrate", "RUN", "--far", "2"], "far must be above 0 and below 1, got 2.0"),
        (["report", "photos"], "nor a folder of runs; kinfold train and kinfold adapt make runs"),
        (["board", "nowhere"], "error: there is no folder nowhere"),
        (["bench", "--resume", "nowhere"], "error: there is no folder nowhere"),
        (["demo", "--out", "rows.npz"], "error: rows.npz is a file: name a folder"),
        (["list", "looses"], "error: unknown kind 'looses'\nhelp: did you mean 'losses'?\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_gets_an_error_with_a_hint_and_writes_nothing(desk, capsys, monkeypatch, arguments, hint):
    before = {path.name: path.stat().st_mtime_ns for path in desk.iterdir()}
    command = [str(feature_run()) if argument == "RUN" else argument for argument in arguments]
    code, output, errors = run(capsys, monkeypatch, *command)
    assert code == 2
    assert output == ""
    assert hint in errors, errors
    assert "Traceback" not in errors
    assert {path.name: path.stat().st_mtime_ns for path in desk.iterdir()} == before


def test_a_broken_image_is_named_and_skipped_on_request(desk, capsys, monkeypatch):
    small = ["--set", "sampler.batch_size=8", "--set", "sampler.per_class=2", "--set", "data.workers=0"]
    model = ["--set", "model.backbone=conv4", "--set", "model.weights=none", "--set", "model.batch_norm=train"]
    command = ["train", "images", "--root", "photos", *SHORT, *small, *model, "--out", "runs/photos"]
    code, _, errors = run(capsys, monkeypatch, *command)
    assert code == 2
    assert "broken.png is not an image" in errors
    assert "errors='skip'" in errors
    assert not (desk / "runs").exists()
    code, _, errors = run(capsys, monkeypatch, *command, "--set", "data.errors=skip")
    assert code == 0, errors


def test_features_with_fewer_dimensions_than_the_recipe_are_accepted(desk, capsys, monkeypatch):
    """The recipe asks for 512 dimensions; a linear map of 16 features has 16."""
    code, _, errors = run(
        capsys, monkeypatch, "train", "features", "--root", "rows.npz", "--set", "training.steps=2", "--out", "r"
    )
    assert code == 0, errors
    assert "dim = 16" in (desk / "r" / "configuration.toml").read_text()


def test_more_dimensions_than_features_print_a_warning(desk, capsys, monkeypatch):
    code, _, errors = run(
        capsys,
        monkeypatch,
        "train",
        "features",
        "--root",
        "rows.npz",
        *SHORT[:2],
        "--set",
        "model.dim=99",
        "--out",
        "r",
    )
    assert code == 0
    assert "model.dim is 16, not 99" in errors


def test_another_sampler_keeps_the_options_it_shares(desk, capsys, monkeypatch):
    command = ["train", "features", "--root", "rows.npz", *SHORT, "--out", "r", "--sampler", "random"]
    code, _, errors = run(capsys, monkeypatch, *command)
    assert code == 0, errors
    written = (desk / "r" / "configuration.toml").read_text()
    assert "batch_size = 80" in written
    assert "per_class" not in written


@pytest.mark.parametrize("loss", ["proxy-anchor", "multi-similarity", "lifted", "dro-topk"])
def test_another_loss_is_not_given_the_miner_of_the_one_it_replaces(desk, capsys, monkeypatch, loss):
    command = ["train", "features", "--root", "rows.npz", "--loss", loss, "--set", "training.steps=2", "--out", "r"]
    code, _, errors = run(capsys, monkeypatch, *command)
    assert code == 0, errors
    written = (desk / "r" / "configuration.toml").read_text()
    assert "distance-weighted" not in written
    assert ("[miner]" in written) == (loss == "lifted")  # which has a default miner


@pytest.mark.parametrize(("miner", "written"), [("semihard", True), ("none", False)])
def test_a_miner_can_be_set_by_name_or_removed(desk, capsys, monkeypatch, miner, written):
    command = ["train", "features", "--root", "rows.npz", "--loss", "triplet", "--miner", miner, *SHORT, "--out", "r"]
    code, _, errors = run(capsys, monkeypatch, *command)
    assert code == 0, errors
    assert ('[miner]\nname = "semihard"' in (desk / "r" / "configuration.toml").read_text()) == written


def test_a_training_that_diverges_ends_with_code_one(desk, capsys, monkeypatch):
    command = ["train", "features", "--root", "rows.npz", *SHORT, *WILD, "--out", "r"]
    code, output, errors = run(capsys, monkeypatch, *command, "--set", "training.steps=20")
    assert code == 1, errors
    assert "training diverged: the loss or the weights were not finite at step" in errors
    assert "of 20" in output


def test_a_run_is_not_continued_on_other_data(desk, capsys, monkeypatch):
    command = ["train", "features", "--root", "rows.npz", *SHORT, "--out", "r"]
    assert run(capsys, monkeypatch, *command)[0] == 0
    (desk / "r" / "scores.json").unlink()
    kept = (desk / "rows.npz").read_bytes()
    rows, labels = np.load("rows.npz")["embeddings"], np.load("rows.npz")["labels"]
    for other in ({"embeddings": rows[::-1], "labels": labels}, {"embeddings": rows, "labels": labels // 2}):
        np.savez("rows.npz", **other)
        code, _, errors = run(capsys, monkeypatch, "train", "--resume", "r")
        assert code == 2
        assert "the data is not what r began with: restore it, or begin a new run" in errors
    (desk / "rows.npz").write_bytes(kept)
    assert run(capsys, monkeypatch, "train", "--resume", "r")[0] == 0
