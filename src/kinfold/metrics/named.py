"""Metrics by name: what each one needs, and its value from that.

A name is a registered one, with a number where the registered name has a letter: `recall@10` is `recall@k` with k = 10.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from kinfold import registry
from kinfold.distributed import World
from kinfold.metrics import agreement, embedding_space
from kinfold.metrics.retrieval import Retrieval
from kinfold.metrics.verification import Curve

DEFAULT = ("recall@1", "recall@2", "recall@4", "recall@8", "r-precision", "map@r")


@dataclass(frozen=True)
class Clusters:
    """A metric of how k-means clusters agree with classes, or with coarse labels."""

    value: Callable[[agreement.Contingency], float]
    coarse: bool = False


@dataclass(frozen=True)
class Space:
    """A metric of the space itself: value(rows, labels, world)."""

    value: Callable[[Tensor, Tensor, World], float]


@dataclass(frozen=True)
class Pairs:
    """A metric of all pairs, kin or not."""

    value: Callable[[Curve], float]


Metric: TypeAlias = Retrieval | Clusters | Space | Pairs


def uses_gallery(names: Iterable[str]) -> bool:
    """Whether one of the metrics compares with a gallery: those of clusters and of the space look at queries alone."""
    return any(isinstance(find_metric(name), Retrieval | Pairs) for name in names)


def uses_coarse_labels(names: Iterable[str]) -> bool:
    """Whether one of the metrics asks for coarse labels."""
    kinds = [find_metric(name) for name in names]
    return any(isinstance(kind, Clusters) and kind.coarse for kind in kinds)


def find_metric(name: str) -> Metric:
    """The metric of that name.

    >>> metric("precision@10").depth.fixed
    10
    """
    known = registry.names("metrics")
    if name in known and not _PARAMETER.search(name):
        found: Metric = registry.resolve("metrics", name)()
        return found
    for pattern in known:
        parameter = _PARAMETER.search(pattern)
        if parameter is None:
            continue
        kind = float if parameter[0] == "x" else int
        given = re.fullmatch(re.escape(pattern[: parameter.start()]) + r"([0-9.]+(?:e-?[0-9]+)?)", name)
        if given:
            return _with_number(pattern, name, given[1], kind)
    raise ValueError(f"unknown metric {name!r}{_nearest(name, known)}; kinfold.list('metrics') shows all")


def nmi() -> Clusters:
    """Normalised mutual information 2 I / (H(classes) + H(clusters)) of k-means with as many clusters as classes."""
    return Clusters(agreement.nmi)


def ami() -> Clusters:
    """Mutual information of k-means clusters and classes, adjusted for chance (Vinh et al., 2010)."""
    return Clusters(agreement.ami)


def f1() -> Clusters:
    """Pairs that share class and cluster, 2 TP / (pairs of one class + pairs of one cluster), by k-means."""
    return Clusters(agreement.pairwise_f1)


def nmi_coarse() -> Clusters:
    """nmi for the coarse labels, with as many clusters as there are of them."""
    return Clusters(agreement.nmi, coarse=True)


def ami_coarse() -> Clusters:
    """ami for the coarse labels, with as many clusters as there are of them."""
    return Clusters(agreement.ami, coarse=True)


def f1_coarse() -> Clusters:
    """f1 for the coarse labels, with as many clusters as there are of them."""
    return Clusters(agreement.pairwise_f1, coarse=True)


def rho(k: int) -> Space:
    """KL(uniform || singular values without the k - 1 largest): 0 is a flat spectrum (Roth et al., 2020)."""
    return Space(lambda rows, labels, world: embedding_space.spectral_decay(embedding_space.spectrum(rows), drop=k - 1))


def uniformity() -> Space:
    """log mean over pairs of exp(-2 |x - y|^2) on the unit sphere (Wang and Isola, 2020); lower is more even."""
    return Space(lambda rows, labels, world: embedding_space.uniformity(rows, world=world))


def alignment() -> Space:
    """Mean squared distance of kin on the unit sphere (Wang and Isola, 2020); lower is tighter."""
    return Space(lambda rows, labels, world: embedding_space.alignment(rows, labels))


def intra() -> Space:
    """Mean over classes of the mean cosine distance within."""
    return Space(lambda rows, labels, world: embedding_space.intra(rows, labels))


def inter() -> Space:
    """Mean cosine distance between the directions of class means."""
    return Space(lambda rows, labels, world: embedding_space.inter(rows, labels))


def density() -> Space:
    """intra / inter, the ratio of Roth et al. (2020); there larger went with better generalisation."""
    return Space(lambda rows, labels, world: embedding_space.density(rows, labels))


def roc_auc() -> Pairs:
    """The chance that a pair of kin scores higher than another pair, ties counting half; over all pairs."""
    return Pairs(Curve.roc_auc)


def pr_auc() -> Pairs:
    """Average precision of telling kin from others, over all pairs."""
    return Pairs(Curve.pr_auc)


def eer() -> Pairs:
    """The error where as large a part of the others is accepted as of kin refused."""
    return Pairs(Curve.equal_error_rate)


def tar_at_far(far: float) -> Pairs:
    """The part of kin that is accepted where at most a part `far` of the others is."""
    if not 0.0 <= far <= 1.0:
        raise ValueError(f"a false-accept rate lies between 0 and 1, got {far}")
    return Pairs(lambda curve: curve.tar_at_far(far))


_PARAMETER = re.compile(r"(?<=[@=])[kx]$")


def _with_number(pattern: str, name: str, text: str, kind: type) -> Metric:
    try:
        number = kind(text)
    except ValueError:
        raise ValueError(f"{name!r}: {text!r} is not a whole number") from None
    if kind is int and number < 1:
        raise ValueError(f"{name!r}: the number must be at least 1")
    found: Metric = registry.resolve("metrics", pattern)(number)
    return found


def _nearest(name: str, known: list[str]) -> str:
    number = re.search(r"[0-9][0-9.e-]*$", name)
    examples = [_PARAMETER.sub(number[0] if number else "1", entry) for entry in known]
    return registry.suggest(name, examples)
