"""The recipe `images` starts every loss from the principal components of the photos, at rates that keep this start."""

import pytest

import kinfold
from kinfold import recipes
from kinfold.training.config.defaults import compares_raw_vectors
from kinfold.training.config.parsing import configure, read_tables


@pytest.mark.parametrize("loss", kinfold.list("losses"))
def test_every_loss_starts_from_principal_components_at_small_rates(loss):
    config = configure(read_tables(recipes.find_recipe("images")), [f"loss.name={loss}"])
    assert config.model.init == "half-whiten"
    lengths = dict.fromkeys(("sphereface", "magface", "adaface"), 30.0)  # these use the length of an embedding
    assert config.model.init_length == lengths.get(loss, 5.0 if compares_raw_vectors(loss) else 1.0)
    rate = 1e-6 if loss == "dro-max" else 1e-5  # it learns from single pairs
    assert (config.optimizer.lr, config.optimizer.head_lr) == pytest.approx((rate, rate))
    if loss != "dro-max":
        assert config.optimizer.head_lr * config.optimizer.proxy_factor == pytest.approx(1e-2)  # of class vectors
