"""`kinfold evaluate`, in a separate process or through its entry function."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import kinfold
from tests.cli.runs import run
from tests.metrics.embedding_sets import make_embeddings


@pytest.fixture
def file(tmp_path):
    x, labels = make_embeddings("clustered")
    split = np.where(np.arange(260) < 200, "train", "test")
    path = tmp_path / "embeddings.npz"
    np.savez(path, embeddings=x.numpy(), labels=labels, split=split, coarse=labels // 5)
    return path


def test_json_has_the_values_of_the_library(file, capsys, monkeypatch):
    names = ["recall@1", "map@r", "nmi", "nmi-coarse"]
    code, out, _ = run(
        capsys, monkeypatch, "evaluate", file, "--metrics", ",".join(names), "--coarse-key", "coarse", "--json"
    )
    x, labels = make_embeddings("clustered")
    assert code == 0
    result = json.loads(out)
    assert result["metrics"] == kinfold.metrics.evaluate(x, labels, metrics=names, coarse_labels=labels // 5)
    assert (result["queries"], result["gallery"], result["distance"]) == (260, 260, "cosine")


def test_the_table_has_intervals_and_classes(file, capsys, monkeypatch):
    code, out, _ = run(
        capsys, monkeypatch, "evaluate", file, "-m", "recall@1", "--intervals", "classes", "--per-class", "map@r"
    )
    assert code == 0
    result = kinfold.metrics.evaluate(*make_embeddings("clustered"), metrics=["recall@1", "map@r"])
    assert f"{result['recall@1']:.4f}" in out
    assert "95 % interval" in out
    assert "map@r by class" in out
    assert "260 queries, 20 classes, cosine" in out


def test_a_gallery_and_a_condition_are_used(file, tmp_path, capsys, monkeypatch):
    x, labels = make_embeddings("clustered")
    other = tmp_path / "gallery.npz"
    np.savez(other, feat=x[60:].numpy(), cls=labels[60:])
    queries = tmp_path / "queries.npz"
    np.savez(queries, feat=x[:60].numpy().astype(np.float16), cls=labels[:60])
    code, out, _ = run(
        capsys, monkeypatch, "evaluate", queries, "--gallery", other, "--distance", "euclidean", "--json"
    )
    assert code == 0
    wanted = kinfold.metrics.evaluate(x[:60].half(), labels[:60], x[60:], labels[60:], distance="euclidean")
    assert json.loads(out)["metrics"] == wanted
    code, out, _ = run(capsys, monkeypatch, "evaluate", file, "--where", "split=test", "--json")
    assert json.loads(out)["metrics"] == kinfold.metrics.evaluate(x[200:], labels[200:])


def test_levels_and_tags_of_a_file_are_compared(tmp_path, capsys, monkeypatch):
    x, labels = make_embeddings("clustered")
    levels = np.array([f"group {label // 5}/class {label}" for label in labels])
    tags = np.array([f"{label % 3};{3 + label % 4}" for label in labels])
    both, queries, gallery = (tmp_path / f"{name}.npz" for name in ("both", "queries", "gallery"))
    np.savez(both, embeddings=x.numpy(), taxonomy=levels, tags=tags, label=labels)
    np.savez(queries, embeddings=x[60:].numpy(), taxonomy=levels[60:])
    np.savez(gallery, embeddings=x[:60].numpy(), taxonomy=levels[:60])

    def evaluate(*arguments):
        code, out, err = run(capsys, monkeypatch, "evaluate", *arguments, "--json")
        assert code == 0, err
        return json.loads(out)["metrics"]

    degree = (labels[:, None] == labels).astype(float) / 2 + (labels[:, None] // 5 == labels // 5) / 2
    wanted = kinfold.metrics.evaluate_graded(x, torch.from_numpy(degree), metrics=["ndcg@5", "hap"])
    result = evaluate(both, "-m", "ndcg@5,recall@1,hap", "--levels-key", "taxonomy")
    assert list(result) == ["ndcg@5", "recall@1", "hap"]
    assert result["ndcg@5"] == pytest.approx(wanted["ndcg@5"], abs=1e-6)
    assert result["hap"] == pytest.approx(wanted["hap"], abs=1e-6)
    assert result["recall@1"] == kinfold.metrics.evaluate(x, labels, metrics=["recall@1"])["recall@1"]
    shared = (labels[:, None] % 3 == labels % 3) | (labels[:, None] % 4 == labels % 4)
    wanted = kinfold.metrics.evaluate_graded(x, torch.from_numpy(shared), metrics=["ndcg@5"])
    assert evaluate(both, "-m", "ndcg@5", "--tags-key", "tags") == pytest.approx(wanted, abs=1e-6)
    degree = torch.from_numpy(degree[60:, :60])
    wanted = kinfold.metrics.evaluate_graded(x[60:], degree, x[:60], metrics=["hap"])
    result = evaluate(queries, "--gallery", gallery, "-m", "hap,nmi", "--levels-key", "taxonomy")
    assert result["hap"] == pytest.approx(wanted["hap"], abs=1e-6)
    assert result["nmi"] > 0


def test_a_run_on_levels_is_compared_by_them(tmp_path, capsys, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(60, 8)).astype("float32")
    levels = [f"birds/{'owls' if number % 2 else 'crows'}/kind {number % 10}" for number in range(60)]
    np.savez(tmp_path / "related.npz", embeddings=rows, taxonomy=levels, split=["train"] * 40 + ["test"] * 20)
    recipe = {
        "data": {
            "name": "features",
            "root": str(tmp_path / "related.npz"),
            "options": {"columns": {"levels": "taxonomy"}},
        },
        "loss": {"name": "happier"},
        "sampler": {"name": "random", "batch_size": 20},
        "training": {"steps": 2},
        "evaluation": {"every": 2, "metrics": ["ndcg@5", "recall@1"], "metric": "ndcg@5", "selection": "last"},
    }
    scores = kinfold.train(recipe, tmp_path / "run").scores["test"]
    code, out, err = run(capsys, monkeypatch, "evaluate", tmp_path / "run", "-m", "ndcg@5,recall@1", "--json")
    assert code == 0, err
    assert json.loads(out)["metrics"] == pytest.approx(scores, abs=1e-6)


def test_an_undefined_value_is_null_in_json(tmp_path, capsys, monkeypatch):
    path = tmp_path / "alone.npz"
    np.savez(path, embeddings=np.eye(3), labels=["a", "b", "c"])
    code, out, _ = run(capsys, monkeypatch, "evaluate", path, "-m", "recall@1", "--json")
    assert code == 0
    assert json.loads(out)["metrics"] == {"recall@1": None}


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["nothing.npz"], "there is no file nothing.npz"),
        (["FILE", "-m", "recal@1"], "did you mean 'recall@1'"),
        (["FILE", "--distance", "cos"], "cosine, dot, euclidean"),
        (["FILE", "--labels-key", "lables"], "did you mean 'labels'"),
        (["FILE", "-m", "ndcg@10"], "--levels-key or --tags-key"),
        (["FILE", "-m", "recall@1", "--levels-key", "coarse"], "for ndcg@k and hap"),
        (["FILE", "-m", "hap", "--levels-key", "coarse", "--tags-key", "coarse"], "not by both"),
        (["FILE", "-m", "hap", "--levels-key", "coarse", "--intervals", "queries"], "not computed for hap"),
        (["FILE", "-m", "hap", "--levels-key", "coarse", "--per-class", "hap"], "compares related items"),
        (["FILE", "--where", "split"], "name=value"),
        (["FILE", "--where", "split=dev"], "one of test, train"),
        (["FILE", "--intervals", "rows"], "one of 'queries', 'classes'"),
        (["FILE", "--per-class", "nmi"], "no value for each query"),
        (["FILE", "-m", "nmi-coarse"], "coarse_labels"),
    ],
)
def test_mistakes_end_with_code_two_and_a_hint(arguments, hint, file, capsys, monkeypatch):
    command = [str(file) if argument == "FILE" else argument for argument in arguments]
    code, out, errors = run(capsys, monkeypatch, "evaluate", *command)
    assert code == 2
    assert hint in errors
    assert "Traceback" not in errors
    assert out == ""


def test_unreadable_files_are_named(tmp_path, capsys, monkeypatch):
    path = tmp_path / "broken.npz"
    path.write_bytes(b"PK not an archive")
    assert "not an .npz file" in run(capsys, monkeypatch, "evaluate", path)[2]
    np.save(tmp_path / "one.npy", np.eye(3))
    assert "holds one array only" in run(capsys, monkeypatch, "evaluate", tmp_path / "one.npy")[2]
    np.savez(path, embeddings=np.eye(3), labels=np.array([{}, {}, {}], dtype=object))
    assert "holds Python objects" in run(capsys, monkeypatch, "evaluate", path)[2]
    np.savez(path, embeddings=np.eye(3), labels=[1, 1, 2], paths=np.array([{}, {}, {}], dtype=object))
    assert run(capsys, monkeypatch, "evaluate", path)[0] == 0  # arrays that are not used may be anything
    np.savez(path, a=np.eye(3))
    assert "no array of embeddings among a" in run(capsys, monkeypatch, "evaluate", path)[2]
    np.savez(path, embeddings=np.eye(3), labels=[1, 2])
    assert "3 embeddings but 2 labels" in run(capsys, monkeypatch, "evaluate", path)[2]


def test_help_and_version_work_in_a_separate_process():
    environment = {**os.environ, "COLUMNS": "100"}
    printed = subprocess.run(
        [sys.executable, "-m", "kinfold", "evaluate", "--help"], capture_output=True, text=True, env=environment
    )
    assert printed.returncode == 0
    assert "kinfold evaluate test.npz --metrics recall@1,map@r,nmi" in printed.stdout
    version = subprocess.run([sys.executable, "-m", "kinfold", "--version"], capture_output=True, text=True)
    assert version.stdout == f"kinfold {kinfold.__version__}\n"


def test_features_of_photographs_have_the_expected_scores(capsys, monkeypatch):
    """Untrained features of CUB-200-2011, test classes: values that other code measured."""
    folder = os.environ.get("KINFOLD_TEST_DATA")
    path = Path(folder or "nowhere") / "cub200_2011_efflite0.npz"
    if not path.exists():
        pytest.skip("KINFOLD_TEST_DATA does not point to a folder with cub200_2011_efflite0.npz")
    code, out, _ = run(capsys, monkeypatch, "evaluate", path, "--where", "split=test", "--json")
    assert code == 0
    result = json.loads(out)["metrics"]
    expected = {"recall@1": 0.5773, "recall@2": 0.7039, "recall@4": 0.8114, "recall@8": 0.8854}
    assert {name: result[name] for name in expected} == pytest.approx(expected, abs=2e-4)
