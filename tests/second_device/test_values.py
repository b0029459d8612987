"""Losses, sets, miners, memory, metrics and samplers give the values of the CPU."""

import pytest
import torch

import kinfold
from kinfold.calibration import calibrate
from kinfold.losses import Mined, Nested
from kinfold.pairs import CrossBatchMemory
from tests.on_second_device import DEVICE, make_on_cpu
from tests.problems import LOSSES, NUM_CLASSES

CPU = torch.device("cpu")
GENERATOR = torch.Generator().manual_seed(3)
Y = torch.randint(NUM_CLASSES, (40,), generator=GENERATOR, device=CPU)
X = torch.randn(NUM_CLASSES, 7, generator=GENERATOR, device=CPU)[Y] + torch.randn(
    40, 7, generator=GENERATOR, device=CPU
)


def both(compute):
    """What a function of a device gives on the CPU and on the second device."""
    return compute(CPU), compute(DEVICE)


def assert_same(actual, expected):
    assert type(actual) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert actual.device == DEVICE
        # rows are normalized in another order there: without looking at their lengths first
        largest = max(1.0, float(expected.detach().double().abs().max())) if expected.numel() else 1.0
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=1e-5, atol=1e-5 * largest)
    elif isinstance(expected, dict):
        assert actual == pytest.approx(expected, abs=1e-6)
    elif isinstance(expected, list | tuple):
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif hasattr(expected, "__dict__"):
        assert_same([*vars(actual).values()], [*vars(expected).values()])
    else:
        assert actual == expected


def value_and_gradients(loss, device, **arguments):
    leaf = X.to(device, copy=True).requires_grad_()
    value = loss(leaf, Y.to(device), **arguments)
    value.sum().backward()
    return value, leaf.grad, [parameter.grad for parameter in loss.parameters()]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_losses(name, reduction):
    if reduction == "none" and make_on_cpu(name).kind == "batch":
        pytest.skip("one value for the batch")
    expected, actual = both(
        lambda device: value_and_gradients(make_on_cpu(name, reduction=reduction).to(device), device)
    )
    assert_same(actual, expected)


@pytest.mark.parametrize("name", [name for name in LOSSES if make_on_cpu(name).proxies is None])
def test_losses_against_a_memory(name):
    def compute(device):
        memory = CrossBatchMemory(64).to(device)
        for part in torch.arange(40, device=CPU).split(15):
            memory.update(X[part].to(device), Y[part].to(device), part.to(device))
        ids = torch.arange(40, device=CPU).to(device)
        return value_and_gradients(make_on_cpu(name).to(device), device, ids=ids, **memory.reference())

    expected, actual = both(compute)
    assert_same(actual, expected)


@pytest.mark.parametrize("name", ["contrastive", "multi-similarity", "proxy-anchor", "dro-kl-grouped", "supcon"])
def test_large_batches_in_row_chunks(name):
    labels = torch.arange(1100, device=CPU) % NUM_CLASSES
    rows = torch.randn(1100, 7, generator=torch.Generator().manual_seed(1), device=CPU)

    def compute(device):
        leaf = rows.to(device, copy=True).requires_grad_()
        value = make_on_cpu(name).to(device)(leaf, labels.to(device))
        value.backward()
        return value, leaf.grad

    expected, actual = both(compute)
    assert_same(actual, expected)


@pytest.mark.parametrize("name", kinfold.list("miners"))
def test_miners_inside_a_loss(name):
    def compute(device):
        mined = Mined(kinfold.losses.create("contrastive"), kinfold.miners.create(name)).to(device)
        return mined.miner(X.to(device), Y.to(device)), value_and_gradients(mined, device)

    expected, actual = both(compute)
    assert_same(actual, expected)


@pytest.mark.parametrize("name", [name for name in LOSSES if make_on_cpu(name).has_pair_weights])
def test_pair_weights(name):
    expected, actual = both(
        lambda device: make_on_cpu(name).to(device).pair_weights(X.to(device), Y.to(device)),
    )
    assert_same(actual, expected)


@pytest.mark.parametrize("uncertainty", kinfold.list("sets"))
def test_uncertainty_sets(uncertainty):
    options = {"kl-ball": {"radius": 0.5}, "chi-square": {"radius": 0.5}, "top-k": {"k": 5}, "kl": {"gamma": 0.3}}
    options |= {"trim": {"k": 5}, "optimistic-kl": {"gamma": 0.3}}
    chosen = kinfold.registry.create("sets", uncertainty, **options.get(uncertainty, {}))

    def compute(device):
        losses, mask = X.to(device), (X > -0.5).to(device)
        return chosen.weights(losses, mask), chosen.value(losses, mask)

    expected, actual = both(compute)
    assert_same(actual, expected)


METRICS = [name.replace("@k", "@2").replace("far=x", "far=0.01") for name in kinfold.list("metrics")]


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
def test_every_metric(distance):
    def compute(device):
        rows, labels = X.to(device), Y.to(device)
        coarse = (Y // 2).to(device)
        return kinfold.metrics.evaluate(rows, labels, metrics=METRICS, distance=distance, coarse_labels=coarse)

    expected, actual = both(compute)
    assert_same(actual, expected)


def test_queries_and_gallery_labels_of_any_kind_and_a_device_by_name():
    def compute(device):
        rows = X.to(device)
        names = [f"class {label}" for label in Y.tolist()]
        return [
            kinfold.metrics.evaluate(rows[:9], Y[:9].to(device), rows[9:], Y[9:].to(device)),
            kinfold.metrics.evaluate(rows, names),
            kinfold.metrics.evaluate(X.numpy(), Y.numpy(), device=str(device)),
            kinfold.metrics.evaluate(rows.half(), Y),
        ]

    expected, actual = both(compute)
    assert_same(actual, expected)


def test_intervals_curves_spectra_and_clusters():
    def compute(device):
        rows, labels = X.to(device), Y.to(device)
        return [
            kinfold.metrics.examine(rows, labels, intervals="classes").intervals,
            kinfold.metrics.examine(rows, labels, intervals="queries").intervals,
            float(kinfold.metrics.verify(rows, labels).positives),
            kinfold.metrics.class_spectrum(rows, labels),
            kinfold.metrics.spectrum(rows),
            kinfold.metrics.k_means(rows, 4, seed=0).clusters,
        ]

    expected, actual = both(compute)
    assert_same(actual[2:], expected[2:])
    for one, other in zip(actual[:2], expected[:2], strict=True):
        assert {k: pytest.approx(v) for k, v in other.items()} == one


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
def test_neighbors_are_the_same_and_stay_on_the_device(distance):
    exclude = torch.arange(9, device=CPU) - 1

    def compute(device):
        rows = X.to(device)
        return [
            kinfold.metrics.neighbors(rows, k=5, distance=distance),
            kinfold.metrics.neighbors(rows[:9], rows[9:], k=5, distance=distance, exclude=exclude),
        ]

    expected, actual = both(compute)
    assert_same(actual, expected)


WITH_EMBEDDINGS = [
    name for name in kinfold.list("samplers") if kinfold.registry.resolve("samplers", name).needs_embeddings
]


@pytest.mark.parametrize("name", WITH_EMBEDDINGS)
def test_samplers_take_embeddings_from_the_device(name):
    labels = torch.arange(60, device=CPU) // 6
    rows = torch.randn(60, 4, generator=torch.Generator().manual_seed(0), device=CPU)
    options = {} if name == "smart-mining" else {"per_class": 3}

    def compute(device):
        sampler = kinfold.samplers.create(name, labels, batch_size=12, seed=0, **options)
        sampler.update(torch.arange(60, device=CPU).to(device), rows.to(device))
        return [*sampler]

    expected, actual = both(compute)
    assert actual == expected
    assert actual


def test_nested_losses_galleries_and_thresholds(tmp_path):
    def compute(device):
        rows, labels = X.to(device), Y.to(device)
        nested = Nested("contrastive", dims=[3, 7]).to(device)
        gallery = kinfold.Gallery.create(tmp_path / str(device).replace(":", "-"), dim=7)
        gallery.add(rows[:20], labels[:20].tolist())
        matches = gallery.search(rows[20:], k=3)
        pairs = torch.arange(40, device=CPU).to(device) // 2  # 20 classes
        threshold = calibrate(rows, pairs, far=0.3).threshold
        return nested(rows, labels), matches.ids, matches.similarities.tolist(), threshold

    expected, actual = both(compute)
    assert_same(actual[0], expected[0])
    assert actual[1] == expected[1]
    assert actual[2] == [pytest.approx(row, abs=1e-6) for row in expected[2]]
    assert actual[3] == pytest.approx(expected[3], abs=1e-5)
