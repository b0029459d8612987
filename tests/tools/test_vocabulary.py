"""`tools.vocabulary` counts the words that the project no longer uses."""

from tools import vocabulary


def test_words_are_counted_and_their_lines_listed():
    tree = {"a.py": "kin, others = 1, 2\nnormalise(colour)\n", "b.md": "A statement about positives.\n"}
    counts = vocabulary.count(tree)
    assert counts["positives and negatives"] == 1
    assert counts["US spelling"] == 2
    assert vocabulary.find_lines(tree, "positives and negatives") == ["a.py:1: kin, others = 1, 2"]


def test_the_words_of_the_field_are_not_counted():
    text = "positives, negatives, package, exact score, int8, row chunks, schedule, string, normalize, color, neighbors"
    assert not any(vocabulary.count({"a.md": text}).values())


def test_variables_are_counted_where_they_are_bound():
    code = "found = 1\ndef f(own): return own\nfor seen in []: print(seen.found)\n# found = 2\n"
    assert vocabulary.find_lines({"a.py": code, "b.md": "found = 1"}, vocabulary.VARIABLES) == [
        "a.py:1: found = 1",
        "a.py:2: def f(own): return own",
        "a.py:3: for seen in []: print(seen.found)",
    ]


def test_the_project_uses_none_of_these_words():
    tree = vocabulary.read_tree(None)
    names = [*vocabulary.PATTERNS, vocabulary.VARIABLES]
    assert [line for name in names for line in vocabulary.find_lines(tree, name)] == []
