// Live memory over the events of a run, stacked by category. A moment is chosen by pointing, by touch, or by keys.

const PLOT = { left: 66, right: 12, top: 34, phases: 20, bottom: 22 };

class TimelineView {
  constructor(run, onChoose) {
    this.run = run;
    this.onChoose = onChoose;
    this.low = 0;
    this.high = Math.max(1, run.events);
    this.cursor = run.peak;
    this.chosen = run.peak;
    this.block = -1;
    /** A scale that others share; 0: its own. */
    this.scale = 0;
    this.axis = new Axis(this);
    this.signs = new Signs(this);
    this.range = new Range(this);
    /** The block that was chosen: it is followed through its life. */
    this.followed = -1;
    this.build();
  }

  build() {
    const run = this.run;
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("aria-hidden", "true");
    this.plot = make("div", {
      class: "plot", tabindex: "0", role: "slider", "aria-label": "Moment of the run",
      "aria-valuemin": "0", "aria-valuemax": String(run.count - 1), "aria-describedby": "keys",
    });
    this.plot.append(this.svg);
    const button = (label, name, act) => {
      const element = make("button", { type: "button", "aria-label": name, title: name }, label);
      element.addEventListener("click", act);
      return element;
    };
    this.legend = make("div", { class: "legend" });
    const tools = make("div", { class: "tools" },
      button("−", "Show more of the run", () => this.zoom(2)),
      button("+", "Look closer at the chosen moment", () => this.zoom(0.5)),
      button("whole run", "Show the whole run", () => this.whole()),
      ...(run.opening ? [button("first steps", "Show the first steps", () => this.opening())] : []),
      button("peak", "Go to the peak", () => this.go(run.peak, true)));
    const keys = make("p", { class: "note", id: "keys" },
      "Point at the drawing, or focus it: ← → moments, Page ↑ ↓ further, ↑ ↓ blocks of the moment, P the peak, + − closer, 0 the whole run, Enter opens the moment and the block below, Shift ← → a range, Escape clears it. A click follows a block through its life. A drag chooses a range. The wheel and two fingers look closer, and a finger or Shift and a drag move.");
    if (document.getElementById("keys")) keys.removeAttribute("id");
    this.said = make("p", { class: "note", role: "status" });
    this.element = make("div", { class: "timeline" }, make("div", { class: "bar" }, this.legend, tools), this.said, this.plot, this.range.element, keys);
    const gestures = new Gestures(this);
    this.plot.addEventListener("pointermove", event => this.point(event));
    this.plot.addEventListener("pointerleave", () => this.leave());
    this.plot.addEventListener("click", event => {
      if (gestures.moved) return;
      this.point(event);
      this.choose(this.cursor, this.block);
    });
    this.plot.addEventListener("keydown", event => this.key(event));
    this.plot.addEventListener("focus", () => this.tell(true));
    this.plot.addEventListener("blur", () => { hideTip(); this.marks(); });
  }

  /** Once it is in the page. */
  start() {
    this.fillLegend();
    if (this.run.opening) this.high = this.run.opening.end;
    this.resize();
    this.choose(this.run.peak);
    new ResizeObserver(() => this.resize()).observe(this.plot);
  }

  /** Draws another run in place of this one. */
  take(run) {
    this.run = run;
    this.low = 0;
    this.high = run.opening ? run.opening.end : Math.max(1, run.events);
    this.cursor = this.chosen = run.peak;
    this.followed = this.block = -1;
    this.range.forget();
    this.fillLegend();
    this.paint();
    this.choose(run.peak);
  }

  /** Draws the same run with more of its moments: what is seen, and the moment that was chosen, stay. */
  refine(run) {
    const moment = i => Math.max(0, above(run.at, this.run.at[i]) - 1);
    [this.cursor, this.chosen] = [moment(this.cursor), moment(this.chosen)];
    if (this.range.ends) this.range.ends = this.range.ends.map(moment);
    this.run = run;
    this.plot.setAttribute("aria-valuemax", String(run.count - 1));
    this.paint();
    this.onChoose(this.chosen, -1);
  }

  fillLegend() {
    const run = this.run;
    this.plot.setAttribute("aria-valuemax", String(run.count - 1));
    const items = [...run.stack].reverse().map(c => make("span", {},
      make("i", { class: "swatch f" + run.colors[c] }), plainName(run.categories[c])));
    items.push(make("span", {}, make("i", { class: "swatch reserved" }), "reserved"));
    if (run.limit && run.limit.bytes <= 3 * run.highest) items.push(make("span", {}, make("i", { class: "swatch limit" }), `${run.limit.name}: ${short(run.limit.bytes)}`));
    const said = items.map(item => item.textContent).join();
    if (said === this.told) return;
    this.told = said;
    this.legend.replaceChildren(...items);
    explain(this.legend);
  }

  isWhole() {
    return this.low <= 0 && this.high >= this.run.events;
  }

  /** Which part of the run is seen, where it is not all. */
  saySpan() {
    const { run } = this, { opening } = run;
    let text = "";
    if (opening && this.low === 0 && this.high === opening.end) {
      text = `The first ${opening.steps === 1 ? "step" : opening.steps + " steps"} of ${grouped(opening.of)}. "whole run" shows all`;
      text += run.at[run.peak] > opening.end ? "; the peak comes later." : ".";
    } else if (!this.isWhole()) text = `Events ${grouped(Math.max(0, this.low))} to ${grouped(Math.min(run.events, this.high))} of ${grouped(run.events)}.`;
    this.said.textContent = text;
  }

  resize() {
    const width = Math.round(this.plot.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    this.height = width < 560 ? 260 : 360;
    this.paint();
  }

  get floor() { return this.height - PLOT.bottom - PLOT.phases; }
  x(at) { return PLOT.left + (at - this.low) / (this.high - this.low) * (this.width - PLOT.left - PLOT.right); }
  at(x) { return this.low + (x - PLOT.left) / (this.width - PLOT.left - PLOT.right) * (this.high - this.low); }
  y(bytes) { return this.floor - bytes / this.top * (this.floor - PLOT.top); }

  /** Moments to draw and where. Where several fall on one column of pixels, the highest fills it: no peak is too thin to be seen. */
  visible() {
    const { at, total } = this.run;
    const begin = Math.max(0, above(at, this.low) - 1), end = Math.min(at.length, above(at, this.high) + 1);
    const moments = [], places = [];
    const add = (i, x) => { moments.push(i); places.push(Math.max(PLOT.left, Math.min(this.width - PLOT.right, x))); };
    let i = begin;
    while (i < end) {
      const column = Math.floor(this.x(at[i]));
      let high = i, last = i;
      while (last + 1 < end && Math.floor(this.x(at[last + 1])) === column) if (total[++last] > total[high]) high = last;
      if (last === i) add(i, this.x(at[i]));
      else {
        add(high, column);
        if (last !== high) add(last, column + 1);
      }
      i = last + 1;
    }
    return { moments, places };
  }

  paint() {
    const { run, svg } = this;
    svg.replaceChildren();
    svg.setAttribute("width", this.width);
    svg.setAttribute("height", this.height);
    const { moments: shown, places } = this.visible();
    this.places = places;
    this.shown = shown;
    this.top = 1;
    let reserved = 0;
    for (const i of shown) {
      this.top = Math.max(this.top, run.total[i]);
      reserved = Math.max(reserved, run.reserved[i]);
    }
    // Where far more is reserved than allocated, its line leaves the drawing: what is allocated is to be seen.
    this.top = reserved > 3 * this.top ? 1.5 * this.top : 1.04 * Math.max(this.top, reserved);
    const limit = run.limit ? run.limit.bytes : 0;
    if (limit <= 3 * this.top) this.top = Math.max(this.top, 1.06 * limit);
    if (this.scale) this.top = 1.04 * this.scale;
    this.saySpan();
    this.grid();
    const bands = draw(svg, "g", { class: "bands", "clip-path": "inset(0 0 0 0)" });
    let below = new Float64Array(shown.length);
    const labels = [];
    for (const c of run.stack) {
      const upper = below.map((bytes, k) => bytes + run.bytes[c][shown[k]]);
      draw(bands, "path", { class: "band f" + run.colors[c], d: this.band(shown, below, upper) });
      const label = this.place(shown, below, upper, plainName(run.categories[c]));
      if (label) labels.push([c, label]);
      below = upper;
    }
    let line = "";
    shown.forEach((i, k) => {
      const x = places[k].toFixed(1), y = this.y(Math.min(run.reserved[i], this.top)).toFixed(1);
      line += (k ? "H" + x + "V" : "M" + x + " ") + y;
    });
    draw(svg, "path", { class: "reserved", d: line + "H" + (this.width - PLOT.right) });
    const level = run.reserved[shown[shown.length - 1]];
    if (level > 0) {
      const inside = level <= this.top;
      draw(svg, "text", { class: "level", x: this.width - PLOT.right, y: this.y(inside ? level : this.top) - 5, "text-anchor": "end" },
        "reserved " + short(level) + (inside ? "" : " ↑"));
    }
    if (run.found) this.foundLine(shown);
    this.signs.limit();
    for (const [c, [x, y]] of labels) {
      draw(svg, "text", { class: "on o" + run.colors[c], x, y, "text-anchor": "middle" }, plainName(run.categories[c]));
    }
    this.axis.draw();
    this.signs.peak();
    for (const i of run.failures) this.signs.failure(i);
    this.over = draw(svg, "g", { class: "over" });
    this.marks();
  }

  /** What a search found, as a level of its own over the stack. */
  foundLine(shown) {
    const none = new Float64Array(shown.length), sums = none.map((_, k) => this.run.foundBytes[shown[k]]);
    draw(this.svg, "path", { class: "found", d: this.band(shown, none, sums) });
  }

  clamp(x) { return Math.max(PLOT.left, Math.min(this.width - PLOT.right, x)).toFixed(1); }

  band(shown, lower, upper) {
    let there = "", back = "";
    for (let k = 0; k < shown.length; k++) {
      const x = this.places[k].toFixed(1);
      there += (k ? "H" + x + "V" : "M" + x + " ") + this.y(upper[k]).toFixed(1);
    }
    there += "H" + (this.width - PLOT.right).toFixed(1);
    for (let k = shown.length - 1; k >= 0; k--) {
      back += "V" + this.y(lower[k]).toFixed(1) + "H" + this.places[k].toFixed(1);
    }
    return there + back + "Z";
  }

  /** Where a category's name fits into its band: the widest run of moments that is high enough. */
  place(shown, lower, upper, name) {
    const need = name.length * 6.6 + 10, high = 15;
    let best = null, from = -1, floor = 0, roof = 0;
    for (let k = 0; k <= shown.length; k++) {
      const tall = k < shown.length && this.y(lower[k]) - this.y(upper[k]) >= high;
      const low = tall ? Math.min(from < 0 ? Infinity : floor, this.y(lower[k])) : 0;
      const up = tall ? Math.max(from < 0 ? -Infinity : roof, this.y(upper[k])) : 0;
      if (tall && (from < 0 || low - up >= high)) {
        if (from < 0) from = k;
        floor = low; roof = up;
        continue;
      }
      if (from >= 0) {
        const left = this.places[from], right = k < shown.length ? this.places[k] : this.width - PLOT.right;
        if (right - left >= need && (!best || right - left > best[2])) {
          best = [((left + right) / 2).toFixed(1), ((floor + roof) / 2 + 4).toFixed(1), right - left];
        }
      }
      from = tall ? k : -1;
      if (tall) { floor = this.y(lower[k]); roof = this.y(upper[k]); }
    }
    return best;
  }

  grid() {
    const step = Math.pow(2, Math.ceil(Math.log2(Math.max(1, this.top / 6))));
    for (let bytes = 0; bytes <= this.top; bytes += step) {
      const y = this.y(bytes).toFixed(1);
      draw(this.svg, "line", { class: "grid", x1: PLOT.left, x2: this.width - PLOT.right, y1: y, y2: y });
      draw(this.svg, "text", { class: "tick", x: PLOT.left - 8, y: +y + 4, "text-anchor": "end" }, short(bytes));
    }
  }

  /** The chosen moment, the pointer's, and the life of the block under it. */
  marks(pointing) {
    this.over.replaceChildren();
    const { run } = this;
    if (this.followed >= 0) this.follow(this.followed);
    this.range.mark(this.over);
    const line = (i, name) => {
      const x = this.x(run.at[i]);
      if (x < PLOT.left - 1 || x > this.width - PLOT.right + 1) return;
      // Above the stack and below it, so that a peak of one column stays to be seen.
      draw(this.over, "line", { class: name, x1: x, x2: x, y1: PLOT.top, y2: this.y(run.total[i]) });
      draw(this.over, "line", { class: name, x1: x, x2: x, y1: this.floor, y2: this.floor + PLOT.phases });
      draw(this.over, "path", { class: name, d: `M${x - 5} ${this.floor + PLOT.phases + 5}l5 -7l5 7z` });
    };
    line(this.chosen, "chosen");
    if (!pointing) return;
    if (this.cursor !== this.chosen) line(this.cursor, "pointed");
    if (this.block >= 0) {
      const { from, events } = run.blocks;
      const end = events[this.block] < 0 ? run.events : from[this.block] + events[this.block];
      const y = this.floor - 1.5;
      draw(this.over, "line", { class: "life halo", x1: this.clamp(this.x(from[this.block])), x2: this.clamp(this.x(end)), y1: y, y2: y });
      draw(this.over, "line", { class: "life l" + run.colors[run.categoryAt(this.block, run.at[this.cursor])],
        x1: this.clamp(this.x(from[this.block])), x2: this.clamp(this.x(end)), y1: y, y2: y });
    }
  }

  /** Where a block lies in the stack while it lives. */
  follow(block) {
    const { run, shown } = this, { from, events, bytes } = run.blocks;
    const end = events[block] < 0 ? Infinity : from[block] + events[block];
    const inside = shown.map((_, k) => k).filter(k => run.at[shown[k]] >= from[block] && run.at[shown[k]] < end);
    // The path needs a corner for each moment, the sum all blocks: of very many, the ends say enough.
    const few = inside.length <= 400 ? inside : inside.filter((_, n) => n % Math.ceil(inside.length / 400) === 0);
    let there = "", back = "";
    for (const k of few) {
      const low = run.below(block, run.at[shown[k]], shown[k]);
      const x = this.places[k].toFixed(1), right = Math.min(+this.clamp(this.x(end)), this.places[k + 1] || this.width - PLOT.right).toFixed(1);
      there += (there ? "L" : "M") + `${x} ${this.y(low + bytes[block]).toFixed(1)}H${right}`;
      back = `L${right} ${this.y(low).toFixed(1)}H${x}` + back;
    }
    if (there) draw(this.over, "path", { class: "followed", d: there + back + "Z" });
  }

  /** The moment under a place: of those in its column of pixels the highest, else the last one before. */
  momentAt(x) {
    const { at, total } = this.run;
    const first = above(at, this.at(x - 0.5)), end = above(at, this.at(x + 0.5));
    let best = Math.max(0, Math.min(at.length, end) - 1);
    for (let i = first; i < end; i++) if (total[i] > total[best]) best = i;
    return best;
  }

  /** The block under a height at a moment: each category's are stacked, the oldest lowest. */
  blockAt(moment, bytes) {
    const { run } = this;
    let below = 0;
    for (const c of run.stack) {
      const band = run.bytes[c][moment];
      if (bytes < below + band) {
        let height = bytes - below;
        for (const block of run.living(run.at[moment])) {
          if (run.categoryAt(block, run.at[moment]) !== c) continue;
          height -= run.blocks.bytes[block];
          if (height < 0) return block;
        }
        return -1;
      }
      below += band;
    }
    return -1;
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    this.cursor = this.momentAt(Math.max(PLOT.left, Math.min(this.width - PLOT.right, x)));
    this.block = y < this.floor ? this.blockAt(this.cursor, (this.floor - y) / (this.floor - PLOT.top) * this.top) : -1;
    this.marks(true);
    this.say();
    showTip(this.lines(), event.clientX, event.clientY);
  }

  leave() {
    this.cursor = this.chosen;
    this.block = -1;
    this.marks();
    hideTip();
  }

  lines() {
    const { run, cursor } = this;
    const at = run.at[cursor];
    const lines = [both(run.total[cursor]) + " allocated", [run.stepName(at), run.phaseName(run.phaseAt(at)), "event " + grouped(at)].filter(Boolean).join(" · ")];
    if (this.block >= 0) lines.push(...run.blockLines(this.block, at));
    else {
      lines.push(run.happened(cursor));
      for (const c of [...run.stack].reverse()) {
        if (run.bytes[c][cursor] > 0) lines.push([run.colors[c], plainName(run.categories[c]), both(run.bytes[c][cursor])]);
      }
      lines.push(["reserved", "reserved", both(run.reserved[cursor])]);
    }
    return lines;
  }

  say() {
    const text = spoken(this.lines());
    this.plot.setAttribute("aria-valuenow", String(this.cursor));
    this.plot.setAttribute("aria-valuetext", text);
  }

  tell(pointing) {
    this.marks(pointing);
    this.say();
    const box = this.svg.getBoundingClientRect();
    showTip(this.lines(), box.left + +this.clamp(this.x(this.run.at[this.cursor])), box.top + this.height * 0.35);
  }

  key(event) {
    const { run } = this;
    const page = Math.max(1, Math.round(run.count / 20));
    const moves = { ArrowRight: 1, ArrowLeft: -1, PageUp: page, PageDown: -page };
    if (event.key in moves && event.shiftKey) this.range.extend(moves[event.key] * (event.ctrlKey ? page : 1));
    else if (event.key in moves) this.go(Math.max(0, Math.min(run.count - 1, this.cursor + moves[event.key])));
    else if (event.key === "Home") this.go(0);
    else if (event.key === "End") this.go(run.count - 1);
    else if (event.key === "p" || event.key === "P") this.go(run.peak);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") this.nextBlock(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Enter" || event.key === " ") this.choose(this.cursor, this.block);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0") this.whole();
    else if (event.key === "Escape") { this.range.clear(); hideTip(); return; }
    else return;
    event.preventDefault();
  }

  /** To a moment, by key; the window follows. */
  go(moment, choose) {
    this.cursor = moment;
    this.block = -1;
    const at = this.run.at[moment], span = this.high - this.low;
    if (at < this.low || at > this.high) {
      this.low = Math.max(0, Math.min(this.run.events - span, at - span / 2));
      this.high = this.low + span;
      this.paint();
    }
    if (choose) this.choose(moment);
    else this.tell(true);
  }

  /** Walks over the blocks of the moment, largest first. */
  nextBlock(step) {
    const { bytes } = this.run.blocks;
    const blocks = this.run.living(this.run.at[this.cursor]).sort((a, b) => bytes[b] - bytes[a]);
    if (!blocks.length) return;
    const at = blocks.indexOf(this.block);
    this.block = blocks[at < 0 ? 0 : Math.max(0, Math.min(blocks.length - 1, at + step))];
    this.tell(true);
  }

  zoom(factor) {
    this.zoomAt(factor, this.run.at[this.cursor]);
  }

  /** Around an event, which stays where it is. */
  zoomAt(factor, middle) {
    const span = Math.max(4, Math.min(this.run.events, (this.high - this.low) * factor));
    const share = (middle - this.low) / (this.high - this.low);
    this.show(middle - span * Math.max(0, Math.min(1, share)), span);
  }

  /** Sideways by a share of what is seen. */
  shift(share) {
    const span = this.high - this.low;
    this.show(this.low + span * share, span);
  }

  show(low, span) {
    this.low = Math.max(0, Math.min(this.run.events - span, low));
    this.high = this.low + Math.max(1, span);
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.paint();
    });
  }

  whole() {
    this.show(0, Math.max(1, this.run.events));
  }

  opening() {
    this.show(0, this.run.opening.end);
  }

  choose(moment, block = -1) {
    this.followed = block;
    this.select(moment);
    this.onChoose(moment, block);
  }

  /** Follows a block that was chosen elsewhere. */
  trace(block) {
    this.followed = block;
    this.marks();
  }

  select(moment) {
    this.cursor = this.chosen = moment;
    this.marks();
    this.say();
  }
}
