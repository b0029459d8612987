"""Hyper-parameter search with Optuna: trials that survive a kill, the same ones whether it came or not.

A study lies in a journal file, or in any data base that Optuna takes, where several machines may work on it.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinfold.experiments.search_space import Categorical, parse_search_space
from kinfold.optional import import_optional
from kinfold.training.loop.selection import is_better

FIRST = 10  # at most so many trials are drawn at random before the search learns from them
OWNER = "worker"


@dataclass(frozen=True)
class Trial:
    """Settings to try; `number` counts from 0 within the study."""

    number: int
    values: dict[str, Any]


class Study:
    """Looks for the settings with the best value of a metric, `trials` of them and no more.

    storage: a journal file, or the URL of a data base. worker: who asks; a trial that it left behind, killed, is given
    to it again. The random numbers of a trial depend on the study's name and the number of trials before it alone.
    """

    def __init__(
        self, name: str, table: Mapping[str, Any], trials: int, metric: str, storage: Path | str, worker: str = "one"
    ) -> None:
        self._optuna = import_optional("optuna", "optuna", "bench", "hyper-parameter search")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        self._name, self._trials, self._metric, self._worker = name, trials, metric, worker
        self._space = parse_search_space(table)
        if not self._space:
            raise ValueError(f"{name} has nothing to search: its recipe has no table `search`")
        self._direction = "maximize" if is_better(metric, 1.0, 0.0) else "minimize"
        self._study = self._opened(self._storage(storage))

    def next(self) -> Trial | None:
        """Settings to try: those that this worker left unfinished, or new ones; None when all were given out."""
        found = self._unfinished()
        if found is None and len(self._begun()) < self._trials:
            self._study.add_trial(self._drawn())  # whole, or not at all where a kill comes first
            found = self._unfinished()
        return found

    def tell(self, trial: Trial, value: float | None) -> None:
        """What a trial reached; None where it failed, which counts as a trial."""
        state = self._optuna.trial.TrialState.FAIL if value is None else None
        self._study.tell(trial.number, value, state=state)

    @property
    def left(self) -> int:
        """How many trials are not through yet, those of other workers too."""
        return self._trials - len([trial for trial in self._begun() if trial.state.is_finished()])

    @property
    def successful(self) -> int:
        """How many trials gave a value."""
        return len([trial for trial in self._begun() if trial.value is not None])

    def best(self) -> Trial:
        """The best of the trials; the first of equal ones."""
        done = [trial for trial in self._begun() if trial.value is not None]
        if not done:
            raise ValueError(f"no trial of {self._name} gave a value: all of them failed")
        found = done[0]
        for trial in done[1:]:
            if is_better(self._metric, trial.value, found.value):
                found = trial
        return Trial(found.number, self._values(found))

    def history(self) -> list[tuple[Trial, float | None]]:
        return [(Trial(trial.number, self._values(trial)), trial.value) for trial in self._begun()]

    def _begun(self) -> list[Any]:
        """The trials that count, in their order; two machines that asked at once may have begun one too many."""
        found: list[Any] = self._study.get_trials(deepcopy=False)
        return found[: self._trials]

    def _unfinished(self) -> Trial | None:
        for trial in self._begun():
            if not trial.state.is_finished() and trial.user_attrs.get(OWNER) == self._worker:
                return Trial(trial.number, self._values(trial))
        return None

    def _drawn(self) -> Any:
        """A trial to add, with the values that the search proposes after those that are finished."""
        optuna, begun = self._optuna, self._begun()
        first = min(FIRST, max(1, self._trials // 3))
        seed = zlib.crc32(f"{self._name}/{len(begun)}".encode())
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=first)
        # asked of a copy in memory: in the storage a trial would be there before its values are
        copy = optuna.create_study(direction=self._direction, sampler=sampler)
        copy.add_trials([trial for trial in begun if trial.state.is_finished()])
        distributions = self._distributions()
        params = copy.ask(distributions).params
        running = optuna.trial.TrialState.RUNNING
        return optuna.trial.create_trial(
            state=running, params=params, distributions=distributions, user_attrs={OWNER: self._worker}
        )

    def _values(self, trial: Any) -> dict[str, Any]:
        return {name: trial.params[name] for name in self._space}

    def _distributions(self) -> dict[str, Any]:
        kinds = self._optuna.distributions
        found = {}
        for name, entry in self._space.items():
            if isinstance(entry, Categorical):
                found[name] = kinds.CategoricalDistribution(entry.values)
            elif entry.whole:
                found[name] = kinds.IntDistribution(int(entry.low), int(entry.high), log=entry.log)
            else:
                found[name] = kinds.FloatDistribution(entry.low, entry.high, log=entry.log)
        return found

    def _opened(self, storage: Any) -> Any:
        try:
            return self._optuna.load_study(study_name=self._name, storage=storage)  # which writes nothing
        except KeyError:
            return self._optuna.create_study(
                study_name=self._name, storage=storage, direction=self._direction, load_if_exists=True
            )

    def _storage(self, given: Path | str) -> Any:
        if isinstance(given, str) and "://" in given:
            return given
        path = Path(given)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            backend = self._optuna.storages.journal.JournalFileBackend(str(path))
            return self._optuna.storages.JournalStorage(backend)
        except OSError:
            raise
        except Exception as wrong:  # Optuna replays the journal, and raises whatever it stumbles over
            raise ValueError(
                f"{path} is damaged: it is not the journal of a search ({type(wrong).__name__}: {wrong}). Restore it, "
                "or begin the bench anew in another folder"
            ) from None
