"""Trials of a hyper-parameter search with Optuna. They survive a killed process and do not depend on it.

A study is stored in a journal file, or in any database that Optuna supports, which several machines may share.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinfold.experiments.search.space import Categorical, parse_search_space
from kinfold.optional import import_optional
from kinfold.training.loop.selection import is_better

RANDOM_TRIALS = 10  # at most this many trials are drawn at random before the search learns from them
WORKER = "worker"  # attribute of a trial: which worker runs it


@dataclass(frozen=True)
class Trial:
    """Settings to try.

    Attributes:
        number: Counts from 0 within the study.
        values: Setting -> value, as in {"optimizer.lr": 0.01}.
    """

    number: int
    values: dict[str, Any]


class Study:
    """Search for the settings with the best value of a metric.

    The random numbers of a trial depend only on the name of the study and on the number of trials before it.

    Args:
        name: Name of the study in its storage.
        table: Search space, as the table `search` of a recipe.
        trials: Number of trials.
        metric: Metric to optimize.
        storage: A journal file, or the URL of a database.
        worker: Name of the caller. A trial that it left unfinished when it was killed is returned to it again.
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
        self._study = self._load_study(self._open_storage(storage))

    def ask(self) -> Trial | None:
        """Return an unfinished trial of this worker, or a new one; None when no trial is left."""
        trial = self._find_unfinished()
        if trial is None and len(self._list_trials()) < self._trials:
            self._study.add_trial(self._draw_trial())  # in one write, so that a kill leaves no partial trial
            trial = self._find_unfinished()
        return trial

    def tell(self, trial: Trial, value: float | None) -> None:
        """Record the value of a trial; None for a failed one, which counts as a trial."""
        state = self._optuna.trial.TrialState.FAIL if value is None else None
        self._study.tell(trial.number, value, state=state)

    @property
    def remaining(self) -> int:
        """Number of trials that are not finished, including those of other workers."""
        return self._trials - len([trial for trial in self._list_trials() if trial.state.is_finished()])

    @property
    def completed(self) -> int:
        """Number of trials with a value."""
        return len([trial for trial in self._list_trials() if trial.value is not None])

    def best(self) -> Trial:
        """Return the best trial, the first of equal ones.

        Raises:
            ValueError: No trial has a value.
        """
        trials = [trial for trial in self._list_trials() if trial.value is not None]
        if not trials:
            raise ValueError(f"no trial of {self._name} has a value: all of them failed")
        best = trials[0]
        for trial in trials[1:]:
            if is_better(self._metric, trial.value, best.value):
                best = trial
        return Trial(best.number, self._read_values(best))

    def history(self) -> list[tuple[Trial, float | None]]:
        """Return every trial with its value; None where it failed or is not finished."""
        return [(Trial(trial.number, self._read_values(trial)), trial.value) for trial in self._list_trials()]

    def _list_trials(self) -> list[Any]:
        """Trials that count, in order. Two machines that ask at the same time may have added one too many."""
        trials: list[Any] = self._study.get_trials(deepcopy=False)
        return trials[: self._trials]

    def _find_unfinished(self) -> Trial | None:
        for trial in self._list_trials():
            if not trial.state.is_finished() and trial.user_attrs.get(WORKER) == self._worker:
                return Trial(trial.number, self._read_values(trial))
        return None

    def _draw_trial(self) -> Any:
        """A new trial, with the values that the search proposes after the finished trials."""
        optuna, trials = self._optuna, self._list_trials()
        random_trials = min(RANDOM_TRIALS, max(1, self._trials // 3))
        seed = zlib.crc32(f"{self._name}/{len(trials)}".encode())
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=random_trials)
        # asks a copy in memory: in the storage the trial would exist before its values
        copy = optuna.create_study(direction=self._direction, sampler=sampler)
        copy.add_trials([trial for trial in trials if trial.state.is_finished()])
        distributions = self._build_distributions()
        params = copy.ask(distributions).params
        running = optuna.trial.TrialState.RUNNING
        return optuna.trial.create_trial(
            state=running, params=params, distributions=distributions, user_attrs={WORKER: self._worker}
        )

    def _read_values(self, trial: Any) -> dict[str, Any]:
        return {name: trial.params[name] for name in self._space}

    def _build_distributions(self) -> dict[str, Any]:
        kinds = self._optuna.distributions
        distributions = {}
        for name, entry in self._space.items():
            if isinstance(entry, Categorical):
                distributions[name] = kinds.CategoricalDistribution(entry.values)
            elif entry.integer:
                distributions[name] = kinds.IntDistribution(int(entry.low), int(entry.high), log=entry.log)
            else:
                distributions[name] = kinds.FloatDistribution(entry.low, entry.high, log=entry.log)
        return distributions

    def _load_study(self, storage: Any) -> Any:
        try:
            return self._optuna.load_study(study_name=self._name, storage=storage)  # writes nothing
        except KeyError:
            return self._optuna.create_study(
                study_name=self._name, storage=storage, direction=self._direction, load_if_exists=True
            )

    def _open_storage(self, storage: Path | str) -> Any:
        if isinstance(storage, str) and "://" in storage:
            return storage
        path = Path(storage)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            backend = self._optuna.storages.journal.JournalFileBackend(str(path))
            return self._optuna.storages.JournalStorage(backend)
        except OSError:
            raise
        except Exception as error:  # Optuna replays the journal, and raises whatever goes wrong there
            raise ValueError(
                f"{path} is damaged: it is not the journal of a search ({type(error).__name__}: {error}). Restore it, "
                "or start the bench again in another folder"
            ) from None
