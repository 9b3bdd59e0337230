#!/usr/bin/env python3
"""Opens `vramlab ui` in a real, headless Chromium and uses it: pointer, keys, touch, light, dark, 20 pages at once.

    scripts/ui-check.py VRAMLAB [--axe FILE] [--shots FOLDER]

VRAMLAB is the program. Prints how long a slider's move takes to a new picture, and the changes to try. Fails on any message of
the console, any request elsewhere, anything that does not answer, a page that is wider than its window, and any violation of
WCAG's levels A and AA that axe-core finds. Exit code 77: there is no Chromium, or no Playwright to drive it, and why.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from browser import Page, axe_core, chromium

SIZES = {"light": (1280, 900, "light"), "dark": (1280, 900, "dark"), "narrow": (390, 844, "light")}
NETWORK = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}
# Pages at once.
CLIENTS = 20
MOVES = 12


class Laboratory(Page):
    """The page in one size."""

    def __init__(self, browser, address, size, settings):
        origin = address.split("?")[0]
        super().__init__(browser, size, SIZES[size], size == "narrow", lambda url: url.startswith((origin, "data:")))
        self.page.goto(f"{address}#{settings}")
        self.settled()

    def data(self, name):
        return self.page.evaluate("name => document.documentElement.dataset[name]", name)

    def settled(self):
        """Until the changes to try are there."""
        self.until("document.documentElement.dataset.tries !== undefined")

    def take(self, settings):
        """Follows a link to other settings."""
        self.page.evaluate(
            "settings => { delete document.documentElement.dataset.tries; history.replaceState(null, '', '#' + settings); dispatchEvent(new Event('hashchange')); }",
            settings,
        )

    def moves(self, name, count=MOVES):
        """Moves a slider by keys; returns the milliseconds of each move until the picture is new."""
        slider = self.page.locator(f"#{name}-slider")
        slider.focus()
        times = []
        for move in range(count):
            self.page.evaluate("delete document.documentElement.dataset.ms")
            before = self.page.locator("#now .lead").first.inner_text()
            self.page.keyboard.press("ArrowRight" if move % 4 < 2 else "ArrowLeft")
            self.until("document.documentElement.dataset.ms !== undefined")
            times.append(float(self.data("ms")))
            self.expect("a move has another answer", self.page.locator("#now .lead").first.inner_text() != before)
        return times

    def verdict(self):
        return self.page.locator("#now .verdict").inner_text()

    def techniques(self):
        """Switches by keys; an applied change makes it fit; the address has it all; two settings stand side by side."""
        page = self.page
        self.expect("it does not fit", self.verdict().startswith("No: "))
        page.get_by_role("button", name="Compare").click()
        self.until("document.querySelector('#pinned .plot') !== null")
        page.evaluate("delete document.documentElement.dataset.tries")
        apply = page.get_by_role("button", name="Apply: checkpointing").first
        apply.focus()
        page.keyboard.press("Enter")
        self.until("document.querySelector('#now .verdict').textContent.startsWith('Yes: ')")
        self.expect("the field shows the change", page.locator("#field-checkpoint").input_value() == "blocks")
        self.expect("the address has it", "checkpoint=blocks" in page.url)
        self.expect("the other stays", page.locator("#pinned .verdict").inner_text().startswith("No: "))
        self.settled()
        page.get_by_role("button", name="Close", exact=True).click()
        self.until("document.querySelector('#now .repeat pre').textContent.includes('--checkpoint')")
        if not page.locator("#now .repeat pre").first.is_visible():
            page.get_by_text("Copy as a command, as Python").click()
        copied = page.locator("#now .repeat pre").first.inner_text()
        self.expect("the command has it", copied.startswith("vramlab predict --model gpt2 ") and "--checkpoint blocks" in copied)
        if not page.locator("#techniques").evaluate("element => element.open"):
            page.locator("#techniques summary").first.click()
        page.locator("#field-alloc-conf").focus()
        page.keyboard.press("Space")
        self.until("location.hash.includes('expandable_segments')")
        self.take("model=qwen3-0.6b&batch=4&lora=16&checkpoint=blocks&gpu=rtx4090")
        self.until("[...document.querySelectorAll('#now .repeat pre')].some(one => one.textContent.includes('LoraConfig('))")
        arguments = page.locator("#now .repeat pre").last.inner_text()
        self.expect("Hugging Face is told it", "per_device_train_batch_size=4," in arguments and "gradient_checkpointing=True," in arguments)
        self.take("model=gpt2&batch=16&gpu=rtx4090&zero=2")
        page.locator("#field-data-parallel").fill("4")
        self.until("document.querySelector('#now .lead').textContent.includes('ZeRO-2, on each of 4 cards')")
        self.expect("the fullest card is drawn", page.locator("#now .plot .band").count() > 3)
        self.take("model=mlp&batch=32")
        self.until("document.querySelector('#now .lead').textContent.startsWith('mlp, batch 32')")

    def dropped(self, folder):
        """A file that is chosen is read; one without a network has an error, and the page goes on."""
        good, bad = folder / "config.json", folder / "model.pt2"
        good.write_text(json.dumps(NETWORK))
        bad.write_bytes(b"PK\x03\x04\xff")
        self.page.locator("#file").set_input_files(str(bad))
        self.until("document.querySelector('#now .verdict').className.includes('fails')")
        self.page.locator("#file").set_input_files(str(good))
        self.until("document.querySelector('#now .lead').textContent.startsWith('config.json')")

    def accessible(self, axe):
        for details in self.page.locator("details:not([open]) > summary").all():
            if details.is_visible():
                details.click()
        super().accessible(axe)

    def end(self, shots):
        wide = self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        self.expect("the page is as wide as its window", not wide)
        if shots:
            self.page.screenshot(path=str(shots / f"ui-{self.name}.png"))
        self.context.close()
        return [f"{self.name}: {text}" for text in self.said]


def in_words(times):
    return f"median {statistics.median(times):.0f} ms, longest {max(times):.0f} ms of {len(times)}"


def at_once(browser, address):
    """Many pages that move at the same time: each has its own answer in the end."""
    pages = [Laboratory(browser, address, "light", f"model=gpt2&batch={i + 1}&gpu=rtx4090") for i in range(CLIENTS)]
    began = time.monotonic()
    for page in pages:
        page.page.evaluate("delete document.documentElement.dataset.ms")
        page.page.locator("#batch").fill("64")
    for page in pages:
        page.until("document.querySelector('#now .lead').textContent.includes('batch 64')")
    print(f"{CLIENTS} pages at once: all have a new picture after {time.monotonic() - began:.1f} s")
    return [text for page in pages for text in page.end(None)]


def look(browser, address, size, arguments, axe, folder):
    page = Laboratory(browser, address, size, "model=gpt2&batch=16&gpu=rtx4090")
    print(f"{size}: changes to try after {float(page.data('tries')):.0f} ms")
    if size == "narrow":
        page.page.locator("#batch-slider").tap()
        page.until("!document.querySelector('#now .lead').textContent.includes('batch 16')")
        box = page.page.locator("#now .verdict").bounding_box()
        page.expect("a phone shows the verdict beside the sliders", box["y"] + box["height"] < SIZES[size][1])
    # Half of the built-in networks are faster than llama-3.2-3b, half are slower.
    for model in ["gpt2", "resnet50", "simple-cnn", "llama-3.2-3b", "qwen3-0.6b", "codellama-7b"] if size == "light" else ["gpt2"]:
        page.take(f"model={model}&batch=16&gpu=rtx4090")
        page.until(f"document.querySelector('#now .lead').textContent.startsWith('{model}, batch 16')")
        print(f"{size}: a move of {model}: {in_words(page.moves('batch'))}")
    page.take("model=gpt2&batch=16&gpu=rtx4090")
    page.settled()
    if axe:
        page.accessible(axe)
    page.techniques()
    page.dropped(folder)
    return page.end(arguments.shots)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--axe", type=pathlib.Path, help="axe.min.js of axe-core")
    parser.add_argument("--shots", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.shots:
        arguments.shots.mkdir(parents=True, exist_ok=True)
    wrong = []
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = pathlib.Path(name)
        axe = axe_core(arguments.axe, folder)
        server = subprocess.Popen([arguments.program.resolve(), "--quiet", "ui", "--no-open"], stdout=subprocess.PIPE, text=True)
        try:
            address = server.stdout.readline().strip()
            for size in SIZES:
                wrong += look(browser, address, size, arguments, axe, folder)
            wrong += at_once(browser, address)
        finally:
            server.terminate()
            server.wait()
    for text in wrong:
        print(text)
    if wrong:
        sys.exit(1)
    if axe is None:
        print("skipped: axe-core, which npm would bring (or --axe FILE)")


if __name__ == "__main__":
    main()
