"""The training loop: frozen backbone, gradient clipping, divergence and random states."""

import copy
import math
import random

import numpy as np
import pytest
import torch
from torch import nn

import kinfold
from kinfold.data import Batches
from kinfold.files.state import states_equal
from kinfold.training import Objective, Step, Trainer, train
from kinfold.training.config.settings import OptimizerConfig
from kinfold.training.loop.optimizers import build_optimizer
from tests.training.tiny import dataset, recipe


def trainer(model, steps=4, callbacks=(), settings=None, objective=None, **options):
    data = dataset()
    data = data.where(torch.arange(len(data)) < 90)
    sampler = kinfold.samplers.create("spc", data.labels, batch_size=16, per_class=4)
    objective = objective or Objective(kinfold.losses.create("contrastive"))
    optimizer = build_optimizer(model, objective, settings or OptimizerConfig(name="sgd", lr=1.0, momentum=0.0))
    batches = Batches(data, batch_sampler=sampler)
    return Trainer(Step(model, objective), optimizer, batches, sampler, steps=steps, callbacks=callbacks, **options)


class Trunk(nn.Module):
    """A body and a head, both with weights."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.body, self.head = nn.Linear(10, 8), nn.Linear(8, 4)

    def forward(self, images):
        return self.head(self.body(images).tanh())


def test_the_backbone_is_frozen_while_only_the_head_trains():
    model, states = Trunk(), []
    start = copy.deepcopy(model.state_dict())

    def look(event):
        states.append(copy.deepcopy(model.state_dict()))

    # momentum and weight decay would move what has no gradient, if it were zero instead of absent
    settings = OptimizerConfig(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.1)
    trainer(model, 5, [look], settings, head_only=3).fit()
    for number in range(3):
        assert torch.equal(states[number]["body.weight"], start["body.weight"])
        assert not torch.equal(states[number]["head.weight"], start["head.weight"])
    assert not torch.equal(states[3]["body.weight"], start["body.weight"])


@pytest.mark.parametrize("head_only", [0, 1])
def test_the_gradient_of_trained_parameters_is_clipped_to_the_norm(head_only):
    def parameter_change(clip):
        model = Trunk()
        start = copy.deepcopy(model.state_dict())
        trainer(model, 1, clip=clip, head_only=head_only).fit()
        return torch.cat([(value - start[name]).flatten() for name, value in model.state_dict().items()])

    free = parameter_change(None)
    norm = float(free.norm())  # of the gradient: the learning rate is 1
    assert norm > 0.01
    torch.testing.assert_close(parameter_change(norm / 2), free / 2, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(parameter_change(norm * 2), free)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_training_without_an_update(poison):
    model, events = Trunk(), []

    def spoil(event):
        events.append(event)
        if event.kind == "step" and event.step == 2 and math.isfinite(event.values["loss"]):
            with torch.no_grad():
                model.head.bias[0] = poison

    stopped = trainer(model, 6, [spoil], OptimizerConfig(name="adam", lr=0.1))
    stopped.fit()
    assert stopped.step_number == stopped.diverged == 2
    # the other weights stay as they were when it happened
    assert all(bool(p.isfinite().all()) for name, p in model.named_parameters() if name != "head.bias")
    assert int(stopped.optimizer.state_dict()["state"][0]["step"]) == 2
    assert [event.kind for event in events] == ["step", "step", "step", "end"]
    assert not math.isfinite(events[2].values["loss"])


@pytest.mark.parametrize("loss", ["histogram", "fastap", "quadruplet", "triplet", "margin"])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_embeddings_that_are_not_finite_end_training_as_diverged_for_any_loss(loss, poison):
    model = Trunk()

    def spoil(event):
        with torch.no_grad():
            model.head.bias[0] = poison

    stopped = trainer(model, 6, [spoil], objective=Objective(kinfold.losses.create(loss)))
    stopped.fit()
    assert stopped.step_number == stopped.diverged == 1


def test_a_diverged_run_ends_with_its_best_weights_and_reports_the_reason(tmp_path):
    run = train(recipe(optimizer={"name": "sgd", "lr": 1e38}), tmp_path / "run", dataset=dataset())
    assert run.scores["ended"] == "the loss or the weights were not finite at step 1"
    assert run.scores["step"] == 0
    assert all(bool(value.isfinite().all()) for value in run.model().state_dict().values())
    assert run.events[-1]["loss"] is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("variant", ["margin", "dropout", "gc", "micro-batch", "mixup", "images", "workers"])
def test_training_neither_uses_nor_changes_global_random_states(variant, tmp_path):
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        before = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())
        states.append(train(recipe(variant), tmp_path / f"{seed}", dataset=dataset(variant)).model().state_dict())
        after = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())
        assert torch.equal(before[0], after[0])
        assert before[1:] == after[1:]
    assert states_equal(dict(states[0]), dict(states[1]))
