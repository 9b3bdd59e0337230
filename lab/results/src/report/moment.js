// One moment: from requested to reserved bytes, who holds them layer by layer, and what lies where in each segment.

class MomentView {
  constructor(run) {
    this.run = run;
    this.element = make("div", { class: "moment" });
    this.title = make("h3", { "aria-live": "polite" });
    this.who = make("p", { class: "note" });
    this.jumps = make("div", { class: "jumps", role: "group", "aria-label": "Moments to look at" });
    this.block = make("section", { class: "block", "aria-live": "polite" });
    this.parts = make("div", { class: "parts" });
    this.element.append(this.title, this.who, this.jumps, this.block, this.parts);
    this.fillJumps();
    new ResizeObserver(() => {
      const width = Math.round(this.element.clientWidth);
      if (width && width !== this.width && this.moment !== undefined) this.again();
    }).observe(this.element);
  }

  fillJumps() {
    const { run } = this;
    const jump = (text, moment) => {
      const button = make("button", { type: "button" }, text);
      button.addEventListener("click", () => this.onMove(moment));
      this.jumps.append(button);
    };
    jump("the peak", run.peak);
    for (const peak of run.phasePeaks.slice(0, 16)) {
      if (peak.moment !== run.peak) jump("highest of " + (kindOf(run.names[peak.name]) || "no phase"), peak.moment);
    }
    for (const moment of run.failures.slice(0, 3)) jump("out of memory", moment);
    jump("the end", run.count - 1);
  }

  /** The same once more: its width or what is looked for has changed. */
  again() {
    if (this.moment !== undefined) this.show(this.moment, this.shownBlock);
  }

  show(moment, block = -1) {
    const { run } = this;
    this.moment = moment;
    this.width = Math.round(this.element.clientWidth);
    const at = run.at[moment];
    const what = moment === run.peak ? "The peak" : "The moment";
    this.title.textContent = `${what}: ${short(run.total[moment])} allocated`;
    this.title.title = exact(run.total[moment]);
    const phase = run.phaseAt(at);
    const step = run.stepName(at);
    this.who.textContent = `${run.happened(moment)}, ${phase < 0 ? "" : "in "}${run.phaseName(phase)}${step && ", " + step}, event ${grouped(at)} of ${grouped(run.events)}`;
    this.living = run.living(at);
    this.parts.replaceChildren(this.bridge(moment), this.layers(moment), this.map(moment), this.largest(moment));
    for (const part of this.parts.children) explain(part);
    this.showBlock(block);
  }

  /** All that is known of a block: which lines of the program led to it, what it is for, from when to when. */
  showBlock(block) {
    const { run } = this, b = run.blocks;
    this.shownBlock = block;
    if (block < 0) return this.block.replaceChildren();
    const at = run.at[this.moment], frames = run.frames(block), scope = run.moduleName(b.scope[block]);
    const facts = make("dl", { class: "facts" });
    const fact = (name, ...value) => facts.append(make("dt", {}, name), make("dd", {}, ...value));
    fact("operator", run.names[b.op[block]] || "not recorded");
    if (frames.length) fact("lines, the innermost first", make("ol", {}, ...frames.map(line => make("li", {}, line))));
    else fact(run.stacks ? "lines" : "module", scope || (run.stacks ? "not recorded" : "no module (loss, optimizer, batch)"));
    const category = run.categoryAt(block, at);
    fact("category", make("i", { class: "swatch f" + run.colors[category] }), plainName(run.categories[category]));
    fact("size", both(b.bytes[block]) + (b.rounding[block] ? ", of which " + both(b.bytes[block] - b.rounding[block]) + " were asked for" : ""));
    const when = event => [run.stepName(event), run.phaseName(run.phaseAt(event)), "event " + grouped(event)].filter(Boolean).join(", ");
    fact("lives from", when(b.from[block]));
    fact("to", b.events[block] < 0 ? "the end" : when(b.from[block] + b.events[block]));
    fact("address", hex(b.address[block]));
    this.block.replaceChildren(make("h4", {}, "The block"), facts);
    explain(this.block);
  }

  /** Each bar is the one above plus the gap. */
  bridge(moment) {
    const { run } = this;
    const [requested, allocated, reserved, split] = [run.requested, run.total, run.reserved, run.split].map(c => c[moment]);
    const full = Math.max(reserved, allocated, 1);
    const box = make("div", { class: "bridge", role: "table", "aria-label": "From requested to reserved bytes" });
    const line = (kind, name, from, to) => {
      const bar = make("i", { style: `left:${100 * Math.min(from, to) / full}%;width:${100 * Math.abs(to - from) / full}%` });
      const figure = make("span", { role: "cell", class: "n", title: exact(kind === "ring" ? to : to - from) },
        (kind === "gap" && to > from ? "+" : "") + short(kind === "ring" ? to : to - from));
      box.append(make("div", { class: kind, role: "row" }, make("span", { role: "rowheader" }, name),
        make("span", { class: "track", "aria-hidden": "true" }, bar), figure));
    };
    line("ring", "requested", 0, requested);
    line("gap", "rounding to blocks", requested, allocated);
    line("ring", "allocated", 0, allocated);
    if (reserved > 0) {
      line("gap", "fragmented: free beside blocks", allocated, allocated + split);
      line("gap", "cached: free segments", allocated + split, reserved);
      line("ring", "reserved", 0, reserved);
    }
    return make("section", {}, make("h4", {}, "From requested to reserved"), box);
  }

  /** The modules as a tree; what a module holds itself is told by category. */
  tree(moment) {
    const { run } = this;
    const at = run.at[moment];
    const root = { name: "all", path: "", bytes: 0, children: new Map(), own: new Map() };
    const rest = run.bytes.map(column => column[moment]);
    const add = (node, category, bytes) => node.own.set(category, (node.own.get(category) || 0) + bytes);
    for (const block of this.living) {
      const category = run.categoryAt(block, at), bytes = run.blocks.bytes[block];
      rest[category] -= bytes;
      let node = root;
      node.bytes += bytes;
      const path = run.names[run.blocks.scope[block]] || (run.stacks ? "(no line)" : "(no module: loss, optimizer, batch)");
      for (const name of path.split(".").map(part)) {
        if (!node.children.has(name)) {
          const path = node.path ? node.path + (run.stacks ? " → " : ".") + name : name;
          node.children.set(name, { name, path, bytes: 0, children: new Map(), own: new Map() });
        }
        node = node.children.get(name);
        node.bytes += bytes;
      }
      add(node, category, bytes);
    }
    const small = rest.reduce((sum, bytes) => sum + Math.max(0, bytes), 0);
    if (small > 0) {
      const node = { name: "smaller blocks", path: "smaller blocks, not listed one by one", bytes: small, children: new Map(), own: new Map() };
      rest.forEach((bytes, category) => { if (bytes > 0) add(node, category, bytes); });
      root.bytes += small;
      root.children.set(node.name, node);
    }
    return root;
  }

  layers(moment) {
    const { run, width } = this;
    const root = this.tree(moment);
    const section = make("section", {}, make("h4", {}, run.stacks ? "Who holds it: lines and what they call, then categories" : "Who holds it: modules within modules, then categories"));
    if (!root.bytes) return section;
    const row = 22, cells = [];
    const svg = document.createElementNS(SVG, "svg");
    let deepest = 0;
    const cell = (x, depth, bytes, name, lines, fill) => {
      const w = bytes / root.bytes * width;
      if (w < 0.6) return;
      deepest = Math.max(deepest, depth);
      const group = draw(svg, "g", { class: "cell", role: "img" });
      draw(group, "rect", { class: fill, x: x.toFixed(2), y: depth * row, width: Math.max(0.5, w - 1).toFixed(2), height: row - 2, rx: 2 });
      const room = Math.floor((w - 8) / 6.7);
      if (room >= 3) {
        const text = name.length > room ? name.slice(0, room - 1) + "…" : name;
        draw(group, "text", { class: "on " + fill.replace(/^f/, "o"), x: (x + 4).toFixed(1), y: depth * row + 14 }, text);
      }
      group.lines = lines;
      cells.push(group);
    };
    const visit = (node, x, depth) => {
      cell(x, depth, node.bytes, node === root ? "all" : node.name,
        [node.path || "everything that is allocated", both(node.bytes), percent(node.bytes, root.bytes) + " of the moment"], "module m" + (depth % 2));
      const scale = width / root.bytes;
      const parts = [...node.children.values()].map(child => [child.bytes, child])
        .concat([...node.own].map(([category, bytes]) => [bytes, category])).sort((a, b) => b[0] - a[0]);
      for (const [bytes, part] of parts) {
        if (typeof part === "number") {
          cell(x, depth + 1, bytes, plainName(run.categories[part]),
            [node.path || "all", [run.colors[part], plainName(run.categories[part]), both(bytes)], percent(bytes, root.bytes) + " of the moment"],
            "f" + run.colors[part]);
        } else if (depth < 12) visit(part, x, depth + 1);
        x += bytes * scale;
      }
    };
    visit(root, 0, 0);
    svg.setAttribute("width", width);
    svg.setAttribute("height", (deepest + 1) * row);
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", "Modules by bytes");
    walkable(svg, cells, group => group.lines);
    section.append(svg);
    return section;
  }

  /** Bytes of one line of the map: a round number, so that the whole takes about a dozen lines. */
  static perLine(reserved, lines) {
    const least = Math.max(512, reserved / lines);
    const power = Math.pow(2, Math.floor(Math.log2(least)));
    return least <= power * 1.5 ? power * 1.5 : power * 2;
  }

  map(moment) {
    const { run, width } = this;
    const at = run.at[moment];
    const all = run.livingSegments(at);
    const segments = this.shown(all);
    const section = make("section", {}, make("h4", {}, "What lies where: every segment, in order of address"));
    if (!segments.length) {
      section.append(make("p", { class: "note" }, "The recording has no segments here."));
      return section;
    }
    const listed = segments.reduce((sum, s) => sum + run.segments.bytes[s], 0);
    const perLine = MomentView.perLine(listed, width < 560 ? 16 : 10);
    const perByte = width / perLine, row = 20, gap = segments.length > 150 ? 0.5 : 3;
    const svg = document.createElementNS(SVG, "svg");
    const cells = [];
    let cursor = 0;
    // A stretch of the line of all bytes, cut where a line of the map ends.
    const pieces = (from, length, make) => {
      let x = from, left = length;
      while (left > 0.001) {
        const line = Math.floor(x / width + 1e-9), inside = x - line * width;
        const part = Math.min(left, width - inside);
        make(Math.max(0, inside), line, part);
        x += part;
        left -= part;
      }
    };
    const blocks = this.living.slice().sort((a, b) => run.blocks.address[a] - run.blocks.address[b]);
    let next = 0;
    for (const s of segments) {
      const base = run.segments.address[s], bytes = run.segments.bytes[s], end = base + bytes;
      while (next < blocks.length && run.blocks.address[blocks[next]] + run.blocks.bytes[blocks[next]] <= base) next++;
      const inside = [];
      for (let i = next; i < blocks.length && run.blocks.address[blocks[i]] < end; i++) inside.push(blocks[i]);
      const used = inside.reduce((sum, b) => sum + run.blocks.bytes[b], 0);
      const group = draw(svg, "g", { class: "cell", role: "img" });
      const kind = inside.length ? "fragmented" : "cached";
      pieces(cursor, bytes * perByte, (x, line, w) => {
        draw(group, "rect", { class: "segment " + kind, x: x.toFixed(2), y: line * row, width: Math.max(0.5, w).toFixed(2), height: row - 4, rx: 1 });
      });
      group.lines = [`segment at ${hex(base)}, ${both(bytes)}`, inside.length ? `${inside.length} blocks shown, ${both(used)}` : "cached: nothing lives in it",
        inside.length ? both(Math.max(0, bytes - used)) + " free or in blocks not listed" : ""];
      cells.push(group);
      this.drawBlocks(svg, inside, at, cursor, base, end, perByte, pieces, row, cells);
      cursor += bytes * perByte + gap;
    }
    svg.setAttribute("width", width);
    svg.setAttribute("height", (Math.floor(cursor / width) + 1) * row);
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", "Map of segments");
    walkable(svg, cells, group => group.lines, group => {
      if (group.block === undefined) return;
      this.showBlock(group.block);
      if (this.onBlock) this.onBlock(group.block);
    });
    section.append(this.mapLegend(moment, segments.length, perLine, listed), svg);
    return section;
  }

  /** Of very many segments, those that hold something and then the largest; in order of address. */
  shown(segments) {
    const most = 500, { address, bytes } = this.run.segments;
    if (segments.length <= most) return segments;
    const base = segments.map(s => address[s]);
    const used = new Map();
    for (const block of this.living) {
      const i = above(base, this.run.blocks.address[block]) - 1;
      if (i >= 0) used.set(segments[i], (used.get(segments[i]) || 0) + this.run.blocks.bytes[block]);
    }
    return segments.slice().sort((a, b) => (used.get(b) || 0) - (used.get(a) || 0) || bytes[b] - bytes[a]).slice(0, most)
      .sort((a, b) => address[a] - address[b]);
  }

  drawBlocks(svg, inside, at, cursor, base, end, perByte, pieces, row, cells) {
    const { run } = this;
    for (let i = 0; i < inside.length; i++) {
      const first = inside[i], category = run.categoryAt(first, at);
      const from = Math.max(base, run.blocks.address[first]);
      let to = Math.min(end, run.blocks.address[first] + run.blocks.bytes[first]), together = 1;
      // Neighbours of one category that are too thin to be seen apart are drawn as one.
      while ((to - from) * perByte < 1.5 && i + 1 < inside.length && run.blocks.address[inside[i + 1]] === to
          && run.categoryAt(inside[i + 1], at) === category && (!run.found || run.found[inside[i + 1]] === run.found[first])) {
        to = Math.min(end, to + run.blocks.bytes[inside[++i]]);
        together++;
      }
      const dim = run.found && !run.found[first] ? " dim" : "";
      const group = draw(svg, "g", { class: "cell" + dim, role: "button" });
      if (together === 1) group.block = first;
      pieces(cursor + (from - base) * perByte, (to - from) * perByte, (x, line, w) => {
        draw(group, "rect", { class: "block f" + run.colors[category], x: x.toFixed(2), y: line * row, width: Math.max(0.7, w - (w > 3 ? 0.8 : 0)).toFixed(2), height: row - 4 });
      });
      group.lines = together > 1
        ? [`${together} small blocks`, [run.colors[category], plainName(run.categories[category]), both(to - from)]]
        : run.blockLines(first, at);
      cells.push(group);
    }
  }

  mapLegend(moment, count, perLine, listed) {
    const { run } = this;
    const split = run.split[moment], reserved = run.reserved[moment];
    const free = Math.max(0, reserved - run.total[moment] - split);
    const item = (name, text, bytes) => make("span", { title: exact(bytes) }, make("i", { class: "swatch " + name }), `${text} ${short(bytes)}`);
    const legend = make("p", { class: "legend" });
    legend.append(item("allocated", "allocated (colours as above)", run.total[moment]), item("fragmented", "fragmented", split),
      item("cached", "cached", free), make("span", {}, `${count} segment${count === 1 ? "" : "s"}; a line is ${short(perLine)}`));
    if (listed < reserved) legend.append(make("span", {}, `these are ${short(listed)} of the ${short(reserved)} reserved: segments that hold most, then the largest`));
    if (run.blocks.fromBytes > 0) {
      legend.append(make("span", {}, `blocks below ${short(run.blocks.fromBytes)} may be missing: ${grouped(run.blocks.from.length)} of ${grouped(run.blocks.of)} are listed`));
    }
    return legend;
  }

  largest(moment) {
    const { run } = this;
    const at = run.at[moment];
    const blocks = this.living.filter(block => !run.found || run.found[block])
      .sort((a, b) => run.blocks.bytes[b] - run.blocks.bytes[a]).slice(0, 12);
    const title = run.found ? "The largest blocks that were looked for" : "The largest blocks";
    if (!blocks.length) return make("section", {}, make("h4", {}, title), make("p", { class: "note" }, "None lives at this moment."));
    const last = run.stacks ? "called from" : "module";
    const table = make("table", {}, make("thead", {}, make("tr", {},
      ...["block", "category", "operator", last, "since"].map((name, i) => make("th", { scope: "col", ...(i ? {} : { class: "r" }) }, name)))));
    const body = make("tbody");
    for (const block of blocks) {
      const category = run.categoryAt(block, at);
      body.append(make("tr", {},
        make("td", { class: "r" }, make("span", { class: "n", title: exact(run.blocks.bytes[block]) }, short(run.blocks.bytes[block]))),
        make("td", { class: "k" }, make("i", { class: "swatch f" + run.colors[category] }), plainName(run.categories[category])),
        make("td", {}, this.opener(block)),
        make("td", {}, (run.stacks ? run.frames(block)[1] : run.names[run.blocks.scope[block]]) || "–"),
        make("td", {}, run.phases.from.length ? run.phaseName(run.phaseAt(run.blocks.from[block])) : "event " + grouped(run.blocks.from[block]))));
    }
    table.append(body);
    return make("section", {}, make("h4", {}, title),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table));
  }

  /** A block's operator, which opens all that is known of it. */
  opener(block) {
    const button = make("button", { type: "button", class: "opener" }, this.run.names[this.run.blocks.op[block]] || "(no operator)");
    button.addEventListener("click", () => {
      this.showBlock(block);
      if (this.onBlock) this.onBlock(block);
      this.block.scrollIntoView({ block: "nearest" });
    });
    return button;
  }
}

function hex(address) {
  return "0x" + address.toString(16);
}
