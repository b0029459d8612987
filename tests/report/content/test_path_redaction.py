"""Paths of the machine in messages and configurations."""

from kinfold.report.content.path_redaction import redact_config, redact_paths


def test_messages_and_configurations_lose_folders_of_the_machine():
    text = "cannot read '/home/ann/my/birds.csv': row 3, ~/data/wren.jpg (C:\\photos\\new\\1.png); see runs/first/log"
    assert redact_paths(text) == "cannot read 'birds.csv': row 3, wren.jpg (1.png); see runs/first/log"
    tables = {"seed": 1, "data": {"root": "/mnt/cub", "options": {"images": "/mnt/b"}}, "model": {"weights": "/w/r.pt"}}
    printed = redact_config(tables)
    assert "/mnt" not in printed
    assert "/w" not in printed
    assert 'root = "cub"' in printed
    assert printed.startswith("# shortened here to the last name: data.root, model.weights, data.options\n")
