"""Training, validation and test classes."""

from kinfold.training import configure, splits
from tests.training.problems import features, recipe


def test_splits_share_no_classes_and_labels_count_from_zero():
    data = features()
    split = splits.split_classes(data, configure(recipe()).data)
    names = [set(part.classes) for part in (split.train, split.validation, split.test)]
    assert [len(part) for part in names] == [12, 4, 8]
    assert sum(map(len, names)) == len(set.union(*names)) == len(data.classes)
    for part in (split.train, split.validation, split.test):
        assert sorted(set(part.labels.tolist())) == [*range(len(part.classes))]
    other = splits.split_classes(data, configure(recipe(), ["data.split_seed=1"]).data)
    assert set(other.validation.classes) != names[1]
