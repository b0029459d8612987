"""Toy problem in two dimensions: does pushing positives apart keep an embedding space from collapsing?

Section G of the supplement of Roth et al. (ICML 2020). A network of 2-30-30-2 neurons learns from points on four lines,
one per class, and is tested on other lines. Adam with learning rate 0.03, 200 steps of 24 points, the contrastive loss
with a margin of 0.1 over all triplets of a batch.

In the authors' script the regularized run also lacks the pull between positives. The variants separate the two effects.
Each is a rule for the triplets (a, p, n), of which a random fraction `switch` is switched:

variant         a triplet is    where switched
plain           (a, p, n)
push-only       (a, a, n)                        no pull: an item has distance zero to itself
as-published    (a, a, n)       (a, a, p)        the script: no pull, and the positive as negative
switch          (a, p, n)       (a, p, p)        the same replacement with the pull
miner-rule      (a, p, n)       (a, a, p)        the option `switch` of our miners
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
VARIANTS = {  # and the default fraction that is switched
    "plain": 0.0,
    "push-only": 0.0,
    "as-published": PUBLISHED_SWITCH,
    "switch": PUBLISHED_SWITCH,
    "miner-rule": PUBLISHED_SWITCH,
}
STEPS, BATCH, RATE, MARGIN = 200, 24, 0.03, 0.1
PER_CLASS, POINTS_PER_LINE = 15, 100  # points of a class, drawn from equidistant ones on its line
_TRAIN, _TEST, _NET, _BATCHES, _SWITCH = range(5)  # purposes of derived generators

Line = tuple[tuple[float, float], tuple[float, float]]  # from one end to the other

LINES: dict[str, tuple[tuple[Line, ...], tuple[Line, ...]]] = {  # training and test classes
    # coordinates of the authors' script: segments of the diagonal; of a vertical and a horizontal line, two each
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
    # our coordinates, as the paper gives none: parallel vertical lines for training, segments of one vertical line
    # between them for testing, so that training classes differ only in x and test classes only in y
    "vertical": (
        tuple(((x, 0.1), (x, 0.9)) for x in (0.2, 0.4, 0.6, 0.8)),
        tuple(((0.5, y), (0.5, y + 0.14)) for y in (0.10, 0.32, 0.54, 0.76)),
    ),
}


@dataclass(frozen=True)
class Points:
    """Points (60, 2) and their classes (60,).

    Attributes:
        train, train_labels: Training points.
        test, test_labels: Test points, of other classes.
    """

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


@dataclass(frozen=True)
class ToyResult:
    """Result of one seed.

    Attributes:
        seed: The seed.
        second_value: The smaller singular value of the training embeddings, divided by the sum of both. 0.5 means that
            the embedding space uses both dimensions equally.
        smallest_angle: Smallest angle between the centers of two test classes, in degrees.
        recall: recall@1 on the test points, from 0 to 1.
    """

    seed: int
    second_value: float
    smallest_angle: float
    recall: float


@dataclass(frozen=True)
class ToyPicture:
    """What a figure of the toy problem shows: one seed of one variant.

    Attributes:
        points: The points.
        train, test: Their embeddings on the unit circle, (60, 2).
        spectrum: Singular values of the training embeddings, divided by their sum, (2,).
    """

    points: Points
    train: Tensor
    test: Tensor
    spectrum: Tensor


@dataclass(frozen=True)
class ToyResults:
    """Results of all seeds of one variant."""

    data: str
    variant: str
    switch: float
    results: tuple[ToyResult, ...]

    @property
    def medians(self) -> dict[str, float]:
        """Medians over the seeds, by the column names of the published tables."""
        return {
            "second singular value": median(result.second_value for result in self.results),
            "smallest angle": median(result.smallest_angle for result in self.results),
            "recall@1": median(result.recall for result in self.results),
        }


def run_toy(
    variant: str = "plain", switch: float | None = None, seeds: Iterable[int] = range(20), data: str = "diagonal"
) -> ToyResults:
    """Train and measure a network for every seed.

    Args:
        variant: One of `VARIANTS`.
        switch: Fraction of triplets that are switched; that of the variant where None.
        seeds: Seeds, which draw points, weights, batches and switches.
        data: One of `LINES`.

    Returns:
        Results of all seeds.

    Raises:
        ValueError: A name is unknown, or the variant does not switch.

    Examples:
        >>> run_toy("switch", 0.4, seeds=[0]).medians.keys()
        dict_keys(['second singular value', 'smallest angle', 'recall@1'])
    """
    fraction = _resolve_switch(variant, switch)
    results = tuple(_train_and_measure(variant, fraction, seed, make_points(data, seed)) for seed in seeds)
    if not results:
        raise ValueError("give at least one seed")
    return ToyResults(data, variant, fraction, results)


def picture_toy(variant: str, switch: float | None = None, seed: int = 0, data: str = "diagonal") -> ToyPicture:
    """Train one network and return what it does to the points.

    Args:
        variant: One of `VARIANTS`.
        switch: Fraction of triplets that are switched; that of the variant where None.
        seed: The seed.
        data: One of `LINES`.

    Examples:
        >>> picture_toy("plain").train.shape
        torch.Size([60, 2])
    """
    points = make_points(data, seed)
    train, test = _train_and_embed(variant, _resolve_switch(variant, switch), seed, points)
    values = spectrum(train)
    return ToyPicture(points, train, test, values / values.sum())


def make_points(data: str, seed: int) -> Points:
    """Draw the points of one seed: PER_CLASS of POINTS_PER_LINE equidistant points of each line, ends included."""
    if data not in LINES:
        raise ValueError(f"unknown toy data {data!r}{suggest(data, LINES)}; there are {', '.join(LINES)}")
    train, test = (
        torch.cat([_draw_points(line, derive_generator(seed, purpose, number)) for number, line in enumerate(lines)])
        for purpose, lines in zip((_TRAIN, _TEST), LINES[data], strict=True)
    )
    labels = torch.arange(len(train)) // PER_CLASS
    return Points(train, labels, test, labels.clone())


def build_network(seed: int) -> nn.Sequential:
    """Build a network with torch's default weights, drawn from `seed`. Loss and metrics normalize its output."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_generator(seed, _NET).initial_seed())
        return nn.Sequential(nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 2))


def list_triplets(labels: Tensor, variant: str, switch: float, generator: Generator) -> Triplets:
    """List every (a, p, n) of a batch by the rule of the variant; each is switched independently."""
    same = labels[:, None] == labels[None, :]
    positives = same & ~torch.eye(len(labels), dtype=torch.bool)
    a, p, n = (positives[:, :, None] & ~same[:, None, :]).nonzero(as_tuple=True)  # few points, so all fit in memory
    switched = torch.rand(len(a), generator=generator) < switch
    negative = torch.where(switched, p, n)
    no_pull = torch.full_like(switched, variant in ("push-only", "as-published"))
    if variant == "miner-rule":
        no_pull = switched
    return Triplets(a, torch.where(no_pull, a, p), negative, torch.ones_like(switched))


def _resolve_switch(variant: str, switch: float | None) -> float:
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant {variant!r}{suggest(variant, VARIANTS)}; there are {', '.join(VARIANTS)}")
    fraction = VARIANTS[variant] if switch is None else switch
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"switch is a probability in [0, 1], got {switch}")
    if fraction and not VARIANTS[variant]:
        raise ValueError(f"{variant} switches nothing: leave switch out, or use switch, miner-rule or as-published")
    return fraction


def _draw_points(line: Line, generator: Generator) -> Tensor:
    ends = torch.tensor(line)
    positions = torch.randperm(POINTS_PER_LINE, generator=generator)[:PER_CLASS]
    return ends[0] + (positions / (POINTS_PER_LINE - 1))[:, None] * (ends[1] - ends[0])


def _train_and_embed(variant: str, switch: float, seed: int, points: Points) -> tuple[Tensor, Tensor]:
    """Unit vectors of the training points and of the test points, after training."""
    network = build_network(seed)
    loss, optimizer = Contrastive(margin=MARGIN), torch.optim.Adam(network.parameters(), lr=RATE)
    batches, switches = derive_generator(seed, _BATCHES), derive_generator(seed, _SWITCH)
    for _ in range(STEPS):
        chosen = torch.randperm(len(points.train), generator=batches)[:BATCH]
        labels = points.train_labels[chosen]
        value = loss(network(points.train[chosen]), labels, tuples=list_triplets(labels, variant, switch, switches))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    with torch.no_grad():
        return nn.functional.normalize(network(points.train)), nn.functional.normalize(network(points.test))


def _train_and_measure(variant: str, switch: float, seed: int, points: Points) -> ToyResult:
    train, test = _train_and_embed(variant, switch, seed, points)
    values = spectrum(train)
    recall = evaluate(test, points.test_labels, metrics=["recall@1"])["recall@1"]
    return ToyResult(seed, float(values[1] / values.sum()), compute_smallest_angle(test, points.test_labels), recall)


def compute_smallest_angle(embeddings: Tensor, labels: Tensor) -> float:
    """Compute the smallest angle between the centers of two classes, in degrees.

    Examples:
        >>> compute_smallest_angle(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]]), torch.tensor([0, 1, 2]))
        90.0
    """
    rows = embeddings.double()
    centers = torch.stack([rows[labels == label].mean(dim=0) for label in torch.unique(labels)])
    first, second = torch.triu_indices(len(centers), len(centers), offset=1)
    x, y = nn.functional.normalize(centers[first]), nn.functional.normalize(centers[second])
    # twice the half angle, which is exact near zero, unlike the arc cosine
    half = torch.atan2((x - y).norm(dim=1), (x + y).norm(dim=1))
    return float(torch.rad2deg(2.0 * half).min())
