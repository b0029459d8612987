""" "None of these": thresholds of a gallery follow its content, and keep the stated rate for unknown classes."""

import numpy as np
import pytest
import torch

from kinfold import Gallery, Run
from kinfold.gallery.exact_search import search_chunks
from tests.cli.runs import feature_run
from tests.problems import generator

DIM = 12


def draw(classes, items, seed, names="c"):
    """Items of classes of one population: (rows, labels)"""
    source = generator(seed)
    centers = torch.randn(classes, DIM, generator=source)
    rows = centers.repeat_interleave(items, 0) + 0.4 * torch.randn(classes * items, DIM, generator=source)
    return rows, [f"{names}{i // items}" for i in range(classes * items)]


@pytest.fixture
def gallery(tmp_path):
    made = Gallery.create(tmp_path / "g", dim=DIM)
    made.add(*draw(20, 3, 0))
    made.set_probes(*draw(60, 5, 1, "probe"), far=0.05)
    return made


def brute_threshold(gallery, probes, labels, far):
    """The smallest threshold of risk control over probe classes, by trying every similarity."""
    unit = torch.nn.functional.normalize(probes)
    best = search_chunks(unit, [gallery.embeddings()], 1)[0][:, 0].numpy()
    unknown = [name not in gallery.classes for name in labels]
    best, names = best[unknown], np.array(labels)[unknown]
    units = np.unique(names)
    bounds = {
        value: (sum((best[names == unit] > value).mean() for unit in units) + 1) / (len(units) + 1)
        for value in best.tolist()
    }
    return min(value for value, bound in bounds.items() if bound <= far + 1e-12)


def test_the_threshold_equals_the_definition_of_risk_control(gallery):
    rows, labels = draw(60, 5, 1, "probe")
    chosen = gallery.open_set_threshold()
    assert (chosen.kind, chosen.probe_classes) == ("guarantee", 60)
    assert chosen.threshold == pytest.approx(brute_threshold(gallery, rows, labels, 0.05), abs=1e-6)


def test_the_threshold_follows_every_change_of_the_items(gallery):
    rows, labels = draw(60, 5, 1, "probe")
    thresholds = []
    for change in (
        lambda: gallery.add(*draw(30, 4, 3, "more")),
        lambda: gallery.remove(labels=["c0", "more3"]),
        lambda: gallery.add(rows[:5], labels[:5], ["a", "b", "c", "d", "e"]),  # a probe class becomes known
        lambda: gallery.add(rows[5:6], ["c1"], ["a"], existing="replace"),
        lambda: gallery.remove(labels=gallery.classes[:-1]),
    ):
        change()
        fresh = Gallery.open(gallery.folder).open_set_threshold()
        assert fresh.threshold == pytest.approx(brute_threshold(gallery, rows, labels, 0.05), abs=1e-6)
        thresholds.append(fresh.threshold)
    assert len({*thresholds}) > 2


def test_new_classes_change_no_similarity_and_no_order(gallery):
    query = draw(1, 1, 9)[0]
    before = gallery.search(query, k=60)[0]
    gallery.add(*draw(1, 2, 4, "new"))
    after = [match for match in gallery.search(query, k=62)[0] if match.label != "new0"]
    assert [(match.id, match.similarity) for match in before] == [(match.id, match.similarity) for match in after]


def test_a_class_is_enrolled_from_one_example(gallery):
    new, _ = draw(1, 6, 5)
    assert gallery.identify(new[3:]).labels == [None] * 3
    gallery.add(new[:1], ["enrolled"])
    answers = gallery.identify(new[3:])
    assert answers.labels.count("enrolled") >= 2
    assert all(0 <= answer.probability <= 1 for answer in answers)
    assert "threshold" in repr(answers)
    assert "at most 0.05" in answers.threshold.describe()


def test_near_items_are_more_probable(gallery):
    known = gallery.embeddings()[:1]
    far_away = -known
    right, wrong = gallery.identify(torch.cat([known, far_away]))
    assert right.probability > 0.8 > 0.2 > wrong.probability
    assert (right.label, wrong.label) == ("c0", None)


def test_items_of_unknown_classes_are_named_at_most_at_the_stated_rate_on_the_average(tmp_path):
    rates = []
    for repeat in range(60):
        made = Gallery.create(tmp_path / f"{repeat}", dim=DIM)
        made.add(*draw(20, 3, 1000 + repeat))
        made.set_probes(*draw(40, 3, 2000 + repeat, "probe"), far=0.1)
        labels = made.identify(draw(100, 2, 3000 + repeat)[0]).labels
        rates.append(np.mean([label is not None for label in labels]))
    mean, error = np.mean(rates), np.std(rates) / 60**0.5
    assert mean - 3 * error < 0.1  # the guarantee
    assert mean > 0.03  # and it is no empty one


def test_too_few_probe_classes_give_an_estimate_that_says_so(gallery):
    threshold = gallery.set_probes(*draw(12, 5, 1, "probe"), far=0.05)
    assert threshold.kind == "estimate"
    assert threshold.smallest_far == pytest.approx(1 / 13)
    assert "not a guarantee" in threshold.describe()


def test_wrong_input_is_refused_and_changes_nothing(gallery, tmp_path):
    before = gallery.open_set_threshold()
    with pytest.raises(ValueError, match="all probe classes are in"):
        gallery.set_probes(*draw(3, 2, 0), far=0.5)
    with pytest.raises(ValueError, match="far must be"):
        gallery.set_probes(*draw(3, 2, 0, "x"), far=1.5)
    assert Gallery.open(gallery.folder).open_set_threshold().threshold == before.threshold
    with pytest.raises(ValueError, match="kinfold calibrate"):
        Gallery.create(tmp_path / "new", dim=DIM).identify(draw(1, 1, 0)[0])


def test_a_run_calibrates_the_gallery_that_it_made(tmp_path):
    run = Run.open(feature_run())
    made = Gallery.create(tmp_path / "birds", run=run)
    train = run.data("train")
    made.add(train, [train.classes[i] for i in train.labels.tolist()], run=run)
    threshold = made.calibrate(run, far=0.3)
    assert (threshold.probe_classes, threshold.kind, threshold.smallest_far) == (3, "guarantee", 0.25)
    assert made.identify(train, run=run).labels.count(None) < len(train)
