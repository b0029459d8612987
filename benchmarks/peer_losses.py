"""Check every loss of the installed pytorch-metric-learning and write docs/peer-losses.md.

python -m benchmarks.peer_losses
"""

import inspect
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.peer_reproductions import BEYOND, write_reproduction
from kinfold.testing import LossReport, check_loss
from kinfold.testing.loss_checks import CHECKS

PAGE = Path(__file__).parent.parent / "docs" / "peer-losses.md"
DIM, CLASSES = 16, 6

# not losses of embeddings and labels by themselves
WRAPPERS = {
    "BaseLossWrapper",
    "BaseMetricLossFunction",
    "CrossBatchMemory",
    "GenericPairLoss",
    "ManifoldLoss",  # takes no labels
    "MultipleLosses",
    "SelfSupervisedLoss",
    "VICRegLoss",  # takes two views and no labels
    "WeightRegularizerMixin",
}
# arguments without a default
ARGUMENTS = {
    "P2SGradLoss": f"descriptors_dim={DIM}, num_classes={CLASSES}",
    "RankedListLoss": "margin=0.4, Tn=10",
}
CLASS_VECTORS = f"num_classes={CLASSES}, embedding_size={DIM}"
# what a loss declares is no fault of it
BY_DEFINITION = {
    ("CircleLoss", "gradient"): "its weights carry no gradient, as the paper defines them",
    ("NPairsLoss", "permutation"): "it takes one pair of each class, the first one",
    ("P2SGradLoss", "parameter gradient"): "it normalizes its class vectors before each call and leaves that step out",
}


def create(name: str) -> nn.Module:
    """Create a loss of the peer with its defaults, and class vectors where it has them."""
    from pytorch_metric_learning import losses

    created: nn.Module = eval(write_call(name), {name: getattr(losses, name)})
    return created


def write_call(name: str) -> str:
    """Return the expression that creates a loss of the peer."""
    from pytorch_metric_learning import losses

    if name in ARGUMENTS:
        return f"{name}({ARGUMENTS[name]})"
    try:
        getattr(losses, name)()
    except (TypeError, KeyError):
        return f"{name}({CLASS_VECTORS})"
    return f"{name}()"


def list_losses() -> list[str]:
    """Names of the losses of the peer."""
    from pytorch_metric_learning import losses

    kinds = {name: kind for name, kind in vars(losses).items() if inspect.isclass(kind)}
    return sorted(name for name, kind in kinds.items() if issubclass(kind, nn.Module) and name not in WRAPPERS)


def check_all() -> Iterator[LossReport]:
    """Check the losses one by one."""
    for name in list_losses():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield check_loss(create(name), dim=DIM, name=name)


def format_page(reports: list[LossReport]) -> str:
    """Write the page."""
    checks = [check for check in CHECKS if check != "chunks"]
    lines = [HEAD.format(version=version("pytorch-metric-learning"), torch=torch.__version__, count=len(reports))]
    lines += ["| loss | holds | fails | waits |", "|---|---:|---|---:|"]
    for report in reports:
        findings = [report[check] for check in checks]
        held = sum(finding.status == "holds" for finding in findings)
        total = sum(finding.status != "skipped" for finding in findings)
        names = [_mark(report.loss, finding.check) for finding in report.failures]
        waits = report["second device"].message.removeprefix("the host waits ").removesuffix(" times")
        waits = waits if waits.isdigit() else ""
        lines.append(f"| {report.loss} | {held} of {total} | {', '.join(names)} | {waits} |")
    notes = dict.fromkeys(_footnotes().values())
    lines += ["", *(f"{mark} By definition: {text}." for mark, text in notes), "", "## Observations", ""]
    for check in checks:
        faults = [(report.loss, report[check].message) for report in reports if report[check].status == "fails"]
        if not faults:
            continue
        lines += [f"### {check}", "", *_describe(check), "", "| loss | observed |", "|---|---|"]
        lines += [f"| {name} | {_escape(message)} |" for name, message in faults]
        code = write_reproduction([write_call(name) for name, _ in faults], check)
        commands = [f'kinfold check pytorch_metric_learning.losses:{name} --only "{check}"' for name, _ in faults]
        lines += ["", *(["```text", *commands, "```"] if code is None else ["```py", code, "```"]), ""]
    return "\n".join([*lines, BEYOND]).rstrip() + "\n"


HEAD = """# Losses of pytorch-metric-learning under the same checks

[`kinfold check`](checking-a-loss.md) runs on any torch module that is called with embeddings and labels. Here it ran
on the {count} such losses of pytorch-metric-learning {version} with their default options and torch {torch} on the
CPU. The last column counts how often the host waits for the [second device](devices.md) in one call.

The checks are the contract of this package, not of that library: a batch without a valid pair, for example, is
outside of what its documentation promises. Most of its losses keep most of the checks. The losses of this package
keep all of them with two exceptions (`tests/testing/test_check.py`): `circle`, `hap2s` and `adaface` define weights
that carry no gradient, and the memory of `smooth-ap`, `pnp`, `recall-at-k`, `roadmap` and `happier` grows with the
positives too, for `smooth-ap` here with the power 3.0 of the batch size.

This page is written by `python -m benchmarks.peer_losses`. Under each check is code that shows what was observed for
every loss of its table, with torch and that library alone. It prints the name of the loss, whether the check holds,
and the numbers. The tests run it.
"""


def _footnotes() -> dict[tuple[str, str], tuple[str, str]]:
    marks = dict(zip(sorted(set(BY_DEFINITION.values())), "¹²³⁴", strict=False))
    return {key: (marks[text], text) for key, text in BY_DEFINITION.items()}


def _mark(name: str, check: str) -> str:
    note = _footnotes().get((name, check))
    return check if note is None else f"{check}{note[0]}"


def _describe(check: str) -> list[str]:
    described = inspect.getdoc(CHECKS[check])
    return [described.splitlines()[0]] if described else ["A finite value with a finite gradient."]


def _escape(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(format_page([*check_all()]))
    print(f"wrote {PAGE}")
