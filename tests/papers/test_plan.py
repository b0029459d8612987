"""What is planned is what the files of the tables say, at full and at small scale."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kinfold.papers import published
from kinfold.papers.outline import list_planned_rows
from kinfold.papers.plan import PlanOptions, plan_table
from kinfold.papers.small_scale import SmallScale, describe_differences
from kinfold.training import components, splits
from kinfold.training.config import resolution
from kinfold.training.config.parsing import configure
from tests.papers.tables import on_glyphs, table


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


def test_rows_that_come_out_the_same_at_small_scale_are_run_once(small):
    plan = plan_table(table("dro/table1"), PlanOptions(small=small))
    assert [*plan.settings] == ["cub"]
    assert "cars: at this scale the same as cub, and not run twice" in plan.notes


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
    assert "search: 3 trials for each row; there is nothing to search in dro-kl-margin" in mixed.notes


def test_repeats_that_a_clock_would_ignore_are_named():
    assert any(
        "--seeds 3 has no effect" in note for note in plan_table(table("dro/runtime"), PlanOptions(seeds=3)).notes
    )


def test_choices_are_checked():
    with pytest.raises(ValueError, match="--seeds must be at least 1"):
        PlanOptions(seeds=0)
    with pytest.raises(ValueError, match="--trials"):
        replace(PlanOptions(), trials=-1)
    with pytest.raises(ValueError, match="--steps"):
        SmallScale(0)
    with pytest.raises(ValueError, match=r"no file nothing.npz"):
        SmallScale(2, Path("nothing.npz"))
