"""Pair weights, against the derivative of the loss."""

import numpy as np
import pytest

from kinfold.losses import Mined
from kinfold.report import collect_content
from kinfold.report.content.pair_weights import compute_pair_weights
from kinfold.training import components
from tests.report.runs import feature_run


@pytest.mark.parametrize(
    ("loss", "miner"), [("multi-similarity", None), ("margin", "distance-weighted"), ("proxy-anchor", None)]
)
def test_pair_weights_are_means_of_the_derivative(loss, miner, tmp_path):
    changes = {"loss": {"name": loss}, **({"miner": {"name": miner}} if miner else {})}
    run = feature_run(tmp_path, changes)
    train = run.data("train")
    binned = compute_pair_weights(run, train)
    # by hand, from the same batch
    objective = components.build_objective(run.config, len(train.classes), run.model())
    objective.load_state_dict(run.run_folder.read_last_state()["objective"])
    batch = sorted(set(next(iter(components.build_sampler(run.config, train.labels)))))
    rows, labels = run.embed(train)[batch], train.labels[batch]
    inner = objective.loss.loss if isinstance(objective.loss, Mined) else objective.loss
    weights = objective.loss.pair_weights(rows, labels).double().numpy()
    x = rows.numpy() / np.linalg.norm(rows.numpy(), axis=1, keepdims=True)
    y, column_labels = x, labels.numpy()
    if inner.proxies is not None:
        y = inner.proxies.detach().numpy()
        y, column_labels = y / np.linalg.norm(y, axis=1, keepdims=True), np.arange(len(y))
    similarity, total = x @ y.T, {"positives": {}, "negatives": {}}
    for i in range(len(x)):
        for j in range(len(y)):
            if inner.proxies is None and i == j:
                continue
            group = total["positives" if labels[i] == column_labels[j] else "negatives"]
            bin_ = min(39, int((similarity[i, j] + 1) * 20))
            group.setdefault(round(-1 + (bin_ + 0.5) / 20, 3), []).append(weights[i, j])
    for name, groups in total.items():
        shown = {round(s, 3): w for s, w in zip(binned["similarity"], binned[name], strict=True) if w is not None}
        assert shown == pytest.approx({s: sum(w) / len(w) for s, w in groups.items()}, rel=1e-3, abs=1e-7)


def test_a_loss_without_pair_weights_says_why(tmp_path):
    content = collect_content(feature_run(tmp_path, {"loss": {"name": "angular"}}).folder)
    assert content["charts"]["weights"] == []
    assert [s for s in content["missing"] if s.startswith("no pair weights of angular: Angular has no pair weights")]
