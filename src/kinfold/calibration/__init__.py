"""Thresholds for classes never seen: a guarantee where the number of classes allows one, else an estimate.

| module | what it holds |
|---|---|
| `thresholds` | `calibrate`: threshold, interval, probabilities and thresholds of identification |
| `stored` | `calibrate_run`, `read_calibration`: the calibration of a run |
| `result` | `Calibration` |
| `risk_control` | thresholds with a guarantee |
| `probability`, `identification`, `class_pairs`, `drawing` | what these are computed from |
"""

from kinfold.calibration.identification import IdentificationPoint
from kinfold.calibration.probability import ProbabilityMap, Reliability
from kinfold.calibration.result import Calibration
from kinfold.calibration.risk_control import control_rate, smallest_certifiable_rate
from kinfold.calibration.stored import calibrate_run, read_calibration
from kinfold.calibration.thresholds import calibrate

__all__ = [
    "Calibration",
    "IdentificationPoint",
    "ProbabilityMap",
    "Reliability",
    "calibrate",
    "calibrate_run",
    "control_rate",
    "read_calibration",
    "smallest_certifiable_rate",
]
