#!/usr/bin/env python3
"""Opens reports in a real, headless Chromium and uses them: pointer, keys, light, dark, a phone's width.

    scripts/report-check.py VRAMLAB [--shots FOLDER] [--pictures FOLDER] [--events N]

VRAMLAB is the program. Fails on any message of the console, any request, anything that does not answer. With --shots it
leaves screenshots. Exit code 77: there is no Chromium, or no Playwright to drive it (pip install playwright), and why.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
HOSTILE = "</script><img src=x onerror=\"window.hit=1\"><svg onload='window.hit=1'>"
SIZES = {"light": (1180, 900, "light"), "dark": (1180, 900, "dark"), "narrow": (390, 844, "light")}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def events(count, op="mm", scope="layers"):
    """A recording of about this many events, in the columns of `train --events`."""
    dice = random.Random(1)
    kinds, sizes, addresses, freed, made_by, given, categories, scopes = [], [], [], [], [], [], [], []
    phase_at, phases, live, places, free, allocations, address, end = [], [], [], [], {}, 0, 0, 0
    for event in range(count):
        if event % 1000 == 0:
            phase_at.append(len(kinds))
            phases.append(event // 1000 % 3)
        grow = 0.55 if event // max(1, count // 20) % 2 == 0 else 0.45
        if not live or dice.random() < grow:
            blocks = 1000 * (1 + dice.randrange(100)) if dice.random() < 0.02 else 1 + dice.randrange(100)
            if free.get(blocks):
                place = free[blocks].pop()
            else:
                if address + blocks > end:
                    segment = max(blocks, 1 << 17)
                    kinds.append("S"), sizes.append(512 * segment), addresses.append(end)
                    address, end = end, end + segment
                place = address
                address += blocks
            kinds.append("a"), sizes.append(512 * blocks - dice.randrange(512)), addresses.append(place)
            given.append(512 * blocks), categories.append(dice.randrange(8)), scopes.append(dice.randrange(50))
            places.append((blocks, place))
            live.append(allocations)
            allocations += 1
        else:
            place = dice.randrange(len(live))
            live[place], live[-1] = live[-1], live[place]
            kinds.append("f"), freed.append(live.pop())
            blocks, place = places[freed[-1]]
            free.setdefault(blocks, []).append(place)
        made_by.append(dice.randrange(20))
    names = ["parameter", "gradient", "optimizer_state", "activation", "input", "workspace", "temporary", "buffer"]
    return {
        "format": "vramlab-events-1", "name": f"run of {op}", "ev": "".join(kinds), "ev_size": sizes,
        "ev_addr512": addresses, "ev_free_ref": freed, "op_names": [f"{op}_{i}" for i in range(20)], "ev_op": made_by,
        "ev_bytes": given, "categories": names, "ev_category": categories,
        "scope_names": [f"{scope}.{i // 4}.part{i % 4}" for i in range(50)], "ev_scope": scopes,
        "retag_at": [], "retag_ref": [], "retag_category": [],
        "phase_names": ["forward", "backward", "step"], "phase_at": phase_at, "phase": phases,
    }


def pages(program, folder, count):
    """Name and file of every page to look at."""
    def vramlab(*arguments):
        began = time.monotonic()
        process = subprocess.Popen([program, *map(str, arguments)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"vramlab {arguments[0]}: status {status}")
        return time.monotonic() - began, usage.ru_maxrss / 1024

    made = {name: folder / f"{name}.html" for name in ["run", "gpt2", "experiment", "scan", "fit", "hostile", "large"]}
    vramlab("train", "--model", "simple-cnn", "--steps", 3, "--backend", "meta", "--html", made["run"])
    vramlab("predict", "--model", "gpt2", "--batch", 8, "--optimizer", "adamw", "--steps", 2, "--html", made["gpt2"])
    vramlab("run", "batch-size", "--backend", "meta", "--html", made["experiment"])
    vramlab("train", "--model", "simple-cnn", "--backend", "meta", "-L", "batch", "16,32,64,128", "--html", made["scan"])
    vramlab("fit", "--model", "gpt", "--gpu", "2GiB", "--html", made["fit"])
    for name, recording in [("hostile", events(500, HOSTILE, HOSTILE)), ("large", events(count))]:
        file = folder / f"{name}.json"
        file.write_text(json.dumps(recording))
        seconds, mebibytes = vramlab("report", file, "-o", made[name])
    size = made["large"].stat().st_size
    print(f"{count} events: report in {seconds:.2f} s with {mebibytes:.0f} MiB; the page has {size} bytes")
    assert size < 5_000_000, "the page is too large"
    return made


class Page:
    """A page in one size, and what it said."""

    def __init__(self, browser, name, file, size):
        width, height, scheme = SIZES[size]
        self.name = f"{name} ({size})"
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.said = []
        address = file.as_uri()
        self.page.on("console", lambda message: self.said.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: request.url == address or self.said.append(f"request: {request.url}"))
        self.page.goto(address)
        self.page.wait_for_function("document.documentElement.dataset.ready === 'yes'")

    def expect(self, what, holds):
        if not holds:
            self.said.append(f"not so: {what}")

    def value(self, name):
        return self.page.locator(".plot").first.get_attribute(f"aria-{name}")

    def tip(self):
        return "" if self.page.locator("#tip").is_hidden() else self.page.locator("#tip").inner_text()

    def pointer(self):
        """Hover tells what is there, a click opens it."""
        plot = self.page.locator(".plot").first
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        low = box["y"] + box["height"] - 60
        told = set()
        for share in [0.3, 0.45, 0.6, 0.75]:
            self.page.mouse.move(box["x"] + box["width"] * share, low)
            told.add(self.tip())
            self.expect("the tip says bytes and event", "allocated" in self.tip() and "event" in self.tip())
        self.expect("other places say other things", len(told) > 1)
        blocks = 0
        for share in range(20, 95, 5):
            for height in [48, 60, 90, 130]:
                self.page.mouse.move(box["x"] + box["width"] * share / 100, box["y"] + box["height"] - height)
                blocks += "lives from event" in self.tip()
        self.expect("blocks are told with their lives", blocks > 3)
        before = self.page.locator(".moment h3").first.inner_text()
        self.page.mouse.click(box["x"] + box["width"] * 0.3, low)
        self.expect("a click opens the moment", self.page.locator(".moment h3").first.inner_text() != before)
        self.page.mouse.move(1, 1)
        self.expect("the tip goes", self.tip() == "")

    def keys(self):
        """Everything can be reached without a pointer."""
        plot = self.page.locator(".plot").first
        plot.focus()
        press = self.page.keyboard.press
        press("Home")
        self.expect("Home is the first moment", self.value("valuenow") == "0")
        press("ArrowRight")
        self.expect("an arrow is the next", self.value("valuenow") == "1")
        press("End")
        self.expect("End is the last", self.value("valuenow") == self.value("valuemax"))
        press("p")
        at_peak = self.value("valuetext")
        peak = self.page.evaluate("JSON.parse(document.querySelector('script[type=\"application/json\"]').textContent).peak")
        self.expect("P is the peak", self.value("valuenow") == str(peak) and "allocated" in at_peak)
        press("ArrowDown")
        self.expect("blocks are walked over", "lives from" in self.value("valuetext") and self.tip() != "")
        press("Enter")
        self.expect("Enter opens the peak", self.page.locator(".moment h3").first.inner_text().startswith("The peak"))
        press("+"), press("+"), press("0")
        cells = self.page.locator(".moment svg").first.locator(".cell")
        cells.first.focus()
        press("ArrowRight")
        self.expect("modules are walked over", "of the moment" in self.tip())
        press("Escape")

    def end(self, shots):
        width, view = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        self.expect(f"nothing is wider than the window: {width} of {view}", width <= view)
        self.expect("no name became markup", self.page.evaluate("window.hit === undefined && !document.querySelector('img')"))
        if shots:
            file = shots / (self.name.replace(" (", "-").rstrip(")") + ".png")
            self.page.screenshot(path=str(file), full_page=True)
        self.context.close()
        return [f"{self.name}: {text}" for text in self.said]


def picture(browser, file, size, to, height):
    """What the guide shows: the top of a page, with the pointer on a block."""
    page = Page(browser, to.stem, file, size)
    page.page.set_viewport_size({"width": SIZES[size][0], "height": height})
    plot = page.page.locator(".plot").bounding_box()
    if size != "narrow":
        page.page.mouse.move(plot["x"] + plot["width"] * 0.72, plot["y"] + plot["height"] * 0.62)
    page.page.screenshot(path=str(to))
    page.context.close()


def look(browser, name, file, size, shots):
    began = time.monotonic()
    page = Page(browser, name, file, size)
    if page.page.locator(".plot").count():
        page.pointer()
        page.keys()
    print(f"{page.name}: {time.monotonic() - began:.1f} s")
    return page.end(shots)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--shots", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path, help="the folder of the guide's pictures")
    parser.add_argument("--events", type=int, default=1_000_000)
    arguments = parser.parse_args()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip("Playwright is not installed: pip install playwright")
    chromium = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
    if chromium is None:
        skip("there is no Chromium: apt-get install chromium")
    if arguments.shots:
        arguments.shots.mkdir(parents=True, exist_ok=True)
    wrong = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        made = pages(arguments.program.resolve(), pathlib.Path(folder), arguments.events)
        # Without its own sandbox, since it may be root here, and without a network to ask.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, file in made.items():
            for size in SIZES if name in ("run", "experiment", "scan") else ["light"]:
                wrong += look(browser, name, file, size, arguments.shots)
        if arguments.pictures:
            for size, height in [("light", 1150), ("dark", 1150), ("narrow", 1300)]:
                picture(browser, made["gpt2"], size, arguments.pictures / f"report-{size}.png", height)
        browser.close()
    for text in wrong:
        print(text)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
