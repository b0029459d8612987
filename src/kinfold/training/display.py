"""How a run is shown: a short description, a table of scores, and curves over the steps."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from kinfold.files.documents import null_to_nan
from kinfold.optional import import_optional

if TYPE_CHECKING:
    from kinfold.training.run import Run


def describe_run(run: "Run") -> str:
    """Return one line: folder, loss, data, and the selection metric or that the run is not finished."""
    config, metric = run.config, run.config.evaluation.metric
    description = f"Run({str(run.folder)!r}, loss={config.loss.name!r}, data={config.data.name!r}"
    if not run.finished:
        return f"{description}, not finished)"
    scores = run.scores
    for split in ("test", "validation"):
        value = scores.get(split, {}).get(metric)
        if value is not None:
            inflated = ", inflated" if split == "test" and scores["inflated"] else ""
            return f"{description}, {split} {metric}={value:.4f}{inflated})"
    return f"{description}, finished)"


def tabulate_scores(scores: Mapping[str, Any], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row per metric, with score, start and gain of every evaluated split."""
    starts = scores.get("start", {}) if scores["steps"] else {}  # without a step they are the scores
    rows = []
    for metric in metrics:
        row: dict[str, Any] = {"metric": metric}
        for split in ("validation", "test"):
            if split not in scores:
                continue
            row[split] = value = scores[split].get(metric)
            if split in starts:
                start = starts[split].get(metric)
                row[f"{split} start"] = start
                row[f"{split} gain"] = None if value is None or start is None else value - start
        rows.append(row)
    return rows


def format_score(name: str, value: Any) -> str:
    """Return the text of a table cell: four digits, gains with their sign, nothing for None.

    Examples:
        >>> format_score("test", 0.5), format_score("test gain", 0.25), format_score("test", None)
        ('0.5000', '+0.2500', '')
    """
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:+.4f}" if name.endswith(" gain") else f"{value:.4f}"


def render_text(run: "Run") -> str:
    """Return the table of scores as aligned text."""
    rows = _format_rows(run)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )


def render_html(run: "Run") -> str:
    """Return the description and the table of scores for a notebook."""
    caption = f"<code>{escape(describe_run(run))}</code>"
    if not run.finished:
        return caption
    header, *rows = ([escape(cell) for cell in row] for row in _format_rows(run))
    head = f"<tr><th>{'</th><th>'.join(header)}</th></tr>"
    body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
    return f"{caption}<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _format_rows(run: "Run") -> list[list[str]]:
    rows = tabulate_scores(run.scores, run.config.evaluation.metrics)
    columns = [*rows[0]] if rows else ["metric"]
    return [columns, *([format_score(name, row[name]) for name in columns] for row in rows)]


def plot_curves(run: "Run") -> Any:
    """Draw the loss, and beside it the evaluated metrics with the selected step, over the steps."""
    import_optional("matplotlib", "matplotlib", "report", "Run.plot")
    from matplotlib.figure import Figure

    events = run.events
    losses = [event for event in events if event["event"] == "step"]
    evaluations = [event for event in events if event["event"] == "evaluation"]
    if not losses and not evaluations:
        raise ValueError(f"{run.folder} has logged nothing yet; there is nothing to plot")
    figure = Figure(figsize=(10, 4), layout="constrained")
    loss_axes, metric_axes = figure.subplots(1, 2)
    loss_axes.plot([event["step"] for event in losses], [null_to_nan(event["loss"]) for event in losses])
    loss_axes.set(title="loss", xlabel="step")
    for metric in run.config.evaluation.metrics:
        points = [(event["step"], null_to_nan(event[metric])) for event in evaluations if metric in event]
        if points:
            metric_axes.plot(*zip(*points, strict=True), marker=".", label=metric)
    title = f"metrics on {evaluations[0].get('split', 'validation')} classes" if evaluations else "no evaluations"
    metric_axes.set(title=title, xlabel="step")
    if run.finished:
        metric_axes.axvline(run.scores["step"], linestyle=":", color="gray", label="selected step")
    if evaluations:
        metric_axes.legend()
    return figure
