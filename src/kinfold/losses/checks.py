"""Checks of losses: of their options when they are made, of what `terms` returns, and of batches without pairs."""

import math
import warnings
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from kinfold.losses.scoring import Measure
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.relation_source import RelationSource
from kinfold.pairs.transforms import is_transformed
from kinfold.registry import suggest

if TYPE_CHECKING:
    from kinfold.losses.loss import Loss

KINDS = ("pair", "anchor", "batch")


def check_attributes(loss: "Loss", base: "type[Loss]") -> None:
    """Raise ValueError for an unknown `kind` or `measure`, and for a loss that defines no terms."""
    name = type(loss).__name__
    for attribute, allowed in (("kind", KINDS), ("measure", get_args(Measure))):
        value = getattr(loss, attribute)
        if value not in allowed:
            raise ValueError(
                f"{name}.{attribute} is {value!r}{suggest(str(value), allowed)}; it must be one of {', '.join(allowed)}"
            )
    if all(getattr(type(loss), method) is getattr(base, method) for method in ("terms", "tuple_terms", "forward")):
        raise ValueError(f"{name} computes nothing: define terms(self, pairs) -> Terms")


def check_initialized(loss: "Loss", name: str) -> None:
    """Raise ValueError for a constructor that does not call that of the base class."""
    if "_modules" not in vars(loss):
        raise ValueError(f"{name!r}: the __init__ of {type(loss).__name__} must begin with super().__init__(reduction)")


def check_positive(**options: float) -> None:
    """Raise ValueError for the first option that is not a finite number above zero."""
    for name, value in options.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a positive number, got {value}")


def check_unit(is_default: bool, distance: Distance | None) -> None:
    """Raise ValueError for an option `normalize` that a distance replaces."""
    if distance is not None and not is_default:
        raise ValueError(f"normalize= would be ignored: distance={distance!r} says whether embeddings are normalized")


def check_degree(loss: "Loss", degree: Tensor | None) -> None:
    """Raise ValueError for the degrees of a real-valued relation, if the loss cannot use them."""
    if degree is not None and not (loss.kind == "pair" or loss.graded):
        raise ValueError(
            f"{type(loss).__name__} needs a boolean relation; a real-valued one is for losses of kind 'pair' "
            "(contrastive, margin, binomial, sigmoid, ...) and for supcon, log-ratio and happier"
        )


def check_sample_weight(loss: "Loss", weights: Tensor | None, embeddings: Tensor) -> Tensor | None:
    """Return the weights of the anchors on the device of the embeddings and in full precision; None if there are none.

    Raises:
        ValueError: The loss has no mean over samples, or the weights have a wrong shape or are not valid.
    """
    if weights is None:
        return None
    name, number = type(loss).__name__, embeddings.shape[0]
    if not loss.takes_sample_weight:
        reason = (
            "has one term for each class, not for each sample"
            if loss.proxies_are_anchors
            else "is one number for the whole batch and no mean over anchors"
        )
        raise ValueError(f"{name} {reason}: sample_weight has no meaning for it; leave it out")
    if not isinstance(weights, Tensor) or tuple(weights.shape) != (number,):
        shape = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ValueError(f"sample_weight must be a tensor of shape ({number},), one weight per embedding; got {shape}")
    weights = weights.detach().to(embeddings.device, torch.promote_types(embeddings.dtype, torch.float32))
    if not is_transformed() and not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError("sample_weight must be finite and not negative")
    return weights


def check_terms(terms: object, pairs: ScoredPairs, kind: Literal["pair", "anchor", "batch"], name: str) -> None:
    """Raise ValueError for what `terms` of the loss `name` returned, if it is of a wrong type or shape, has no gradient
    or ignores weights."""
    if not isinstance(terms, Terms):
        raise ValueError(
            f"{name}.terms returned {type(terms).__name__} instead of Terms; end it with "
            "pairs.per_anchor(values), pairs.per_pair(values) or Terms.over(values, count)"
        )
    terms.check(kind, pairs.scores, name)
    if pairs.weights is not None and not terms.weighted:
        raise ValueError(
            f"{name}.terms ignores the weights of pairs (a real-valued relation or sample_weight): end it with "
            "pairs.per_pair(values, counted), which applies them; or apply pairs.weights to values, sums and "
            "counts, and return Terms(..., weighted=True)"
        )


def warn_missing_pairs(name: str, relation: RelationSource) -> bool:
    """Warn if the batch of the loss `name` has no positive or no negative pairs, and return whether it did."""
    counts = (relation.count_positives(), relation.count_negatives())
    has_positives, has_negatives = torch.stack([(number > 0).any() for number in counts]).tolist()  # one wait
    if has_positives and has_negatives:
        return False
    missing = "no two items of one class" if not has_positives else "no two items of different classes"
    warnings.warn(
        f"{name} got a batch with {missing}; little or nothing can be learned from it. "
        "Use a sampler that draws several items of several classes, such as "
        'kinfold.samplers.create("spc", labels, batch_size=80, per_class=5).',
        stacklevel=5,
    )
    return True
