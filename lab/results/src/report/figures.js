// Figures, elements, columns: what the drawings share. Text from the data becomes text nodes and attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function draw(parent, tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

/** In the largest binary unit that fits: 1.5 GiB. */
function short(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  let value = Math.abs(bytes);
  while (value >= (unit ? 1023.995 : 1024) && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return (bytes < 0 ? "−" : "") + (unit ? String(+value.toFixed(2)) : value) + "\u00a0" + units[unit];
}

/** A text whose lines do not end within a number, or between it and its unit. */
function unbroken(text) {
  return text.replace(/(\d) (?=(\d{3}|[KMGTP]?i?B|%)(?![\w]))/g, "$1\u00a0");
}

/** In groups of three digits. */
function grouped(number) {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function exact(bytes) {
  return grouped(bytes) + " bytes";
}

/** Both forms; small numbers are exact already. */
function both(bytes) {
  return Math.abs(bytes) < 1024 ? short(bytes) : short(bytes) + " (" + grouped(bytes) + ")";
}

function percent(part, whole) {
  return whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "–";
}

/** A column of differences, summed up. */
function summed(deltas) {
  const values = new Float64Array(deltas.length);
  let sum = 0;
  for (let i = 0; i < deltas.length; i++) values[i] = sum += deltas[i];
  return values;
}

/** The first index whose value is above. */
function above(values, value) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1; else high = middle;
  }
  return low;
}

function plainName(name) {
  return name.replace(/_/g, " ");
}

// What is stacked first lies lowest: what stays through the run.
const ORDER = ["parameter", "buffer", "optimizer_state", "gradient", "input", "activation", "workspace", "temporary"];

/** Colour of a category: the eight of the lab have their own, others take what is left. */
function colorOf(categories) {
  let next = 8;
  return categories.map(name => {
    const known = ORDER.indexOf(name);
    return known >= 0 ? known : name === "unknown" ? 8 : Math.min(++next, 11);
  });
}

const tip = document.getElementById("tip");

/** Shows lines of text near a place; the first is the heading. */
function showTip(lines, x, y) {
  tip.replaceChildren(...lines.filter(line => line).map((line, i) => {
    if (Array.isArray(line)) {
      const row = make("div", { class: "row" });
      const [color, name, value] = line;
      row.append(make("i", { class: "swatch f" + color }), make("span", {}, name), make("span", { class: "n" }, value));
      return row;
    }
    return make("div", i ? {} : { class: "head" }, line);
  }));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const width = document.documentElement.clientWidth;
  const left = x + 16 + box.width > width ? x - box.width - 16 : x + 16;
  const top = y + 16 + box.height > innerHeight ? y - box.height - 12 : y + 16;
  tip.style.left = Math.max(4, Math.min(left, width - box.width - 4)) + "px";
  tip.style.top = Math.max(4, top) + "px";
}

/** Lines of a tip as a sentence. */
function spoken(lines) {
  return lines.map(line => Array.isArray(line) ? line.slice(1).join(" ") : line).filter(Boolean).join("; ");
}

function hideTip() {
  tip.hidden = true;
}

/** Arrow keys walk over the elements; each tells what it is when it is pointed at or focused. */
function walkable(parent, elements, tell, choose) {
  elements.forEach((element, i) => {
    element.setAttribute("tabindex", i ? "-1" : "0");
    const lines = () => tell(element);
    element.setAttribute("aria-label", spoken(lines()));
    element.addEventListener("focus", () => {
      const box = element.getBoundingClientRect();
      showTip(lines(), box.left + Math.min(box.width / 2, 200), box.bottom - 8);
    });
    element.addEventListener("blur", hideTip);
    element.addEventListener("pointermove", event => showTip(lines(), event.clientX, event.clientY));
    element.addEventListener("pointerleave", hideTip);
    if (choose) element.addEventListener("click", () => choose(element));
  });
  parent.addEventListener("keydown", event => {
    const at = elements.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (at < 0) return;
    let to = step ? at + step : event.key === "Home" ? 0 : event.key === "End" ? elements.length - 1 : -1;
    if (event.key === "Escape") hideTip();
    if ((event.key === "Enter" || event.key === " ") && choose) {
      choose(elements[at]);
      event.preventDefault();
    }
    if (to < 0 || to >= elements.length) return;
    event.preventDefault();
    elements[at].setAttribute("tabindex", "-1");
    elements[to].setAttribute("tabindex", "0");
    elements[to].focus();
  });
}
