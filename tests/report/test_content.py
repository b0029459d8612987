"""What a report is made of: true numbers, and commands that make them again."""

import json
import shlex
import shutil

import numpy as np
import pytest

from kinfold.experiments import Bench
from kinfold.experiments.repeat import Repeat
from kinfold.experiments.statistics import compute_interval
from kinfold.files.documents import write_result
from kinfold.report import collect_content
from kinfold.report.charts import Series
from kinfold.report.content.json_values import decode_array
from kinfold.report.content.training_curves import needs_log_scale
from kinfold.report.figures.tables import format_tables
from kinfold.training import Run, train
from kinfold.training.config.parsing import merge_tables
from kinfold.tsne import has_tsne
from tests.cli.runs import run as kinfold
from tests.experiments.tiny import TWELVE, made, suite
from tests.report.runs import NAMES, RECIPE, feature_file, feature_run, said


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    made(suite(folder, **{**TWELVE, "seeds": [0, 1, 2]}), folder / "tiny")
    return folder / "tiny"


@pytest.fixture(scope="module")
def of_bench(bench):
    return collect_content(bench)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return feature_run(tmp_path_factory.mktemp("finished"))


def test_everything_is_plain_json(of_bench):
    assert json.loads(json.dumps(of_bench, allow_nan=False)) == of_bench


def test_means_and_intervals_are_those_of_the_repeats(bench, of_bench):
    (table,) = of_bench["tables"]
    assert sorted(row["method"] for row in table["rows"]) == ["contrastive", "triplet"]
    for row in table["rows"]:
        for column in table["columns"]:
            folders = [bench / "runs" / "tiny" / row["method"] / f"seed-{seed}" for seed in (0, 1, 2)]
            expected = compute_interval([Repeat.open(folder).scores["separated"][column["key"]] for folder in folders])
            cell = row["cells"][column["key"]]
            assert (cell["mean"], cell["half_width"], cell["count"]) == (expected.mean, expected.half_width, 3)
    compared = Bench.open(bench).compared("tiny", "separated")
    # methods that selected the start are not compared; tests/experiments/test_results.py has such a bench
    listed = [row for row in compared.rows if not {row.first, row.second} & {*compared.untrained}]
    assert [(row["p"], row["adjusted"]) for row in table["comparisons"]] == [(r.p, r.adjusted) for r in listed]


def test_the_best_row_comes_first(of_bench):
    (table,) = of_bench["tables"]
    means = [row["cells"]["recall@1"]["mean"] for row in table["rows"]]
    assert means == sorted(means, reverse=True)
    assert table["sorted"] == "recall@1"


def test_what_stands_after_a_mean_is_said_and_few_repeats_are_cautioned_about(of_bench):
    (table,) = of_bench["tables"]
    assert any(note.startswith("±: half width of the 95 % interval of the mean") for note in table["notes"])
    assert any(note.startswith("caution: with 3 repeats the test leans on") for note in table["notes"])


def test_every_stage_of_long_work_is_told(bench, tmp_path):
    shutil.copytree(bench, tmp_path / "tiny", ignore=shutil.ignore_patterns("cache"))
    reported = []
    collect_content(tmp_path / "tiny", progress=lambda stage, share: reported.append((stage, share)))
    for stage in (
        *("triplet, seed 0: neighbors, curves and map", "contrastive, seed 0: neighbors, curves and map"),
        *("images of the report", "diagnostics of the training classes", "pair weights of the losses"),
    ):
        assert [share for name, share in reported if name == stage] == [0.0, 1.0], stage


@pytest.mark.parametrize("text", ["", "[]", '{"data": "rows"}', '{"data": "rows", "rows": {"a": [{"recall@1": "x"}]}}'])
def test_references_that_cannot_be_read_are_left_out(finished, tmp_path, text):
    shutil.copytree(finished.folder, tmp_path / "run")
    (tmp_path / "run" / "references.json").write_text(text)
    assert [row["method"] for row in collect_content(tmp_path / "run")["tables"][0]["rows"]] == ["margin"]


def test_the_command_of_a_row_makes_its_numbers_again(bench, of_bench, tmp_path, monkeypatch, capsys):
    """On a copy elsewhere, from the folder that the commands are relative to."""
    shutil.copytree(bench, tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    row = of_bench["tables"][0]["rows"][0]
    lines = row["command"].splitlines()
    assert len(lines) == 3
    values = []
    for line in lines:
        code, printed, errors = kinfold(capsys, monkeypatch, *shlex.split(line)[1:], "--json")
        assert code == 0, errors
        values.append(json.loads(printed)["test"]["map@r"])
    assert sum(values) / 3 == pytest.approx(row["cells"]["map@r"]["mean"], abs=1e-12)


def test_the_configuration_of_a_row_has_what_the_search_chose(bench, of_bench):
    for row in of_bench["tables"][0]["rows"]:
        given = Run.open(bench / "runs" / "tiny" / row["method"] / "seed-0" / "fold-0").config
        assert f"lr = {given.optimizer.lr!r}" in row["configuration"]


def test_no_place_of_the_machine_is_told(bench, of_bench, finished):
    for folder, content in ((bench, of_bench), (finished.folder, collect_content(finished.folder))):
        text = json.dumps(content)
        assert str(folder.parent) not in text
        assert "rows.npz" in text or "tiny.npz" in text  # by its last name
        assert "# shortened here to the last name: data.root" in content["tables"][0]["rows"][0]["configuration"]


def test_training_curves_are_means_with_the_smallest_and_largest(bench, of_bench):
    chart = next(chart for chart in of_bench["charts"]["training"] if chart["title"] == "validation map@r")
    line = next(series for series in chart["series"] if series["name"] == "triplet")
    found = {}
    for seed in (0, 1, 2):
        for event in Run.open(bench / "runs" / "tiny" / "triplet" / f"seed-{seed}" / "fold-0").events:
            if event["event"] == "evaluation":
                found.setdefault(event["step"], []).append(event["map@r"])
    assert line["x"] == sorted(found)
    for place, step in enumerate(line["x"]):
        values = found[step]
        expected = (sum(values) / 3, min(values), max(values))
        assert (line["y"][place], line["low"][place], line["high"][place]) == pytest.approx(expected, rel=1e-4)
    assert of_bench["charts"]["training"][0]["title"] == "loss"


def test_one_seed_has_no_band_and_no_interval(finished):
    content = collect_content(finished.folder)
    assert content["kind"] == "run"
    assert said(content, "one seed")
    assert content["charts"]["training"][0]["series"][0]["low"] == [None] * 6
    cell = content["tables"][0]["rows"][0]["cells"]["recall@1"]
    assert (cell["mean"], cell["half_width"]) == (finished.scores["test"]["recall@1"], None)


def test_diagnostics_are_those_that_the_runs_measured(bench, of_bench):
    charts = {chart["name"].partition(" ")[0]: chart for chart in of_bench["charts"]["diagnostics"]}
    assert all(chart["title"] == f"recall@1 against {name}" for name, chart in charts.items())
    assert {"rho@1", "rho@2", "density", "uniformity", "alignment"} <= set(charts)
    each = [Repeat.open(bench / "runs" / "tiny" / "triplet" / f"seed-{seed}").scores for seed in (0, 1, 2)]
    (series,) = (series for series in charts["rho@1"]["series"] if series["name"] == "triplet")
    assert series["x"] == pytest.approx([np.mean([one["train_space"]["rho@1"] for one in each])], rel=1e-4)
    assert series["y"] == pytest.approx([np.mean([one["separated"]["recall@1"] for one in each])], rel=1e-4)
    assert said(of_bench, "of the first run of each method only")


def test_names_are_passed_on_as_they_are(finished):
    (space,) = collect_content(finished.folder)["spaces"]
    assert sorted(space["classes"]) == sorted(NAMES)
    assert space["thumbnails"] is None


def test_features_are_shown_by_labels(finished):
    content = collect_content(finished.folder)
    assert content["thumbnails"] is None
    assert said(content, "features, not images; labels are shown instead")


def test_runs_that_differ_in_their_seeds_are_one_method(tmp_path):
    data = {"data": {"name": "features", "root": str(feature_file(tmp_path))}}
    for loss in ("margin", "triplet"):
        for seed in (0, 1):
            train(
                merge_tables(RECIPE, data, {"loss": {"name": loss}, "seed": seed}), tmp_path / "all" / f"{loss}-{seed}"
            )
    content = collect_content(tmp_path / "all")
    (table,) = content["tables"]
    assert [row["method"] for row in table["rows"]] == ["margin", "triplet"]
    assert [row["cells"]["recall@1"]["count"] for row in table["rows"]] == [2, 2]
    assert table["rows"][1]["command"].splitlines()[1] == (
        "kinfold train all/triplet-1/configuration.toml --out again/all/triplet-1"
    )
    assert len(content["spaces"]) == 2


def test_a_folder_called_after_loss_and_miner_is_shown_as_both_are_written(tmp_path):
    data = {"data": {"name": "features", "root": str(feature_file(tmp_path))}}
    mined = merge_tables(RECIPE, data, {"miner": {"name": "distance-weighted"}})
    for folder in ("margin-distance-weighted-0", "mine-0"):
        train(merge_tables(mined, {"optimizer": {"lr": 0.01}} if folder == "mine-0" else {}), tmp_path / "all" / folder)
    found = {row["method"] for row in collect_content(tmp_path / "all")["tables"][0]["rows"]}
    assert found == {"margin + distance-weighted", "mine"}


def test_shares_are_told_from_other_values(tmp_path):
    training = collect_content(feature_run(tmp_path, {"evaluation": {"diagnose": "always"}}).folder)["charts"][
        "training"
    ]
    shares = {chart["title"]: chart["y"]["limits"] == [0, 1] for chart in training}
    assert shares["validation map@r"]
    assert not shares["loss"]
    assert not shares["train rho@1"]


def test_losses_of_different_size_have_a_logarithmic_axis(bench, monkeypatch):
    def series(*values):
        return Series("a", range(len(values)), values, 0)

    assert needs_log_scale([series(11.0, 9.0, None, 7.0), series(0.5, 0.0, 0.3)])
    assert not needs_log_scale([series(1.0, 0.9), series(0.5, 0.3)])
    assert not needs_log_scale([series(11.0, 9.0), series(0.5, -0.3)])  # which has no logarithm
    assert not needs_log_scale([series(11.0, 0.1)])  # nobody beside it
    assert not needs_log_scale([series(), series(1.0)])
    for far, titles in ((1.0, ["loss"]), (1e9, [])):
        monkeypatch.setattr("kinfold.report.content.training_curves.MAX_LOSS_RATIO", far)
        training = collect_content(bench)["charts"]["training"]
        assert [chart["title"] for chart in training if chart["y"]["scale"] == "log"] == titles


def test_a_bench_that_is_not_complete_says_so(bench, tmp_path):
    shutil.copytree(bench, tmp_path / "tiny")
    shutil.rmtree(tmp_path / "tiny" / "runs" / "tiny" / "triplet" / "seed-2")
    record = tmp_path / "tiny" / "records" / "runs" / "tiny" / "triplet" / "seed-1.json"
    write_result(record, {**json.loads(record.read_text()), "error": "/home/ann/birds/wren.jpg is missing"})
    (tmp_path / "tiny" / "runs" / "tiny" / "triplet" / "seed-1" / "scores.json").unlink()
    content = collect_content(tmp_path / "tiny")
    assert said(content, "runs/tiny/triplet/seed-1 failed: wren.jpg is missing")
    assert said(
        content, "the bench is not complete: 2 of 6 repeats have no result yet (triplet, seed 1, triplet, seed 2)"
    )
    rows = {row["method"]: row for row in content["tables"][0]["rows"]}
    assert rows["triplet"]["cells"]["recall@1"]["count"] == 1
    assert rows["triplet"]["command"] == "kinfold bench --resume tiny"


def test_published_values_stand_beside_ours(bench, tmp_path):
    shutil.copytree(bench, tmp_path / "tiny")
    rows = [
        {
            "row": "triplet",
            "label": "Triplet",
            "quoted": None,
            "published": {"recall@1": [63.6, 0.3]},
            "printed": {"recall@1": "63.60 ± 0.30"},
            "caveats": ["a"],
        },
        {
            "row": "other",
            "label": "Other",
            "quoted": "Song 2016",
            "published": {"recall@1": 55, "map@r": "unreadable"},
            "caveats": [],
        },
    ]
    about = {
        "table": "dro/table1",
        "source": "Table 1",
        "title": "Recall",
        "data": "tiny",
        "notes": ["small scale: data.root: left out -> /home/ann/birds.npz"],
    }
    write_result(tmp_path / "tiny" / "published.json", {**about, "caveats": ["c"], "rows": rows})
    (table,) = collect_content(tmp_path / "tiny")["tables"]
    printed = {row["method"]: row["cells"]["recall@1"]["published"] for row in table["rows"]}
    assert printed == {"contrastive": None, "triplet": 63.6, "Other": 55.0}
    assert {row["method"]: row["cells"]["recall@1"]["printed"] for row in table["rows"]}["triplet"] == "63.60"
    exported = dict(format_tables({"tables": [table]}))
    assert "| 63.60 |" in exported[f"table {table['caption']}"]["md"]
    assert table["rows"][2]["cells"]["map@r"]["published"] == "unreadable"
    assert [row["quoted"] for row in table["rows"]] == [None, None, "Song 2016"]
    assert table["notes"][-4:] == [
        "published: Recall (dro/table1, Table 1)",
        "small scale: data.root: left out -> birds.npz",
        "c",
        "Triplet: a",
    ]


def test_without_scikit_learn_there_is_no_map_but_all_else(finished, monkeypatch):
    monkeypatch.setattr("kinfold.report.content.embedding_spaces.has_tsne", lambda: False)
    monkeypatch.setattr("kinfold.report.content.space_measurements.has_tsne", lambda: False)
    monkeypatch.setattr("kinfold.report.content.collect.has_tsne", lambda: False)
    content = collect_content(finished.folder, points=20)
    assert content["spaces"][0]["map"] is None
    assert len(decode_array(content["spaces"][0]["neighbors"])) == 20
    assert said(content, "t-SNE needs scikit-learn, which is not installed")
    monkeypatch.undo()
    assert has_tsne()
    assert collect_content(finished.folder, points=20)["spaces"][0]["map"] is not None  # as soon as it is there


def test_too_few_points(finished):
    with pytest.raises(ValueError, match="at least 2 points"):
        collect_content(finished.folder, points=1)


@pytest.fixture(scope="module")
def folded(tmp_path_factory):
    """One repeat of a protocol of four folds."""
    folder = tmp_path_factory.mktemp("folded")
    made(suite(folder, protocol="reality-check", base={"training": {"steps": 2}}), folder / "tiny")
    return folder / "tiny"


def test_folds_are_shown_apart_and_side_by_side(folded):
    content = collect_content(folded)
    captions = [table["caption"] for table in content["tables"]]
    assert captions == [
        "tiny, reality-check: test classes",
        "tiny, reality-check: test classes, the models of all folds side by side",
    ]
    repeat = Repeat.open(folded / "runs" / "tiny" / "contrastive" / "seed-0")
    for table, result in zip(content["tables"], ("separated", "concatenated"), strict=True):
        assert table["rows"][0]["cells"]["map@r"]["mean"] == repeat.scores[result]["map@r"]
        assert len(table["rows"][0]["command"].splitlines()) == 4
    assert [space["name"] for space in content["spaces"]] == ["contrastive, seed 0, 4 folds side by side"]
    assert content["spaces"][0]["diagnostics"]["recall@1"] == pytest.approx(
        repeat.scores["concatenated"]["recall@1"], rel=1e-4
    )


def test_a_repeat_on_its_own_is_shown_like_a_run(folded):
    content = collect_content(folded / "runs" / "tiny" / "contrastive" / "seed-0")
    assert content["kind"] == "run"
    assert content["spaces"][0]["split"] == "test"
    assert len(content["tables"]) == 3  # and validation


def test_a_missing_fold_keeps_the_test_classes_held_out(folded, tmp_path):
    shutil.copytree(folded, tmp_path / "tiny", ignore=shutil.ignore_patterns("cache"))
    shutil.rmtree(tmp_path / "tiny" / "runs" / "tiny" / "contrastive" / "seed-0" / "fold-2")
    for folder in (tmp_path / "tiny", tmp_path / "tiny" / "runs" / "tiny" / "contrastive" / "seed-0"):
        content = collect_content(folder)
        assert [space["split"] for space in content["spaces"]] == ["validation"]
        assert content["tables"][0]["rows"][0]["cells"]["map@r"]["mean"] is None
        assert said(content, "the test classes stay held out")
