"""Settings that are `auto` get the defaults of the loss."""

import pytest

from kinfold.training.config.defaults import RAW_LENGTH
from kinfold.training.config.parsing import configure, merge_tables


def test_auto_resolves_to_the_defaults_of_the_loss():
    tables = {
        "model": {"standardize": True, "init_length": "auto"},
        "miner": {"name": "auto"},
        "optimizer": {"lr": "auto"},
    }

    def auto(*changes, **layers):
        config = configure(merge_tables(tables, layers), changes)
        miner = None if config.miner is None else config.miner.name
        return miner, config.optimizer.lr, config.model.init_length

    assert auto() == (None, 5e-4, 1.0)  # the default loss
    assert auto("loss.name=margin") == auto(loss={"name": "contrastive"}) == ("distance-weighted", 5e-4, 1.0)
    assert auto("loss.name=lifted") == ("multi-similarity", 5e-4, 1.0)
    assert auto("loss.name=lifted", "loss.variant=oh-song") == (None, 5e-4, 1.0)
    assert auto("loss.name=quadruplet") == (None, 1e-4, 1.0)
    assert auto("loss.name=n-pair") == (None, 5e-4, RAW_LENGTH)
    assert auto("loss.name=triplet", "miner.name=semihard", "optimizer.lr=0.1") == ("semihard", 0.1, 1.0)
    assert auto("loss.name=margin", "miner.name=none") == (None, 5e-4, 1.0)
    assert configure(tables, ["loss.name=margin", "miner.switch=0.2"]).miner.options == {"switch": 0.2}
    with pytest.raises(ValueError, match=r"\[miner\] has switch, and the loss 'triplet' has no default miner"):
        configure(tables, ["loss.name=triplet", "miner.switch=0.2"])
    with pytest.raises(ValueError, match=r"a rate for standardized features: set model\.standardize"):
        configure({"optimizer": {"lr": "auto"}})
