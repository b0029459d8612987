"""Every name and option of a configuration is checked before any data is read."""

import re

import pytest

import kinfold
from kinfold import recipes
from kinfold.training import configure
from kinfold.training.checking import check
from kinfold.training.config.parsing import read_tables

WRONG = {
    "loss option": (["loss.postive_scale=3"], "(did you mean 'positive_scale'?)"),
    "loss value": (["loss.positive_scale=-3"], "positive_scale must be a positive number, got -3"),
    "option of a loss with class vectors": (["loss.name=soft-triple", "loss.centerss=2"], "no option 'centerss'"),
    "rate of a loss without parameters": (
        ["optimizer.loss_lr=0.1"],
        "optimizer.loss_lr=0.1 is for parameters of the loss",
    ),
    "miner option": (["miner.name=semihard", "miner.margn=3"], "(did you mean 'margin'?)"),
    "miner for another kind of loss": (["loss.name=lifted", "miner.name=semihard"], "use a miner that selects pairs"),
    "sampler option": (["sampler.perclass=3"], "(did you mean 'per_class'?)"),
    "sampler value": (["sampler.batch_size=7"], "per_class=4 does not divide batch_size=7"),
    "sampler of one class": (["sampler.per_class=128"], "so that there are no negatives"),
    "head": (["model.head=liner"], "(did you mean 'linear'?)"),
    "head option": (["model.head=mlp", "model.head_options.hiden=3"], "(did you mean 'hidden'?)"),
    "backbone": (["model.backbone=conv5"], "(did you mean 'conv4'?)"),
    "backbone option": (["model.backbone_options.widht=8"], "(did you mean 'width'?)"),
    "weights": (["model.weights=imagnet"], "no weight file and no run folder imagnet"),
    "published weights": (["model.weights=imagenet"], "no library provides weights of 'conv4'"),
    "optimizer": (["optimizer.name=adm"], "(did you mean 'adam'?)"),
    "schedule": (["schedule.name=cosin"], "(did you mean 'cosine'?)"),
    "pipeline": (["data.pipeline=studdy"], "(did you mean 'study'?)"),
    "data set": (["data.name=glyhps"], "(did you mean 'glyphs'?)"),
    "data option": (["data.options.fontz=3"], "(did you mean 'fonts'?)"),
    "metric": (["evaluation.metrics=['recal@1', 'map@r']"], "(did you mean 'recall@1'?)"),
    "diagnostic": (["evaluation.diagnostics=['densty']"], "(did you mean 'density'?)"),
    "mixup layer": (["mixup.layers=['blok1']"], "(did you mean 'block1'?)"),
    "device": (["training.device=cudaa"], "the device 'cudaa' cannot be used"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_name_option_or_value_is_named(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check(configure(read_tables(recipes.find_recipe("glyphs")), changes))


@pytest.mark.parametrize("recipe", recipes.list_recipes())
def test_every_builtin_recipe_passes(recipe):
    check(configure(read_tables(recipes.find_recipe(recipe))))


def test_every_loss_and_sampler_passes_with_its_defaults():
    for name in kinfold.list("losses"):
        check(configure({}, [f"loss.name={name}"]))
    for name in kinfold.list("samplers"):
        check(configure({}, [f"sampler.name={name}", "sampler.batch_size=32"]))
