"""The recipe `glyphs` trains whatever loss it is given, from random weights."""

import pytest
import torch

import kinfold
from kinfold import recipes

# those with rates of their own that learn least; benchmarks/every_loss.py measures all
LOSSES = ["proxy-anchor", "dro-max"]
SHORT = ["training.steps=40", "schedule.warmup=4", "evaluation.every=10", "evaluation.diagnose=never"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("loss", LOSSES)
def test_training_beats_the_start(tmp_path, loss):
    glyphs = kinfold.data.load("glyphs")
    few = glyphs.where(torch.isin(glyphs.labels, glyphs.labels.unique()[:240]).numpy())
    changes = [f"loss.name={loss}", *SHORT]
    scores = kinfold.train(recipes.find_recipe("glyphs"), tmp_path / "run", changes=changes, dataset=few).scores
    assert not scores["selected_start"]
    assert scores["validation"]["map@r"] > scores["start"]["validation"]["map@r"]
