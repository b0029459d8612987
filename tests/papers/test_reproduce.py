"""Tables of papers as benches: what is planned is what the files say, and every combination of parts runs."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from kinfold.experiments import Processes
from kinfold.metrics import evaluate
from kinfold.papers import published
from kinfold.papers.comparison import format_report, to_dictionary
from kinfold.papers.outline import format_plan, list_planned_rows
from kinfold.papers.plan import PlanOptions, plan_table
from kinfold.papers.reproduce import Reproduction, reproduce_table
from kinfold.papers.small_scale import SmallScale, describe_differences
from kinfold.training import components, splits, train
from kinfold.training.config import resolution
from kinfold.training.config.parsing import configure
from tests.experiments.tiny import Inline
from tests.papers.features import feature_file


@cache
def table(name):
    return published.load_table(name)


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return feature_file(tmp_path_factory.mktemp("features"))


@pytest.fixture(scope="module")
def small(features):
    return SmallScale(2, features)


def parts_of(settings):
    """Which loss, miner, sampler and head are put together."""
    miner = settings.get("miner", {}).get("name")
    return settings["loss"]["name"], miner, settings["sampler"]["name"], settings["model"].get("head", "linear")


def combinations():
    """Every distinct combination of the tables, by the first row that has it."""
    result = {}
    for name in published.list_tables():
        for row in table(name).rows:
            for data in row.layers:
                settings = row.settings(data)
                if "loss" in settings and settings.get("training", {}).get("steps") != 0:
                    result.setdefault(parts_of(settings), (name, row.name, data))
    return result


COMBINATIONS = combinations()
# clustering a thousand classes of pictures takes longer than two steps, and is tested elsewhere
MEASURED_ONCE = (
    'evaluation.metrics=["recall@1"]',
    "evaluation.metric=recall@1",
    "evaluation.selection=last",
    "evaluation.diagnose=never",
)


def names_of(key):
    return "-".join(word or "none" for word in key)


def two_steps(key, small, folder, changes=()):
    """Train the row that has a combination, with the settings of a run of its bench."""
    name, row, data = COMBINATIONS[key]
    plan = plan_table(table(name), PlanOptions(rows=(row,), data=(data,), small=small, changes=changes))
    tiny_run = plan.build_suite(data).build_run_tables(data, row, 0, 0)
    assert parts_of({**tiny_run, "model": plan.settings[data][row]["model"]}) == key
    run = train(tiny_run, folder, dataset=small.dataset)
    losses = [event["loss"] for event in run.events if event["event"] == "step"]
    assert run.scores["steps"] == 2
    assert np.isfinite(losses).all()
    assert all(torch.isfinite(weights).all() for weights in run.model().state_dict().values())


@pytest.mark.parametrize("combination", COMBINATIONS, ids=names_of)
def test_every_combination_of_the_tables_runs_two_steps(combination, small, tmp_path):
    two_steps(combination, small, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("combination", COMBINATIONS, ids=names_of)
def test_every_combination_runs_two_steps_on_glyphs(combination, tmp_path):
    two_steps(combination, on_glyphs(), tmp_path / "run", MEASURED_ONCE)


@cache
def on_glyphs():
    return SmallScale(2)


@pytest.mark.parametrize("name", published.list_tables())
def test_every_row_is_planned_with_its_source_settings_and_numbers(name):
    kept = table(name)
    listed = list_planned_rows(plan_table(kept, PlanOptions()))
    assert [entry["row"] for entry in listed] == [row.name for row in kept.rows]
    for entry, row in zip(listed, kept.rows, strict=True):
        assert (entry["source"], entry["paper"]) == (kept.source, kept.paper)
        assert entry["published"].keys() == row.published.keys()
        assert (entry["not_run"] is not None) == (not entry["settings"])
        assert entry["settings"].keys() == row.layers.keys()
    json.dumps(listed, allow_nan=False)


@pytest.mark.parametrize("name", published.list_tables())
def test_every_row_can_be_shrunk_and_fits_the_data(name, small):
    plan = plan_table(table(name), PlanOptions(small=small))
    assert plan.missing == ()
    for data, rows in plan.settings.items():
        for settings in rows.values():
            if "toy" in settings:
                continue
            config = configure(settings)
            data_set = splits.assign_splits(small.dataset, config.data)
            config = resolution.resolve_config(config, data_set)
            sampler = components.build_sampler(config, splits.split_classes(data_set, config.data).train.labels)
            assert len(sampler) > 0
            assert config.model.dim <= 32
        if table(name).kind not in ("toy", "runtime"):
            plan.build_suite(data)


def test_small_scale_keeps_what_a_row_is_about(small):
    row = table("revisiting/table7").row("margin-d-frd")
    before = row.settings("cub")
    after = plan_table(table("revisiting/table7"), PlanOptions(rows=(row.name,), small=small)).settings["cub"][row.name]
    assert after["loss"] == before["loss"]
    assert after["miner"] == before["miner"]
    assert after["sampler"] == before["sampler"]
    kept = table("drml/table1").row("drml-pa").settings("cub")
    plan = plan_table(table("drml/table1"), PlanOptions(rows=("drml-pa",), small=small)).settings["cub"]["drml-pa"]
    assert plan["model"]["head_options"] == kept["model"]["head_options"]
    assert plan["search"] == kept["search"]
    assert plan["data"]["protocol"] == "reality-check"


def test_everything_that_small_scale_changes_is_said(small):
    row = "dro-topk-margin@640"
    plan = plan_table(table("dro/k-sensitivity"), PlanOptions(rows=(row,), small=small))
    before, after = table("dro/k-sensitivity").row(row).settings("in-shop"), plan.settings["in-shop"][row]
    said = "\n".join(plan.notes)
    for key, change in describe_differences(before, after).items():
        if key == "evaluation.selection":
            assert "the paper selected on the test classes" in said
        else:
            assert f"small scale: {key}: {change}" in said
    assert "small scale: sampler.batch_size: 640 -> 80" in said  # 16 training classes of five


def test_mixup_keeps_the_input_and_moves_to_stages_of_the_small_network(small):
    layers = {}
    for scale in (small, on_glyphs()):
        plan = plan_table(table("revisiting/mixup"), PlanOptions(rows=("softmax-mixup",), small=scale))
        layers[scale.name] = plan.settings["cub"]["softmax-mixup"]["mixup"]["layers"]
    assert layers == {"features": ["input"], "glyphs": ["input", "block1", "block2"]}


def test_proxies_learn_at_a_rate_that_few_steps_can_see(small):
    plan = plan_table(table("revisiting/table4"), PlanOptions(small=small)).settings["cub"]
    assert plan["softmax"]["optimizer"]["loss_lr"] == 1e-3  # 1e-5 in the table
    assert plan["soft-triple"]["optimizer"]["loss_lr"] >= 1e-3


def test_selection_is_honest_unless_asked_otherwise():
    kept = table("dro/table1")
    honest, published = (plan_table(kept, PlanOptions(as_published=asked)) for asked in (False, True))
    chosen = [each.settings["cub"]["dro-kl-margin"]["evaluation"]["selection"] for each in (honest, published)]
    assert chosen == ["validation", "test-oracle"]
    assert any("the paper selected on the test classes" in note for note in honest.notes)
    assert any("inflated" in note for note in published.notes)
    last = plan_table(table("precision-at-k/table1"), PlanOptions()).settings["cub"]["n-pair"]
    assert last["evaluation"]["selection"] == "last"


def test_seeds_default_to_those_of_the_paper():
    assert plan_table(table("revisiting/table4"), PlanOptions()).seeds == [0, 1, 2, 3, 4]
    assert plan_table(table("dro/table1"), PlanOptions()).seeds == [0]
    assert plan_table(table("dro/table1"), PlanOptions(seeds=3)).seeds == [0, 1, 2]
    assert plan_table(table("drml/table1"), PlanOptions()).runs == 17 * 4
    assert (
        plan_table(table("drml/table1"), PlanOptions(trials=10)).runs == 16 * 4 * 11 + 4
    )  # the untrained row has no search


def test_data_and_weights_are_found_below_the_root(tmp_path):
    (tmp_path / "cub").mkdir()
    (tmp_path / "cars").mkdir()
    weights = tmp_path / "weights.pth"
    weights.touch()
    plan = plan_table(table("dro/table1"), PlanOptions(root=tmp_path, weights={"bn-inception": weights}))
    assert plan.missing == ()
    settings = plan.settings["cars"]["dro-kl-margin"]
    assert settings["data"]["root"] == str(tmp_path / "cars")
    assert settings["model"]["weights"] == str(weights)
    alone = plan_table(table("dro/table1"), PlanOptions(data=("cub",), root=tmp_path / "cub", weights={"": weights}))
    assert alone.settings["cub"]["dro-kl-margin"]["data"]["root"] == str(tmp_path / "cub")


def test_what_is_missing_is_said_before_anything_is_run(tmp_path):
    (tmp_path / "cub").mkdir()
    plan = plan_table(table("dro/table1"), PlanOptions(root=tmp_path))
    with pytest.raises(ValueError, match=r"cars is needed, and there is no folder.*cars"):
        plan.check_ready()
    with pytest.raises(ValueError, match=r"published weights of bn-inception are a local file: give --weights FILE"):
        plan.check_ready()
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="cannot be run yet"):
        next(reproduce_table(plan, out, no_workers))
    assert not out.exists()
    invalid = PlanOptions(root=tmp_path, data=("cub",), weights={"": Path("no.pth")})
    with pytest.raises(ValueError, match=r"no file no.pth with the weights of bn-inception"):
        plan_table(table("dro/table1"), invalid).check_ready()


def test_wrong_names_come_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'dro-topk-margin'"):
        plan_table(table("dro/table1"), PlanOptions(rows=("dro-topk-margn",)))
    with pytest.raises(ValueError, match="did you mean 'cars'"):
        plan_table(table("dro/table1"), PlanOptions(data=("car",)))
    with pytest.raises(
        ValueError, match="fashion-net is a number only: its network \\(FashionNet\\) pools features at landmarks"
    ):
        plan_table(table("dro/table3"), PlanOptions(rows=("fashion-net",)))
    with pytest.raises(ValueError, match="did you mean 'training'"):
        plan_table(table("dro/table1"), PlanOptions(changes=("trainin.steps=5",)))


def test_the_name_of_a_line_means_all_of_its_points():
    plan = plan_table(table("dro/runtime"), PlanOptions(rows=("lifted",)))
    assert [row.x for row in plan.rows] == [80, 160, 320, 480, 640]


def no_workers(key):
    raise AssertionError("nothing may be run")


def one_worker(key):
    return Processes(1, 1, key.log)


def test_rows_that_come_out_the_same_at_small_scale_are_run_once(small):
    plan = plan_table(table("dro/table1"), PlanOptions(small=small))
    assert [*plan.settings] == ["cub"]
    assert "cars: at this scale the same as cub, and not run twice" in plan.notes


def test_our_numbers_are_beside_the_published_ones():
    plan = plan_table(table("dro/table1"), PlanOptions(seeds=2))
    ours = {"dro-topk-margin": {"recall@1": {0: 0.66, 1: 0.68}}, "dro-kl-margin": {"recall@1": {}}}
    result = Reproduction(plan, "cub", ["recall@1"], ours, failed={"runs/cub/dro-kl-margin/seed-0": "out of memory"})
    text = format_report(result)
    line = {text_line.split("│")[1].strip(): text_line for text_line in text.splitlines() if "│" in text_line}
    assert [run.strip() for run in line["DRO-TopK_M"].split("│")[2:4]] == ["67.0 ± 12.7", "67.4"]
    assert [run.strip() for run in line["DRO-KL_M"].split("│")[2:4]] == ["-", "67.7"]
    assert [run.strip() for run in line["Clustring (quoted from Oh Song et al. 2017)"].split("│")[2:4]] == ["-", "48.2"]
    assert "failed: runs/cub/dro-kl-margin/seed-0: out of memory" in text
    for caveat in table("dro/table1").caveats:
        assert f"- {caveat}" in text
    assert "DRO-KL_M: the paper draws pairs by their weights" in text
    assert "| DRO-TopK\\_M | 67.0 ± 12.7 | 67.4 |" in format_report(result, "markdown")
    entry = next(row for row in to_dictionary(result)["rows"] if row["row"] == "dro-topk-margin")
    assert entry["ours"]["recall@1"]["mean"] == pytest.approx(0.67)
    assert entry["published"]["recall@1"] == 67.4


def test_spreads_and_unreadable_numbers_are_shown_as_printed():
    plan = plan_table(table("revisiting/table9"), PlanOptions(rows=("histogram-spc-2",)))
    assert "│ 69.52 ± 0.10 │" in format_report(Reproduction(plan, "sop", ["recall@1"], {"histogram-spc-2": {}}))
    plan = plan_table(table("dro/k-sensitivity"), PlanOptions(rows=("dro-topk-margin@640",)))
    result = Reproduction(plan, "in-shop", ["recall@1"], {"dro-topk-margin@640": {"recall@1": {0: 0.5}}})
    line = next(each for each in format_report(result).splitlines() if "DRO-TopK_M" in each)
    assert [run.strip() for run in line.split("│")[2:5]] == ["640", "50.0", "unreadable"]


def test_published_numbers_keep_their_last_zero():
    plan = plan_table(table("revisiting/table4"), PlanOptions(rows=("angular",)))
    result = Reproduction(plan, "cub", ["recall@1"], {"angular": {"recall@1": {0: 0.5}}})
    assert "│ 62.10 ± 0.27 │" in format_report(result)
    assert "| 62.10 ± 0.27 |" in format_report(result, "markdown")
    (row,) = to_dictionary(result)["rows"]
    assert (row["published"]["recall@1"], row["printed"]["recall@1"]) == ([62.1, 0.27], "62.10 ± 0.27")
    assert "recall@1 62.10 ± 0.27" in format_plan(plan)
    assert list_planned_rows(plan)[0]["printed"]["cub"]["recall@1"] == "62.10 ± 0.27"


def test_a_report_explains_our_and_the_published_plus_minus_signs():
    ours = "± of ours: half width of the 95 % interval of the mean over 5 repeats"
    plan = plan_table(table("revisiting/table4"), PlanOptions(rows=("angular",)))
    result = Reproduction(plan, "cub", ["recall@1"], {"angular": {"recall@1": {0: 0.5, 1: 0.6}}})
    text = format_report(result)
    assert ours in text
    assert "± of published numbers: a standard deviation over the paper's runs; not to be compared" in text
    assert to_dictionary(result)["spread"]["published"] == "standard deviation"
    plan = plan_table(table("drml/table1"), PlanOptions(rows=("triplet",), seeds=5))
    text = format_report(Reproduction(plan, "cub", ["map@r separated"], {"triplet": {}}))
    assert ours in text
    assert "± of published numbers: the paper does not say; not to be compared" in text
    plan = plan_table(table("dro/table1"), PlanOptions(rows=("dro-kl-margin",)))
    assert "± of published" not in format_report(Reproduction(plan, "cub", ["recall@1"], {"dro-kl-margin": {}}))


def test_what_set_changed_is_said_beside_the_published_numbers():
    plan = plan_table(
        table("dro/table1"), PlanOptions(rows=("dro-kl-margin",), changes=("training.steps=1", "loss.gamma=0.5"))
    )
    result = Reproduction(plan, "cub", ["recall@1"], {"dro-kl-margin": {"recall@1": {0: 0.5}}})
    for style in ("text", "markdown"):
        text = format_report(result, style)
        assert "CHANGED by --set: training.steps=1, loss.gamma=0.5" in text.replace("\\", "")
        assert "- --set: training.steps: 7200 -> 1\n- --set: loss.gamma: 0.1 -> 0.5" in text
    kept = to_dictionary(result)
    assert kept["changes"] == ["training.steps=1", "loss.gamma=0.5"]
    assert kept["rows"][0]["settings"]["training"]["steps"] == 1
    assert "--set: training.steps: 7200 -> 1" in kept["notes"]
    assert "CHANGED" not in format_report(
        replace(result, plan=plan_table(table("dro/table1"), PlanOptions(rows=("dro-kl-margin",))))
    )


def test_a_change_that_a_toy_would_ignore_is_refused():
    with pytest.raises(ValueError, match="is a toy problem without a recipe that --set could change"):
        plan_table(table("revisiting/toy-diagonal"), PlanOptions(changes=("training.steps=1",)))


def test_trials_that_a_row_has_no_use_for_are_named():
    without = plan_table(table("revisiting/figure8"), PlanOptions(trials=3))
    assert without.trials == 0
    assert "search: --trials 3 has no effect: no row of this table says what its authors tuned" in without.notes
    assert without.runs == plan_table(table("revisiting/figure8"), PlanOptions()).runs
    searched = PlanOptions(rows=("dro-topk-margin", "dro-kl-margin"), trials=3)
    assert "search: 3 trials for each row" in plan_table(table("dro/table1"), searched).notes
    for name in ("revisiting/toy-diagonal", "dro/runtime"):
        assert (
            "search: --trials 3 has no effect: nothing in this table is tuned"
            in plan_table(table(name), PlanOptions(trials=3)).notes
        )
    first, second = table("dro/table1").row("dro-kl-margin"), table("dro/table1").row("dro-topk-margin")
    fixed = replace(first, layers={d: tuple({**x, "search": {}} for x in each) for d, each in first.layers.items()})
    mixed = plan_table(replace(table("dro/table1"), rows=(fixed, second)), PlanOptions(trials=3))
    assert mixed.trials == 3
    assert "search: 3 trials for each row but dro-kl-margin, which name nothing to search" in mixed.notes


def test_repeats_that_a_clock_would_ignore_are_named():
    assert any(
        "--seeds 3 has no effect" in note for note in plan_table(table("dro/runtime"), PlanOptions(seeds=3)).notes
    )


def test_the_report_has_the_values_that_a_search_chose(features, tmp_path):
    choices = PlanOptions(rows=("dro-kl-margin",), data=("cub",), small=SmallScale(2, features), trials=2)
    (result,) = reproduce_table(plan_table(table("dro/table1"), choices), tmp_path, lambda key: Inline())
    gamma = result.searches["dro-kl-margin"].values["loss.gamma"]
    assert gamma in (0.1, 0.3, 0.5, 0.7, 0.9)
    chosen = f"dro-kl-margin: chosen by a search of 2 completed trials of 2: loss.gamma = {gamma}"
    assert chosen in format_report(result)
    (row,) = to_dictionary(result)["rows"]
    assert row["search"] == {"trials": 2, "completed": 2, "values": {"loss.gamma": gamma}}


def test_a_toy_gives_its_medians(tmp_path):
    from kinfold.papers import toy

    plan = plan_table(table("revisiting/toy-diagonal"), PlanOptions(rows=("switch-0.4",), seeds=2))
    (result,) = reproduce_table(plan, tmp_path, no_workers)
    expected = toy.run_toy("switch", 0.4, [0, 1], "diagonal").medians
    assert {name: values[0] for name, values in result.ours["switch-0.4"].items()} == expected
    assert "medians over 2 seeds" in format_report(result)


def test_steps_are_timed_and_shown_with_the_batch_that_was_run(small, tmp_path):
    rows = ("lifted@80", "lifted@640", "dro-kl-margin@80", "dro-kl-margin@640")
    before = torch.get_num_threads()
    (result,) = reproduce_table(
        plan_table(table("dro/runtime"), PlanOptions(rows=rows, small=small)), tmp_path, no_workers
    )
    assert torch.get_num_threads() == before
    assert all(result.ours[row]["seconds per step"][0] > 0 for row in rows)
    text = format_report(result)
    assert "100 for 640" in text  # twenty training classes of five
    assert [row["ran_at"] for row in to_dictionary(result)["rows"]] == [80, 100, 80, 100]


def test_the_curves_of_a_space_are_those_of_its_test_classes(features, tmp_path):
    choices = PlanOptions(rows=("precision-at-k",), small=SmallScale(4, features))
    (result,) = reproduce_table(plan_table(table("precision-at-k/tsne"), choices), tmp_path, one_worker)
    arrays = np.load(tmp_path / "sop" / "curves-precision-at-k.npz")
    values = result.ours["precision-at-k"]
    assert np.trapezoid(arrays["true_positives"], arrays["false_positives"]) == pytest.approx(
        values["roc-auc"][0], abs=1e-9
    )
    assert arrays["recall"][0] == pytest.approx(values["precision@1"][0])  # the same for one neighbor
    assert arrays["plane"].shape == (320, 2)
    assert arrays["labels"].shape == (320,)
    assert np.isfinite(arrays["plane"]).all()
    assert "unreadable" in format_report(result)


@pytest.mark.slow
def test_the_way_of_training_is_kept(features, tmp_path):
    choices = PlanOptions(rows=("contrastive",), small=SmallScale(4, features), as_published=True)
    (result,) = reproduce_table(plan_table(table("precision-at-k/training"), choices), tmp_path, one_worker)
    arrays = np.load(tmp_path / "sop" / "curves-contrastive.npz")
    assert arrays["steps"].tolist() == [0, 1, 2, 3, 4]
    assert str(arrays["split"]) == "test"
    assert result.inflated
    assert result.ours["contrastive"]["precision@1"][0] == arrays["precision@1"].max()


@pytest.mark.slow
def test_a_table_with_folds_gives_separated_and_concatenated_numbers(features, tmp_path):
    choices = PlanOptions(rows=("triplet", "drml-triplet"), small=SmallScale(4, features), seeds=2, trials=1)
    (result,) = reproduce_table(plan_table(table("drml/table1"), choices), tmp_path, one_worker)
    assert result.failed == {}
    for row in ("triplet", "drml-triplet"):
        for column in table("drml/table1").metrics:
            assert len(result.ours[row][column]) == 2
    assert "concatenated map@r" in format_report(result)


@pytest.mark.slow
def test_a_curve_gives_a_number_at_every_place(features, tmp_path):
    choices = PlanOptions(data=("cub",), small=SmallScale(2, features))
    (result,) = reproduce_table(plan_table(table("revisiting/figure8"), choices), tmp_path, one_worker)
    assert result.failed == {}
    assert [row["x"] for row in to_dictionary(result)["rows"]] == table("revisiting/figure8").vary["miner.switch"]
    assert all(row["ours"]["recall@1"] for row in to_dictionary(result)["rows"])


@pytest.mark.slow
def test_the_scores_of_a_row_are_those_of_its_model(features, tmp_path):
    from kinfold.experiments.repeat import Repeat

    choices = PlanOptions(rows=("dro-kl-margin",), small=SmallScale(4, features))
    (result,) = reproduce_table(plan_table(table("dro/table1"), choices), tmp_path, one_worker)
    plan = Repeat.open(tmp_path / "cub" / "runs" / "cub" / "dro-kl-margin" / "seed-0")
    tested = plan.data("test")
    again = evaluate(plan.embed(tested), tested.labels, metrics=["recall@1"])
    assert result.ours["dro-kl-margin"]["recall@1"][0] == pytest.approx(again["recall@1"])


def test_choices_are_checked():
    with pytest.raises(ValueError, match="--seeds must be at least 1"):
        PlanOptions(seeds=0)
    with pytest.raises(ValueError, match="--trials"):
        replace(PlanOptions(), trials=-1)
    with pytest.raises(ValueError, match="--steps"):
        SmallScale(0)
    with pytest.raises(ValueError, match=r"no file nothing.npz"):
        SmallScale(2, Path("nothing.npz"))
