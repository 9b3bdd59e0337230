// A run's data, decoded.

/** A run as the drawings use it. Blocks and segments are looked up by moment. */
class Run {
  constructor(data) {
    this.name = data.name;
    this.events = data.events;
    this.names = data.names;
    this.categories = data.categories;
    this.colors = colorOf(data.categories);
    this.stacks = data.stacks;
    this.steps = summed(data.steps);
    this.limit = data.limit && { name: data.limit[0], bytes: data.limit[1] };
    this.opening = data.opening && { end: data.opening[0], steps: data.opening[1], of: data.opening[2] };
    /** Which blocks are looked for; null: none. */
    this.found = null;
    const m = data.moments;
    this.at = summed(m.at);
    this.bytes = m.categories.map(summed);
    this.requested = summed(m.requested);
    this.reserved = summed(m.reserved);
    this.split = summed(m.split);
    this.kind = m.kind;
    this.op = m.op;
    this.scope = m.scope;
    this.size = m.bytes;
    this.count = this.at.length;
    this.total = new Float64Array(this.count);
    for (const column of this.bytes) column.forEach((bytes, i) => { this.total[i] += bytes; });
    /** The most that a drawing has to reach. */
    this.highest = Math.max(1, ...this.extremes());
    this.peak = Math.min(data.peak, this.count - 1);
    this.failures = data.failures;
    // Categories that are ever there, from the lowest of the stack to the highest.
    const place = c => { const i = ORDER.indexOf(this.categories[c]); return i < 0 ? ORDER.length + c : i; };
    this.stack = this.categories.map((_, c) => c).filter(c => this.bytes[c].some(bytes => bytes > 0))
      .sort((a, b) => place(a) - place(b));
    this.phases = {
      name: data.phases.name, count: data.phases.phases, from: summed(data.phases.from),
      peakAt: summed(data.phases.peak_at), peak: data.phases.peak,
    };
    this.phasePeaks = data.phase_peaks.map(([name, times, moment, bytes]) => ({ name, times, moment, bytes }));
    this.decodeBlocks(data.blocks);
    const s = data.segments;
    this.segments = { address: summed(s.address), bytes: s.bytes, from: summed(s.from), events: s.events };
  }

  extremes() {
    let total = 0, reserved = 0;
    for (let i = 0; i < this.count; i++) {
      total = Math.max(total, this.total[i]);
      reserved = Math.max(reserved, this.reserved[i]);
    }
    return [total, reserved > 3 * total ? 0 : reserved];
  }

  decodeBlocks(b) {
    const blocks = {
      of: b.of, fromBytes: b.from_bytes, peaksComplete: b.peaks_complete,
      from: summed(b.from), events: b.events, address: summed(b.address), bytes: b.bytes,
      rounding: b.rounding, category: b.category, op: b.op, scope: b.scope, changes: new Map(),
    };
    const block = summed(b.retag_block), at = summed(b.retag_at);
    for (let i = 0; i < block.length; i++) {
      if (!blocks.changes.has(block[i])) blocks.changes.set(block[i], []);
      blocks.changes.get(block[i]).push([at[i], b.retag_category[i]]);
    }
    this.blocks = blocks;
  }

  /** The category of a block at an event. */
  categoryAt(block, at) {
    let category = this.blocks.category[block];
    for (const [when, to] of this.blocks.changes.get(block) || []) if (when <= at) category = to;
    return category;
  }

  /** The listed blocks that live after an event, oldest first. */
  living(at) {
    const { from, events } = this.blocks;
    const end = above(from, at);
    const found = [];
    for (let i = 0; i < end; i++) if (events[i] < 0 || from[i] + events[i] > at) found.push(i);
    return found;
  }

  livingSegments(at) {
    const { from, events, address } = this.segments;
    const found = [];
    for (let i = 0; i < from.length && from[i] <= at; i++) if (events[i] < 0 || from[i] + events[i] > at) found.push(i);
    return found.sort((a, b) => address[a] - address[b]);
  }

  /** The phase of an event; -1: none. */
  phaseAt(at) {
    return above(this.phases.from, at) - 1;
  }

  phaseName(phase) {
    if (phase < 0) return this.phases.from.length > 0 ? "before the first phase" : "no phases recorded";
    const count = this.phases.count[phase];
    return (kindOf(this.names[this.phases.name[phase]]) || "no phase") + (count > 1 ? " and " + (count - 1) + " more phases" : "");
  }

  /** The step of an event, from 1; of a run without steps nothing. */
  stepName(at) {
    return this.steps.length ? "step " + above(this.steps, at) : "";
  }

  /** What lies below a living block at a moment: the categories under its own, and the older blocks of that. */
  below(block, at, moment) {
    const category = this.categoryAt(block, at);
    let bytes = 0;
    for (const c of this.stack) {
      if (c === category) break;
      bytes += this.bytes[c][moment];
    }
    for (const older of this.living(at)) {
      if (older === block) break;
      if (this.categoryAt(older, at) === category) bytes += this.blocks.bytes[older];
    }
    return bytes;
  }

  /** A module's path; of a stack nothing, as the operator says its line. */
  moduleName(scope) {
    return this.stacks ? "" : this.names[scope];
  }

  /** The lines that led to a block, innermost first; of a run without stacks none. */
  frames(block) {
    const path = this.stacks ? this.names[this.blocks.scope[block]] : "";
    return path ? path.split(".").map(part).reverse() : [];
  }

  /** What happened at a moment, in words. */
  happened(i) {
    const op = this.names[this.op[i]], scope = this.moduleName(this.scope[i]);
    const by = (op ? " by " + op : "") + (scope ? " of " + scope : "");
    const size = short(this.size[i]);
    switch (this.kind[i]) {
      case "a": return size + " allocated" + by;
      case "f": return size + " freed" + by;
      case "t": return size + (scope ? " of " + scope : "") + " changed category";
      case "s": return size + " taken from the driver";
      case "g": return size + " given back to the driver";
      case "o": return "out of memory: " + size + " asked for" + by;
      default: return "a phase begins";
    }
  }

  /** What a block is, in lines. */
  blockLines(block, at) {
    const b = this.blocks;
    const when = event => [this.stepName(event), this.steps.length ? this.phaseName(this.phaseAt(event)) : "", "event " + grouped(event)].filter(Boolean).join(", ");
    const end = b.events[block] < 0 ? "the end" : when(b.from[block] + b.events[block]);
    const rounding = b.rounding[block], frames = this.frames(block), scope = this.moduleName(b.scope[block]);
    const callers = frames.slice(1, 5).map(line => "← " + line);
    return [
      (this.names[b.op[block]] || "(no operator)") + (scope ? " · " + scope : ""),
      ...callers, frames.length > 5 ? "← " + (frames.length - 5) + " more lines" : "",
      [this.colors[this.categoryAt(block, at)], plainName(this.categories[this.categoryAt(block, at)]), both(b.bytes[block])],
      rounding > 0 ? short(b.bytes[block] - rounding) + " asked for" : "",
      "lives from " + when(b.from[block]) + " to " + end,
    ];
  }
}

/** The name of a phase without the number of its step: `forward` for `s3.forward`. */
function kindOf(name) {
  return (name || "").replace(/^s\d+\./, "");
}

/** A part of a path, as it is read: dots within one are kept apart from those between. */
function part(text) {
  return text.replace(/·/g, ".");
}
