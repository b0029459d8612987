from tests.report.browser_pages import browser, folder, usual  # noqa: F401  (fixtures)
