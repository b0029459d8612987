"""The page about the losses of pytorch-metric-learning: what it shows can be repeated without this package."""

import re
from pathlib import Path

import pytest

from benchmarks import peer_losses

pytest.importorskip("pytorch_metric_learning", reason="pytorch-metric-learning is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # its own

SECTION = re.compile(r"^### (.+?)\n(.*?)(?=^### |\Z)", flags=re.MULTILINE | re.DOTALL)


def test_every_loss_of_the_peer_is_on_the_page():
    page = peer_losses.PAGE.read_text()
    assert all(f"| {name} | " in page for name in peer_losses.list_losses())


@pytest.mark.parametrize(
    ("check", "text"), SECTION.findall(Path(peer_losses.PAGE).read_text() if peer_losses.PAGE.exists() else "")
)
def test_reproductions_show_the_fault(check, text, capsys):
    code = re.search(r"^```py\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    if code is None:
        assert f'--only "{check}"' in text
        return
    assert "kinfold" not in code[1]
    raised = ""
    try:
        exec(compile(code[1], check, "exec"), {})
    except Exception as error:
        raised = type(error).__name__
    if raised:
        assert raised in text or check == "gradient"
        return
    printed = capsys.readouterr().out
    numbers = re.findall(r"tensor\(([-.\w]+)", printed)
    assert (
        "torch.float32" in printed
        or "nan" in printed
        or "False" in printed
        or len(set(numbers)) > 1
        or check in ("NaN", "float16", "bfloat16")
    )
