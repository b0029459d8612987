"""The examples of docs/integrations.md run with the real packages, as they stand there."""

import copy
import re
from pathlib import Path

import pytest
import torch

from tests.compat.test_sentence_transformers import LABELS, TEXTS, model  # noqa: F401

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text()
EXAMPLES = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```py\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]


def run(title, **names):
    exec(compile(EXAMPLES[title], f"integrations.md, {title}", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_every_example_is_tested():
    assert {*EXAMPLES} == {"sentence-transformers", "MTEB", "Lightning", "accelerate", "transformers' Trainer"}


def test_sentence_transformers(model, tmp_path, capsys):  # noqa: F811
    model.save(str(tmp_path / "start"))
    names = run("sentence-transformers", model_name=str(tmp_path / "start"), load_texts=lambda: (TEXTS, LABELS))
    assert len([entry for entry in names["trainer"].state.log_history if "eval_map@r" in entry]) == 2
    assert "map@r" in capsys.readouterr().out


def test_mteb(model, capsys):  # noqa: F811
    run("MTEB", model=copy.deepcopy(model), texts=TEXTS, labels=LABELS)
    assert "recall@1" in capsys.readouterr().out


def test_lightning(tmp_path):
    names = run("Lightning")
    module, trainer = names["module"], names["trainer"]
    assert 0 <= float(trainer.callback_metrics["map@r"]) <= 1
    trainer.save_checkpoint("whole.ckpt")
    stored = torch.load("whole.ckpt", weights_only=True)["state_dict"]
    assert torch.equal(stored["loss.proxies"], module.loss.proxies)


def test_accelerate():
    names = run("accelerate")
    assert names["value"].isfinite()
    assert names["loss"].loss.beta.grad is None  # zeroed after the last step


def test_trainer():
    names = run("transformers' Trainer")
    evaluations = [entry["eval_map@r"] for entry in names["trainer"].state.log_history if "eval_map@r" in entry]
    assert len(evaluations) == 2
