"""Tests for the code of others: the contract of a loss, and a second device for machines without a GPU.

| module | public functions and classes |
|---|---|
| `check` | `check_loss` |
| `loss_report` | `LossReport`, `CheckResult` |
| `loss_checks`, `scaling_checks`, `loss_probe` | the checks by name, `CHECKS`, and what they call |
| `second_device` | `load_second_device`, `count_waits`, `SecondDeviceError` |
"""

from kinfold.testing.check import check_loss
from kinfold.testing.loss_report import CheckResult, LossReport
from kinfold.testing.second_device import SecondDeviceError, count_waits, load_second_device

__all__ = [
    "CheckResult",
    "LossReport",
    "SecondDeviceError",
    "check_loss",
    "count_waits",
    "load_second_device",
]
