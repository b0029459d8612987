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


@pytest.mark.parametrize(
    ("model", "rates", "divisors"),
    [
        ({"standardize": True}, (5e-4, 5e-4), (5, 25, 1)),
        ({"backbone": "conv4"}, (4e-3, 4e-3), (5, 25, 4)),
        ({"backbone": "conv4", "weights": "runs/first"}, (4e-3, 4e-3), (5, 25, 4)),
        ({"backbone": "efficientnet-lite0", "weights": "imagenet"}, (1e-5, 1e-4), (1, 1, 1)),
        ({"backbone": "efficientnet-lite0", "weights": "imagenet", "init": "half-whiten"}, (1e-5, 1e-5), (1, 10, 1)),
    ],
)
def test_automatic_learning_rates_depend_on_the_network_and_the_loss(model, rates, divisors):
    def auto(*changes):
        optimizer = configure({"model": model, "optimizer": {"lr": "auto", "head_lr": "auto"}}, changes).optimizer
        return optimizer.lr, optimizer.head_lr

    assert auto() == auto("optimizer.name=adamw") == rates
    for loss, divisor in zip(("quadruplet", "dro-max", "proxy-anchor"), divisors, strict=True):
        assert auto(f"loss.name={loss}") == pytest.approx([rate / divisor for rate in rates])
    assert auto("optimizer.lr=0.1") == (0.1, rates[1])
    with pytest.raises(ValueError, match=r'"auto" is a rate for adam and adamw: give a number for sgd'):
        auto("optimizer.name=sgd")


@pytest.mark.parametrize("name", ["lr", "head_lr"])
@pytest.mark.parametrize("model", [{}, {"backbone": "auto"}, {"backbone": "resnet50"}])
def test_a_network_without_default_rates_needs_a_number(model, name):
    with pytest.raises(ValueError, match=rf'optimizer\.{name} = "auto" is a rate for standardized features .* conv4'):
        configure({"model": model, "optimizer": {name: "auto"}})
