"""On characters it has never seen, a small network trained for half a minute beats the pixels, whatever the loss."""

import pytest

import kinfold
from kinfold import recipes

PIXELS = 0.489  # recall@1 of the pixels themselves, tests/data/test_glyphs.py
# with nearly a thousand classes a batch of many classes matters more to proxies than several items of each
PROXIES = ["sampler.name=random", "sampler.per_class=none", "optimizer.lr=1e-3", "optimizer.loss_lr=1e-3"]
SETTINGS: dict[str, list[str]] = {
    **dict.fromkeys(
        ["soft-triple", "normalized-softmax", "softmax", "arcface", "cosface", "sphereface", "magface", "adaface"],
        PROXIES,
    ),
    "proxy-nca": [*PROXIES, "optimizer.loss_lr=3e-3"],
    "proxy-anchor": [*PROXIES, "optimizer.loss_lr=1e-2"],
    # one pair of each batch teaches: many small batches instead of few large ones
    "dro-max": ["sampler.batch_size=16", "sampler.per_class=2", "optimizer.lr=5e-4", "training.steps=800"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", kinfold.list("losses"))
def test_every_loss_beats_the_pixels_in_a_short_run(name, tmp_path):
    changes = [f"loss.name={name}", "training.steps=200", "schedule.warmup=10", *SETTINGS.get(name, [])]
    changes += ["evaluation.selection=last", "evaluation.diagnose=never", "evaluation.metrics=['recall@1', 'map@r']"]
    run = kinfold.train(recipes.find_recipe("glyphs"), tmp_path / "run", changes=changes)
    assert run.scores["test"]["recall@1"] > PIXELS + 0.02
