"""The tables of the shift ladder, from benches whose scores are known."""

from types import SimpleNamespace

from benchmarks.shift import METHODS, format_table, list_methods

DISTANCES = [0.0, 0.5, 1.0]


def _create_bench(distance):
    """Scores that fall by 10 points per unit, those of margin by 20 and one more for each seed."""

    def values(data, result, metric, column):
        falls = {method: [0.2 + 0.01 * seed if method == "margin" else 0.1 for seed in range(3)] for method in METHODS}
        return {method: {seed: 0.5 - fall * distance for seed, fall in enumerate(f)} for method, f in falls.items()}

    return SimpleNamespace(suite=SimpleNamespace(metric="map@r"), values=values)


def test_slopes_are_in_points_per_unit_of_distance_with_intervals_over_seeds():
    text = format_table([_create_bench(distance) for distance in DISTANCES], DISTANCES, "value")
    assert "| map@r, % | distance 0.00 | distance 0.50 | distance 1.00 | slope |" in text
    assert "| contrastive | 50.0 ± 0.0 | 45.0 ± 0.0 | 40.0 ± 0.0 | -10.0 ± 0.0 |" in text
    assert "| -21.0 ± 2.5 |" in text


def test_gains_are_shown_for_methods_that_train():
    text = format_table([_create_bench(distance) for distance in DISTANCES], DISTANCES, "gain")
    assert "| gain in map@r, points | " in text
    assert "| untrained | " not in text
    assert "| margin | " in text


def test_the_method_without_a_head_keeps_the_width_of_the_features():
    models = {method["name"]: method.get("model", {}) for method in list_methods(1280)}
    assert models["untrained"]["dim"] == 1280
    assert all("dim" not in model for name, model in models.items() if name != "untrained")
