"""Losses with another distance: values, gradients, tiles, near pairs, and refusals that say why."""

import copy
import inspect
import itertools

import pytest
import torch
from torch.autograd import gradcheck

import kinfold
from kinfold.losses import tiles
from kinfold.pairs import Hyperbolic, Relation
from kinfold.pairs.distances import DISTANCES, PairDistance, read_distance
from tests.losses.references import DETACHED_WEIGHTS, OPTIONS, REFERENCES, TRIPLET_REFERENCES
from tests.losses.references.distances import MEASURES, measured_by, poincare
from tests.losses.test_engine import take_whole
from tests.losses.test_values import exact
from tests.problems import LOSSES, all_triplets_of, batch, close, generator, gradient, make


def takes_distance(name):
    return "distance" in inspect.signature(kinfold.registry.resolve("losses", name)).parameters


TAKERS = [name for name in LOSSES if takes_distance(name)]
REFUSERS = [name for name in LOSSES if not takes_distance(name)]
OF_SIMILARITIES = [name for name in TAKERS if make(name).measure in ("cosine", "dot")]
CASES = [
    (name, distance)
    for name, distance in itertools.product(TAKERS, DISTANCES)
    if name in OF_SIMILARITIES or distance != "dot"
]
VALUES = [
    (name, distance, options)
    for name, distance in CASES
    if name in REFERENCES
    for options in OPTIONS[name]
    if "normalize" not in options and not (distance == "snr" and options.get("swap"))  # from the negative: SNR(n, p)
]
TRIPLETS = [case for case in VALUES if case[0] in TRIPLET_REFERENCES]


def ids(value):
    return value if isinstance(value, str) else ",".join(f"{k}={v}" for k, v in value.items()) or "defaults"


def problem(seed, **options):
    """Embeddings of which about half are longer than the radius of the hyperbolic distance."""
    x, y = batch(seed, **options)
    return 0.9 * x, y


def reference(name, distance, options, x, r, relation):
    masks = relation.positives.numpy(), relation.negatives.numpy()
    with measured_by(distance):
        return REFERENCES[name](x.numpy(), r.numpy(), *masks, **options)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "distance", "options"), VALUES, ids=ids)
def test_equals_the_naive_loop(name, distance, options):
    x, y = problem(1, sizes=(4, 3, 1, 3))
    loss, numbers = exact(name, options | {"distance": distance})
    numbers.pop("distance")
    expected = reference(name, distance, numbers, x, x, Relation.from_labels(y))
    assert close(loss(x, y).item(), expected, 1e-8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "distance"), [case for case in CASES if case[0] in REFERENCES], ids=ids)
def test_equals_the_naive_loop_against_a_reference_set(name, distance):
    x, y = problem(3, sizes=(3, 2, 2))
    r, z = problem(4, sizes=(2, 4, 3))
    loss, numbers = exact(name, {"distance": distance})
    numbers.pop("distance")
    expected = reference(name, distance, numbers, x, r, Relation.from_labels(y, z))
    assert close(loss(x, y, ref_embeddings=r, ref_labels=z).item(), expected, 1e-8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "distance", "options"), TRIPLETS, ids=ids)
def test_triplets_equal_the_naive_loop(name, distance, options):
    x, y = problem(6)
    every = all_triplets_of(Relation.from_labels(y))
    rows = torch.stack([every.anchor, every.positive, every.negative], dim=1)[::7]
    loss, numbers = exact(name, options | {"distance": distance})
    numbers.pop("distance")
    with measured_by(distance):
        expected = TRIPLET_REFERENCES[name](x.numpy(), x.numpy(), [tuple(row) for row in rows.tolist()], **numbers)
    assert close(loss(x, y, tuples=kinfold.pairs.Triplets.from_list(rows.tolist())).item(), expected, 1e-8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "distance"), [case for case in CASES if case[0] not in DETACHED_WEIGHTS], ids=ids)
def test_gradient_by_finite_differences(name, distance):
    x, y = problem(11, dim=4, sizes=(4, 2, 1, 3))
    loss = make(name, dim=4, distance=distance).double()
    state = copy.deepcopy(loss.state_dict())

    def value(embeddings):
        if name == "quadruplet":  # draws: the same numbers in each call
            loss.load_state_dict(state)
        return loss(embeddings, y)

    assert gradcheck(value, (x.requires_grad_(),), eps=1e-7, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", ["contrastive", "triplet", "supcon"])
def test_second_gradient_of_the_hyperbolic_distance(name):
    x, y = problem(12, dim=4, sizes=(3, 2, 2))
    loss = make(name, distance="hyperbolic", **({"squared": True} if name == "contrastive" else {})).double()
    assert torch.autograd.gradgradcheck(lambda e: loss(e, y), (x.requires_grad_(),), eps=1e-6, atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "distance"), [c for c in CASES if make(c[0]).supports_chunks], ids=ids)
def test_tiles_equal_the_whole(name, distance, monkeypatch):
    x, y = problem(91, sizes=(5, 3, 1, 4, 6, 2))
    r, z = problem(92, sizes=(4, 4, 4, 1))
    for references in ({}, {"ref_embeddings": r, "ref_labels": z}):
        if name == "quadruplet" and references:
            continue
        with monkeypatch.context() as patch:
            take_whole(patch)
            expected = gradient(make(name, distance=distance).double(), x, y, **references)
        for attribute in ("TILE_PAIRS", "WHOLE_PAIRS"):
            monkeypatch.setattr(tiles, attribute, 50)
        monkeypatch.setattr(tiles, "MIN_ROWS", 1)
        monkeypatch.setattr(tiles, "TRIANGLE_ROWS", 5)
        actual = gradient(make(name, distance=distance).double(), x, y, **references)
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("name", "distance"), CASES, ids=ids)
def test_what_every_loss_must_do(name, distance):
    """The main clauses of the contract, for each loss with each distance."""
    x, y = (part.float() if part.is_floating_point() else part for part in problem(41))
    loss = make(name, distance=distance)
    value, slope = gradient(make(name, distance=distance), x, y)
    assert value.isfinite()
    assert bool(slope.isfinite().all())
    precise, exact_slope = gradient(make(name, distance=distance).double(), x.double(), y)
    torch.testing.assert_close(value.double(), precise, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(slope.double(), exact_slope, rtol=1e-3, atol=1e-3 * max(1.0, exact_slope.abs().max()))
    half = gradient(make(name, distance=distance), x.half(), y)
    assert half[0].dtype == torch.float32
    assert gradient(make(name, distance=distance), x[:1], y[:1])[0] == 0
    for odd in (torch.zeros_like(x), torch.ones_like(x), x * 1e4, x * 1e-20, torch.cat([x[:1]] * len(x))):
        value, slope = gradient(make(name, distance=distance), odd, y)
        assert bool(value.isfinite() & slope.isfinite().all())
    bad = x.clone()
    bad[2, 1] = torch.nan
    assert loss(bad, y).isnan()
    assert f"distance={distance!r}" in repr(loss)
    if name != "quadruplet":
        order = torch.randperm(len(x), generator=generator(1))
        expected = loss.double()(x.double(), y)
        torch.testing.assert_close(loss(x.double()[order], y[order]), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("name", "distance"), CASES, ids=ids)
def test_the_distance_of_the_paper_by_its_name_changes_nothing(name, distance):
    loss = make(name)
    if loss.pair_distance.name == distance:
        x, y = problem(42)
        expected, actual = gradient(loss.double(), x, y), gradient(make(name, distance=distance).double(), x, y)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", REFUSERS)
def test_other_losses_say_why_they_take_no_distance_and_which_do(name):
    with pytest.raises(ValueError, match=r"takes no distance: .{20,}\. These take one: .*contrastive.*supcon"):
        make(name, distance="hyperbolic")


@pytest.mark.parametrize("name", [name for name in TAKERS if name not in OF_SIMILARITIES])
def test_a_dot_product_is_no_distance(name):
    with pytest.raises(ValueError, match="no smallest value: use cosine, euclidean, snr or hyperbolic"):
        make(name, distance="dot")


@pytest.mark.parametrize(
    ("distance", "message"),
    [
        ("manhattan", "must be one of cosine, dot, euclidean, snr, hyperbolic"),
        ({"name": "euclidean", "curvature": 1.0}, "takes no curvature"),
        ({"name": "hyperbolic", "temperature": 1.0}, "takes curvature and radius, not temperature"),
        ({"name": "hyperbolic", "curvature": 0.0}, "curvature must be a positive number"),
        ({"name": "hyperbolic", "radius": 100.0}, "use a radius of at most 9.487"),
        (3, "must be one of"),
    ],
)
def test_a_distance_that_does_not_exist(distance, message):
    with pytest.raises(ValueError, match=message):
        make("contrastive", distance=distance)


@pytest.mark.parametrize(("name", "options"), [("nca", {"normalize": False}), ("log-ratio", {"normalize": True})])
def test_normalize_beside_a_distance_is_refused(name, options):
    with pytest.raises(ValueError, match="normalize= would be ignored"):
        make(name, distance="euclidean", **options)


def test_a_robust_loss_has_the_distance_of_its_pair_loss():
    x, y = problem(5)
    for distance in ("euclidean", "hyperbolic"):
        inner = make("contrastive", distance=distance)
        robust = kinfold.dro.Robust(inner, kinfold.dro.Average(), group="batch")
        expected = make("contrastive", distance=distance, reduction="none")(x, y)
        used = ~torch.eye(len(y), dtype=torch.bool)
        torch.testing.assert_close(robust(x, y), expected[used].mean())
        assert robust.pair_distance == inner.pair_distance
    inner = make("similarity-margin", distance="hyperbolic")
    robust = kinfold.dro.Robust(inner, kinfold.dro.KL(1.0), group="anchor-sign", pseudo_pair=True)
    with pytest.raises(ValueError, match="no one distance of this kind: hyperbolic"):
        robust(x, y)


@pytest.mark.parametrize("distance", [{"name": "hyperbolic", "curvature": 1.0, "radius": 2.9}, "hyperbolic"])
@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("copies", [2, 32])
def test_near_points_keep_their_digits(distance, gap, copies):
    """Value and gradient of positives that nearly coincide, far from the origin, in float32; few of them and many."""
    x = torch.randn(64 // copies, 16, generator=generator(0), dtype=torch.float64)
    x = x.repeat_interleave(copies, 0) + gap * torch.randn(64, 16, generator=generator(1), dtype=torch.float64)
    x, y = (0.5 * x).float(), torch.arange(64) // copies
    loss = make("triplet", squared=False, margin=20.0, distance=distance)
    value, slope = gradient(loss, x, y)
    expected, exact_slope = gradient(make("triplet", squared=False, margin=20.0, distance=distance), x.double(), y)
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
    error = (slope.double() - exact_slope).norm(dim=1) / exact_slope.norm(dim=1)
    assert float(error.max()) < (0.1 if gap < 1e-5 else 2e-3)


@pytest.mark.parametrize("curvature", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("radius", [0.5, 2.3])
def test_the_hyperboloid_gives_the_distances_of_the_poincare_ball(curvature, radius):
    x, _ = batch(1, dim=5)
    y, _ = batch(2, dim=5, sizes=(3, 3))
    measured = Hyperbolic(curvature, radius).measure(x, y)
    expected = [[poincare(a.numpy(), b.numpy(), curvature, radius) for b in y] for a in x]
    torch.testing.assert_close(measured, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    rows = Hyperbolic(curvature, radius).measure(x[: len(y)], y, rows=True)
    torch.testing.assert_close(rows, measured[: len(y)].diagonal(), rtol=1e-9, atol=1e-9)


def test_the_distance_from_the_origin_is_twice_the_length():
    x = torch.tensor([[0.0, 0.0], [0.3, 0.4], [30.0, 40.0]])
    expected = torch.tensor([[0.0, 1.0, 4.6]])
    torch.testing.assert_close(Hyperbolic().measure(x[:1], x), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(Hyperbolic(1e-6).measure(x[:1], x[1:2]), torch.ones(1, 1), atol=1e-5, rtol=0)


def test_hyperbolic_distances_obey_the_triangle_inequality():
    x = torch.randn(30, 3, generator=generator(3), dtype=torch.float64)
    distance = Hyperbolic().measure(x, x)
    torch.testing.assert_close(distance, distance.T)
    assert bool((distance[:, None, :] <= distance[:, :, None] + distance[None] + 1e-9).all())


@pytest.mark.parametrize("name", DISTANCES)
def test_pair_distance_measures_as_the_naive_loop(name):
    x, _ = problem(7)
    y, _ = problem(8)
    distance = read_distance(name)
    a, b = distance.make_operand(x), distance.make_operand(y)
    for measured, function in zip(
        (distance.measure_similarities(a, b), distance.measure_distances(a, b)), MEASURES[name], strict=True
    ):
        expected = torch.tensor([[function(p, q) for q in y.numpy()] for p in x.numpy()], dtype=torch.float64)
        torch.testing.assert_close(measured, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["contrastive", "supcon", "triplet"])
def test_transforms_and_compilation_see_the_distance(name):
    x, y = problem(9, dtype=torch.float32)
    loss = make(name, distance="hyperbolic")
    expected, slope = gradient(loss, x, y)
    torch.testing.assert_close(torch.func.grad(loss)(x, y), slope, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.func.vmap(loss, in_dims=(0, None))(x[None], y)[0], expected, rtol=1e-4, atol=1e-5)


def test_pair_weights_exist_where_similarities_determine_the_loss():
    x, y = problem(9)
    for distance, exists in {"cosine": True, "dot": True, "euclidean": False, "hyperbolic": False}.items():
        loss = make("supcon", distance=distance)
        assert loss.has_pair_weights == exists
        if exists:
            assert loss.pair_weights(x, y).shape == (len(y), len(y))


def test_pair_distance_of_losses_without_the_option():
    assert make("n-pair").pair_distance == PairDistance("dot")
    assert make("snr").pair_distance == PairDistance("snr")
    assert make("generalized-lifted").pair_distance == PairDistance("euclidean")
    assert make("fastap").pair_distance == PairDistance("cosine")
