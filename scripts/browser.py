"""A real, headless Chromium for the checks of pages, and axe-core's rules for them."""

import contextlib
import shutil
import subprocess
import sys

SKIPPED = 77
# The rules of axe-core that are checked.
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


@contextlib.contextmanager
def chromium():
    """A browser; ends the check where there is none, or no Playwright to drive it."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip("Playwright is not installed: pip install playwright")
    program = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
    if program is None:
        skip("there is no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        # Without its own sandbox, since it may be root here, and without a network to ask.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def axe_core(named, folder):
    """axe-core's text: of the file that is named, or from npm; None where neither is."""
    if named:
        return named.read_text()
    npm = shutil.which("npm")
    if npm is None:
        return None
    subprocess.run(
        [npm, "install", "--silent", "--prefix", str(folder), "axe-core@4"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    file = folder / "node_modules/axe-core/axe.min.js"
    return file.read_text() if file.is_file() else None
