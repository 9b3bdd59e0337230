// A range of events that was dragged, or chosen with Shift and arrows: what changed between its ends, and what stayed.

class Range {
  constructor(view) {
    this.view = view;
    this.ends = null;
    this.element = make("section", { class: "range", "aria-live": "polite" });
  }

  /** From one moment to another, in either order. */
  set(from, to) {
    this.ends = from === to ? null : [Math.min(from, to), Math.max(from, to)];
    this.view.marks(true);
  }

  /** The other end of a range that begins at the chosen moment. */
  extend(by) {
    const { view, view: { run } } = this;
    this.fixed = this.ends ? this.fixed : view.cursor;
    const moving = this.ends ? this.ends.find(end => end !== this.fixed) : view.cursor;
    this.set(this.fixed, Math.max(0, Math.min(run.count - 1, moving + by)));
    this.tell();
  }

  forget() {
    this.ends = null;
    this.element.replaceChildren();
  }

  clear() {
    this.forget();
    this.view.marks();
  }

  /** The rectangle, among the marks. */
  mark(parent) {
    if (!this.ends) return;
    const { view, view: { run } } = this;
    const [left, right] = this.ends.map(i => +view.clamp(view.x(run.at[i])));
    draw(parent, "rect", { class: "range", x: left, y: PLOT.top, width: Math.max(1, right - left), height: view.floor - PLOT.top });
  }

  when(i) {
    const { run } = this.view, at = run.at[i];
    const step = run.stepName(at), phase = run.phaseAt(at);
    return [step, phase < 0 ? "" : run.phaseName(phase), "event " + grouped(at)].filter(Boolean).join(", ");
  }

  tell() {
    if (!this.ends) return this.element.replaceChildren();
    const { view, view: { run } } = this, [from, to] = this.ends;
    let highest = from;
    for (let i = from; i <= to; i++) if (run.total[i] > run.total[highest]) highest = i;
    const changed = run.stack.map(c => [c, run.bytes[c][to] - run.bytes[c][from]]).filter(([, bytes]) => bytes)
      .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    const facts = make("dl", { class: "facts" });
    const fact = (name, ...value) => facts.append(make("dt", {}, name), make("dd", {}, ...value));
    const signed = bytes => (bytes > 0 ? "+" : "") + short(bytes);
    fact("from", `${this.when(from)}: ${short(run.total[from])}`);
    fact("to", `${this.when(to)}: ${short(run.total[to])} (${signed(run.total[to] - run.total[from])})`);
    fact("highest", `${short(run.total[highest])}, ${this.when(highest)}`);
    for (const [c, bytes] of changed) fact(plainName(run.categories[c]), make("i", { class: "swatch f" + run.colors[c] }), signed(bytes));
    fact("made here and still there", ...this.kept(run.at[from], run.at[to]));
    const button = (label, act) => {
      const element = make("button", { type: "button" }, label);
      element.addEventListener("click", act);
      return element;
    };
    const closer = () => view.show(run.at[from], Math.max(4, run.at[to] - run.at[from]));
    this.element.replaceChildren(make("h4", {}, "The range"), facts, make("div", { class: "tools" },
      button("look closer", closer), button("its highest moment", () => view.go(highest, true)), button("clear", () => this.clear())));
  }

  /** Blocks that were made in the range and live at its end, summed by operator, the largest first. */
  kept(from, to) {
    const { run } = this.view, { blocks } = run, sums = new Map();
    for (const block of run.living(to)) {
      if (blocks.from[block] <= from) continue;
      const name = run.names[blocks.op[block]] || "(no operator)", sum = sums.get(name) || [0, 0];
      sums.set(name, [sum[0] + blocks.bytes[block], sum[1] + 1]);
    }
    const largest = [...sums].sort((a, b) => b[1][0] - a[1][0]);
    if (!largest.length) return ["nothing that is listed"];
    const lines = largest.slice(0, 5).map(([name, [bytes, count]]) => make("li", {}, `${short(bytes)} by ${name}` + (count > 1 ? ` (${grouped(count)} blocks)` : "")));
    return [make("ol", {}, ...lines)];
  }
}
