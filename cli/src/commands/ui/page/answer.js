// An answer: the verdict, the picture, changes to try, the curve, everything else. Text becomes text nodes; markup comes from the engine alone.

/** A button that copies a text. */
function copier(label, text) {
  const button = make("button", { type: "button", "aria-label": "Copy " + label }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    } catch {
      button.textContent = "Select it and copy";
    }
  });
  return button;
}

class Answer {
  constructor(element) {
    this.element = element;
    this.verdict = make("p", { class: "verdict", role: "status" });
    this.what = make("p", { class: "lead" });
    this.tries = make("section", { "aria-label": "Changes to try" });
    this.stage = make("section", { class: "run", "aria-label": "Memory over a step" });
    this.curve = make("section", { "aria-label": "Memory by size" });
    this.details = make("section", { "aria-label": "The answer in full" });
    this.repeat = make("section", { "aria-label": "Repeat it" });
    element.append(this.verdict, this.what, this.stage, this.tries, this.curve, this.repeat, this.details);
  }

  /** Shows a prediction. */
  show(found) {
    const failed = found.error !== undefined;
    const parts = [this.stage, this.tries, this.curve, this.repeat, this.details];
    parts.forEach(part => { part.hidden = failed; });
    if (failed) {
      this.verdict.className = "verdict fails";
      this.verdict.textContent = found.error;
      this.what.textContent = "";
      return;
    }
    // Those of the settings before, until theirs are there.
    for (const part of [this.tries, this.curve]) part.inert = true;
    const { sentence, fits, budget_bytes: budget } = found.result;
    // The sentence is the verdict, a colon, and the run.
    const at = sentence.lastIndexOf(": ");
    this.verdict.className = "verdict " + (fits === true ? "fits" : fits === false ? "fails" : budget ? "depends" : "");
    this.verdict.textContent = unbroken(sentence.slice(0, at));
    this.what.textContent = unbroken(sentence.slice(at + 2));
    this.draw(found.picture);
    // Of the settings before, until these rest.
    for (const part of [this.details, this.repeat]) part.inert = true;
  }

  /** Shows the rest of a prediction, once its settings rest. `spec`: their fields. */
  settle(found, spec) {
    for (const part of [this.details, this.repeat]) part.inert = false;
    this.details.innerHTML = found.details;
    for (const block of this.details.children) {
      // What is folded has many words: they are explained once somebody looks.
      if (block.tagName === "DETAILS") block.addEventListener("toggle", () => explain(block), { once: true });
      else explain(block);
    }
    const open = this.repeat.querySelector("details[open]") !== null;
    const text = (how, text) => make("div", { class: "repeat" },
      make("pre", { class: "command", tabindex: "0", "aria-label": "The run " + how }, make("code", {}, text)), copier("it " + how, () => text));
    const all = make("details", {}, make("summary", {}, "Copy as a command, as Python, as Hugging Face arguments"),
      text("as a command", found.repeat.command), text("in Python", found.repeat.python));
    all.addEventListener("toggle", async () => {
      const { python, differs, why, error } = await ask({ ask: "arguments", spec });
      if (python) all.append(text("as Hugging Face arguments", python));
      const note = why || error || (differs.length ? "A Trainer decides by itself: " + differs.join(", ") : "");
      if (note) all.append(make("p", { class: "note" }, note));
    }, { once: true });
    this.repeat.replaceChildren(all);
    all.open = open;
  }

  /** Draws memory over a step, in the drawing that is there. */
  draw(data) {
    this.moment = null;
    if (!data) {
      this.view = null;
      this.stage.replaceChildren();
      return;
    }
    const run = new Run(data);
    this.isWhole = run.blocks.from.length > 0;
    if (this.view) {
      this.inside.querySelector(".moment")?.remove();
      this.view.take(run);
      return;
    }
    this.inside = make("details", { class: "inside" }, make("summary", {}, "Who holds memory at the chosen moment"));
    this.view = new TimelineView(run, (i, block) => { this.chosen = [i, block]; this.look(); });
    this.inside.addEventListener("toggle", () => this.look());
    this.stage.replaceChildren(this.view.element, this.inside);
    this.view.start();
  }

  /** The same run with its blocks: what was chosen stays chosen. */
  refine(data) {
    if (!data || !this.view) return;
    this.isWhole = true;
    this.view.refine(new Run(data));
    this.look();
  }

  look() {
    if (!this.inside.open || !this.isWhole) return;
    if (!this.moment) {
      this.moment = new MomentView(this.view.run);
      this.moment.onMove = i => this.view.go(i, true);
      this.moment.onBlock = block => this.view.trace(block);
      this.inside.append(this.moment.element);
    }
    this.moment.show(...this.chosen);
  }

  showCurves(curves) {
    this.curve.innerHTML = curves.join("");
    this.curve.inert = false;
  }

  showTries(found, apply) {
    const { tries } = found;
    this.tries.inert = false;
    if (found.error) {
      this.tries.replaceChildren(make("p", { class: "note" }, "Changes to try: " + found.error));
      return;
    }
    if (!tries || !tries.order) {
      this.tries.replaceChildren();
      return;
    }
    const entries = tries.entries.map((entry, i) => {
      const figures = [["reserved", entry.reserved_bytes], ["left", entry.left_bytes]]
        .filter(([, bytes]) => bytes !== null).map(([name, bytes]) => `${name} ${short(bytes)}`).join(", ");
      const button = make("button", { type: "button", "aria-label": "Apply: " + entry.change }, "Apply");
      button.addEventListener("click", () => apply(found.fields[i]));
      return make("li", {}, make("b", {}, entry.change), " " + figures, button,
        make("pre", { class: "command", tabindex: "0" }, make("code", {}, entry.script)));
    });
    this.tries.replaceChildren(make("p", { class: "title" }, tries.order), make("ol", { class: "tries" }, ...entries),
      ...(tries.search ? [make("p", { class: "note" }, tries.search)] : []));
  }
}
