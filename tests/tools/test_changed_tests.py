"""`tools.changed_tests` finds the tests that mirror a changed file."""

from pathlib import Path

import pytest

from tools import changed_tests


def test_a_module_is_mirrored_by_the_tests_of_its_name():
    tests = changed_tests.find_tests([Path("src/kinfold/registry/plugins.py"), Path("tests/registry/test_options.py")])
    assert "tests/registry/test_plugins.py" in tests
    assert "tests/registry/test_options.py" in tests


def test_contract_tests_always_run():
    assert changed_tests.find_tests([]) == ["tests/contract", "tests/registry"]


@pytest.mark.parametrize("changed", ["src/kinfold/losses/new_loss.py", "tests/losses/references/new_loss.py"])
def test_a_new_loss_and_its_reference_are_compared_with_each_other(changed):
    tests = changed_tests.find_tests([Path(changed)])
    assert {"tests/losses/test_values.py", "tests/losses/test_gradients.py"} <= {*tests}


def test_a_page_is_covered_by_its_snippets_and_the_tests_of_the_documentation():
    tests = changed_tests.find_tests([Path("docs/losses/margin.md"), Path("docs/removed.md")])
    assert "tests/test_snippets.py::test_snippets_run[docs/losses/margin.md]" in tests
    assert "tests/test_docs.py::test_the_overview_of_losses_is_up_to_date" in tests
    assert not any("removed" in test for test in tests)


def test_all_tests_that_are_named_exist():
    for test in changed_tests.find_tests([Path("docs/index.md"), Path("src/kinfold/losses/margin.py")]):
        path, _, name = test.partition("::")
        assert (changed_tests.ROOT / path).exists()
        assert f"def {name.partition('[')[0]}" in (changed_tests.ROOT / path).read_text() if name else True, test
