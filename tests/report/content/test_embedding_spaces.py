"""Embedding spaces of runs: what is shown of them, and when they are computed again."""

import numpy as np
import pytest

from kinfold.report import collect_content
from kinfold.report.content.embedding_spaces import choose_repeats
from kinfold.report.content.inputs import find_inputs
from kinfold.report.content.json_values import decode_array
from kinfold.training import Run
from tests.report.runs import EACH, feature_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return feature_run(tmp_path_factory.mktemp("space"))


def test_a_neighbor_that_is_not_on_the_map_is_given_by_its_class(run):
    """A neighbor on the map is given by its position there, another one by -1 - its class."""
    (space,) = collect_content(run.folder, points=20)["spaces"]
    data = run.data("test")
    assert (space["count"], space["shown"]) == (len(data), 20)
    near, labels = decode_array(space["neighbors"]), decode_array(space["neighbor_labels"])
    shown_labels = decode_array(space["labels"])
    assert (near < 0).any()
    assert (near >= 0).any()
    assert (shown_labels[near[near >= 0]] == labels[near >= 0]).all()
    assert (-1 - near[near < 0] == labels[near < 0]).all()
    assert np.bincount(shown_labels).max() - np.bincount(shown_labels).min() <= 1  # classes of EACH items alike
    assert len(data) == EACH * len(space["classes"])


def test_a_space_is_measured_once(run, monkeypatch):
    first = collect_content(run.folder)
    monkeypatch.setattr(Run, "embed", lambda *_: pytest.fail("embedded again"))
    assert collect_content(run.folder) == first
    with pytest.raises(pytest.fail.Exception, match="embedded again"):
        collect_content(run.folder, points=11)  # another map


def test_other_weights_give_another_space(tmp_path):
    mine = feature_run(tmp_path / "mine")
    other = feature_run(tmp_path / "other", {"seed": 5, "loss": {"name": "triplet"}, "optimizer": {"lr": 0.1}})
    before, expected = (collect_content(each.folder)["spaces"][0] for each in (mine, other))
    mine.run_folder.model.write_bytes(other.run_folder.model.read_bytes())
    content = collect_content(mine.folder)  # other weights than those that were scored
    assert content["spaces"] == []
    assert any("model.safetensors is damaged" in why for why in content["missing"])
    state = other.run_folder.read_weights(other.run_folder.model)
    mine.run_folder.finish(state["step"], state["model"], mine.scores)
    after = collect_content(mine.folder)["spaces"][0]
    assert after["neighbor_scores"] == expected["neighbor_scores"] != before["neighbor_scores"]


def test_chosen_methods_are_shown_on_every_dataset_and_unknown_ones_come_with_the_nearest(bench):
    inputs = find_inputs(bench)
    names = [method.name for method, _ in choose_repeats(inputs, ["contrastive"])]
    assert {*names} == {"contrastive"}
    shown = {(method.data, method.name) for method, _ in choose_repeats(inputs, ["all"])}
    assert shown == {(method.data, method.name) for method in inputs.methods if method.runs}
    with pytest.raises(ValueError, match=r"there is no method 'contrastiv' .did you mean 'contrastive'"):
        choose_repeats(inputs, ["contrastiv"])
