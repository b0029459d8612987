"""A step computes the gradient of the whole batch, also in micro-batches, with mixup and in lower precision."""

import pytest
import torch

import kinfold
from kinfold.data import Batch
from kinfold.files.state import states_equal
from kinfold.losses import Mined
from kinfold.pairs import CrossBatchMemory
from kinfold.seeding import derive_generator
from kinfold.training import Objective, Step
from kinfold.training.config.settings import MixupConfig
from kinfold.training.loop import mixup

BATCH = 12


def batch(seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    images = torch.randn(BATCH, 9, generator=g, dtype=torch.float64).to(dtype)
    return Batch(images, torch.arange(BATCH) % 4, torch.arange(BATCH))


def network(dropout=0.0, norm=False, dtype=torch.float64):
    head = {"dropout": dropout, "batch_norm": norm, "hidden": 8}
    model = kinfold.models.create("features", 5, "mlp", backbone_options={"width": 9}, head_options=head)
    return model.to(dtype)


def contrastive():
    return Objective(kinfold.losses.create("contrastive"))


def mined_with_memory():
    mined = Mined(kinfold.losses.create("margin"), kinfold.miners.create("distance-weighted"))
    return Objective(mined, CrossBatchMemory(30)).double()


def gradients(model, objective, step=3, **options):
    """Loss and all gradients of one step."""
    output = Step(model, objective, seed=1, precision="float64", **options)(batch(), step)
    return output.loss, [p.grad for p in (*model.parameters(), *objective.parameters())]


@pytest.mark.parametrize("size", [1, 2, 5, 7, 11, 12, 100])
@pytest.mark.parametrize("objective", [contrastive, mined_with_memory])
def test_micro_batches_give_the_gradient_of_the_whole_batch(size, objective):
    loss, expected = gradients(network(), objective())
    micro_loss, micro_gradients = gradients(network(), objective(), micro_batch=size)
    assert micro_loss == pytest.approx(loss, abs=1e-12)
    for one, other in zip(micro_gradients, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def test_plain_accumulation_has_a_different_gradient():
    _, expected = gradients(network(), contrastive())
    model, objective = network(), contrastive()
    images, labels, _ = batch()
    for part in torch.arange(BATCH).split(4):
        (objective.loss(model(images[part]), labels[part]) / 3).backward()
    assert max(float((p.grad - e).abs().max()) for p, e in zip(model.parameters(), expected, strict=False)) > 1e-3


@pytest.mark.parametrize("size", [3, 5, 12])
def test_no_micro_batch_is_larger_than_its_limit(size):
    model, sizes = network(), []
    model.register_forward_pre_hook(lambda module, inputs: sizes.append(inputs[0].shape[0]))
    gradients(model, contrastive(), micro_batch=size)
    assert max(sizes) <= size
    assert sum(sizes) == BATCH if size >= BATCH else 2 * BATCH


def test_dropout_is_the_same_in_both_passes():
    model, outputs = network(dropout=0.5), []
    model.register_forward_hook(lambda module, inputs, output: outputs.append(output.detach().clone()))
    gradients(model, contrastive(), micro_batch=5)
    first, second = outputs[:3], outputs[3:]
    assert states_equal(first, second)
    # and not the same for every part, nor in every step
    images = batch().images[:4]
    step = Step(model, contrastive(), seed=1, precision="float64", micro_batch=5)
    masks = [step._embed(images, *numbers) for numbers in ((3, 0), (3, 0), (3, 1), (4, 0))]
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert not torch.equal(masks[0], masks[3])


def test_running_statistics_use_every_item_once():
    model, expected = network(norm=True), network(norm=True)
    with pytest.warns(UserWarning, match="frozen-statistics"):
        step = Step(model, contrastive(), precision="float64", micro_batch=4)
    step(batch(), 0)
    for part in batch().images.split(4):
        expected(part)
    assert states_equal(dict(model.named_buffers()), dict(expected.named_buffers()))
    assert int(dict(model.named_buffers())["head.1.num_batches_tracked"]) == 3


def test_frozen_statistics_make_micro_batches_exact():
    losses = []
    for size in (None, 4):
        model = network(norm=True)
        model.head[1].eval()
        losses.append(gradients(model, contrastive(), micro_batch=size))
    assert losses[0][0] == pytest.approx(losses[1][0], abs=1e-12)
    for one, other in zip(losses[0][1], losses[1][1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def test_mixed_input_has_the_loss_and_gradient_of_its_definition():
    settings, model, objective = MixupConfig(alpha=2.0), network(), contrastive()
    loss, mixed_gradients = gradients(model, objective, mixing=settings)
    mix = mixup.draw_mix(settings, BATCH, derive_generator(1, 3, 2))
    assert 0 < mix.share < 1
    images, labels, _ = batch()
    plain = network()
    shown = torch.stack([mix.share * images[i] + (1 - mix.share) * images[mix.partner[i]] for i in range(BATCH)])
    embeddings = plain(shown)
    value = mix.share * objective.loss(embeddings, labels)
    value = value + (1 - mix.share) * objective.loss(embeddings, labels[mix.partner])
    value.backward()
    assert loss == pytest.approx(value.item(), abs=1e-12)
    for one, other in zip(mixed_gradients, plain.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad, atol=1e-12, rtol=1e-12)


def test_a_hidden_layer_is_mixed_at_its_output_and_the_network_is_unchanged():
    model = kinfold.models.create("conv4", 5, backbone_options={"width": 8}).double()
    model.eval()  # batch norm by its running statistics, to compare with a plain forward pass
    images, labels = torch.rand(8, 1, 16, 16, dtype=torch.float64, generator=derive_generator(0)), torch.arange(8) % 3
    objective = contrastive()
    step = Step(model, objective, seed=1, precision="float64", mixing=MixupConfig(layers=["block2"]))
    output = step(Batch(images, labels, torch.arange(8)), 0)
    mix = mixup.draw_mix(step.mixing, 8, derive_generator(1, 0, 2))
    body = model.backbone
    hidden = body.block2(body.block1(images))
    hidden = mix.share * hidden + (1 - mix.share) * hidden[mix.partner]
    expected = model.head(body.block4(body.block3(hidden)).mean(dim=(2, 3)))
    torch.testing.assert_close(output.embeddings, expected.detach(), atol=1e-12, rtol=1e-12)
    assert not any(module._forward_hooks for module in model.modules())


def test_draws_of_a_step_depend_only_on_its_number():
    objective = mined_with_memory()
    draws = []
    for number in (4, 5, 4):
        objective.seed(1, number)
        draws.append(torch.rand(3, generator=objective.loss.miner.generator))
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "float32"])
def test_lower_precision_gives_nearly_the_same_gradient(precision):
    _, expected = gradients(network(), contrastive())
    model = network(dtype=torch.float32)
    Step(model, contrastive(), seed=1, precision=precision)(batch(dtype=torch.float32), 3)
    size = max(float(e.abs().max()) for e in expected)
    near = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 0.1}[precision]
    for parameter, wanted in zip(model.parameters(), expected, strict=False):
        assert parameter.grad.dtype == torch.float32
        assert float((parameter.grad.double() - wanted).abs().max()) < near * size
