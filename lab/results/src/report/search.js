// Blocks by operator, module or line: how much they are at each moment, and which they are.

let searches = 0;

class Search {
  constructor(run, onFound, onGo) {
    this.run = run;
    this.onFound = onFound;
    this.onGo = onGo;
    const id = "search-" + searches++;
    this.input = make("input", { type: "search", id, autocomplete: "off", spellcheck: "false" });
    this.said = make("span", { role: "status", class: "note" });
    const what = run.stacks ? "Find blocks by operator, function or line (model.py:27)" : "Find blocks by operator or module";
    this.element = make("div", { class: "search" }, make("label", { for: id }, what), this.input, this.said);
    this.input.addEventListener("input", () => {
      clearTimeout(this.wait);
      this.wait = setTimeout(() => this.look(), 120);
    });
    this.input.addEventListener("keydown", event => {
      if (event.key === "Escape") this.input.value = "";
      if (event.key === "Enter" || event.key === "Escape") this.look();
    });
  }

  look() {
    clearTimeout(this.wait);
    const { run } = this, { blocks } = run;
    const wanted = this.input.value.trim().toLowerCase();
    const named = run.names.map(name => hasText(name, wanted));
    run.found = wanted ? Uint8Array.from(blocks.from, (_, i) => named[blocks.op[i]] || named[blocks.scope[i]] ? 1 : 0) : null;
    run.foundBytes = run.found && this.sums();
    this.say();
    this.onFound();
  }

  /** What was found, in bytes at each moment. */
  sums() {
    const { blocks, found, at, count } = this.run;
    const sums = new Float64Array(count + 1);
    found.forEach((is, i) => {
      if (!is) return;
      sums[above(at, blocks.from[i] - 1)] += blocks.bytes[i];
      if (blocks.events[i] >= 0) sums[above(at, blocks.from[i] + blocks.events[i] - 1)] -= blocks.bytes[i];
    });
    for (let i = 1; i < count; i++) sums[i] += sums[i - 1];
    return sums.subarray(0, count);
  }

  say() {
    const { run, said } = this;
    if (!run.found) return said.replaceChildren();
    const many = run.found.reduce((sum, is) => sum + is, 0);
    if (!many) return said.replaceChildren("no block has it");
    const best = run.foundBytes.reduce((best, bytes, i) => bytes > run.foundBytes[best] ? i : best, 0);
    const go = make("button", { type: "button" }, "go there");
    go.addEventListener("click", () => this.onGo(best));
    said.replaceChildren(`${grouped(many)} of ${grouped(run.found.length)} blocks, at most ${short(run.foundBytes[best])} at event ${grouped(run.at[best])} `, go);
  }
}

/** Whether a name has a text. `train.py:7` is not `train.py:71`. */
function hasText(name, wanted) {
  const text = part(name).toLowerCase();
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + 1)) {
    if (!/:\d+$/.test(wanted) || !/\d/.test(text[at + wanted.length] || "")) return true;
  }
  return false;
}
