"""`check_loss` finds the faults that are built into these losses, and none in the losses of the package."""

import pytest
import torch
from torch import nn

from kinfold.losses import Loss, Terms, tiles
from kinfold.testing import check_loss
from tests.problems import LOSSES, make

EXCEPTIONS = {
    "circle": {"gradient"},  # its weights carry no gradient, by definition
    "hap2s": {"gradient"},
    "adaface": {"gradient"},  # the same of the quality of each sample
    # anchors x positives x references, by definition
    "smooth-ap": {"memory growth"},
    "pnp": {"memory growth"},
    "recall-at-k": {"memory growth"},
    "roadmap": {"memory growth"},
    "happier": {"memory growth"},
}


class Correct(nn.Module):
    """Mean squared distance of positive pairs, computed in float32 or float64."""

    def forward(self, embeddings, labels):
        x = embeddings.float() if embeddings.dtype in (torch.float16, torch.bfloat16) else embeddings
        with torch.autocast("cpu", enabled=False):
            unit = x / x.norm(dim=1, keepdim=True).clamp(min=1e-6)
            squared = (unit[:, None] - unit).square().sum(dim=2)
        positives = (labels[:, None] == labels).to(x.dtype)
        return (squared * positives).sum() / positives.sum().clamp(min=1)


class Faulty(Correct):
    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.kept = None

    def forward(self, embeddings, labels):
        x = embeddings
        value = super().forward(x, labels)
        return getattr(self, "_" + self.fault.replace(" ", "_"))(value, x, labels)

    def _gradient(self, value, x, labels):
        return value * (1 + value - value.detach())

    def _permutation(self, value, x, labels):
        return value + x[0].square().sum()

    def _relabeling(self, value, x, labels):
        return value * labels.float().mean()

    def _random_state(self, value, x, labels):
        return value + 0 * torch.rand(())

    def _ranks(self, value, x, labels):
        return value * torch.rand(())

    def _input_unchanged(self, value, x, labels):
        x.data.mul_(1.5)
        return value

    def _float32(self, value, x, labels):
        return value.float()

    def _float16(self, value, x, labels):
        return value * (1 if x.dtype != torch.float16 else torch.nan)

    def _bfloat16(self, value, x, labels):
        return value * (1 if x.dtype != torch.bfloat16 else 1.1)

    def _autocast(self, value, x, labels):
        return value * (1.1 if torch.is_autocast_enabled("cpu") else 1)

    def _empty_batch(self, value, x, labels):
        return value + x.mean()

    def _one_item(self, value, x, labels):
        return value if len(x) != 1 else value.detach()

    def _one_class(self, value, x, labels):
        return value / (labels != labels[0]).sum() if len(x) else value

    def _equal_rows(self, value, x, labels):
        return value + x.var(dim=0).sum().sqrt()

    def _zero_rows(self, value, x, labels):
        return value + x.norm().sqrt()

    def _large_rows(self, value, x, labels):
        return value + x.exp().mean()

    def _NaN(self, value, x, labels):  # noqa: N802
        return value.nan_to_num()

    def _second_device(self, value, x, labels):
        return value + torch.arange(x.shape[0]) @ x.sum(dim=1) * 0

    def _kept_graph(self, value, x, labels):
        self.kept = value
        return value

    def _memory_growth(self, value, x, labels):
        return value + 0 * (x[:, None, None, 0] * x[None, :, None, 0] * x[None, None, :, 0]).sum()

    def __deepcopy__(self, memo):
        return type(self)(self.fault)


def test_a_correct_loss_passes():
    report = check_loss(Correct(), device=None, name="mine")
    assert report.passed, str(report)
    assert str(report).startswith("mine\nholds   gradient")
    assert report["parameter gradient"].status == "skipped"
    assert report["memory growth"].message == "power 2.0 of the batch size"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "fault", [name.removeprefix("_").replace("_", " ") for name in vars(Faulty) if not name.startswith("__")]
)
def test_a_fault_is_found_by_its_check(fault):
    if fault in ("forward", "second device"):
        pytest.skip("tests/second_device checks it in a process of its own")
    report = check_loss(Faulty(fault), device=None)
    assert report[fault].status == "fails", str(report)
    assert report[fault].message


def test_ranks_whose_state_or_order_matters_are_found():
    class Counting(Correct):
        def __init__(self, change):
            super().__init__()
            self.register_buffer("kept", torch.zeros(()))
            self.change = change

        def forward(self, embeddings, labels):
            value = super().forward(embeddings, labels) + 0 * self.kept
            self.kept += self.change()
            return value

    report = check_loss(Counting(lambda: torch.rand(())), device=None, checks=["ranks"])
    assert report["ranks"].message == "the state of two ranks differs after two steps: kept"
    assert check_loss(Counting(lambda: 1.0), device=None, checks=["ranks"]).passed


def test_a_loss_of_the_package_that_depends_on_its_chunks_is_found():
    class Biased(Loss):
        kind = "anchor"

        def terms(self, pairs):
            values = (pairs.scores * pairs.negatives).sum(dim=1) * pairs.scores.shape[0]
            return Terms.over(values, pairs.negatives.any(dim=1).sum())

    limits = [getattr(tiles, name) for name in ("MIN_ROWS", "TRIANGLE_ROWS", "TILE_PAIRS", "WHOLE_PAIRS")]
    report = check_loss(Biased(), device=None, checks=["chunks", "gradient"])
    assert report["gradient"].status == "holds"
    assert report["chunks"].message.startswith("value in chunks against the whole matrix")
    assert limits == [getattr(tiles, name) for name in ("MIN_ROWS", "TRIANGLE_ROWS", "TILE_PAIRS", "WHOLE_PAIRS")]


def test_float32_values_are_compared_with_wider_differences():
    class Rounded(Correct):
        def forward(self, embeddings, labels):
            return super().forward(embeddings.float(), labels)

    report = check_loss(Rounded(), device=None, checks=["gradient", "float32"])
    assert [finding.check for finding in report.failures] == ["float32"]


def test_wrong_parameter_gradients_and_lost_state_are_found():
    class Scaled(Correct):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))
            self.offset = 0.0

        def forward(self, embeddings, labels):
            return super().forward(embeddings, labels) * self.scale.detach() + 0 * self.scale

    report = check_loss(Scaled(), device=None)
    assert [finding.check for finding in report.failures] == ["parameter gradient"]


def test_a_loss_that_returns_no_number_or_raises_is_reported():
    class Rows(Correct):
        def forward(self, embeddings, labels):
            return embeddings.sum(dim=1)

    class Broken(nn.Module):
        def forward(self, embeddings, labels):
            raise KeyError("margin")

    assert "returns (24,) instead of one number" in check_loss(Rows(), device=None)["gradient"].message
    assert check_loss(Broken(), device=None)["gradient"].message == "KeyError: 'margin'"


def test_an_unknown_check_gets_a_suggestion():
    with pytest.raises(ValueError, match="did you mean 'permutation'"):
        check_loss(Correct(), checks=["permutaton"])


def assert_keeps_the_contract(name, checks=None):
    report = check_loss(make(name, dim=16), device=None, checks=checks, name=name)
    failed = {finding.check for finding in report.failures}
    assert failed == EXCEPTIONS.get(name, set()), str(report)


@pytest.mark.parametrize("name", ["margin", "multi-similarity", "proxy-anchor", "circle", "quadruplet"])
def test_losses_of_the_package_keep_the_contract(name):
    assert_keeps_the_contract(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_of_the_package_keeps_every_check(name):
    assert_keeps_the_contract(name)
