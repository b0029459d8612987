"""Text of any characters, drawn with the fonts at hand."""

from kinfold.report.drawable_text import make_drawable, measure_width, shorten_label


def test_letters_that_no_font_has_are_written_as_code_points(monkeypatch):
    assert make_drawable("wren é") == "wren é"
    assert make_drawable("\ue123") == "U+E123"
    assert make_drawable("a\nb") == "aU+000Ab"
    assert make_drawable("\U0001f9ff") == "U+1F9FF"


def test_long_names_are_shortened_to_the_width():
    assert shorten_label("wren", 100) == "wren"
    cut = shorten_label("a very long name of a class", 80)
    assert cut.endswith("...")
    assert "a very long name of a class".startswith(cut[:-3])
    assert measure_width(cut) <= 80 < measure_width(cut[:-3] + "mm...")
    assert shorten_label("abc", 0) == "..."
