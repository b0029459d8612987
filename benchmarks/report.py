"""How large a page of 20,000 points and 10,000 pictures is, and how long a browser takes to open it.

    python -m benchmarks.report

Made-up content; headless Chromium from file://, until the page says that it is drawn and two frames have passed.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from tests.report import fake_content

from kinfold.report.page import write_page

POINTS, PICTURES = 20_000, 10_000  # the most pictures that a page has
OPENINGS = 5


def read_processor_seconds() -> float:
    """Processor time of all processes of Chromium, which does not depend on what else runs."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        if "chrom" in name:
            ticks += sum(map(int, rest.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def opening(browser: Browser, path: Path) -> tuple[float, float]:
    """Seconds to the drawn page, in a window that has seen nothing before, and those of the processor."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    start, before = time.perf_counter(), read_processor_seconds()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    seconds, processor = time.perf_counter() - start, read_processor_seconds() - before
    context.close()
    return seconds, processor


def main() -> None:
    content = fake_content.make_content(points=POINTS, classes=200, pictures=PICTURES, spaces=1, packed=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        path = write_page(content, Path(folder) / "large.html")
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), headless=True, args=["--no-sandbox"])
        seconds = [opening(browser, path) for _ in range(OPENINGS)]
        browser.close()
        shown = ", ".join(f"{wall:.2f} s ({processor:.2f} s of processor time)" for wall, processor in seconds)
        print(f"{path.stat().st_size / 1e6:.1f} MB; openings: {shown}")


if __name__ == "__main__":
    main()
