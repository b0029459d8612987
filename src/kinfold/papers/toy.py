"""Two dimensions, four classes: does pushing kin apart keep a space from collapsing?

Section G of the supplement of Roth et al. (ICML 2020). A net of 2-30-30-2 neurons learns from points on lines and is
tested on lines that it never saw. Adam with learning rate 0.03, 200 steps of 24 points, the contrastive loss with a
margin of 0.1 over all triplets of a batch.

In the authors' script the regularised run also lacks the pull between kin. The variants tell one from the other; each
is a rule for the triplets (a, p, n), of which a share of `switch` is chosen by lot:

variant         a triplet is    where switched
plain           (a, p, n)
push-only       (a, a, n)                        no pull: an item has no distance to itself
as-published    (a, a, n)       (a, a, p)        the script: no pull, and the negative replaced by the positive
switch          (a, p, n)       (a, p, p)        the same replacement with the pull kept
miner-rule      (a, p, n)       (a, a, p)        what `switch` of our miners does
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Generator, Tensor, nn

from kinfold.losses.contrastive import Contrastive
from kinfold.metrics import evaluate
from kinfold.metrics.embedding_space import spectrum
from kinfold.pairs import Triplets
from kinfold.registry import suggest
from kinfold.seeding import derive_generator

PUBLISHED_SWITCH = 0.001
VARIANTS = {  # and the share that is switched unless another is given
    "plain": 0.0,
    "push-only": 0.0,
    "as-published": PUBLISHED_SWITCH,
    "switch": PUBLISHED_SWITCH,
    "miner-rule": PUBLISHED_SWITCH,
}
STEPS, BATCH, RATE, MARGIN = 200, 24, 0.03, 0.1
PER_CLASS, PLACES = 15, 100  # points of a class, drawn from so many equidistant ones
_TRAIN, _TEST, _NET, _BATCHES, _SWITCH = range(5)  # what a generator is derived for

Line = tuple[tuple[float, float], tuple[float, float]]  # from one end to the other

LINES: dict[str, tuple[tuple[Line, ...], tuple[Line, ...]]] = {  # training and test classes
    # the coordinates of the authors' script: stretches of the diagonal; an upright and a level line in two pieces each
    "diagonal": (
        (
            ((0.10, 0.10), (0.30, 0.30)),
            ((0.35, 0.35), (0.55, 0.55)),
            ((0.60, 0.60), (0.80, 0.80)),
            ((0.85, 0.85), (1.05, 1.05)),
        ),
        (
            ((0.20, 0.20), (0.20, 0.40)),
            ((0.20, 0.55), (0.20, 0.85)),
            ((0.40, 0.20), (0.60, 0.20)),
            ((0.70, 0.20), (0.90, 0.20)),
        ),
    ),
    # our coordinates, for there are none: upright lines side by side to learn from, pieces of one upright line between
    # them to test on, so that x tells training classes apart and y test classes, and never the other way round
    "vertical": (
        tuple(((x, 0.1), (x, 0.9)) for x in (0.2, 0.4, 0.6, 0.8)),
        tuple(((0.5, y), (0.5, y + 0.14)) for y in (0.10, 0.32, 0.54, 0.76)),
    ),
}


@dataclass(frozen=True)
class Points:
    """Points (60, 2) and their classes (60,), to learn from and to test on."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


@dataclass(frozen=True)
class ToyResult:
    """What one seed came to.

    second_value: the smaller of the two singular values of the training embeddings, divided by their sum; 0.5 is a
    space that uses both dimensions alike. smallest_angle: of any two centres of test classes, in degrees.
    recall: recall@1 on the test points, from 0 to 1.
    """

    seed: int
    second_value: float
    smallest_angle: float
    recall: float


@dataclass(frozen=True)
class ToyResults:
    """The outcome of every seed."""

    data: str
    variant: str
    switch: float
    outcomes: tuple[ToyResult, ...]

    @property
    def medians(self) -> dict[str, float]:
        """Over the seeds, by the names that the tables of the paper have here."""
        return {
            "second singular value": median(outcome.second_value for outcome in self.outcomes),
            "smallest angle": median(outcome.smallest_angle for outcome in self.outcomes),
            "recall@1": median(outcome.recall for outcome in self.outcomes),
        }


def run_toy(
    variant: str = "plain", switch: float | None = None, seeds: Iterable[int] = range(20), data: str = "diagonal"
) -> ToyResults:
    """Train and measure a net for every seed, which draws points, weights, batches and switches.

    >>> run("switch", 0.4, seeds=[0]).medians.keys()
    dict_keys(['second singular value', 'smallest angle', 'recall@1'])
    """
    share = _share(variant, switch)
    outcomes = tuple(_outcome(variant, share, seed, make_points(data, seed)) for seed in seeds)
    if not outcomes:
        raise ValueError("give at least one seed")
    return ToyResults(data, variant, share, outcomes)


def make_points(data: str, seed: int) -> Points:
    """The points of one seed: of each line PER_CLASS out of PLACES equidistant ones, ends included."""
    if data not in LINES:
        raise ValueError(f"unknown toy data {data!r}{suggest(data, LINES)}; there are {', '.join(LINES)}")
    train, test = (
        torch.cat([_drawn(line, derive_generator(seed, purpose, number)) for number, line in enumerate(lines)])
        for purpose, lines in zip((_TRAIN, _TEST), LINES[data], strict=True)
    )
    labels = torch.arange(len(train)) // PER_CLASS
    return Points(train, labels, test, labels.clone())


def build_network(seed: int) -> nn.Sequential:
    """Weights as torch draws them, from `seed`. The output is not normalised: the loss and the metrics do that."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_generator(seed, _NET).initial_seed())
        return nn.Sequential(nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 2))


def triplets(labels: Tensor, variant: str, switch: float, generator: Generator) -> Triplets:
    """Every (a, p, n) of a batch, after the rule of the variant; each is switched or not on its own."""
    same = labels[:, None] == labels[None, :]
    kin = same & ~torch.eye(len(labels), dtype=torch.bool)
    a, p, n = (kin[:, :, None] & ~same[:, None, :]).nonzero(as_tuple=True)  # a handful of points: they can be listed
    switched = torch.rand(len(a), generator=generator) < switch
    negative = torch.where(switched, p, n)
    no_pull = torch.full_like(switched, variant in ("push-only", "as-published"))
    if variant == "miner-rule":
        no_pull = switched
    return Triplets(a, torch.where(no_pull, a, p), negative, torch.ones_like(switched))


def _share(variant: str, switch: float | None) -> float:
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant {variant!r}{suggest(variant, VARIANTS)}; there are {', '.join(VARIANTS)}")
    share = VARIANTS[variant] if switch is None else switch
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"switch is a probability in [0, 1], got {switch}")
    if share and not VARIANTS[variant]:
        raise ValueError(f"{variant} switches nothing: leave switch out, or take switch, miner-rule or as-published")
    return share


def _drawn(line: Line, generator: Generator) -> Tensor:
    ends = torch.tensor(line)
    places = torch.randperm(PLACES, generator=generator)[:PER_CLASS]
    return ends[0] + (places / (PLACES - 1))[:, None] * (ends[1] - ends[0])


def _outcome(variant: str, switch: float, seed: int, given: Points) -> ToyResult:
    net = build_network(seed)
    loss, optimizer = Contrastive(margin=MARGIN), torch.optim.Adam(net.parameters(), lr=RATE)
    batches, switches = derive_generator(seed, _BATCHES), derive_generator(seed, _SWITCH)
    for _ in range(STEPS):
        chosen = torch.randperm(len(given.train), generator=batches)[:BATCH]
        labels = given.train_labels[chosen]
        value = loss(net(given.train[chosen]), labels, tuples=triplets(labels, variant, switch, switches))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    with torch.no_grad():
        train, test = (nn.functional.normalize(net(rows)) for rows in (given.train, given.test))
    values = spectrum(train)
    recall = evaluate(test, given.test_labels, metrics=["recall@1"])["recall@1"]
    return ToyResult(seed, float(values[1] / values.sum()), smallest_angle(test, given.test_labels), recall)


def smallest_angle(embeddings: Tensor, labels: Tensor) -> float:
    """Degrees between the directions of the two classes' centres that are closest.

    >>> smallest_angle(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]]), torch.tensor([0, 1, 2]))
    90.0
    """
    rows = embeddings.double()
    centres = torch.stack([rows[labels == label].mean(dim=0) for label in torch.unique(labels)])
    first, second = torch.triu_indices(len(centres), len(centres), offset=1)
    x, y = nn.functional.normalize(centres[first]), nn.functional.normalize(centres[second])
    # twice the half angle: exact where the arc cosine is not, at angles near zero
    half = torch.atan2((x - y).norm(dim=1), (x + y).norm(dim=1))
    return float(torch.rad2deg(2.0 * half).min())
