"""The tables of losses over backbones, from a bench whose scores are known."""

from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.backbone_features import cut_square, load_pixels, resize_in_batches
from benchmarks.backbones import CLAIMS, collect_scores, compute_effect, format_bench

LOSSES = sorted({name for claim in CLAIMS for name in claim[1:]})
BACKBONES = ["lite0", "lite1", "pixels"]
SAMPLERS = ["spc-2", "spc-5"]


def _score(backbone, loss, sampler, seed):
    """No interaction but one: dro-topk gains more on pixels."""
    extra = 0.05 * (loss == "dro-topk" and backbone == "pixels")
    return (
        0.1 * BACKBONES.index(backbone)
        + 0.01 * LOSSES.index(loss)
        + 0.001 * SAMPLERS.index(sampler)
        + 0.0001 * seed
        + extra
    )


@pytest.fixture
def bench():
    untrained = {"pretrained": 0.05, "whitening": 0.04, "lda": 0.06}

    def values(data, result, metric, column="value"):
        assert (result, column) == ("separated", "value")
        trained = {f"{loss}, {s}": {seed: _score(data, loss, s, seed) for seed in range(3)}
                   for loss in LOSSES for s in SAMPLERS}  # fmt: skip
        return trained | {name: dict.fromkeys(range(3), value) for name, value in untrained.items()}

    methods = [*untrained, *(f"{loss}, {sampler}" for loss in LOSSES for sampler in SAMPLERS)]
    rows = [{"data": data, "method": method, "stage": "train", "metric": "map@r", "seconds": 2.0, "folder": method}
            for data in BACKBONES for method in methods]  # fmt: skip
    suite = SimpleNamespace(methods=methods, datasets=BACKBONES, seeds=[0, 1, 2], metric="map@r")
    return SimpleNamespace(suite=suite, values=values, rows=rows, failures={})


def test_scores_are_a_complete_table(bench):
    scores, levels = collect_scores(bench)
    assert levels == {"backbone": BACKBONES, "loss": LOSSES, "sampler": SAMPLERS, "seed": ["0", "1", "2"]}
    assert scores[2, LOSSES.index("margin"), 1, 2] == _score("pixels", "margin", "spc-5", 2)
    bench.suite.seeds = [0, 7]
    with pytest.raises(ValueError, match="7 is missing"):
        collect_scores(bench)


def test_effects_of_each_backbone_and_their_intervals(bench):
    scores, levels = collect_scores(bench)
    scores[0, LOSSES.index("dro-topk"), :, 2] += 0.003
    effects = compute_effect(scores, levels["loss"], "dro-topk", "contrastive")
    distance = 0.01 * (LOSSES.index("dro-topk") - LOSSES.index("contrastive"))
    assert [round(effect.mean, 6) for effect in effects] == [distance + 0.001, distance, distance + 0.05]
    assert [round(effect.half_width, 6) for effect in effects] == [round(4.302653 * 0.001, 6), 0, 0]


def test_the_tables_show_gains_claims_and_variance(bench):
    text = format_bench(bench)
    best = LOSSES[-1]
    assert f"| lite0 | 5.0 | 4.0 | 6.0 | {best} | " in text
    assert text.count("| backbone | 9") >= 2  # of the scores, and of gains over starts that are the same
    assert "- DRO: top-K over multi-similarity: ahead on 1 of 3 backbones" in text
    assert f"Order of the {len(LOSSES)} losses on two backbones: Spearman +" in text


def test_photos_are_cut_to_squares_and_become_pixels():
    from PIL import Image

    picture = np.zeros((10, 30, 3), dtype=np.uint8)
    picture[:, 10:20] = 200
    photo = cut_square(Image.fromarray(picture))
    assert photo.size == (10, 10)
    (images,) = resize_in_batches([photo, photo], 16)
    features = load_pixels()(images)
    assert features.shape == (2, 768)
    assert (features == 200).all()
