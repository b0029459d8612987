"""The catalog of reference functions: which loss each one belongs to, and with which options it is compared."""

from collections.abc import Callable
from typing import Any, TypeVar

Reference = Callable[..., float]
Decorated = TypeVar("Decorated", bound=Reference)

REFERENCES: dict[str, Reference] = {}
PROXY_REFERENCES: dict[str, Reference] = {}
TRIPLET_REFERENCES: dict[str, Reference] = {}
OPTIONS: dict[str, list[dict[str, Any]]] = {}
DETACHED_WEIGHTS: set[str] = set()


def reference(name: str, *options: dict[str, Any], detached_weights: bool = False) -> Callable[[Decorated], Decorated]:
    """Register a function of (anchors, references, positives, negatives, **options) as the reference of a loss.

    Args:
        name: Registered name of the loss.
        options: Options with which the loss is compared with the reference, besides its defaults.
        detached_weights: Whether the loss has weights without gradient, so that its gradient is not that of its value.
    """
    if detached_weights:
        DETACHED_WEIGHTS.add(name)
    return _add(REFERENCES, name, options)


def proxy_reference(
    name: str, *options: dict[str, Any], detached_weights: bool = False
) -> Callable[[Decorated], Decorated]:
    """Register a function of (embeddings, positives, proxies, **options) as the reference of a loss with proxies.

    Parameters of the loss other than its proxies are passed too, under their names.
    """
    if detached_weights:
        DETACHED_WEIGHTS.add(name)
    return _add(PROXY_REFERENCES, name, options)


def triplet_reference(name: str) -> Callable[[Decorated], Decorated]:
    """Register a function of (anchors, references, triplets, **options) as the reference for mined triplets."""

    def register(function: Decorated) -> Decorated:
        TRIPLET_REFERENCES[name] = function
        return function

    return register


def _add(
    references: dict[str, Reference], name: str, options: tuple[dict[str, Any], ...]
) -> Callable[[Decorated], Decorated]:
    def register(function: Decorated) -> Decorated:
        references[name] = function
        OPTIONS[name] = [{}, *options]
        return function

    return register
