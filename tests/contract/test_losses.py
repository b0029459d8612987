"""What every registered loss must do, whoever wrote it and however it works. A new loss is under it by its name."""

import copy
import io
import math
import pickle
import warnings

import pytest
import torch

import kinfold
from kinfold.losses import Loss
from kinfold.pairs import Relation
from tests.problems import (
    LOSSES,
    NUM_CLASSES,
    batch,
    draws,
    generator,
    gradient,
    has_proxies,
    is_finite,
    kind_of,
    make,
)

ON_PAIRS = [name for name in LOSSES if not has_proxies(name)]
ON_PROXIES = [name for name in LOSSES if has_proxies(name)]
DETERMINISTIC = [name for name in LOSSES if not draws(name)]

X, Y = batch(21, dtype=torch.float32)
ODD_BATCHES = {
    "one item": (X[:1], Y[:1]),
    "two items of one class": (X[:2], torch.tensor([3, 3])),
    "two items of two classes": (X[:2], torch.tensor([0, 1])),
    "one class only": (X, torch.full_like(Y, 2)),
    "all classes different": (X[:NUM_CLASSES], torch.arange(NUM_CLASSES)),
    "anchors without a positive": (X[:4], torch.tensor([0, 1, 1, 5])),
    "duplicates": (X[[0, 0, 0, 1, 1, 2]], torch.tensor([0, 0, 1, 1, 2, 2])),
    "everything equal": (torch.ones(6, 7), torch.tensor([0, 0, 1, 1, 2, 2])),
    "zero vectors": (torch.zeros(6, 7), torch.tensor([0, 0, 1, 1, 2, 2])),
    "one zero vector": (torch.cat([X[:5], torch.zeros(1, 7)]), torch.tensor([0, 0, 1, 1, 2, 2])),
    "opposite vectors": (torch.cat([X[:3], -X[:3]]), torch.tensor([0, 1, 2, 0, 1, 2])),
    "huge": (X[:6] * 1e18, torch.tensor([0, 0, 1, 1, 2, 2])),
    "tiny": (X[:6] * 1e-18, torch.tensor([0, 0, 1, 1, 2, 2])),
    "nothing": (X[:0], Y[:0]),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("case", ODD_BATCHES)
def test_odd_batches_give_a_finite_value_and_gradient(name, case):
    x, y = ODD_BATCHES[case]
    if case == "huge" and not make(name).normalize:
        x = X[:6] * 1e4  # dot products of raw embeddings overflow by their own definition beyond that
    value, slope = gradient(make(name), x, y)
    assert value.shape == ()
    assert is_finite(value, slope)


def spoiled(x, value, part):
    rows = x.clone()
    rows[{"entry": (3, 2), "row": 3, "all": slice(None)}[part]] = value
    return rows


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("part", ["entry", "row", "all"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_embeddings_that_are_not_finite_give_nan_and_no_other_error(name, part, value):
    loss, bad = make(name), spoiled(X, value, part)
    assert gradient(loss, bad, Y)[0].isnan()
    assert loss(bad[:4], torch.tensor([0, 1, 2, 3])).isnan()  # where no pair looks at them either
    if loss.kind != "batch":
        assert bool(make(name, reduction="none")(bad, Y).isnan().all())
    if loss.has_pair_weights:
        assert bool(loss.pair_weights(bad, Y).isnan().all())
    if loss.proxies is not None:
        with torch.no_grad():
            loss.proxies[1] = value
        assert loss(X, Y).isnan()
        return
    assert loss(X, Y, ref_embeddings=bad, ref_labels=Y).isnan()
    assert loss(bad, Y, ref_embeddings=X, ref_labels=Y).isnan()


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_nan_is_found_without_reading_a_value_off_the_device(name):
    """Inside vmap no value can be read, so a value that is NaN there was computed by tensors alone."""
    values = torch.func.vmap(make(name), in_dims=(0, None))(torch.stack([X, spoiled(X, math.nan, "entry")]), Y)
    assert values.isnan().tolist() == [False, True]


@pytest.mark.parametrize("name", ON_PAIRS)
@pytest.mark.parametrize("case", ["one item", "nothing"])
def test_no_valid_pair_gives_a_differentiable_zero(name, case):
    x, y = ODD_BATCHES[case]
    leaf = x.clone().requires_grad_()
    value = make(name)(leaf, y)
    assert value.item() == 0
    assert value.grad_fn is not None
    value.backward()
    assert bool((leaf.grad == 0).all())


@pytest.mark.parametrize("name", ON_PAIRS)
def test_no_valid_pair_is_said_once_and_names_a_sampler(name):
    loss = make(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            loss(X[:3], torch.tensor([0, 1, 2]))
    assert len(caught) == 1
    assert "samplers" in str(caught[0].message)
    assert "spc" in str(caught[0].message)


@pytest.mark.parametrize("name", ON_PAIRS)
def test_labels_may_be_any_integers_or_strings(name):
    plain, slope = gradient(make(name), X, Y)
    large = 2**40
    odd = torch.tensor([-7, large, large + 1, 3])[Y]
    names = [["wren", "crow", "owl", "tit"][label] for label in Y.tolist()]
    for labels in (odd, names, Y.tolist(), Y.cpu().numpy(), Y.to(torch.uint8), Y.to(torch.int32)):
        value, again = gradient(make(name), X, labels)
        torch.testing.assert_close(value, plain, rtol=0, atol=0)
        torch.testing.assert_close(again, slope, rtol=0, atol=0)


@pytest.mark.parametrize("name", ON_PROXIES)
def test_labels_outside_the_classes_name_the_reindexing_helper(name):
    for labels in (Y - 1, Y + NUM_CLASSES):
        with pytest.raises(ValueError, match="reindex"):
            make(name)(X, labels)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_and_returned_in_float32(name, dtype):
    low = X.to(dtype)
    expected, slope = gradient(make(name), low.float(), Y)
    value, actual = gradient(make(name), low, Y)
    assert value.dtype == torch.float32
    assert actual.dtype == dtype
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(actual.float(), slope, rtol=1e-2, atol=1e-2 * slope.abs().max().item())


@pytest.mark.parametrize("name", LOSSES)
def test_autocast_changes_nothing(name):
    expected, slope = gradient(make(name), X, Y)
    leaf = X.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = make(name)(leaf, Y)
    value.backward()
    torch.testing.assert_close(value.detach(), expected, rtol=0, atol=0)
    torch.testing.assert_close(leaf.grad, slope, rtol=0, atol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_float64_stays_float64_and_float32_is_close_to_it(name):
    precise, slope = gradient(make(name), X.double(), Y)
    value, actual = gradient(make(name), X, Y)
    assert precise.dtype == torch.float64
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), precise, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(actual.double(), slope, rtol=1e-3, atol=1e-3 * max(1.0, slope.abs().max().item()))


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_a_relation_matrix_equals_labels(name):
    classes = torch.arange(NUM_CLASSES) if has_proxies(name) else Y
    expected, slope = gradient(make(name), X, Y)
    value, actual = gradient(make(name), X, relation=Y[:, None] == classes)
    # a loss of whole classes is computed in another way if labels say what the classes are
    rtol, atol = (1e-5, 1e-6) if make(name).whole_classes else (0, 0)
    torch.testing.assert_close(value, expected, rtol=rtol, atol=atol)
    torch.testing.assert_close(actual, slope, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", [n for n in DETERMINISTIC if n in ON_PAIRS])
def test_the_batch_as_its_own_reference_set_with_ids_gives_the_batch_loss(name):
    x, items = X.double(), torch.arange(len(X)) * 3
    expected, slope = gradient(make(name), x, Y)
    leaf = x.clone().requires_grad_()
    # k counts unordered pairs, which stand twice in a batch compared with itself and once against a reference set
    options = {"k": 4 * len(x)} if name in ("dro-topk", "dro-topk-pn") else {}
    value = make(name, **options)(leaf, Y, ref_embeddings=leaf, ref_labels=Y, ids=items, ref_ids=items)
    value.backward()
    torch.testing.assert_close(value.detach(), expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(leaf.grad, slope, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", [n for n in DETERMINISTIC if n in ON_PAIRS and kind_of(n) != "batch"])
def test_the_first_anchors_against_the_whole_batch_give_their_part_of_its_loss(name):
    x, items, first = X.double(), torch.arange(len(X)), 5
    whole = make(name, reduction="none")(x, Y)
    arguments = {"ref_embeddings": x, "ref_labels": Y, "ids": items[:first], "ref_ids": items}
    part = make(name, reduction="none")(x[:first], Y[:first], **arguments)
    torch.testing.assert_close(part, whole[:first], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ON_PAIRS)
def test_references_without_any_class_of_the_batch_give_a_finite_value_and_gradient(name):
    leaf, others = X.clone().requires_grad_(), torch.arange(40) // 4 + NUM_CLASSES
    references = torch.randn(40, X.shape[1], generator=generator(5))
    value = make(name)(leaf, Y, ref_embeddings=references, ref_labels=others)
    value.backward()
    assert is_finite(value.detach(), leaf.grad)


@pytest.mark.parametrize("name", ON_PAIRS)
def test_an_empty_reference_set_gives_a_differentiable_zero(name):
    memory = kinfold.pairs.CrossBatchMemory(8)
    leaf = X.clone().requires_grad_()
    value = make(name)(leaf, Y, ids=torch.arange(len(Y)), **memory.reference())
    assert value.item() == 0
    value.backward()


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_the_order_of_the_batch_does_not_matter(name):
    x = X.double()
    order = torch.randperm(len(x), generator=generator(1))
    expected, slope = gradient(make(name), x, Y)
    value, actual = gradient(make(name), x[order], Y[order])
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(actual, slope[order], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", [n for n in LOSSES if make(n).normalize and not make(n).uses_lengths])
def test_losses_on_the_sphere_do_not_see_lengths(name):
    x = X.double()
    lengths = torch.rand(len(x), 1, generator=generator(2), dtype=torch.float64) * 9 + 0.1
    expected, value = make(name)(x, Y), make(name)(x * lengths, Y)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_reduction(name):
    mean, total = make(name)(X, Y), make(name, reduction="sum")(X, Y)
    assert mean.shape == total.shape == ()
    if kind_of(name) == "batch":
        with pytest.raises(ValueError, match="reduction"):
            make(name, reduction="none")
        return
    single = make(name, reduction="none")(X, Y)
    rows = NUM_CLASSES if make(name).proxies_are_anchors else len(X)
    assert single.shape == ((rows, len(X)) if kind_of(name) == "pair" else (rows,))
    regularizer = make(name).regularizer()  # belongs to no row
    torch.testing.assert_close(single.sum() if regularizer is None else single.sum() + regularizer, total)
    with pytest.raises(ValueError, match="reduction"):
        make(name, reduction="average")


@pytest.mark.parametrize("name", LOSSES)
def test_pair_weights_are_the_derivative_by_the_similarity(name):
    loss = make(name)
    if not loss.has_pair_weights:
        with pytest.raises(ValueError, match="weights"):
            loss.pair_weights(X, Y)
        return
    loss.double()
    x = X.double()
    weights = loss.pair_weights(x, Y)
    proxies = None if loss.proxies is None else loss.proxies.detach().flatten(0, -2)
    assert weights.shape == (len(x), len(x) if proxies is None else len(proxies))
    # chain rule: the weights carry the whole gradient, but for a penalty on the embeddings alone
    leaf = x.clone().requires_grad_()
    unit = kinfold.pairs.normalize(leaf) if loss.normalize else leaf
    references = unit
    if proxies is not None:
        references = kinfold.pairs.normalize(proxies) if loss.normalize else proxies
    through = (weights * (unit @ references.T)).sum()
    penalty = loss.penalty(leaf)
    (through if penalty is None else through + penalty.mean()).backward()
    twin = make(name).double()  # draws the same, where it draws
    torch.testing.assert_close(leaf.grad, gradient(twin, x, Y)[1], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_state_round_trip_deepcopy_and_pickle(name):
    loss = make(name)
    for parameter in loss.parameters():
        parameter.data.add_(0.25)
    expected = loss(X, Y)
    fresh = make(name)
    stream = io.BytesIO()
    torch.save(loss.state_dict(), stream)
    stream.seek(0)
    fresh.load_state_dict(torch.load(stream, weights_only=True))
    fresh_again = make(name)
    fresh_again.load_state_dict(fresh.state_dict())
    for copied in (fresh_again, copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert isinstance(copied, Loss)
        if not draws(name):
            torch.testing.assert_close(copied(X, Y), expected, rtol=0, atol=0)
    assert repr(loss) == repr(fresh)


@pytest.mark.parametrize("name", LOSSES)
def test_several_training_steps_lower_the_loss(name):
    torch_model = torch.nn.Linear(7, 7, device=X.device)
    with torch.no_grad():
        torch_model.weight.copy_(torch.eye(7))
        torch_model.bias.zero_()
    loss = make(name)
    groups = kinfold.losses.parameter_groups(torch_model, loss, proxy_lr=0.05)
    optimizer = torch.optim.Adam(groups, lr=0.01)
    values = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(torch_model(X), Y)
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert sum(values[-5:]) < sum(values[:5])


@pytest.mark.parametrize("name", LOSSES)
def test_the_global_random_state_is_untouched(name):
    before = torch.get_rng_state()
    loss = make(name)
    loss(X, Y)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", LOSSES)
def test_wrong_input_gets_a_helpful_error(name):
    loss = make(name)
    for arguments, message in [
        ((X.cpu().numpy(), Y), "torch tensor"),
        ((X[0], Y), r"shape \(B, d\)"),
        ((X.long(), Y), "floating point"),
        ((X, Y[:-1]), "one label per row"),
        ((X, Y.float()), "integers or strings"),
        ((X, Y[:, None]), r"shape \(B,\)"),
        ((X,), "labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            loss(*arguments)
    with pytest.raises(ValueError, match="shape"):
        loss(X, relation=torch.ones(3, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="boolean"):
        loss(X, relation=torch.ones(len(X), len(X), dtype=torch.int64))
    if has_proxies(name):
        with pytest.raises(ValueError, match="reference set"):
            loss(X, Y, ref_embeddings=X, ref_labels=Y)
        with pytest.raises(ValueError, match="tuples"):
            loss(X, Y, tuples=Relation.from_labels(Y))
        with pytest.raises(ValueError, match="dim"):
            loss(X[:, :5], Y)
        return
    for arguments, message in [
        ({"ref_labels": Y}, "ref_embeddings"),
        ({"ref_embeddings": X}, "ref_labels"),
        ({"ref_embeddings": X[:, :3], "ref_labels": Y}, "dimensions"),
        ({"ref_embeddings": X, "ref_labels": Y, "ids": torch.arange(len(X))}, "go together"),
        ({"ids": torch.arange(3)}, "ids"),
        ({"ids": torch.arange(len(X)).float()}, "int64"),
        ({"tuples": Relation.from_labels(Y[:4])}, "mined relation|draws triplets"),
    ]:
        with pytest.raises(ValueError, match=message):
            loss(X, Y, **arguments)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        loss(X, relation=torch.full((len(X), len(X)), 1.5))


@pytest.mark.parametrize("name", LOSSES)
def test_a_real_valued_relation_is_for_pair_losses_and_graded_ones_alone(name):
    width = NUM_CLASSES if has_proxies(name) else len(X)
    degree = torch.full((len(X), width), 0.5)
    if kind_of(name) == "pair" or make(name).graded:
        assert make(name)(X, relation=degree).isfinite()
        return
    with pytest.raises(ValueError, match="boolean"):
        make(name)(X, relation=degree)


@pytest.mark.parametrize("name", LOSSES)
def test_an_unknown_option_names_the_nearest(name):
    with pytest.raises(ValueError, match="did you mean 'reduction'"):
        make(name, reductoin="sum")


@pytest.mark.parametrize("name", LOSSES)
def test_the_documentation_is_there(name):
    kind = kinfold.registry.resolve("losses", name)
    assert kind.__doc__
    module = __import__(kind.__module__, fromlist=["x"])
    assert module.__doc__
    assert ">>>" in "".join(v.__doc__ or "" for v in vars(module).values() if callable(v))


@pytest.mark.parametrize("name", LOSSES)
def test_labels_beside_a_relation_are_refused_where_they_would_be_ignored(name):
    width = torch.arange(NUM_CLASSES) if has_proxies(name) else Y
    relation = Y[:, None] == width
    if make(name).uses_labels:
        assert make(name)(X, Y, relation=relation).isfinite()
        return
    with pytest.raises(ValueError, match=r"relation= and would ignore labels: give one"):
        make(name)(X, Y, relation=relation)
