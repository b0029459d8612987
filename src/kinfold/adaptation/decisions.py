"""The rule that takes a step of the ladder: selection by one half of the classes, a test on the other.

First two tests say whether anything helps at all, the best linear map and the best trained space, at half of the level
each. Only then each step is tested against the last one that was taken.

Splits of the same classes overlap, so that their scores are not independent. A paired t-test that ignores it finds
differences where there are none. The corrected resampled t-test of Nadeau and Bengio (Inference for the generalization
error, Machine Learning 52, 2003) adds the share of held-out to fitted classes to 1 / splits in the variance of a mean.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kinfold.adaptation.class_splits import FOLDS, ClassSplit

ROUNDING = 1e-12
LEVEL = 0.05  # of the test of a step, and probability that labels without information take any step at all
HELP_LEVEL = LEVEL / 2  # of each of the two tests whether anything helps
Scores = Mapping[str, Mapping[int, float]]  # candidate -> split -> score


@dataclass(frozen=True)
class CorrectedTest:
    """Corrected resampled t-test of paired differences.

    Attributes:
        difference: Mean difference.
        half_width: Half width of its 95 % interval.
        p: One-sided p value of "the mean difference is not positive".
    """

    difference: float
    half_width: float
    p: float


def corrected_test(differences: Sequence[float], held_out_share: float = 1 / FOLDS) -> CorrectedTest:
    """Test whether the mean of differences over overlapping splits is positive.

    t = mean / sqrt((1 / n + share / (1 - share)) variance), with n - 1 degrees of freedom.

    Args:
        differences: Score of one space minus that of another, one for each split.
        held_out_share: Share of the classes that a split holds out.

    Returns:
        The test. Differences that are all zero have p = 1.

    Raises:
        ValueError: There are fewer than two splits.

    Examples:
        >>> round(corrected_test([1.0, 2.0, 3.0, 2.0]).p, 4)
        0.0245
    """
    from scipy.special import stdtr, stdtrit  # not at the top: `import kinfold` stays fast

    count = len(differences)
    if count < 2:
        raise ValueError(f"a test needs two splits at least, got {count}")
    mean = math.fsum(differences) / count
    variance = math.fsum((value - mean) ** 2 for value in differences) / (count - 1)
    error = math.sqrt(variance * (1 / count + held_out_share / (1 - held_out_share)))
    half_width = float(stdtrit(count - 1, 0.975)) * error
    if error <= ROUNDING * abs(mean):  # without spread there is nothing to test with
        return CorrectedTest(mean, half_width, 1.0)
    return CorrectedTest(mean, half_width, float(stdtr(count - 1, -mean / error)))


def select_candidate(scores: Scores, splits: Sequence[int]) -> str:
    """Return the candidate with the best mean over some splits; the first of equal ones.

    Raises:
        ValueError: No candidate has scores on all of these splits.
    """
    means = {
        name: math.fsum(values[split] for split in splits) / len(splits)
        for name, values in scores.items()
        if all(split in values for split in splits)
    }
    if not means:
        raise ValueError("no candidate was measured on all splits")
    return max(means, key=lambda name: means[name])


def cross_fit(scores: Sequence[Scores], splits: Sequence[ClassSplit]) -> list[str]:
    """Choose the candidate of each half of the classes; it is measured on the folds of the other half.

    Args:
        scores: For each half, the scores of the candidates that were proposed with its classes alone.
        splits: The splits that have scores.

    Returns:
        For each half, the candidate with the best scores on its folds.
    """
    halves = [[split.number for split in splits if split.half == half] for half in (0, 1)]
    return [select_candidate(scores[half], halves[half]) for half in (0, 1)]
