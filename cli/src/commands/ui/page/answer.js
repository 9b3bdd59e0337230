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
    this.verdict.textContent = sentence.slice(0, at);
    this.what.textContent = sentence.slice(at + 2);
    this.draw(found.picture);
    this.details.innerHTML = found.details;
    for (const block of this.details.children) {
      // What is folded has many words: they are explained once somebody looks.
      if (block.tagName === "DETAILS") block.addEventListener("toggle", () => explain(block), { once: true });
      else explain(block);
    }
    this.repeat.replaceChildren(make("details", {}, make("summary", {}, "Copy as a command, as Python"),
      ...Object.entries({ "as a command": found.repeat.command, "in Python": found.repeat.python }).map(([how, text]) =>
        make("div", { class: "repeat" }, make("pre", { class: "command", tabindex: "0", "aria-label": "The run " + how }, make("code", {}, text)), copier("it " + how, () => text)))));
  }

  /** Draws memory over a step. The moments of a run are the same for other sizes, so what was looked at stays open. */
  draw(data) {
    if (!data) {
      this.stage.replaceChildren();
      return;
    }
    const run = new Run(data);
    const inside = make("details", { class: "inside" }, make("summary", {}, "Who holds memory at the chosen moment"));
    let moment = null, chosen = [run.peak, -1];
    const look = () => {
      if (!inside.open) return;
      if (!moment) {
        moment = new MomentView(run);
        moment.onMove = i => this.view.go(i, true);
        inside.append(moment.element);
      }
      moment.show(...chosen);
    };
    this.view = new TimelineView(run, (i, block) => { chosen = [i, block]; look(); });
    inside.addEventListener("toggle", look);
    this.stage.replaceChildren(this.view.element, inside);
    this.view.start();
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
