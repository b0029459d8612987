"""Check any loss against the contract that the losses of this package are tested with."""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from kinfold.devices import resolve_device
from kinfold.registry import suggest
from kinfold.testing.loss_checks import CHECKS
from kinfold.testing.loss_probe import Fault, LossProbe, Skip
from kinfold.testing.loss_report import CheckResult, LossReport
from kinfold.testing.second_device import SecondDeviceError, load_second_device


def check_loss(
    loss: nn.Module,
    *,
    dim: int = 16,
    checks: Sequence[str] | None = None,
    device: torch.device | str | None = "second",
    name: str | None = None,
) -> LossReport:
    """Check a loss that is called as loss(embeddings, labels): gradients, odd batches, precisions, another device.

    A check that fails is no exception: read the report. The loss itself is not changed; copies of it are called.

    Args:
        loss: The loss. If it owns class vectors, it must have at least 6 classes and `dim` dimensions.
        dim: Dimensions of the embeddings that it is called with.
        checks: Names of checks, keys of `loss_checks.CHECKS`; by default all of them.
        device: The device of the check "second device": "cuda", "mps", or "second" for the one of this package, which
            needs g++. None leaves the check out.
        name: The name in the report; by default that of the class.

    Returns:
        What holds, what fails, and what was observed.

    Raises:
        ValueError: A check is unknown, or the loss cannot be copied.

    Example:
        >>> import kinfold
        >>> report = check_loss(kinfold.losses.create("contrastive"), device=None)
        >>> report.passed, report["gradient"].status, report["second device"].status
        (True, 'holds', 'skipped')
    """
    names = [*CHECKS] if checks is None else [*checks]
    for check in names:
        if check not in CHECKS:
            raise ValueError(f"unknown check {check!r}{suggest(check, CHECKS)}; choose from {', '.join(CHECKS)}")
    try:
        copy.deepcopy(loss)
    except Exception as error:
        raise ValueError(f"the loss cannot be copied, which the checks need: {error}") from error
    target, reason = _find_device(device) if "second device" in names else (None, "")
    probe = LossProbe(loss, dim, target, reason)
    return LossReport(name or type(loss).__name__, tuple(_run(check, probe) for check in names))


def _run(check: str, probe: LossProbe) -> CheckResult:
    try:
        message = CHECKS[check](probe)
    except Skip as skip:
        return CheckResult(check, "skipped", str(skip))
    except Fault as fault:
        return CheckResult(check, "fails", str(fault))
    return CheckResult(check, "holds", message or "")


def _find_device(device: torch.device | str | None) -> tuple[torch.device | None, str]:
    if device is None:
        return None, "left out"
    if str(device) != "second":
        return resolve_device(device), ""
    try:
        return load_second_device(), ""
    except SecondDeviceError as error:
        return None, str(error).splitlines()[0]
