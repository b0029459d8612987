"""The trial before the plan: how long the linear maps, a training and one of its steps take."""

import time

from kinfold.adaptation.candidates import list_head_candidates
from kinfold.adaptation.image_network import Tuner
from kinfold.adaptation.linear_stage import LinearStage, measure_maps
from kinfold.adaptation.measuring import Measurer
from kinfold.adaptation.plan import TrialTimes
from kinfold.adaptation.recording import Recorder

_STEPS = (4, 12, 36)  # of three trainings; the first imports and allocates, the others give the time of a step


def run_trial(measurer: Measurer, recorder: Recorder, tuner: Tuner | None = None) -> TrialTimes:
    """Time the linear maps on one split, which is stored and not measured again, and short trainings."""
    split = measurer.splits[0]
    stage = LinearStage(measurer, measurer.splits, recorder)
    wall, processor = time.perf_counter(), time.process_time()
    measure_maps(measurer, recorder, split, stage.list_all())
    candidate = list_head_candidates(next(iter(stage.candidates.values())), 1, measurer.width)[0]
    seconds = []
    for count in _STEPS:
        start = time.perf_counter()
        measurer.measure_head(split, candidate, count, count // 4)
        seconds.append(time.perf_counter() - start)
    tuning = (0.0, 0.0)
    if tuner is not None:
        start_map = next(iter(stage.candidates.values()))
        tuning = tuner.time_training(split, tuner.list_candidates(start_map, "margin")[0])
    elapsed, used = time.perf_counter() - wall, time.process_time() - processor
    step = max(1e-4, (seconds[2] - seconds[1]) / (_STEPS[2] - _STEPS[1]))
    overhead = max(0.0, seconds[1] - _STEPS[1] * step)
    return TrialTimes(recorder.seconds, step, overhead, *tuning, max(1.0, elapsed / max(used, 1e-9)))
