"""What a bench writes down is what lies in its run folders, tidy, and the test classes come last."""

import csv
import json
import re
import sys
from copy import copy
from dataclasses import replace

import pyarrow.parquet
import pytest

from kinfold.experiments import Bench, BenchState
from kinfold.experiments.repeat import Repeat
from kinfold.experiments.result_rows import COLUMNS
from kinfold.experiments.statistics import Interval, compare_methods, compute_interval
from kinfold.experiments.tables import TableEntry, render_table
from kinfold.report.content import collect_content
from kinfold.report.content.inputs import find_inputs
from kinfold.report.content.result_tables import describe_tables
from kinfold.report.figures.tables import format_tables
from kinfold.training import Run
from kinfold.training.config.parsing import merge_tables
from tests.cli.runs import run as command
from tests.experiments.tiny import CLASSES, PER_CLASS, TWELVE_RUNS, Inline, run_inline, suite


def test_every_number_is_one_row_with_all_that_identifies_it(bench):
    keys = ("data", "method", "stage", "trial", "seed", "fold", "result", "metric")
    result = [tuple(row[key] for key in keys) for row in bench.rows]
    assert len({*result}) == len(result)
    runs = 4 * 2 * (2 + 2)  # folds of trials and repeats
    repeats = 2 * 2
    # validation of every run; of every repeat validation, separated and concatenated, and one diagnostic
    assert len(result) == 2 * runs + (3 * 2 + 1) * repeats
    assert {row["stage"] for row in bench.rows} == {"search", "train", "test"}
    assert all(tuple(row) == COLUMNS for row in bench.rows)


def test_values_are_those_in_the_run_folders(bench):
    for row in bench.rows:
        folder = bench.bench_folder.path / row["folder"]
        scores = json.loads((folder / "scores.json").read_text())
        result = "train_space" if row["result"] == "train" else row["result"]
        assert row["value"] == scores[result][row["metric"]]
        assert row["inflated"] is False
        assert row["seconds"] > 0
        if row["stage"] != "test":
            config = Run.open(folder).config
            assert (row["seed"], row["fold"]) == (config.seed, config.data.fold)
            assert (row["step"], row["steps"]) == (scores["step"], 4)


def test_csv_and_parquet_agree(bench):
    with open(bench.bench_folder.results, newline="") as file:
        text = [*csv.DictReader(file)]
    rows = pyarrow.parquet.read_table(bench.bench_folder.parquet).to_pylist()
    assert rows == bench.rows
    assert len(text) == len(rows)
    for written, row in zip(text, rows, strict=True):
        assert float(written["value"]) == row["value"]  # every digit
        for key in ("data", "method", "protocol", "stage", "result", "metric", "folder"):
            assert written[key] == row[key]
        for key in ("trial", "seed", "fold", "step", "steps"):
            assert (None if written[key] == "" else int(written[key])) == row[key]
        assert (written["inflated"], written["error"]) == ("false", "")


def test_the_test_classes_are_opened_after_the_last_training(bench):
    last = max(path.stat().st_mtime_ns for path in bench.bench_folder.path.rglob("fold-*/scores.json"))
    first = min(path.stat().st_mtime_ns for path in bench.bench_folder.path.glob("runs/*/*/seed-*/scores.json"))
    assert last < first


def test_no_run_has_test_items(bench):
    for path in bench.bench_folder.path.rglob("fold-*/scores.json"):
        assert "test" not in json.loads(path.read_text())
        run = Run.open(path.parent)
        assert run.config.data.test == "withheld"
        assert set(run.splits()) == {"train", "validation"}


def test_no_test_starts_while_a_run_is_waiting(tmp_path):
    _, names = run_inline(suite(tmp_path, **TWELVE_RUNS), tmp_path / "bench", Inline())
    tested = ["fold-" not in name for name in names]
    assert tested == sorted(tested)
    assert sum(tested) == 8


@pytest.mark.parametrize("result", ["separated", "concatenated"])
def test_tables_and_comparisons_are_over_repeats(bench, result):
    values = {}
    for method in ("contrastive", "triplet"):
        folders = [bench.bench_folder.path / f"runs/tiny/{method}/seed-{seed}/scores.json" for seed in range(2)]
        values[method] = [json.loads(path.read_text())[result]["map@r"] for path in folders]
        assert bench.values("tiny", result, "map@r")[method] == dict(enumerate(values[method]))
    compared = bench.compare("tiny", result)
    assert len(compared.pairs) == 1
    assert {compared.pairs[0].first, compared.pairs[0].second} == {"contrastive", "triplet"}
    sign = 1 if compared.pairs[0].first == "contrastive" else -1
    difference = sign * (sum(values["contrastive"]) - sum(values["triplet"])) / 2
    assert compared.pairs[0].difference == pytest.approx(difference)
    for method, numbers in values.items():
        interval = compute_interval(numbers)
        expected = f"{100 * interval.mean:.1f} ± {100 * interval.half_width:.1f}"
        assert expected in bench.table("tiny", result)
        assert expected in bench.bench_folder.table.read_text()
        assert compared.intervals[method].mean == pytest.approx(interval.mean)


def test_a_repeat_of_a_bench_is_a_model(bench):
    result = bench.open_repeat("tiny", "triplet", 1)
    assert result.embed(result.data("test")).shape == (48, 16)


def test_json_has_what_the_table_has(bench, capsys, monkeypatch):
    code, output, errors = command(
        capsys, monkeypatch, "bench", "--resume", bench.bench_folder.path, "--json", "--jobs", 1
    )
    assert (code, errors) == (0, "")
    document = json.loads(output)
    assert (document["protocol"], document["seeds"], document["inflated"], document["failed"]) == (
        "reality-check",
        [0, 1],
        False,
        {},
    )
    assert [(entry["result"], entry["metric"]) for entry in document["results"]] == [
        ("separated", "recall@1"),
        ("separated", "map@r"),
        ("concatenated", "recall@1"),
        ("concatenated", "map@r"),
    ]
    compared = bench.compare("tiny", "separated", "map@r")
    assert document["results"][1]["methods"]["triplet"]["mean"] == compared.intervals["triplet"].mean
    assert document["results"][1]["best"] == compared.best


def test_the_caption_explains_the_number_after_the_mean(bench):
    lines = bench.table("tiny", "separated").splitlines()[0]
    assert lines == "tiny: reality-check, separated, mean ± half width of its 95 % interval over 2 repeats"


@pytest.fixture
def compared(bench, monkeypatch):
    """Comparisons of a bench whose repeats had these values, as printed in a style."""

    def compare(style="text", metric="map@r", **values):
        monkeypatch.setattr(
            Bench, "values", lambda *_: {name: dict(enumerate(expected)) for name, expected in values.items()}
        )
        base = merge_tables(bench.suite.base, {"evaluation": {"metrics": ["map@r", metric]}})
        settings = replace(bench.suite, metric=metric, baseline=None, base=base)
        return replace(bench, suite=settings).comparison_table("tiny", "separated", style)

    return compare


def test_comparisons_say_their_unit_and_give_every_p_alike(compared):
    lines = compared(triplet=[0.30, 0.31, 0.33], contrastive=[0.50, 0.52, 0.51])
    assert "map@r, percentage points" in lines
    assert "triplet - contrastive" in lines
    row = next(line for line in lines.splitlines() if "triplet - contrastive" in line)
    assert re.search(r"│ +-19\.67 ± \d+\.\d\d │ 0\.00\d │ 0\.00\d \* │$", row)
    row = compared(metric="rho@1", triplet=[0.30, 0.31, 0.33], contrastive=[0.50, 0.52, 0.51]).splitlines()[3]
    assert "-0.1967 ± 0.0" in row  # no percents of what is no share


@pytest.mark.parametrize("style", ["text", "markdown"])
def test_an_asterisk_is_explained_where_there_is_one(compared, style):
    star = {"text": "\n*: significant at 5 %", "markdown": "\n\\*: significant at 5 %"}[style]
    assert star in compared(style, triplet=[0.30, 0.31, 0.33], contrastive=[0.50, 0.52, 0.51])
    alike = compared(style, triplet=[0.50, 0.54, 0.50], contrastive=[0.50, 0.52, 0.51])
    assert "*" not in alike
    assert "none of these is significant at 5 % after Holm's correction over all pairs of methods" in alike


def test_comparisons_of_few_repeats_carry_a_caution(compared):
    few, enough = [0.30, 0.31, 0.33, 0.32], [0.30, 0.31, 0.33, 0.32, 0.31]
    caution = "the test relies on its assumption that differences are normally distributed"
    assert f"with 4 repeats {caution}" in compared(triplet=few, contrastive=[value + 0.2 for value in few])
    assert caution not in compared(triplet=enough, contrastive=[value**2 for value in enough])


def test_every_file_of_results_is_listed(bench, capsys, monkeypatch):
    _, output, _ = command(capsys, monkeypatch, "bench", "--resume", bench.bench_folder.path, "--jobs", 1)
    assert output.splitlines()[-1] == f"{bench.bench_folder.path}: results.csv, results.parquet, table.md"
    assert {"results.csv", "results.parquet", "table.md"} <= {path.name for path in bench.bench_folder.path.iterdir()}


def test_selection_on_the_test_classes_is_marked_everywhere(tmp_path):
    tiny_suite = suite(tmp_path, base={"evaluation": {"selection": "test-oracle"}})
    run_inline(tiny_suite, tmp_path / "bench")
    bench = Bench.open(tmp_path / "bench")
    assert bench.inflated
    assert all(row["inflated"] for row in bench.rows)
    assert "INFLATED: steps chosen on the test classes" in bench.bench_folder.table.read_text()


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """Two methods that train and one that cannot, so that all of its runs select the start."""
    folder = tmp_path_factory.mktemp("untrained")
    methods = [
        {"name": "contrastive", "evaluation": {"selection": "last"}},
        {"name": "triplet", "loss": {"name": "triplet"}, "evaluation": {"selection": "last"}},
        {"name": "still", "optimizer": {"lr": 0.0}},
    ]
    run_inline(suite(folder, method=methods, seeds=[0, 1, 2]), folder / "bench")
    return Bench.open(folder / "bench")


WHY = "3 of 3 repeats selected the start: compared with no method"


def test_a_method_that_never_trained_is_marked_and_compared_with_none(untrained):
    assert untrained.list_untrained("tiny") == {"still": WHY}
    comparison = untrained.compare("tiny", "separated")
    assert len(comparison.pairs) == 3  # all count in the correction
    assert [row.first for row in comparison.pairs if row.p == row.p] == ["contrastive"]
    assert not comparison.is_significant("contrastive", "still")
    assert comparison.best_trained != "still"
    for style in ("text", "markdown"):
        assert WHY in untrained.table("tiny", "separated", style)
        compared = untrained.comparison_table("tiny", "separated", style)
        assert "still - " not in compared
        assert " - still" not in compared
        assert f"not compared: still: {WHY}" in compared
    assert WHY in untrained.bench_folder.table.read_text()


def test_tables_show_the_start_and_the_gain_over_it(untrained):
    for method in ("contrastive", "still"):
        values, starts, gains = (
            [*untrained.values("tiny", "separated", "map@r", column)[method].values()]
            for column in ("value", "start", "gain")
        )
        assert gains == [value - start for value, start in zip(values, starts, strict=True)]
        gain = compute_interval(gains)
        row = next(line for line in untrained.table("tiny", "separated").splitlines() if f"│ {method} " in line)
        assert f"{100 * compute_interval(starts).mean:.1f} " in row
        assert f"{100 * gain.mean:+.1f} ± {100 * gain.half_width:.1f}" in row
    heading = untrained.table("tiny", "separated", "markdown").splitlines()[2]
    assert heading.endswith("| map@r, % | start | gain, percentage points |")


def test_every_export_marks_a_selected_start(untrained, capsys, monkeypatch):
    with open(untrained.bench_folder.results, newline="") as file:
        text = [*csv.DictReader(file)]
    rows = pyarrow.parquet.read_table(untrained.bench_folder.parquet).to_pylist()
    assert rows == untrained.rows
    for written, row in zip(text, rows, strict=True):
        assert row["selected_start"] is (row["method"] == "still")
        assert written["selected_start"] == ("true" if row["method"] == "still" else "false")
        if row["result"] != "train":
            assert float(written["start"]) == row["start"]
            assert float(written["gain"]) == row["value"] - row["start"]
    _, output, _ = command(capsys, monkeypatch, "bench", "--resume", untrained.bench_folder.path, "--json", "--jobs", 1)
    entry = json.loads(output)["results"][1]
    assert entry["not_compared"] == {"still": WHY}
    assert entry["methods"]["still"]["gain"]["mean"] == 0.0
    assert entry["methods"]["triplet"]["start"] == entry["methods"]["contrastive"]["start"] is not None


def test_the_report_marks_a_selected_start_and_compares_it_with_none(untrained, tmp_path):
    content = collect_content(untrained.bench_folder.path, 10)
    (table,) = content["tables"]
    assert f"not compared: still: {WHY}" in table["notes"]
    assert any("still, seed 2: the start was selected" in line for line in content["missing"])
    cells = {row["method"]: row["cells"]["map@r"] for row in table["rows"]}
    assert cells["still"]["note"] == WHY
    assert cells["still"]["gain"] == 0.0
    assert cells["triplet"]["gain"] == pytest.approx(cells["triplet"]["mean"] - cells["triplet"]["start"])
    assert {(row["first"], row["second"]) for row in table["comparisons"]} == {("contrastive", "triplet")}
    written = {kind: text for _, texts in format_tables(content) for kind, text in texts.items() if "start" in text}
    for kind in ("md", "tex"):
        assert "repeats selected the start" in written[kind]
        assert "gain, percentage points" in written[kind]


def test_a_repeat_of_which_some_folds_selected_the_start_says_how_many(bench, monkeypatch):
    rows = [{**row, "selected_start": (row["fold"], row["seed"]) == (1, 0)} for row in bench.rows]
    some = replace(bench)
    some.__dict__["rows"] = rows
    assert some.list_untrained("tiny") == {}
    assert "1 of 8 runs selected the start" in some.table("tiny", "separated")


def test_runs_and_the_test_at_the_end_leave_out_what_an_audit_marks(tmp_path):
    """The first class, in which runs train, and the last one, in which they are tested."""
    marked = [*range(PER_CLASS), *range((CLASSES - 1) * PER_CLASS, CLASSES * PER_CLASS)]
    lines = [f"{row},yes,duplicate,class {row // PER_CLASS:02}" for row in marked]
    (tmp_path / "audit.csv").write_text("\n".join(["row,drop,kind,class", *lines]) + "\n")
    run_inline(suite(tmp_path, base={"data": {"drop": str(tmp_path / "audit.csv")}}), tmp_path / "bench")
    (fold,) = (tmp_path / "bench").rglob("fold-0")
    classes = Run.open(fold).scores["classes"]
    assert classes["train"] + classes["validation"] == 7
    assert [[*split.classes] for split in Repeat.open(fold.parent).splits().values()] == [
        [f"class {number:02}" for number in numbers] for numbers in (range(1, 8), range(8, 15))
    ]
    (audit,) = collect_content(tmp_path / "bench", 10)["audits"]
    assert audit == {
        "file": "audit.csv",
        "methods": ["contrastive"],
        "rows": [{"kind": "duplicate", "found": len(marked), "dropped": len(marked)}],
    }


def test_tables_and_reports_compare_by_the_test_of_the_suite(bench, monkeypatch):
    ranked = copy(bench.suite)
    object.__setattr__(ranked, "test", "rank")  # a suite of so few seeds refuses it
    used = []

    def record(*arguments, **options):
        used.append(options.get("test", arguments[5] if len(arguments) > 5 else "t"))
        return compare_methods(*arguments, **options)

    for module in ("experiments.bench", "experiments.tables", "report.content.result_tables"):
        monkeypatch.setattr(f"kinfold.{module}.compare_methods", record)
    changed = replace(bench, suite=ranked)
    changed.summary()
    describe_tables(replace(find_inputs(bench.bench_folder.path), bench=changed))
    assert len(used) > 4
    assert {*used} == {"rank"}


def test_results_of_an_unfinished_bench_can_be_read(tmp_path):
    class EnoughError(Exception):
        pass

    def stop(state, outcome):
        if state.completed == 1:
            raise EnoughError

    with pytest.raises(EnoughError):
        run_inline(suite(tmp_path, seeds=[0, 1]), tmp_path / "bench", watch=stop)
    bench = Bench.open(tmp_path / "bench")
    assert {(row["stage"], row["seed"]) for row in bench.rows} == {("train", 0)}
    assert bench.compare("tiny", "separated") is None
    assert "contrastive" in bench.summary()


def test_time_left_is_that_of_the_tasks_so_far_over_the_jobs():
    assert BenchState(10).seconds_left is None
    assert BenchState(10, completed=2, seconds=[3.0, 5.0]).seconds_left == 8 * 4.0
    assert BenchState(10, completed=2, seconds=[3.0, 5.0], jobs=4).seconds_left == 8.0
    assert (
        BenchState(10, completed=2, seconds=[3.0, 5.0], running={"a": 0.5, "b": 0.5}, jobs=2).seconds_left
        == 7 * 4.0 / 2
    )
    assert (
        BenchState(10, completed=8, failed={"a": ""}, seconds=[4.0] * 8, jobs=4).seconds_left == 4.0
    )  # one left: others do not help
    assert BenchState(4, completed=4, seconds=[1.0] * 4).seconds_left == 0.0
    assert BenchState(10, completed=5, reused=4, seconds=[2.0]).seconds_left == 10.0


# in a notebook


def test_the_repr_is_short_and_says_what_is_compared(bench):
    sizes = "2 methods, 1 data set, 2 seeds, protocol='reality-check'"
    assert repr(bench) == f"Bench('{bench.bench_folder.path}', {sizes})"
    repeat = bench.open_repeat("tiny", "triplet", 1)
    assert repr(repeat) == f"Repeat('{repeat.folder}', 4 folds, tested)"


def test_html_has_every_table_and_escapes_names(bench):
    page = bench._repr_html_()
    assert page.count("<table>") == 4  # two results, each with a table and its comparisons
    for result in ("separated", "concatenated"):
        interval = bench.compare("tiny", result).intervals["triplet"]
        assert f"{100 * interval.mean:.1f} ± {100 * interval.half_width:.1f}" in page
    assert "<td>contrastive - triplet</td>" in page
    entry = TableEntry(Interval(0.5, 0.1, 2), bold=True, note="<i>")
    html = render_table([("a<b", {"mrr": entry})], ["mrr"], "html", "x & y")
    assert "<td>a&lt;b</td><td><b>50.0 ± 10.0</b> <sup>1</sup></td>" in html
    assert "<p>x &amp; y</p>" in html
    assert "<p><sup>1</sup> &lt;i&gt;</p>" in html


def test_tables_and_comparisons_are_of_the_first_data_set_unless_named(bench):
    assert bench.table() == bench.table("tiny", "separated")
    assert bench.comparison_table() == bench.comparison_table("tiny", "separated")
    assert bench.compare().intervals == bench.compare("tiny", "separated", "map@r").intervals


@pytest.mark.parametrize(("metric", "factor"), [("map@r", 100.0), ("recall@1", 100.0)])
def test_the_plot_shows_means_and_intervals(bench, metric, factor):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    axes = bench.plot(metric=metric)
    try:
        assert [label.get_text() for label in axes.get_yticklabels()] == ["contrastive", "triplet"]
        assert axes.get_xlabel() == f"{metric}, %"
        for container, interval in zip(
            axes.containers, bench.compare("tiny", "separated", metric).intervals.values(), strict=True
        ):
            points, _, (bars,) = container
            assert points.get_xdata()[0] == pytest.approx(factor * interval.mean)
            (low, _), (high, _) = bars.get_segments()[0]
            assert (high - low) / 2 == pytest.approx(factor * interval.half_width)
        assert bench.plot(ax=axes) is axes
    finally:
        pyplot.close(axes.figure)


def test_without_matplotlib_the_plot_says_what_to_install(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'Bench.plot needs matplotlib: pip install "kinfold\[report\]"'):
        bench.plot()
