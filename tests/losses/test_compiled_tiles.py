"""`kinfold.losses.compile`: compiled tiles give the value and gradient of plain ones, or are not used."""

import copy
import pickle

import pytest
import torch

import kinfold
from kinfold.losses import compiled_tiles, engine, tiles
from tests.problems import LOSSES, batch, draws, generator, gradient, has_proxies, make

SIZES = (4, 3, 1, 4, 2, 4, 3, 4)  # few positives per anchor, so that their columns are known
X, Y = batch(33, sizes=SIZES)
COMPILE = torch.compile
NAMES = [name for name in LOSSES if not draws(name) and not has_proxies(name)]


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    """Several tiles, recorded and run without a compiler, used whether they are faster or not."""
    monkeypatch.setattr(tiles, "TILE_PAIRS", 256)
    monkeypatch.setattr(tiles, "MIN_ROWS", 4)
    monkeypatch.setattr(tiles, "WHOLE_PAIRS", 16)
    monkeypatch.setattr(tiles, "TRIANGLE_ROWS", 8)
    monkeypatch.setattr(compiled_tiles, "MIN_PAIRS", 1)
    monkeypatch.setattr(torch, "compile", lambda graph, **options: graph)
    monkeypatch.setattr(compiled_tiles, "_time", lambda works: [0.0, 1.0])


def count_compiled(loss):
    compiler = compiled_tiles._COMPILERS.get(loss)
    return 0 if compiler is None else sum(tile is not None for tile in compiler.tiles.values())


def check(name, **options):
    x, y = X, Y
    expected, slope = gradient(make(name), x, y, **options)
    loss = kinfold.losses.compile(make(name))
    value, compiled_slope = gradient(loss, x, y, **options)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(compiled_slope, slope, rtol=1e-9, atol=1e-12)
    return loss


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:.*without a compiler")
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_stay_the_same(name):
    loss = check(name)
    assert (count_compiled(loss) > 0) == loss.supports_chunks


@pytest.mark.filterwarnings("ignore:.*without a compiler")
@pytest.mark.parametrize("name", ["similarity-margin", "supcon", "triplet", "margin", "dro-kl-grouped"])
def test_reference_sets_ids_and_relations(name):
    x, y = X, Y
    r, z = batch(34, sizes=SIZES)
    items = torch.arange(len(z))
    check(name, ref_embeddings=r, ref_labels=z)
    check(name, ref_embeddings=r, ref_labels=z, ids=items + 5, ref_ids=items)
    check(name, tuples=kinfold.miners.create("multi-similarity")(x, y))


def test_relations_of_degrees():
    x, degrees = X, torch.rand(len(X), len(X), generator=generator(1), dtype=torch.float64)
    expected, slope = gradient(make("binomial"), x, relation=degrees)
    loss = kinfold.losses.compile(make("binomial"))
    value, compiled_slope = gradient(loss, x, relation=degrees)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(compiled_slope, slope, rtol=1e-9, atol=1e-12)
    assert count_compiled(loss)


def test_parameters_get_their_gradient():
    x, y = X, Y
    plain = kinfold.losses.create("margin", num_classes=int(y.max()) + 1).double()
    compiled = kinfold.losses.compile(copy.deepcopy(plain))
    for loss in (plain, compiled):
        loss(x, y).backward()
    assert count_compiled(compiled)
    torch.testing.assert_close(compiled.beta.grad, plain.beta.grad, rtol=1e-9, atol=1e-12)


def test_second_derivatives():
    x, y = X, Y
    results = []
    for loss in (make("supcon"), kinfold.losses.compile(make("supcon"))):
        leaf = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(loss(leaf, y), leaf, create_graph=True)
        results.append(torch.autograd.grad(slope.square().sum(), leaf)[0])
    torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-12)


def test_an_option_that_changes_is_noticed():
    x, y = X, Y
    loss = kinfold.losses.compile(make("triplet"))
    loss(x.clone().requires_grad_(), y)
    loss.margin = 0.7
    expected, slope = gradient(kinfold.losses.create("triplet", margin=0.7), x, y)
    value, compiled_slope = gradient(loss, x, y)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(compiled_slope, slope)


def test_without_a_compiler_the_loss_works_as_before(monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("no g++")

    monkeypatch.setattr(torch, "compile", fail)
    x, y = X, Y
    expected, slope = gradient(make("supcon"), x, y)
    loss = kinfold.losses.compile(make("supcon"))
    with pytest.warns(UserWarning, match=r"SupCon computes tiles without a compiler: RuntimeError: no g\+\+"):
        value, compiled_slope = gradient(loss, x, y)
    assert torch.equal(value, expected)
    assert torch.equal(compiled_slope, slope)


def test_compiled_tiles_with_another_result_are_not_used(monkeypatch):
    def compile_wrongly(graph, **options):
        return lambda *tensors: [output * 1.01 for output in graph(*tensors)]

    monkeypatch.setattr(torch, "compile", compile_wrongly)
    x, y = X, Y
    expected, _ = gradient(make("supcon"), x, y)
    loss = kinfold.losses.compile(make("supcon"))
    with pytest.warns(UserWarning, match="another result"):
        value, _ = gradient(loss, x, y)
    assert torch.equal(value, expected)
    assert count_compiled(loss) == 0


@pytest.mark.parametrize("seconds", [[1.0, 0.5], [0.98, 1.0]], ids=["slower", "as fast within the error of timing"])
def test_compiled_tiles_that_are_not_faster_are_not_used(monkeypatch, seconds):
    monkeypatch.setattr(compiled_tiles, "_time", lambda works: seconds)
    x, y = X, Y
    loss = kinfold.losses.compile(make("supcon"))
    value, _ = gradient(loss, x, y)
    assert torch.equal(value, gradient(make("supcon"), x, y)[0])
    assert count_compiled(loss) == 0


def test_state_copies_and_pickles_are_those_of_the_loss():
    x, y = X, Y
    plain = kinfold.losses.create("margin").double()
    loss = kinfold.losses.compile(kinfold.losses.create("margin").double())
    loss(x.clone().requires_grad_(), y).backward()
    assert kinfold.losses.compile_seconds(loss) > 0
    assert loss.state_dict().keys() == plain.state_dict().keys()
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert other.compiles_tiles
        assert kinfold.losses.compile_seconds(other) == 0
        assert torch.equal(other(x, y), loss(x, y))


def test_losses_inside_other_modules_are_compiled():
    mined = kinfold.losses.Mined(make("contrastive"), kinfold.miners.create("all"))
    assert kinfold.losses.compile(mined) is mined
    assert mined.loss.compiles_tiles
    with pytest.raises(ValueError, match=r"Linear is no kinfold\.losses\.Loss"):
        kinfold.losses.compile(torch.nn.Linear(2, 2))


@pytest.mark.slow
def test_the_usual_compiler(monkeypatch):
    monkeypatch.setattr(torch, "compile", COMPILE)
    torch._dynamo.reset()
    x, y = X.float(), Y
    loss = kinfold.losses.compile(make("multi-similarity"))
    value, slope = gradient(loss, x, y)
    expected, plain_slope = gradient(make("multi-similarity"), x, y)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(slope, plain_slope, rtol=1e-4, atol=1e-6)
    assert count_compiled(loss)


@pytest.mark.parametrize(("name", "is_square"), [("dro-topk", False), ("dro-kl-ball", False), ("margin", True)])
def test_only_losses_that_are_compiled_have_square_tiles(name, is_square, monkeypatch):
    calls = []
    original = tiles.plan_triangle
    monkeypatch.setattr(
        engine, "plan_triangle", lambda *args, **options: calls.append(options) or original(*args, **options)
    )
    gradient(kinfold.losses.compile(make(name)), X, Y)
    assert calls
    assert {options["is_square"] for options in calls} == {is_square}
