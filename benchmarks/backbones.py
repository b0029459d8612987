"""Losses over backbones: what each loss adds on each backbone, and what the scores vary with.

    python -m benchmarks.backbone_features PHOTOS.tar FEATURES           # which says how to get the networks
    kinfold bench benchmarks/suites/backbones.toml --jobs 1 --out results/backbones \
        $(for file in FEATURES/*.npz; do echo --root $(basename $file .npz)=$file; done)
    python -m benchmarks.backbones results/backbones                     # writes docs/results.md

Every method that trains is called "loss, sampler", and every loss has every sampler. A gain is the score minus that of
the same head before its first step, which is the row "whitening".
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from benchmarks.docs import fill
from benchmarks.results import PAGE, describe_effort
from benchmarks.variance import REST, decompose
from kinfold.experiments import Bench, Interval, compute_interval

Array = npt.NDArray[np.float64]
FACTORS = ("backbone", "loss", "sampler", "seed")
START = "whitening"
USEFUL = 0.1  # recall@1 of a backbone without training, from which it is also looked at apart
CLAIMS = (  # (what a paper claims, the method, what it is compared with)
    ("DRO: top-K over its base loss", "dro-topk", "similarity-margin"),
    ("DRO: grouped KL over its base loss", "dro-kl-grouped", "similarity-margin"),
    ("DRO: top-K over multi-similarity", "dro-topk", "multi-similarity"),
    ("DRO: grouped KL over multi-similarity", "dro-kl-grouped", "multi-similarity"),
    ("DRO: balanced top-K over top-K", "dro-topk-pn", "dro-topk"),
    ("rho-regularized margin over margin", "r-margin", "margin"),
    ("top-k precision over multi-similarity", "precision-at-k", "multi-similarity"),
    ("top-k precision over contrastive", "precision-at-k", "contrastive"),
)


def collect_scores(bench: Bench) -> tuple[Array, dict[str, list[str]]]:
    """Return the scores of all methods that train, (backbone, loss, sampler, seed), and the names of the levels.

    Raises:
        ValueError: A combination of loss and sampler is missing, or a run.
    """
    trained = [name for name in bench.suite.methods if ", " in name]
    losses, samplers = ([*dict.fromkeys(part)] for part in zip(*(name.split(", ") for name in trained), strict=True))
    levels = {"backbone": bench.suite.datasets, "loss": losses, "sampler": samplers}
    by_data = {data: bench.values(data, "separated", bench.suite.metric) for data in levels["backbone"]}
    try:
        scores = [
            [[[by_data[data][f"{loss}, {sampler}"][seed] for seed in bench.suite.seeds] for sampler in samplers]
             for loss in losses]
            for data in levels["backbone"]
        ]  # fmt: skip
    except KeyError as missing:
        raise ValueError(f"the bench is not complete: {missing.args[0]!r} is missing") from None
    return np.array(scores), {**levels, "seed": [str(seed) for seed in bench.suite.seeds]}


def compute_effect(scores: Array, losses: Sequence[str], first: str, second: str) -> list[Interval]:
    """Return the difference of two losses on each backbone, with the interval over seeds.

    The difference of a seed is the mean over samplers.
    """
    differences = (scores[:, losses.index(first)] - scores[:, losses.index(second)]).mean(axis=1)
    return [compute_interval(row.tolist()) for row in differences]


def format_effects(title: str, effects: Mapping[str, Sequence[Interval]], backbones: Sequence[str]) -> str:
    """Return a table of effects in percentage points: one row each, one column for each backbone, and their mean."""
    lines = [f"| {title} | {' | '.join(backbones)} | mean over backbones |", f"|---|{'---:|' * (len(backbones) + 1)}"]
    for name, intervals in effects.items():
        mean = compute_interval([interval.mean for interval in intervals])
        lines.append(f"| {name} | {' | '.join(_format_points(interval) for interval in (*intervals, mean))} |")
    return "\n".join(lines)


def format_bench(bench: Bench) -> str:
    """Return all tables of the page."""
    scores, levels = collect_scores(bench)
    backbones, losses, samplers = levels["backbone"], levels["loss"], levels["sampler"]
    starts = np.array([_read_start(bench, data, START) for data in backbones])
    gains = scores - starts[:, None, None, None]
    by_loss = {loss: [compute_interval(row.tolist()) for row in gains[:, i].mean(axis=1)]
               for i, loss in enumerate(losses)}  # fmt: skip
    by_sampler = {f"{sampler} (all losses)": [compute_interval(row.tolist()) for row in gains[:, :, i].mean(axis=1)]
                  for i, sampler in enumerate(samplers)}  # fmt: skip
    claims = {text: compute_effect(scores, losses, first, second) for text, first, second in CLAIMS}
    metric = bench.suite.metric
    return "\n\n".join(
        [
            _format_starts(bench, backbones, by_loss),
            format_effects(f"gain in {metric} over the start, points", {**by_loss, **by_sampler}, backbones),
            format_effects(f"claim: difference in {metric}, points", claims, backbones),
            "Columns of backbones: mean and 95 % interval over seeds, of the mean over samplers. Last column: over "
            "backbones.",
            *_count_signs(claims),
            _describe_orders(gains, losses),
            _format_variance("score", scores),
            _format_variance("gain over the start", gains),
            *_format_useful(bench, gains, backbones),
            "Share: of the sum of squares; ± jackknife over backbones. Deviation: of the effects of the levels, in an "
            "additive random-effects model, by the method of moments.",
            describe_effort(bench),
        ]
    )


def _read_start(bench: Bench, data: str, method: str, metric: str | None = None) -> float:
    values = bench.values(data, "separated", metric or bench.suite.metric)[method]
    return float(np.mean([*values.values()]))


def _format_starts(bench: Bench, backbones: Sequence[str], gains: Mapping[str, Sequence[Interval]]) -> str:
    metric, untrained = bench.suite.metric, [name for name in bench.suite.methods if ", " not in name]
    seconds = {data: [row["seconds"] for row in bench.rows if row["data"] == data and row["stage"] == "train"
                      and ", " in row["method"] and row["metric"] == metric] for data in backbones}  # fmt: skip
    titles = [f"{metric}, %", *untrained, "best loss", "gain", f"{untrained[0]}: recall@1, %", "seconds per run"]
    lines = [f"| {' | '.join(titles)} |", f"|---|{'---:|' * (len(titles) - 1)}"]
    for number, data in enumerate(backbones):
        best = max(gains, key=lambda loss: gains[loss][number].mean)
        cells = [f"{100 * _read_start(bench, data, name):.1f}" for name in untrained]
        recall = 100 * _read_start(bench, data, untrained[0], "recall@1")
        cells += [best, _format_points(gains[best][number]), f"{recall:.1f}", f"{np.mean(seconds[data]):.1f}"]
        lines.append(f"| {data} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _count_signs(claims: Mapping[str, Sequence[Interval]]) -> list[str]:
    """For every claim, on how many backbones it has the right sign, and on how many the interval excludes zero."""
    lines = []
    for text, intervals in claims.items():
        ahead = [interval for interval in intervals if interval.mean > 0]
        clear = sum(interval.mean > interval.half_width for interval in intervals)
        against = sum(interval.mean < -interval.half_width for interval in intervals)
        lines.append(
            f"- {text}: ahead on {len(ahead)} of {len(intervals)} backbones; the interval is above zero on {clear} and "
            f"below zero on {against}."
        )
    return ["\n".join(lines)]


def _describe_orders(gains: Array, losses: Sequence[str]) -> str:
    """How well the orders of the losses on two backbones agree."""
    means = gains.mean(axis=(2, 3))
    pairs = [float(spearmanr(means[i], means[j]).statistic) for i, j in combinations(range(len(means)), 2)]
    return (
        f"Order of the {len(losses)} losses on two backbones: Spearman {np.mean(pairs):+.2f} on average over "
        f"{len(pairs)} pairs of backbones, from {min(pairs):+.2f} to {max(pairs):+.2f}."
    )


def _format_useful(bench: Bench, gains: Array, backbones: Sequence[str]) -> list[str]:
    """The variance of the gains on backbones that know the photos already, if these are three or more but not all."""
    recalls = [_read_start(bench, data, bench.suite.methods[0], "recall@1") for data in backbones]
    chosen = [number for number, recall in enumerate(recalls) if recall >= USEFUL]
    if not 3 <= len(chosen) < len(backbones):
        return []
    names = ", ".join(backbones[number] for number in chosen)
    return [_format_variance(f"gain on {names}", gains[chosen])]


def _format_variance(title: str, scores: Array) -> str:
    lines = [f"| variance of the {title} | share, % | deviation, points |", "|---|---:|---:|"]
    for name, part in decompose(100 * scores, FACTORS).items():
        share = f"{100 * part.share.mean:.1f} ± {100 * part.share.half_width:.1f}"
        deviation = "" if part.deviation is None else f"{part.deviation.mean:.2f} ± {part.deviation.half_width:.2f}"
        label = f"{name} (deviation: with all interactions)" if name == REST else name
        lines.append(f"| {label} | {share} | {deviation} |")
    return "\n".join(lines)


def _format_points(interval: Interval) -> str:
    return f"{100 * interval.mean:+.2f} ± {100 * interval.half_width:.2f}"


def main(arguments: Sequence[str]) -> None:
    """Write the tables of a bench into the page."""
    bench: Any = Bench.open(arguments[0])
    fill(PAGE, "backbones", format_bench(bench))


if __name__ == "__main__":
    main(sys.argv[1:])
