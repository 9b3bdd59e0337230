#!/usr/bin/env python3
"""Opens reports in a real, headless Chromium and uses them: pointer, keys, light, dark, a phone with touch.

    scripts/report-check.py VRAMLAB [--axe FILE] [--shots FOLDER] [--pictures FOLDER] [--events N]

VRAMLAB is the program. Fails on any message of the console, any request, anything that does not answer, a page that is
wider than its window, a label outside of its drawing, and any violation of WCAG's levels A and AA that axe-core finds. With
--shots it leaves screenshots. axe-core is the file that --axe names, or is taken from npm; without it the rest is checked,
and what was not is said. Exit code 77: there is no Chromium, or no Playwright to drive it (pip install playwright), and why.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from browser import Page, axe_core, chromium

HOSTILE = "</script><img src=x onerror=\"window.hit=1\"><svg onload='window.hit=1'>"
SIZES = {"light": (1180, 900, "light"), "dark": (1180, 900, "dark"), "narrow": (390, 844, "light")}
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "lab/traces/tests/golden/snapshots"
# Seconds in which the page of a long recording is to be there.
OPENS_WITHIN = 2


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
    def vramlab(*arguments, fits=True):
        process = subprocess.Popen([program, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=None if fits else subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status) != (0 if fits else 1):
            sys.exit(f"vramlab {arguments[0]}: status {status}")
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024

    names = ["run", "gpt2", "small", "both", "long", "experiment", "all", "scan", "fit", "snapshot", "replay", "hostile", "large"]
    made = {name: folder / f"{name}.html" for name in names}
    vramlab("train", "--model", "simple-cnn", "--steps", 3, "--backend", "meta", "--html", made["run"])
    gpt2 = ["predict", "--model", "gpt2", "--optimizer", "adamw", "--steps", 2]
    runs = [folder / "a.json", folder / "b.json"]
    vramlab(*gpt2, "--batch", 8, "--html", made["gpt2"], "--events", runs[0])
    vramlab(*gpt2, "--batch", 4, "--events", runs[1])
    vramlab("report", *runs, "-o", made["both"])
    vramlab(*gpt2, "--batch", 8, "--gpu", "8GiB", "--html", made["small"], fits=False)
    vramlab("train", "--model", "mlp", "--steps", 40, "--backend", "meta", "--html", made["long"])
    vramlab("run", "all", "--backend", "meta", "--html", made["all"])
    vramlab("snapshot", "show", GOLDEN / "cnn_b128_stacks.pickle", "--html", made["snapshot"])
    vramlab("replay", GOLDEN / "mlp_oom_plain.pickle", "--compare", "all", "--html", made["replay"])
    vramlab("run", "batch-size", "--backend", "meta", "--html", made["experiment"])
    vramlab("train", "--model", "simple-cnn", "--backend", "meta", "-L", "batch", "16,32,64,128", "--html", made["scan"])
    vramlab("fit", "--model", "gpt", "--gpu", "2GiB", "--html", made["fit"])
    for name, recording in [("hostile", events(500, HOSTILE, HOSTILE)), ("large", events(count))]:
        file = folder / f"{name}.json"
        file.write_text(json.dumps(recording))
        seconds, mebibytes = vramlab("report", file, "-o", made[name])
    size = made["large"].stat().st_size
    print(f"{count} events: report in {seconds:.2f} s of processor time with {mebibytes:.0f} MiB; the page has {size} bytes")
    assert size < 5_000_000, "the page is too large"
    return made


class Report(Page):
    """A page in one size."""

    def __init__(self, browser, name, file, size):
        address = file.as_uri()
        self.size, self.is_phone = size, size == "narrow"
        super().__init__(browser, f"{name} ({size})", SIZES[size], size == "narrow", lambda url: url == address)
        began = time.monotonic()
        self.page.goto(address)
        self.until("document.documentElement.dataset.ready === 'yes'")
        self.opened = time.monotonic() - began

    def value(self, name):
        return self.page.locator(".plot").first.get_attribute(f"aria-{name}")

    def tip(self):
        return "" if self.page.locator("#tip").is_hidden() else self.page.locator("#tip").inner_text()

    def pointer(self):
        """Hovering shows a description, a click opens the entry."""
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
                blocks += "lives from" in self.tip()
        self.expect("blocks are told with their lives", blocks > 3)
        before = self.page.locator(".moment h3").first.inner_text()
        self.page.mouse.click(box["x"] + box["width"] * 0.3, low)
        self.expect("a click follows the block", blocks == 0 or self.page.locator("path.followed").count() == 1)
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

    def closer(self):
        """The wheel looks closer, a drag chooses a range, and one with Shift moves; a whole run leaves the wheel to the page."""
        page, plot = self.page, self.page.locator(".plot").first
        span = lambda: page.locator(".timeline > .note[role=status]").first.text_content()
        page.get_by_role("button", name="Show the whole run").first.click()
        page.wait_for_timeout(60)
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        x, y = box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        scrolled = page.evaluate("scrollY")
        for _ in range(4):
            page.mouse.wheel(0, -300)
            page.wait_for_timeout(60)
        near = span()
        self.expect("the wheel looks closer", near.startswith("Events ") and page.evaluate("scrollY") == scrolled)
        before = page.locator(".moment h3").first.inner_text()
        page.keyboard.down("Shift")
        page.mouse.down()
        page.mouse.move(x + 80, y, steps=4)
        page.mouse.up()
        page.keyboard.up("Shift")
        page.wait_for_timeout(60)
        self.expect("a drag moves and opens nothing", span() != near and page.locator(".moment h3").first.inner_text() == before)
        page.get_by_role("button", name="Show the whole run").first.click()
        page.wait_for_timeout(60)
        self.expect("the whole run is a click away", span() == "")
        if self.is_phone:
            return
        page.mouse.move(x - 150, y)
        page.mouse.down()
        page.mouse.move(x, y, steps=4)
        page.mouse.up()
        said = page.locator("section.range").first.inner_text()
        self.expect("a drag chooses a range", all(word in said for word in ["from", "to", "highest", "made here and still there"]))
        self.expect("it is seen", page.locator("rect.range").count() == 1 and page.locator(".moment h3").first.inner_text() == before)
        plot.focus()
        page.keyboard.press("Escape")
        self.expect("Escape clears it", page.locator("rect.range").count() == 0)
        page.keyboard.press("Shift+ArrowRight")
        self.expect("keys choose one", page.locator("section.range dl").count() == 1)
        page.keyboard.press("Escape")

    def block(self):
        """A click on a block says all that is known of it, a search finds it."""
        page = self.page
        page.locator(".opener").first.click()
        said = page.locator("section.block").first.inner_text()
        self.expect("a block says its operator, size and life", all(word in said for word in ["operator", "size", "lives from"]))
        operator = page.locator(".opener").first.inner_text()
        page.locator(".search input").first.fill(operator)
        self.until("document.querySelector('.search [role=status]').textContent !== ''")
        self.expect("a search finds it", " blocks, at most " in page.locator(".search").first.inner_text())
        self.expect("what was found is drawn", page.locator("path.found").count() > 0)
        self.expect("other blocks are dimmed", page.locator(".cell.dim").count() > 0 or page.locator(".cell[role=button]").count() < 3)
        page.locator(".search input").first.fill("nobody made this")
        self.until("document.querySelector('.search [role=status]').textContent.includes('no block')")
        page.locator(".search input").first.fill("")
        self.until("document.querySelector('.search [role=status]').textContent === ''")

    def word(self):
        """A word of the glossary is explained where it stands."""
        term = self.page.locator("button.term").first
        if not term.count():
            self.said.append("not so: a word is explained")
            return
        term.focus()
        means = self.page.evaluate("id => document.getElementById(id).textContent", term.get_attribute("aria-describedby"))
        self.expect("a focused word is explained", means in self.tip())
        self.page.keyboard.press("Escape")
        self.expect("Escape ends it", self.tip() == "")

    def special(self, name):
        """What a page of this kind is made for."""
        page = self.page
        text = page.locator("main").inner_text()
        if name == "small":
            self.expect("the first line says what is needed", "needed" in page.locator("h1").inner_text())
            tries = page.locator(".tries").bounding_box()
            screens = 2 if self.is_phone else 1
            self.expect("what to try is on the first screen, of a phone the second", tries["y"] + tries["height"] < screens * SIZES[self.size][1])
            self.expect("what there is is a line", page.locator(".plot line.limit").count() == 1)
            self.expect("the whole run is drawn", "Drawn with enough memory" in text and page.locator("line.failure").count() == 0)
        if name == "long":
            self.expect("a long run opens on its first steps", "The first 3 steps of 40" in text)
            page.get_by_role("button", name="Show the whole run").click()
            page.wait_for_timeout(60)
            self.expect("and all of it is a click away", "The first 3 steps" not in page.locator(".timeline").inner_text())
        if name == "both":
            self.expect("two runs are compared", "What each takes" in text and page.locator(".beside > article").count() == 2)
            ticks = [plot.locator("text.tick").all_text_contents() for plot in page.locator(".plot").all()]
            axes = [[tick for tick in all if tick.endswith("B")] for all in ticks]
            self.expect("on one scale", axes[0] == axes[1])
        if name == "snapshot":
            page.locator(".opener").first.click()
            self.expect("a block has its lines", page.locator("section.block li").count() > 0)
        if name == "all":
            self.expect("there is one title", page.locator("h1").count() == 1)
            links = page.locator("nav a").all()
            parts = page.locator("article").count()
            self.expect("the contents name every part", len(links) == parts and parts > 10)
            self.expect("all verdicts are in one table", page.locator("table[aria-label=Verdicts] tbody tr").count() > 40)
            links[-1].click()
            self.expect("a link leads there", page.evaluate("location.hash") == f"#part-{parts - 1}")

    def labels(self):
        """No label of a chart is outside of it."""
        outside = self.page.evaluate("""[...document.querySelectorAll('.chart > svg')].filter(svg => svg.clientWidth).flatMap(svg => {
            const all = svg.getBoundingClientRect();
            return [...svg.querySelectorAll('text')].filter(text => {
                const box = text.getBoundingClientRect();
                return box.left < all.left - 1 || box.right > all.right + 1 || box.bottom > all.bottom + 1;
            }).map(text => text.textContent);
        })""")
        self.expect(f"labels are inside: {outside[:3]}", not outside)

    def touched(self):
        """Where fingers point, buttons are large enough."""
        small = self.page.evaluate("""[...document.querySelectorAll('button:not(.term), summary')].filter(one => {
            const box = one.getBoundingClientRect();
            return box.width && box.height < 44;
        }).map(one => one.textContent)""")
        self.expect(f"a finger meets it: {small[:3]}", not small)

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
    page = Report(browser, to.stem, file, size)
    page.page.set_viewport_size({"width": SIZES[size][0], "height": height})
    plot = page.page.locator(".plot").bounding_box()
    if size != "narrow":
        page.page.mouse.move(plot["x"] + plot["width"] * 0.72, plot["y"] + plot["height"] * 0.62)
    page.page.screenshot(path=str(to))
    page.context.close()


def look(browser, name, file, size, shots, axe):
    began = time.monotonic()
    page = Report(browser, name, file, size)
    if name == "large":
        print(f"{page.name}: opened in {page.opened:.2f} s")
        page.expect(f"it opens in {OPENS_WITHIN} s", page.opened < OPENS_WITHIN)
    page.special(name)
    page.word()
    if page.page.locator(".plot").count():
        page.pointer()
        page.keys()
        page.block()
        if size != "narrow":
            page.closer()
    page.labels()
    if size == "narrow":
        page.touched()
    if axe:
        page.accessible(axe)
    print(f"{page.name}: {time.monotonic() - began:.1f} s")
    return page.end(shots)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--axe", type=pathlib.Path, help="axe.min.js of axe-core")
    parser.add_argument("--shots", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path, help="the folder of the guide's pictures")
    parser.add_argument("--events", type=int, default=1_000_000)
    arguments = parser.parse_args()
    if arguments.shots:
        arguments.shots.mkdir(parents=True, exist_ok=True)
    wrong = []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        axe = axe_core(arguments.axe, pathlib.Path(folder))
        made = pages(arguments.program.resolve(), pathlib.Path(folder), arguments.events)
        for name, file in made.items():
            for size in ["light"] if name in ("fit", "hostile", "large") else SIZES:
                wrong += look(browser, name, file, size, arguments.shots, axe)
        if arguments.pictures:
            for size, height in [("light", 1150), ("dark", 1150), ("narrow", 1300)]:
                picture(browser, made["gpt2"], size, arguments.pictures / f"report-{size}.png", height)
    for text in wrong:
        print(text)
    if wrong:
        sys.exit(1)
    if axe is None:
        print("skipped: axe-core, which npm would bring (or --axe FILE)")


if __name__ == "__main__":
    main()
