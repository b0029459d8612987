"""Figures that can be read in grayscale."""

import itertools

from kinfold.report.figures.style import SeriesStyle


def test_no_two_lines_look_alike_in_grayscale():
    looks = [SeriesStyle.create(number) for number in range(55)]
    assert len({(str(look.dash), look.marker) for look in looks}) == 55
    for one, other in itertools.pairwise(looks):
        assert one.dash != other.dash
        assert one.marker != other.marker
