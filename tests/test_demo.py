"""The demo runs, and training helps on unseen classes."""

import re

from kinfold import demo


def test_every_method_beats_the_untrained_points(tmp_path, capsys):
    table = demo.main(tmp_path).read_text()
    scores = [float(score) for score in re.findall(r"\| (\d+\.\d) % \|", table)]
    assert len(scores) == len(demo.METHODS) + 1
    assert all(score > scores[0] + 5 for score in scores[1:])
    assert str(tmp_path) in capsys.readouterr().out
