"""Run an entry of a board again, and compare the scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kinfold.board.entries import BoardEntry, read_entries
from kinfold.experiments.bench import Bench
from kinfold.experiments.runner import run_bench
from kinfold.experiments.suite import Suite


@dataclass(frozen=True)
class Replay:
    """Scores of an entry and of its repetition.

    Attributes:
        entry: The name of the entry.
        before: Seed -> the score of the board.
        now: Seed -> the score of the repetition.
        is_same_code: Whether the code is the one that the entry was made with.
    """

    entry: str
    before: Mapping[int, float]
    now: Mapping[int, float]
    is_same_code: bool

    @property
    def is_identical(self) -> bool:
        """Whether all scores are the same to the last bit."""
        return all(self.now[seed] == self.before[seed] for seed in self.now)

    @property
    def largest_difference(self) -> float:
        """The largest difference of a score, without its sign."""
        return max(abs(self.now[seed] - self.before[seed]) for seed in self.now)

    def agrees(self, tolerance: float) -> bool:
        """Tell whether no score differs by more than `tolerance`, as 0.01 for one percentage point."""
        return self.largest_difference <= tolerance


def replay_entry(
    entry: BoardEntry, folder: Path | str, *, seeds: Sequence[int] | None = None, root: Path | str | None = None
) -> Replay:
    """Train an entry again with its recipe and the values that its search chose.

    The scores are the same to the last bit on the same kind of processor with the same versions, and close elsewhere.

    Args:
        entry: The entry.
        folder: A folder for the runs. A replay that was stopped continues in it.
        seeds: The repeats to run again; the first one unless given.
        root: Folder or file of the data, if it is not where the entry had it.

    Returns:
        The scores before and now.

    Raises:
        ValueError: The data is not what the entry was measured on, a seed is not one of the entry, or a run failed.
    """
    chosen = [min(entry.values)] if seeds is None else list(seeds)
    unknown = [seed for seed in chosen if seed not in entry.values]
    if unknown or not chosen:
        known = ", ".join(map(str, sorted(entry.values)))
        raise ValueError(f"{entry.name} has the seeds {known}; got {', '.join(map(str, unknown)) or 'none'}")
    tables = {name: value for name, value in entry.tables.items() if name not in ("data", "seed")}
    data = {key: value for key, value in entry.tables["data"].items() if key not in ("protocol", "fold", "test")}
    if root is not None:
        data["root"] = str(Path(root).resolve())
    suite = Suite(
        name=Path(folder).resolve().name,
        method=[{"name": entry.method, **tables}],
        data=[{"name": entry.data, "data": data}],
        seeds=chosen,
        protocol=entry.protocol,
        metric=entry.metric,
    )
    state = run_bench(suite, folder)
    if state.failed:
        name, error = next(iter(state.failed.items()))
        raise ValueError(f"{entry.name} could not be run again: {name}: {error}")
    (repeated,) = read_entries(Bench.open(folder))
    if repeated.data_fingerprint != entry.data_fingerprint:
        raise ValueError(
            f"the data is not what {entry.name} was measured on; give the folder or file of that data with --root"
        )
    before = {seed: entry.values[seed] for seed in chosen}
    return Replay(entry.name, before, dict(repeated.values), repeated.codes == entry.codes)
