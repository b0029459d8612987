"""`kinfold check` finds the losses of a file, prints what holds, and ends with 1 where something does not."""

import json

import pytest
from typer.testing import CliRunner

from kinfold.cli.main import app

GOOD = """
import torch

class Pull(torch.nn.Module):
    def __init__(self, num_classes, embedding_size, weight=1.0):
        super().__init__()
        self.proxies = torch.nn.Parameter(torch.eye(num_classes, embedding_size) * weight)

    def forward(self, embeddings, labels):
        x = embeddings.float() if embeddings.dtype in (torch.float16, torch.bfloat16) else embeddings
        return (x - self.proxies[labels]).square().sum() / max(1, len(x))
"""


def run(*arguments):
    return CliRunner().invoke(app, ["check", *arguments, "--device", "none"])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_loss.py"
    path.write_text(GOOD)
    return path


def test_the_loss_of_a_file_is_found_created_and_checked(file):
    result = run(str(file))
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Pull\n  ok     gradient")
    assert "checks hold" in result.output


def test_a_fault_ends_with_one_and_is_in_the_json(file):
    file.write_text(GOOD.replace("max(1, len(x))", "len(x)"))
    result = run(f"{file}:Pull", "--only", "empty batch", "--json", "--set", "weight=2")
    assert result.exit_code == 1
    finding = {"check": "empty batch", "status": "fails", "message": "ZeroDivisionError: float division by zero"}
    report = json.loads(result.output)[0]
    assert report["loss"] == "Pull"
    assert report["findings"][0]["status"] == finding["status"]


def test_registered_names_and_classes_of_packages_are_checked():
    assert run("multi-similarity", "--only", "permutation").exit_code == 0
    pytest.importorskip("pytorch_metric_learning")
    assert run("pytorch_metric_learning.losses:CosFaceLoss", "--only", "permutation").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["multi-similarty"], "did you mean 'multi-similarity'"),
        (["absent.py"], "there is no file absent.py"),
        (["torch.nn:Linea"], "did you mean 'Linear'"),
        (["torch.nn:Linear"], "the loss cannot be created"),
        (["no_such_package:Loss"], "cannot be imported"),
        (["margin", "--set", "margin"], "write NAME=VALUE"),
        (["margin", "--only", "gradents"], "did you mean 'gradient'"),
    ],
)
def test_mistakes_are_explained(arguments, message):
    result = run(*arguments)
    assert message in str(result.exception)


def test_a_file_without_a_module_or_with_an_error_is_explained(file):
    file.write_text("x = 1")
    assert "defines no torch module" in str(run(str(file)).exception)
    file.write_text("1 / 0")
    assert "cannot be loaded: ZeroDivisionError" in str(run(str(file)).exception)
