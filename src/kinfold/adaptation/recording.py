"""Measurements that are made once, stored, and counted for the progress that is shown."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from kinfold.adaptation.folder import AdaptationFolder

Measured = dict[str, dict[int, dict[str, float]]]  # candidate -> split -> metrics
Report = Callable[[str, float], None]


class Recorder:
    """Makes measurements or reads those that an earlier process made.

    Args:
        folder: Where they are stored.
        metrics: Names of the metrics; their mean is the score.
        report: Called with a line of text and the share of the work that is finished.
        planned: Seconds that all measurements will take, for the estimate of the time that is left; 0 shows none.

    Attributes:
        seconds: Time of the measurements since it was last set to 0, those of earlier processes included.
    """

    def __init__(self, folder: AdaptationFolder, metrics: Sequence[str], report: Report, planned: float = 0.0) -> None:
        self.folder, self.metrics = folder, metrics
        self.seconds = 0.0
        self._report, self._planned = report, planned
        self._total = 0.0
        self._counted: set[str] = set()  # keys whose time is in `seconds`

    def remember(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return the value of a measurement; computed once, then read from its file."""
        value, seconds = self.folder.remember(key, compute, time.perf_counter)
        if key not in self._counted:  # both halves of the classes may ask for the same measurement
            self._counted.add(key)
            self.seconds += seconds
            self._total += seconds
        return value

    def report(self, text: str, share: float) -> None:
        """Show the share of a stage that is finished, with an estimate of the time that is left for everything."""
        left = self._planned - self._total
        if self._planned > 0:
            text = f"{text} ({format_seconds(left)} left in all)" if left > 1 else f"{text} (almost ready)"
        self._report(text, share)

    def score(self, metrics: Mapping[str, float]) -> float:
        """Return the mean of the metrics."""
        return fmean(metrics[name] for name in self.metrics)

    def score_all(self, measured: Measured) -> dict[str, dict[int, float]]:
        """Return the score of every candidate on every split."""
        return {
            name: {split: self.score(metrics) for split, metrics in values.items()} for name, values in measured.items()
        }


def format_seconds(seconds: float) -> str:
    """Return a time as text.

    Examples:
        >>> format_seconds(42), format_seconds(200), format_seconds(8000)
        ('about 42 s', 'about 3 min', 'about 2.2 h')
    """
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
