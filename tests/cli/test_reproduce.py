"""`kinfold reproduce` as a user types it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import kinfold
from kinfold.files.checksums import SHA256
from kinfold.models import create
from kinfold.papers import published
from kinfold.training.config.parsing import read_tables
from kinfold.training.run import Run
from tests.cli.runs import run
from tests.data.trees import cub_tree
from tests.experiments.tiny import Inline
from tests.papers.features import feature_file


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return feature_file(tmp_path_factory.mktemp("features"))


def test_without_a_name_the_tables_are_listed(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "reproduce")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == published.list_tables()
    assert "Recall on CUB-200-2011 and Cars-196, d = 1024 (Table 1)" in out
    _, out, _ = run(capsys, monkeypatch, "list", "tables")
    assert [line.split()[0] for line in out.splitlines()] == published.list_tables()


def test_every_table_is_on_the_page_with_its_rows():
    page = (Path(__file__).parents[2] / "docs" / "reproducing.md").read_text()
    for name in published.list_tables():
        table = published.load_table(name)
        not_run = sum(row.not_run is not None for row in table.rows)
        data = ", ".join(table.data) or "-"
        counts = f"{len(table.rows) - not_run} | {not_run}"
        assert f"| `{name}` | {table.title} | {table.source} | {table.kind} | {data} | {counts} |" in page


def test_everything_is_listed_with_source_settings_and_published_numbers(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "reproduce", "--all", "--dry-run", "--json")
    assert code == 0
    listed = json.loads(out)
    tables = [published.load_table(name) for name in published.list_tables()]
    assert [(entry["table"], entry["row"]) for entry in listed] == [
        (t.name, row.name) for t in tables for row in t.rows
    ]
    for entry in listed:
        assert entry["source"]
        assert entry["paper"]
        assert bool(entry["settings"]) != bool(entry["not_run"])
    result = next(entry for entry in listed if (entry["table"], entry["row"]) == ("dro/table1", "dro-topk-binomial"))
    assert result["published"]["cub"]["recall@1"] == 68.1
    assert result["settings"]["cub"]["loss"] == {"name": "dro-topk", "k": 160, "pair_loss": "binomial"}
    assert any(need.startswith("weights") for need in result["needs"]["cub"])


def test_a_dry_run_prints_what_is_needed_and_writes_nothing(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, monkeypatch, "reproduce", "dro/table1", "--row", "dro-kl-margin", "--dry-run")
    assert code == 0
    assert "dro-kl-margin: DRO-KL_M: loss dro-kl gamma=0.1; sampler spc batch_size=80 per_class=5; 7200 steps" in out
    assert "data: CUB_200_2011.tgz" in out
    assert "give --weights FILE" in out
    assert "expect honest numbers to be lower" in out
    assert not [*tmp_path.iterdir()]


def test_a_row_runs_at_small_scale_and_is_shown_beside_the_published_number(capsys, monkeypatch, features, tmp_path):
    arguments = ["reproduce", "dro/table1", "--row", "dro-topk-margin", "--scale", "small", "--steps", "2"]
    arguments += ["--features", features, "--jobs", "1", "--out", tmp_path / "out"]
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert code == 0, err
    line = next(line for line in out.splitlines() if "DRO-TopK_M" in line)
    cells = [tiny_run.strip() for tiny_run in line.split("│")[2:-1]]
    assert cells[1::2] == ["67.4", "77.7", "85.9", "91.6", "95.0", "97.3"]
    assert all(0 <= float(tiny_run) <= 100 for tiny_run in cells[::2])
    assert "small scale: model.backbone: bn-inception -> features" in out
    assert "caveats:" in out
    kept = json.loads((tmp_path / "out" / "cub" / "published.json").read_text())
    assert SHA256.fullmatch(kept.pop("sha256"))
    assert f"{100 * kept['rows'][0]['ours']['recall@1']['mean']:.1f}" == cells[0]
    assert "67.4" in (tmp_path / "out" / "cub" / "published.md").read_text()
    # once more: everything is done already, and the numbers are the same
    code, out, err = run(capsys, monkeypatch, *arguments, "--json")
    assert code == 0, err
    assert json.loads(out) == [kept]


@pytest.mark.slow
def test_a_row_runs_on_glyphs_in_its_own_process(tmp_path):
    arguments = ["reproduce", "dro/table1", "--row", "dro-topk-margin", "--scale", "small", "--steps", "2"]
    results = subprocess.run(
        [sys.executable, "-m", "kinfold", *arguments, "--jobs", "1"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=600,
        cwd=tmp_path,
    )
    assert results.returncode == 0, results.stderr
    assert "67.4" in results.stdout
    assert (tmp_path / "bench" / "dro" / "table1-small" / "cub" / "published.md").is_file()


@pytest.fixture
def inline(monkeypatch):
    """Run tasks in this process."""
    monkeypatch.setattr("kinfold.experiments.Processes", lambda *_: Inline())


@pytest.mark.slow
@pytest.mark.usefixtures("inline")
def test_a_failed_row_is_reported_and_sets_the_exit_code(capsys, monkeypatch, features, tmp_path):
    def fail(*_, **__):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(kinfold.dro.Robust, "forward", fail)
    code, out, _ = run(
        capsys,
        monkeypatch,
        *("reproduce", "dro/table1", "--row", "dro-topk-margin", "--scale", "small", "--features", features),
        *("--steps", "2", "--jobs", "1", "--out", tmp_path / "out"),
    )
    assert code == 1
    assert "failed: runs/cub/dro-topk-margin/seed-0/fold-0" in out


@pytest.mark.usefixtures("inline")
def test_an_option_that_the_loss_refuses_is_an_error_before_any_row(capsys, monkeypatch, features, tmp_path):
    arguments = ["reproduce", "dro/table1", "--row", "dro-topk-margin", "--scale", "small", "--features", features]
    code, _, errors = run(capsys, monkeypatch, *arguments, "--out", tmp_path / "out", "--set", "loss.k=-1")
    assert code == 2
    assert "dro-topk-margin on cub: k or effective, the number of entries, must be at least 1, got -1" in errors


@pytest.mark.usefixtures("inline")
def test_several_tables_have_an_index_that_links_their_pages(capsys, monkeypatch, features, tmp_path):
    names = ("drml/figure1", "precision-at-k/tsne")
    arguments = ["--scale", "small", "--features", features, "--steps", "1", "--seeds", "1", "--jobs", "1"]
    code, out, err = run(capsys, monkeypatch, "reproduce", *names, *arguments, "--out", tmp_path / "out")
    assert code == 0, err
    assert out.rstrip().endswith(str(tmp_path / "out" / "index.html"))
    page = (tmp_path / "out" / "index.html").read_text()
    for link in ("drml/figure1/cub/published.html", "precision-at-k/tsne/sop/published.html"):
        assert f'href="{link}"' in page
        assert (tmp_path / "out" / link).is_file()
    states = json.loads((tmp_path / "out" / "index.json").read_text())
    assert states["rows"] == {"run": 2}


def start_small_tables(features, folder):
    names = ("dro/table4", "drml/figure1", "revisiting/mixup")
    options = ["--steps", "4", "--seeds", "1", "--jobs", "1", "--features", str(features), "--out", str(folder)]
    return subprocess.Popen(
        [sys.executable, "-m", "kinfold", "reproduce", *names, "--scale", "small", *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_after_a_kill_the_same_command_ends_with_the_same_numbers(features, tmp_path):
    """Killed after the first page, and once more while the second table is trained."""
    undisturbed = start_small_tables(features, tmp_path / "undisturbed")
    assert undisturbed.wait(timeout=600) == 0
    for awaited in ("dro/table4/in-shop/published.html", "revisiting/mixup/cub/records"):
        process = start_small_tables(features, tmp_path / "killed")
        deadline = time.monotonic() + 600
        while not (tmp_path / "killed" / awaited).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert process.poll() is None, "it ended before the kill"
        process.kill()
        process.wait()
    assert start_small_tables(features, tmp_path / "killed").wait(timeout=600) == 0
    first, second = (
        {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("published.json")}
        for folder in (tmp_path / "undisturbed", tmp_path / "killed")
    )
    assert len(first) == 3
    assert {name: numbers_of(text) for name, text in second.items()} == {
        name: numbers_of(text) for name, text in first.items()
    }
    pages = [(tmp_path / folder / "index.html").read_text() for folder in ("undisturbed", "killed")]
    assert pages[0] == pages[1]


def numbers_of(text):
    return {row["row"]: row["ours"] for row in json.loads(text)["rows"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dro/tabel1"], "did you mean 'dro/table1'"),
        (
            ["dro/table3", "--row", "fashion-net"],
            "is a number only: its network (FashionNet) pools features at landmarks",
        ),
        (["dro/table1", "--row", "dro-topk"], "did you mean"),
        (["dro/table1", "dro/table2", "--row", "dro-kl-margin"], "--row chooses rows of one table"),
        (["dro/table1"], "give --root DIR with the data set in DIR/cub"),
        (["dro/table1", "--root", "nowhere"], "there is no folder nowhere"),
        (["dro/table1", "--steps", "5"], "--steps is for --scale small"),
        (["dro/table1", "--scale", "small", "--features", "no.npz"], "there is no file no.npz"),
        (["revisiting/figure8", "--trials", "3"], "--trials 3: none of these rows says what its authors tuned"),
        (["revisiting/toy-diagonal", "dro/runtime", "--data", "cub"], "none of these tables is on cub"),
    ],
)
def test_invalid_input_is_refused_before_anything_runs(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, monkeypatch, "reproduce", *arguments)
    assert code == 2
    assert message in err
    assert not [*tmp_path.iterdir()]


def test_missing_weights_are_reported_where_the_data_exists(capsys, monkeypatch, tmp_path):
    for name in ("cub", "cars"):
        (tmp_path / name).mkdir()
    code, _, err = run(capsys, monkeypatch, "reproduce", "dro/table1", "--root", tmp_path)
    assert code == 2
    assert "the published weights of bn-inception are a local file: give --weights FILE" in err
    assert "is needed" not in err


def test_weights_may_be_set_for_one_backbone(capsys, monkeypatch, tmp_path):
    (tmp_path / "w.pth").touch()
    tiny_settings = ["--weights", f"resnet50={tmp_path / 'w.pth'}", "--dry-run", "--json"]
    code, out, _ = run(capsys, monkeypatch, "reproduce", "revisiting/table4", "dro/table1", *tiny_settings)
    assert code == 0
    rows = {(entry["table"], entry["row"]): entry for entry in json.loads(out)}
    settings = rows["revisiting/table4", "softmax"]["settings"]["cub"]
    assert settings["model"]["weights"] == str(tmp_path / "w.pth")
    assert any("bn-inception" in line for line in rows["dro/table1", "dro-kl-margin"]["missing"])


@pytest.mark.slow
def test_at_full_scale_the_data_below_the_root_and_the_weights_are_used(capsys, monkeypatch, tmp_path):
    cub_tree(tmp_path / "data" / "cub")
    torch.save(create("resnet50", dim=4).backbone.state_dict(), tmp_path / "resnet50.pth")
    code, out, err = run(
        capsys,
        monkeypatch,
        *("reproduce", "revisiting/table4", "--row", "triplet-d"),
        *("--root", tmp_path / "data", "--out", tmp_path / "out", "--set", "data.options.check=false"),
        *("--weights", tmp_path / "resnet50.pth", "--seeds", "1", "--jobs", "1", "--as-published"),
        # two classes of two photos each are to learn from
        *("--set", "training.epochs=1", "--set", "sampler.batch_size=4", "--set", "evaluation.every=1"),
    )
    assert code == 0, err + out
    assert "INFLATED" in out
    (tiny_run,) = (tmp_path / "out" / "cub" / "runs" / "cub" / "triplet-d").glob("seed-0/fold-0")
    kept = read_tables(Run.open(tiny_run).run_folder.configuration)
    assert kept["model"]["weights"] == str(tmp_path / "resnet50.pth")
    assert kept["data"]["root"] == str(tmp_path / "data" / "cub")
