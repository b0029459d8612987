"""`tools.changed_tests` finds the tests that mirror a changed file."""

from pathlib import Path

from tools import changed_tests


def test_a_module_is_mirrored_by_the_tests_of_its_name():
    tests = changed_tests.find_tests([Path("src/kinfold/registry/plugins.py"), Path("tests/registry/test_options.py")])
    assert Path("tests/registry/test_plugins.py") in tests
    assert Path("tests/registry/test_options.py") in tests


def test_contract_tests_always_run():
    assert changed_tests.find_tests([]) == [path for path in changed_tests.CONTRACTS if path.exists()]
