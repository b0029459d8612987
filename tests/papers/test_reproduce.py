"""Tables of papers as benches: rows are trained, timed, or run as a toy problem."""

from pathlib import Path

import numpy as np
import pytest
import torch

from kinfold.experiments import Processes
from kinfold.metrics import evaluate
from kinfold.papers.comparison import format_report, to_dictionary
from kinfold.papers.plan import PlanOptions, plan_table
from kinfold.papers.reproduce import reproduce_table
from kinfold.papers.small_scale import SmallScale
from tests.experiments.tiny import Inline
from tests.papers.tables import table


def no_workers(key):
    raise AssertionError("nothing may be run")


def one_worker(key):
    return Processes(1, 1, key.log)


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
    plan, path = plan_table(table("precision-at-k/tsne"), choices), tmp_path / "sop" / "curves-precision-at-k.npz"
    (result,) = reproduce_table(plan, tmp_path, lambda key: Inline())
    arrays = np.load(path)
    values = result.ours["precision-at-k"]
    assert np.trapezoid(arrays["true_positives"], arrays["false_positives"]) == pytest.approx(
        values["roc-auc"][0], abs=1e-9
    )
    assert arrays["recall"][0] == pytest.approx(values["precision@1"][0])  # the same for one neighbor
    assert arrays["plane"].shape == (320, 2)
    assert arrays["labels"].shape == (320,)
    assert np.isfinite(arrays["plane"]).all()
    assert "unreadable" in format_report(result)
    # the next start keeps the file, unless it was made from other runs
    written = path.stat().st_mtime_ns
    (again,) = reproduce_table(plan, tmp_path, lambda key: Inline())
    assert (again.ours, path.stat().st_mtime_ns) == (result.ours, written)
    np.savez(path, **{**arrays, "made_from": "another run", "areas": np.zeros(2)})
    (again,) = reproduce_table(plan, tmp_path, lambda key: Inline())
    assert again.ours == result.ours
    path.write_bytes(b"damaged")
    (again,) = reproduce_table(plan, tmp_path, lambda key: Inline())
    assert again.ours == result.ours


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
