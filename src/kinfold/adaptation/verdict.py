"""The verdict of an adaptation in a sentence or two."""

from collections.abc import Mapping, Sequence

from kinfold.adaptation.class_splits import MIN_CLASSES
from kinfold.adaptation.decisions import CorrectedTest
from kinfold.adaptation.ladder import LadderRow

NO_HELP = "Training does not help: on classes that were held out, nothing is significantly better than the input"
_BUSY = 1.5  # times the processor time; below, nothing is said about it


def explain_few_classes(classes: int, repeated: int) -> str:
    """Say why nothing can be held out."""
    if classes < MIN_CLASSES:
        return (
            f"{classes} training {'class is' if classes == 1 else 'classes are'} too few to hold some out and to prove "
            f"that a step helps: at least {MIN_CLASSES} are needed"
        )
    return (
        f"only {repeated} of {classes} training classes have two rows or more, too few to measure retrieval on "
        f"held-out classes: at least {MIN_CLASSES} are needed"
    )


def phrase_verdict(
    rows: Sequence[LadderRow], help_tests: Mapping[str, CorrectedTest], busy: float, plan: str | None = None
) -> str:
    """Say what to use or how little everything helps, what was left out, and how busy the machine was.

    Args:
        rows: The ladder.
        help_tests: Tests of whether anything helps.
        busy: Seconds for each second of processor time.
        plan: The name of the plan, whose steps do not depend on time.
    """
    taken = [row for row in rows if row.taken]
    skipped = " and ".join(f"the {row.step}" for row in rows if row.note)
    end = ""
    if skipped and plan is not None:
        end = f" The plan {plan} leaves out {skipped}."
    elif skipped:
        end = f" There was no time for {skipped}: more minutes may help."
    if skipped and plan is None and busy >= _BUSY:
        end += f" Other processes used the machine, so that everything took {busy:.1f} times as long as alone."
    if not taken:
        gains = [f"{name} {100 * test.difference:+.1f} (p {test.p:.2g})" for name, test in help_tests.items()]
        return f"{NO_HELP} ({', '.join(gains)}), so the input space is returned.{end}"
    first, last = rows[0], taken[-1]
    return (
        f"Use the adapted space: {last.step} ({last.candidate}) scores {100 * last.score:.1f} on classes that were "
        f"held out from training, the input {100 * first.score:.1f}.{end}"
    )


def phrase_test(test: Mapping[str, Mapping[str, float]]) -> str:
    """Say what the test classes show; nothing where there are none."""
    if not test:
        return ""
    parts = [
        f"{name} {100 * values['input']:.1f} -> {100 * values['adapted']:.1f} ({100 * values['low']:+.1f} to "
        f"{100 * values['high']:+.1f})"
        for name, values in test.items()
    ]
    return f" On the test classes: {', '.join(parts)}."
