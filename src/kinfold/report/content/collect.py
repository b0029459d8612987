"""Everything that a report shows of runs, as plain values."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import kinfold
from kinfold.data import Dataset
from kinfold.files.documents import nan_to_null
from kinfold.report.content.adaptations import describe_adaptations
from kinfold.report.content.audits import describe_audits
from kinfold.report.content.calibrations import (
    describe_calibration_charts,
    describe_calibrations,
    read_calibrations,
)
from kinfold.report.content.datasets import RunDatasets
from kinfold.report.content.diagnostics import describe_diagnostics
from kinfold.report.content.embedding_spaces import choose_repeats, describe_space, open_space, request_thumbnails
from kinfold.report.content.inputs import find_inputs
from kinfold.report.content.pair_weights import describe_pair_weights
from kinfold.report.content.path_redaction import display_folder
from kinfold.report.content.remarks import describe_images, describe_state
from kinfold.report.content.result_tables import describe_tables, is_inflated
from kinfold.report.content.space_charts import describe_curves, describe_spectra
from kinfold.report.content.thumbnails import Thumbnails
from kinfold.report.content.training_curves import describe_training
from kinfold.tsne import has_tsne

MAX_POINTS = 3_000


def collect_content(
    folder: Path | str,
    points: int = MAX_POINTS,
    *,
    methods: Sequence[str] = (),
    dataset: Dataset | None = None,
    images: Path | str | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> dict[str, Any]:
    """Collect everything that a report shows; `write_page` and `write_figures` draw it.

    Maps and other results that take long are cached in the folders of the runs.

    Args:
        folder: Folder of a run, of a repeat, of a benchmark, or of several runs.
        points: How many items a map shows at most.
        methods: Methods whose embedding spaces are shown; the best ones where empty, "all" for all.
        dataset: The data of the runs, if their configurations name none.
        images: The folder with the images of feature files, to which their column path is relative.
        progress: Called with a stage and the share that is finished.

    Returns:
        Plain values, ready for JSON. "tables": results. "charts": lists of `kinfold.report.charts.Chart` as
        dictionaries, by section. "calibrations": stored thresholds in sentences. "adaptations": ladders of
        `kinfold adapt`. "audits": what `kinfold data audit` found in the data, and what was trained after it. "spaces":
        embedding spaces, with their maps and queries. "missing": sentences about what cannot be shown.

    Raises:
        ValueError: The folder holds no runs, a method is unknown, or `points` is below 2.
    """
    if points < 2:
        raise ValueError(f"a map needs at least 2 points, got {points}")
    inputs = find_inputs(folder)
    styles = inputs.method_styles
    missing = describe_state(inputs)
    datasets = RunDatasets(dataset, images)
    charts = {"training": describe_training(inputs, missing)}
    opened = [open_space(*choice, datasets, points, missing, progress) for choice in choose_repeats(inputs, methods)]
    spaces = [space for space in opened if space is not None]
    if spaces and not has_tsne():
        missing.append('no maps: t-SNE needs scikit-learn, which is not installed (pip install "kinfold[report]")')
    calibrations = read_calibrations(inputs, missing)
    charts["calibration"] = describe_calibration_charts(calibrations)
    charts |= {"curves": describe_curves(spaces, styles), "spectra": describe_spectra(spaces, styles)}
    thumbnails = Thumbnails()
    request_thumbnails(spaces, thumbnails)
    with _report_stage(progress, "images of the report"):
        sheets = thumbnails.draw(inputs.folder)
    missing += describe_images(spaces, thumbnails)
    with _report_stage(progress, "diagnostics of the training classes"):
        charts["diagnostics"] = describe_diagnostics(inputs, datasets, missing)
    with _report_stage(progress, "pair weights of the losses"):
        charts["weights"] = describe_pair_weights(inputs, datasets, missing)
    content: dict[str, Any] = nan_to_null(
        {
            "title": inputs.folder.resolve().name if inputs.bench is None else inputs.bench.suite.name,
            "kind": inputs.kind,
            "about": {
                "kinfold": kinfold.__version__,
                "folder": display_folder(inputs.folder),
                "protocol": inputs.protocol,
                "data": inputs.data,
                "seeds": inputs.seeds,
            },
            "inflated": is_inflated(inputs),
            "tables": describe_tables(inputs),
            "charts": {section: [asdict(chart) for chart in listed] for section, listed in charts.items()},
            "calibrations": describe_calibrations(calibrations),
            "adaptations": describe_adaptations(inputs, missing),
            "audits": describe_audits(inputs, datasets, missing),
            "spaces": [describe_space(space, thumbnails) for space in spaces],
            "thumbnails": sheets,
            "missing": [*dict.fromkeys(missing)],
        }
    )
    return content


@contextmanager
def _report_stage(progress: Callable[[str, float], None] | None, stage: str) -> Iterator[None]:
    """Report the beginning and the end of work that cannot say how far it is."""
    if progress is not None:
        progress(stage, 0.0)
    yield
    if progress is not None:
        progress(stage, 1.0)
