"""Two depths together are the deeper one."""

from kinfold.metrics._ranking.depth import RankDepth


def test_two_depths_together_are_the_deeper_one():
    for a, b in [
        (RankDepth(first=2), RankDepth(first=9)),
        (RankDepth(3), RankDepth(5, beyond_relevant=0)),
        (RankDepth(4), RankDepth(full=True)),
    ]:
        assert a | b == b | a
        assert (a | b).first == max(a.first, b.first)
        assert (a | b).fixed == max(a.fixed, b.fixed)
        assert (a | b).full == (a.full or b.full)
    assert (RankDepth(first=2) | RankDepth(3)).resolve(relevant=1, size=100) == (3, 3)
    assert (RankDepth(first=9) | RankDepth(3)).resolve(relevant=1, size=100) == (3, 9)
