"""One callback for all services that store numbers of a run: with stand-ins, and with the real packages offline."""

import json
import math
import sys
import types

import pytest

import kinfold
from kinfold.training.loop.logs import EventLogger, create_logger
from kinfold.training.loop.trainer import Event
from tests.training.problems import features, recipe


class Recorder:
    """A service that remembers its calls."""

    def __init__(self):
        self.calls = []

    def open(self, step, run_id):
        self.calls.append(("open", step, run_id))
        return run_id or "run 7"

    def write(self, values, step):
        self.calls.append(("write", step, dict(values)))

    def flush(self):
        self.calls.append(("flush",))

    def close(self):
        self.calls.append(("close",))


def test_events_become_calls_of_the_service():
    service = Recorder()
    logger = EventLogger(service, every=3)
    logger(Event("estimate", 0, 4, {"step_seconds": 1.0}))
    logger(Event("evaluation", 0, 4, {"recall@1": 0.5}, "validation"))
    for step in range(1, 5):
        logger(Event("step", step, 4, {"loss": float(step)}))
    logger(Event("saved", 4, 4))
    logger(Event("end", 4, 4))
    assert service.calls == [
        ("open", 0, ""),
        ("write", 0, {"validation/recall@1": 0.5}),
        ("write", 3, {"train/loss": 3.0}),
        ("write", 4, {"train/loss": 4.0}),
        ("flush",),
        ("close",),
    ]


def test_a_resumed_run_continues_the_run_of_the_service(tmp_path, monkeypatch):
    service = Recorder()
    monkeypatch.setattr("kinfold.training.loop.logs.WandbWriter", lambda folder, settings: service)

    def interrupt(event):
        if event.kind == "saved" and event.step == 10:
            raise KeyError("interrupted")

    changes = ["training.loggers=['wandb']", "training.save_every=5"]
    with pytest.raises(KeyError):
        kinfold.train(recipe(), tmp_path / "run", changes=changes, dataset=features(), callbacks=[interrupt])
    assert service.calls[0] == ("open", 0, "")
    service.calls.clear()
    kinfold.train(None, tmp_path / "run", resume=True, dataset=features())
    assert service.calls[0] == ("open", 11, "run 7")
    assert [call[1] for call in service.calls if call[0] == "write" and "train/loss" in call[2]] == [15, 20]
    assert service.calls[-1] == ("close",)


@pytest.fixture
def stand_ins(monkeypatch):
    """The parts of wandb and mlflow that are used, with the signatures of these packages."""
    calls = []

    class Run:
        id = "abc"

        def log(self, data, step=None):
            calls.append(("log", step, data))

        def finish(self):
            calls.append(("finish",))

    def init(*, dir, name, config, id, resume):  # noqa: A002  # their names
        calls.append(("init", name, config["loss"]["name"], id, resume))
        return Run()

    class MlflowClient:
        def __init__(self, tracking_uri):
            calls.append(("client", tracking_uri))

        def get_experiment_by_name(self, name):
            return None

        def create_experiment(self, name):
            return "1"

        def create_run(self, experiment_id, run_name=None):
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id="r1"))

        def log_param(self, run_id, key, value):
            calls.append(("param", key, value))

        def log_metric(self, run_id, key, value, step=None):
            calls.append(("metric", key, value, step))

        def set_terminated(self, run_id):
            calls.append(("terminated", run_id))

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    monkeypatch.setitem(sys.modules, "mlflow", types.SimpleNamespace(MlflowClient=MlflowClient))
    return calls


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_services_get_settings_numbers_and_their_end(name, stand_ins, tmp_path):
    logger = create_logger(name, tmp_path, {"seed": 3, "loss": {"name": "margin"}}, every=1)
    logger(Event("evaluation", 0, 1, {"recall@1": 0.5}, "validation"))
    logger(Event("end", 1, 1))
    if name == "wandb":
        assert stand_ins == [
            ("init", tmp_path.name, "margin", None, None),
            ("log", 0, {"validation/recall@1": 0.5}),
            ("finish",),
        ]
    else:
        assert ("client", (tmp_path / "mlruns").as_uri()) in stand_ins
        assert ("param", "loss.name", "margin") in stand_ins
        assert ("metric", "validation/recall_at_1", 0.5, 0) in stand_ins
        assert stand_ins[-1] == ("terminated", "r1")


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # of these packages
def test_wandb_itself_stores_a_run_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    kinfold.train(recipe(), tmp_path / "run", changes=["training.loggers=['wandb']"], dataset=features())
    files = [*(tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")]
    assert len(files) == 1
    content = files[0].read_bytes()
    assert b"validation/recall@1" in content
    assert b"train/loss" in content


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_mlflow_itself_stores_a_run_in_a_folder(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run = kinfold.train(recipe(), tmp_path / "run", changes=["training.loggers=['mlflow']"], dataset=features())
    client = mlflow.MlflowClient(tracking_uri=(run.folder / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("kinfold")
    (stored,) = client.search_runs([experiment.experiment_id])
    assert stored.data.params["loss.name"] == "multi-similarity"
    assert stored.info.status == "FINISHED"
    history = client.get_metric_history(stored.info.run_id, "validation/recall_at_1")
    logged = [event["recall@1"] for event in run.events if event["event"] == "evaluation"]
    assert [round(entry.value, 9) for entry in history] == [round(value, 9) for value in logged]
    assert all(math.isfinite(entry.value) for entry in history)
    assert json.loads((run.folder / "environment.json").read_text())
