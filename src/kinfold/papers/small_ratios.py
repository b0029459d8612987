"""Ratios that rows of a published table keep at small scale: positives to negatives, pairs to batch, lengths."""

from collections.abc import Mapping
from typing import Any

from kinfold.papers.published import Settings

LARGEST_BATCH = 640
PAIR_COUNTS = {"dro-topk": "k", "dro-topk-pn": "k", "dro-kl": "sample"}  # options that count pairs of a batch, by loss


def keep_imbalance(rows: Mapping[str, Settings], classes: int) -> dict[str, Settings]:
    """Choose batches with the positives per negative that the rows have in the paper.

    A batch of C classes with M items each has (M - 1) / (M (C - 1)) positives per negative. With few training classes,
    fewer items per class keep that ratio: M is the largest that fits for all rows. If not even two items per class fit,
    all numbers of classes shrink by one factor.

    Args:
        rows: Row -> its settings in the paper.
        classes: Number of training classes at small scale.

    Returns:
        Row -> its sampler, for rows that vary the batch size and nothing else of the sampler; empty if there are none,
        or if their batches fit as they are.

    Examples:
        >>> rows = {str(size): {"sampler": {"name": "spc", "batch_size": size, "per_class": 5}} for size in (80, 640)}
        >>> keep_imbalance(rows, classes=80)["640"]
        {'name': 'spc', 'batch_size': 160, 'per_class': 2}
    """
    samplers = {name: settings.get("sampler", {}) for name, settings in rows.items()}
    sizes = {sampler.get("batch_size") for sampler in samplers.values()}
    others = [{key: value for key, value in each.items() if key != "batch_size"} for each in samplers.values()]
    if len(sizes) < 2 or None in sizes or "per_class" not in others[0] or any(each != others[0] for each in others):
        return {}
    per_class = others[0]["per_class"]
    if max(sizes) <= min(LARGEST_BATCH, classes * per_class) or per_class < 2:
        return {}
    for count in range(per_class, 1, -1):
        groups = {size: _count_groups(size, per_class, count) for size in sizes}
        if max(groups.values()) <= classes and max(groups.values()) * count <= LARGEST_BATCH:
            break
    else:
        factor = classes / max(groups.values())
        groups = {size: max(2, round(number * factor)) for size, number in groups.items()}
    return {
        name: {**sampler, "batch_size": groups[sampler["batch_size"]] * count, "per_class": count}
        for name, sampler in samplers.items()
    }


def _count_groups(batch_size: int, per_class: int, count: int) -> int:
    """The number of classes that has the same positives per negative with `count` items of each."""
    ratio = (per_class - 1) / (batch_size - per_class)
    return 1 + round((count - 1) / (count * ratio))


def keep_pair_counts(paper: Settings, small: Settings) -> dict[str, Settings]:
    """Scale numbers of pairs, and those that a search may try, with the batch.

    Args:
        paper: Settings of a row in the paper.
        small: Its settings at small scale.

    Returns:
        The tables that change.

    Examples:
        >>> paper = {"loss": {"name": "dro-topk", "k": 1280}, "sampler": {"batch_size": 640}}
        >>> keep_pair_counts(paper, {**paper, "sampler": {"batch_size": 400}})
        {'loss': {'name': 'dro-topk', 'k': 800}}
    """
    loss = small.get("loss", {})
    option = PAIR_COUNTS.get(loss.get("name", ""))
    before, after = paper.get("sampler", {}).get("batch_size"), small["sampler"]["batch_size"]
    if option is None or before is None or before == after:
        return {}

    def scale(count: Any) -> Any:
        return max(1, round(count * after / before)) if isinstance(count, int) else count  # "2b" follows the batch

    tables: dict[str, Settings] = {}
    if option in loss:
        tables["loss"] = {**loss, option: scale(loss[option])}
    key = f"loss.{option}"
    if key in small.get("search", {}):
        space = small["search"][key]
        tables["search"] = {**small["search"], key: {**space, "values": [*map(scale, space["values"])]}}
    return tables


def keep_lengths(rows: Mapping[str, Settings], steps: int) -> dict[str, int]:
    """Choose lengths of training in proportion to those of the paper.

    Args:
        rows: Row -> its settings in the paper.
        steps: Steps of the longest row.

    Returns:
        Row -> steps, where rows are trained for different numbers of steps; empty otherwise.

    Examples:
        >>> keep_lengths({"a": {"training": {"steps": 8000}}, "b": {"training": {"steps": 1000}}}, 200)
        {'a': 200, 'b': 25}
    """
    lengths = {name: settings.get("training", {}).get("steps") for name, settings in rows.items()}
    trained = {name: length for name, length in lengths.items() if length}  # neither untrained nor counted in epochs
    if len({*trained.values()}) < 2:
        return {}
    longest = max(trained.values())
    return {name: max(1, round(steps * length / longest)) for name, length in trained.items()}
