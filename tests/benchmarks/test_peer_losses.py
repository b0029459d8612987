"""The page about the losses of pytorch-metric-learning: what it shows can be repeated without this package."""

import re
from pathlib import Path

import pytest

from benchmarks import peer_losses

pytest.importorskip("pytorch_metric_learning", reason="pytorch-metric-learning is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # its own

SECTION = re.compile(r"^### (.+?)\n(.*?)(?=^##|\Z)", flags=re.MULTILINE | re.DOTALL)
SECTIONS = SECTION.findall(Path(peer_losses.PAGE).read_text())


def test_every_loss_of_the_peer_is_on_the_page():
    page = peer_losses.PAGE.read_text()
    assert all(f"| {name} | " in page for name in peer_losses.list_losses())


def test_every_fault_of_the_table_has_a_section():
    counts = [row[2].count(",") + 1 if row[2] else 0 for row in _rows(peer_losses.PAGE.read_text(), 4)]
    assert sum(counts) == sum(len(_rows(text, 2)) for _, text in SECTIONS) > 50


@pytest.mark.parametrize(("title", "text"), SECTIONS, ids=[title for title, _ in SECTIONS])
def test_reproductions_show_the_fault_of_every_loss(title, text, capsys):
    code = re.search(r"^```py\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert code is not None
    assert "kinfold" not in code[1]
    exec(compile(code[1], title, "exec"), {})
    printed = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    names = [row[0] for row in _rows(text, 2)]
    assert printed
    assert not names or [line[0] for line in printed] == names
    assert [line[1] for line in printed] == ["False"] * len(printed)
    for (_, message), (_, _, observed) in zip(_rows(text, 2), printed, strict=False):
        if error := re.match(r"(\w+Error): ", message):
            assert observed.startswith(error[0])


def _rows(text, columns):
    """Cells of the rows of tables of losses, which have so many columns."""
    rows = re.findall(rf"^\|{columns * '([^|]*)[|]'}$", text, flags=re.MULTILINE)
    return [[cell.strip() for cell in row] for row in rows if "Loss" in row[0]]
