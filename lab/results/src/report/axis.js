// What stands around and on a drawing: the phases of the run and its steps, the limit, the peak. What has no steps is told by events.

/** Draws phases and steps under a view's drawing. */
class Axis {
  constructor(view) {
    this.view = view;
  }

  draw() {
    this.phases();
    if (!this.steps()) this.events();
  }

  /** A strip for the phases; neighbours of one kind are one. */
  phases() {
    const { view, view: { run, run: { phases, events } } } = this;
    const y = view.floor + 3, height = PLOT.phases - 5;
    const group = draw(view.svg, "g", { class: "phases" });
    let end = -1, odd = false;
    for (let p = 0, next; p < phases.from.length; p = next) {
      const name = run.phaseName(p);
      next = p + 1;
      while (next < phases.from.length && run.phaseName(next) === name) next++;
      const to = next < phases.from.length ? phases.from[next] : events;
      if (to < view.low || phases.from[p] > view.high) continue;
      const left = +view.clamp(view.x(phases.from[p])), right = +view.clamp(view.x(to));
      if (right - left < 0.5 && left - end < 1) continue;
      end = right;
      odd = !odd;
      draw(group, "rect", { class: odd ? "odd" : "even", x: left, y, width: Math.max(0.5, right - left), height });
      if (right - left > name.length * 6.2 + 6) {
        draw(group, "text", { class: "tick", x: (left + right) / 2, y: y + height - 3, "text-anchor": "middle" }, name);
      }
    }
  }

  /** A line where each step begins, and its number; of very many, every few have one. False for a run without steps. */
  steps() {
    const { view, view: { run: { steps, events } } } = this;
    if (!steps.length) return false;
    const y = view.height - 7, bottom = view.floor + PLOT.phases;
    const wide = (view.x(events) - view.x(0)) / steps.length;
    const each = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find(each => each * wide > 58) || 10000;
    for (let i = 0; i < steps.length; i++) {
      const begin = view.x(steps[i]), end = view.x(i + 1 < steps.length ? steps[i + 1] : events);
      if (end < PLOT.left || begin > view.width - PLOT.right) continue;
      if (i % each && end - begin < 58) continue;
      const left = Math.max(begin, PLOT.left), right = Math.min(end, view.width - PLOT.right);
      if (begin > PLOT.left) draw(view.svg, "line", { class: "step", x1: begin, x2: begin, y1: PLOT.top, y2: bottom + 6 });
      const name = "step " + (i + 1), x = each > 1 ? left + 4 : (left + right) / 2;
      if (x + 30 <= view.width && (each > 1 || right - left > name.length * 6.4)) {
        draw(view.svg, "text", { class: "tick", x, y, "text-anchor": each > 1 ? "start" : "middle" }, name);
      }
    }
    return true;
  }

  events() {
    const { view, view: { run } } = this;
    const y = view.height - 7;
    const left = Math.max(0, Math.round(view.low)), right = Math.min(run.events, Math.round(view.high));
    draw(view.svg, "text", { class: "tick", x: PLOT.left, y }, "event " + grouped(left));
    draw(view.svg, "text", { class: "tick", x: view.width - PLOT.right, y, "text-anchor": "end" }, grouped(right));
  }
}

/** What a drawing names: the memory that there is, the peak, failed requests. */
class Signs {
  constructor(view) {
    this.view = view;
  }

  limit() {
    const { view, view: { run: { limit } } } = this;
    if (!limit || limit.bytes > view.top) return;
    const y = view.y(limit.bytes).toFixed(1);
    draw(view.svg, "line", { class: "limit", x1: PLOT.left, x2: view.width - PLOT.right, y1: y, y2: y });
    draw(view.svg, "text", { class: "level limit", x: PLOT.left + 6, y: +y - 5 }, short(limit.bytes) + " there");
  }

  peak() {
    const { view, view: { run, width } } = this;
    const x = view.x(run.at[run.peak]);
    if (x < PLOT.left - 1 || x > width - PLOT.right + 1) return;
    const y = view.y(run.total[run.peak]);
    draw(view.svg, "line", { class: "peak", x1: x, x2: x, y1: 4, y2: y });
    draw(view.svg, "circle", { class: "peak", cx: x, cy: y, r: 4 });
    const op = run.names[run.op[run.peak]], scope = run.moduleName(run.scope[run.peak]);
    const room = Math.floor((Math.max(x, width - x) - 24) / 7.4);
    let text = "peak " + short(run.total[run.peak]) + (op ? " · " + op : "") + (scope ? " of " + scope : "");
    if (text.length > room) text = text.slice(0, Math.max(12, room - 1)) + "…";
    const left = x > width / 2;
    draw(view.svg, "text", { class: "peak", x: left ? x - 7 : x + 7, y: 12, "text-anchor": left ? "end" : "start" }, text);
  }

  failure(i) {
    const { view } = this, x = view.x(view.run.at[i]);
    if (x < PLOT.left || x > view.width - PLOT.right) return;
    draw(view.svg, "line", { class: "failure", x1: x, x2: x, y1: PLOT.top, y2: view.floor });
    draw(view.svg, "text", { class: "failure", x: x - 4, y: PLOT.top + 12, "text-anchor": "end" }, "out of memory");
  }
}
