"""Exact scores depend on the two rows alone."""

import torch

from kinfold.metrics._ranking.query_gallery import build_query_gallery

DISTANCES = ["cosine", "dot", "euclidean"]


def test_exact_scores_do_not_depend_on_the_position_of_the_rows():
    for d in (3, 17, 64, 128, 515):
        generator = torch.Generator().manual_seed(d)
        x = torch.randn(40, d, generator=generator)
        x = x[torch.randint(10, (4000,), generator=generator)]
        for distance in DISTANCES:
            query_gallery = build_query_gallery(x, None, distance)
            i = torch.arange(4000)
            j = torch.zeros(4000, dtype=torch.int64)
            all_scores = query_gallery.exact_scores(i, j)
            for a in (0, 1, 7, 1023, 3999):
                assert query_gallery.exact_scores(i[a : a + 1], j[a : a + 1]) == all_scores[a]
            first = {}
            for row, value in zip(map(tuple, x.tolist()), all_scores.tolist(), strict=True):
                assert first.setdefault(row, value) == value
