"""Mistakes that other libraries' losses are known for, each with the right behavior here."""

import inspect

import pytest
import torch

import kinfold
from kinfold.losses import Mined
from kinfold.pairs import CrossBatchMemory, Relation, Triplets
from tests.problems import LOSSES, NUM_CLASSES, batch, draws, gradient, has_proxies, is_finite, kind_of, make

X, Y = batch(101, dtype=torch.float32)
ON_PAIRS = [name for name in LOSSES if not has_proxies(name)]
ON_PROXIES = [name for name in LOSSES if has_proxies(name)]


# one pair of a sign has no variance
@pytest.mark.parametrize("name", [name for name in ON_PAIRS if name != "intra-pair-variance"])
def test_exactly_one_positive_and_one_negative_pair_count(name):
    """One positive and one negative pair were taken for none, and the loss was zero."""
    anchor = torch.tensor([[1.0, 0.0]])
    references = torch.tensor([[0.0, 1.0], [1.0, 0.1]])  # the negative is near, the positive far
    value, slope = gradient(
        make(name, **({"k": 1} if name == "precision-at-k" else {})),
        anchor,
        torch.tensor([0]),
        ref_embeddings=references,
        ref_labels=torch.tensor([0, 1]),
    )
    assert value > 0.05
    if name not in ("histogram", "smooth-ap", "pnp", "recall-at-k"):  # flat where everything is wrong
        assert slope.abs().sum() > 0


@pytest.mark.parametrize("name", [n for n in ON_PAIRS if not draws(n)])
def test_a_reference_set_is_what_anchors_are_compared_with(name):
    """Options and parts of losses that indexed the batch where they should have indexed the reference set."""
    r, z = batch(102, sizes=(4, 2, 3, 5), dtype=torch.float32)
    loss = make(name)
    expected = loss(X, Y, ref_embeddings=r, ref_labels=z)
    order = torch.randperm(len(r), generator=torch.Generator().manual_seed(0))
    again = loss(X, Y, ref_embeddings=r[order], ref_labels=z[order])
    torch.testing.assert_close(again, expected)
    moved = r + torch.randn(r.shape, generator=torch.Generator().manual_seed(1))
    other = loss(X, Y, ref_embeddings=moved, ref_labels=z)
    assert not torch.isclose(other, expected)


@pytest.mark.parametrize("name", ["contrastive", "triplet", "margin", "snr", "binomial", "quadruplet"])
def test_mined_triplets_index_the_reference_set(name):
    """Triplets of a reference set that is larger than the batch, against the pairs written out."""
    r, z = batch(103, sizes=(9, 9, 9), dtype=torch.float64)
    x, y = r[:4] + 0.1, z[:4]
    triplets = kinfold.miners.create("hard")(x, y, ref_embeddings=r, ref_labels=z)
    assert triplets.negative.max() >= 4
    loss = make(name).double()
    value = loss(x, y, ref_embeddings=r, ref_labels=z, tuples=triplets)
    stacked = torch.cat([x, r[triplets.positive], r[triplets.negative]])
    labels = torch.cat([y, z[triplets.positive], z[triplets.negative]])
    rows = [(i, 4 + i, 8 + i) for i in range(4)]
    if name != "quadruplet":  # draws its fourth item from what it is given
        torch.testing.assert_close(
            value, make(name).double()(stacked, labels, tuples=Triplets.from_list(rows)), **exact(name)
        )
    assert value.isfinite()


def exact(name):
    # the regularizer of snr is a mean over all rows, and the stacked batch has three times as many
    return {"rtol": 1e-2, "atol": 1e-2} if name == "snr" else {"rtol": 1e-10, "atol": 1e-12}


@pytest.mark.parametrize("name", LOSSES)
def test_a_second_training_step_does_not_reach_into_the_first(name):
    """A loss that keeps a graph from step to step raises in the second backward pass."""
    model, loss = torch.nn.Linear(7, 7), make(name)
    optimizer = torch.optim.SGD(kinfold.losses.parameter_groups(model, loss), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        loss(model(X), Y).backward()
        optimizer.step()
    assert all(bool(p.isfinite().all()) for p in [*model.parameters(), *loss.parameters()])


SETTINGS = {
    "class_share": 0.5,
    "margin": 0.37,
    "second_margin": 0.9,
    "positive_margin": 0.3,
    "threshold": 0.31,
    "positive_scale": 3.1,
    "negative_scale": 7.7,
    "scale": 5.5,
    "temperature": 0.21,
    "epsilon": None,
    "sigma": 0.11,
    "power": 3.0,
    "weighting": "polynomial",
    "beta": 0.7,
    "bins": 7,
    "k": 2,
    "angle": 30.0,
    "weight": 0.4,
    "boundary": 1.4,
    "balance": 0.9,
    "regularization": 0.7,
    "norm_power": 1.0,
    "squared": None,  # the opposite of the default
    "average": "active",
    "distance": "hyperbolic",
    "positives": "one",
    "centers": 3,
    "beta_regularization": 0.3,
    "gamma": 0.7,
    "effective": 3,
    "pair_loss": "binomial",
    "sample": 20,
    "global_weight": 0.3,
    "global_margin": 0.9,
    "mean_weight": 0.2,
    "start_margin": 0.9,
    "reduction": "sum",
    "bias": -0.3,
    "positive_threshold": 0.7,
    "negative_threshold": 0.1,
    "positive_weight": 0.6,
    "negative_weight": 0.4,
    "positive_tolerance": 0.3,
    "negative_tolerance": -0.3,
    "invariance_weight": 3.0,
    "variance_weight": 2.0,
    "covariance_weight": 0.7,
    "form": "o",
    "k_temperature": 0.4,
    "alpha": 3.0,
    "b": 3.0,
    "blend": 1.0,
    "low": 1.5,
    "high": 4.0,
    "low_margin": 0.2,
    "high_margin": 1.0,
    "concentration": 1.5,
}
BESIDE = {  # an option that needs another one to matter
    ("hap2s", "power"): {"weighting": "polynomial"},
    ("lifted", "margin"): {"variant": "oh-song"},
    ("pnp", "b"): {"form": "ib"},
    ("roadmap", "negative_threshold"): {"positive_threshold": 0.3},
    ("threshold-consistent-margin", "negative_weight"): {"negative_threshold": 0.1},
    ("global-triplet", "mean_weight"): {"global_margin": 0.9},
    ("magface", "high"): {"low": 1.0},  # lengths of the batch are about 3
    ("magface", "high_margin"): {"low": 1.0},
}
CHOICES = {
    ("recall-at-k", "k"): (1, 3),
    ("sphereface", "margin"): 3,
    ("log-ratio", "epsilon"): 0.2,
}  # other types than in SETTINGS
NO_EFFECT_ON_THE_VALUE = {"generator", "learn", "learn_beta", "num_classes", "dim"}
ELSEWHERE = {  # options of a tree of classes or of a search: test_class_hierarchy.py and test_facility_search.py
    ("hierarchical-triplet", "beta"),
    ("hierarchical-triplet", "levels"),
    ("hierarchical-triplet", "every"),
    ("facility-location", "rounds"),
}


def options_of(name):
    names = inspect.signature(kinfold.registry.resolve("losses", name)).parameters
    ignored = {*NO_EFFECT_ON_THE_VALUE, *(["balance"] if name == "happier" else [])}  # for a real-valued relation
    return [(name, option) for option in names if option not in ignored and (name, option) not in ELSEWHERE]


@pytest.mark.parametrize(("name", "option"), [pair for name in LOSSES for pair in options_of(name)])
def test_no_option_is_ignored(name, option):
    """Options that were accepted and dropped on the way up a tower of classes."""
    kind = kinfold.registry.resolve("losses", name)
    default = inspect.signature(kind).parameters[option].default
    beside = BESIDE.get((name, option), {})
    if option == "variant":
        choice = "oh-song" if name == "lifted" else "as-run" if name == "quadruplet" else "as-coded"
    elif (name, option) in CHOICES:
        choice = CHOICES[name, option]
    elif isinstance(default, bool):
        choice = not default
    else:
        choice = SETTINGS[option] if SETTINGS[option] != default else SETTINGS[option] + 1
    if option == "reduction" and kind_of(name) == "batch":
        return
    tuples = kinfold.miners.create("hard")(X, Y) if (name, option) == ("margin", "variant") else None
    plain = make(name, **beside)(X, Y, tuples=tuples)
    changed = make(name, **beside, **{option: choice})(X, Y, tuples=tuples)
    assert not torch.isclose(plain, changed, rtol=1e-6), f"{option}={choice} changes nothing"


def test_all_of_a_memory_is_saved():
    """A queue whose position was not saved began at its start again after a resume."""
    memory = CrossBatchMemory(5)
    memory.update(X[:3], Y[:3], torch.arange(3))
    twin = CrossBatchMemory(5)
    twin.load_state_dict(memory.state_dict())
    for ring in (memory, twin):
        ring.update(X[3:6], Y[3:6], torch.arange(3, 6))
    assert torch.equal(memory.reference()["ref_ids"], twin.reference()["ref_ids"])
    assert len(twin) == 5


@pytest.mark.parametrize("name", LOSSES)
def test_duplicate_embeddings_do_not_make_nan(name):
    """Angles and roots of values a rounding error outside their range."""
    for dtype in (torch.float32, torch.float64):
        x = X.to(dtype)[[0, 0, 0, 0, 1, 1, 1, 2, 2, 2]] * torch.linspace(0.1, 30, 10, dtype=dtype)[:, None]
        value, slope = gradient(make(name), x, torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 0]))
        assert is_finite(value, slope)


@pytest.mark.parametrize("name", ON_PROXIES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_embedding_on_its_class_vector_has_a_finite_gradient(name, sign):
    """The slope of the arc cosine at one, and at minus one."""
    for seed in range(50):
        loss = make(name)
        y = torch.arange(NUM_CLASSES)
        centers = loss.proxies.detach() if loss.proxies.dim() == 2 else loss.proxies.detach()[:, 0]
        length = torch.rand(NUM_CLASSES, 1, generator=torch.Generator().manual_seed(seed)) + 0.5
        value, slope = gradient(loss, sign * centers * length, y)
        assert is_finite(value, slope, loss.proxies.grad)


def test_angular_normalizes_all_three_of_a_triplet():
    """Negatives that were left as long as they came: 6.9 for x became 67 for 10 x."""
    angles = make("angular", regularization=0.0)(X, Y) - make("n-pair", regularization=0.0)(X, Y)
    larger = make("angular", regularization=0.0)(10 * X, Y) - make("n-pair", regularization=0.0)(10 * X, Y)
    torch.testing.assert_close(angles, larger, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_bfloat16_works_outside_autocast(name):
    """Distances that are not implemented for bfloat16."""
    value, slope = gradient(make(name), X.bfloat16(), Y)
    assert is_finite(value, slope)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["nt-xent", "supcon", "n-pair", "multi-similarity", "lifted"])
def test_logarithms_do_not_saturate_in_half_precision(name, dtype):
    """log(p + tiny) stopped near 9.7 in float16: 6.3 where 7.3 was right."""
    options = {"temperature": 0.01} if name in ("nt-xent", "supcon") else {}
    low = X.to(dtype)
    expected = make(name, **options)(low.double(), Y)
    torch.testing.assert_close(make(name, **options)(low, Y).double(), expected, rtol=1e-4, atol=1e-4)
    if options:
        assert expected > 9.7


@pytest.mark.parametrize("name", [n for n in LOSSES if list(make(n).parameters())])
def test_a_call_leaves_the_type_of_parameters_alone(name):
    """Proxies that were cast for good to whatever came in."""
    loss = make(name)
    before = {key: value.clone() for key, value in loss.state_dict().items()}
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        loss(X.to(dtype), Y)
    for key, value in loss.state_dict().items():
        assert value.dtype == before[key].dtype
        assert torch.equal(value, before[key])


def test_a_subclass_is_as_good_as_the_class_itself():
    """Features found by the name of a class refuse a user's subclass."""

    class Mine(kinfold.losses.Contrastive):
        pass

    mined = Mined(Mine(), kinfold.miners.create("hard"))
    torch.testing.assert_close(mined(X, Y), Mined(make("contrastive"), kinfold.miners.create("hard"))(X, Y))
    memory = CrossBatchMemory(20)
    memory.update(X, Y)
    assert Mine()(X, Y, **memory.reference()).isfinite()
    assert Mine()(X, Y, tuples=Relation.from_labels(Y)).isfinite()
