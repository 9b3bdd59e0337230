"""A real, headless Chromium for the checks of pages, and axe-core's rules for them."""

import contextlib
import shutil
import subprocess
import sys
import time

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


class Page:
    """A page in a window, and what it said: messages, errors, requests that `may_ask` does not allow, what was not as expected."""

    def __init__(self, browser, name, window, is_phone, may_ask):
        width, height, scheme = window
        self.name = name
        view = {"width": width, "height": height}
        self.context = browser.new_context(viewport=view, color_scheme=scheme, has_touch=is_phone, is_mobile=is_phone)
        self.page = self.context.new_page()
        self.said = []
        self.page.on("console", lambda message: self.said.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: may_ask(request.url) or self.said.append(f"request: {request.url}"))

    def expect(self, what, holds):
        if not holds:
            self.said.append(f"not so: {what}")

    def until(self, condition):
        """Waits for it. Not Playwright's own way: the page's policy forbids what that does."""
        end = time.monotonic() + 30
        while not self.page.evaluate(condition):
            if time.monotonic() > end:
                self.said.append(f"not in time: {condition}")
                return
            self.page.wait_for_timeout(10)

    def accessible(self, axe):
        """Holds the page against axe-core's rules."""
        self.page.evaluate(axe)
        found = self.page.evaluate("levels => axe.run(document, { runOnly: levels }).then(all => all.violations)", LEVELS)
        for violation in found:
            where = violation["nodes"][0]
            self.said.append(f"axe: {violation['id']}, {len(violation['nodes'])} times: {where['html'][:160]}: {where['failureSummary']}")
