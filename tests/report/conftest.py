from tests.report.browsing import browser, folder, usual  # noqa: F401  (fixtures)
