// The settings: what was chosen, as fields of a run; their controls; and the part of the address after `#`, which has them all.

const token = new URLSearchParams(location.search).get("token") || "";

/** One question to the engine. */
async function ask(question, signal) {
  const response = await fetch("api", {
    method: "POST", signal, body: JSON.stringify(question),
    headers: { "Content-Type": "application/json", "X-Vramlab-Token": token },
  });
  return response.json();
}

const byId = id => document.getElementById(id);

/** Sizes that a slider stops at: powers of two, and the middle between. */
function stops(least, most) {
  const all = [];
  for (let size = least; size <= most; size *= 2) {
    all.push(size);
    if (size > 1 && size * 1.5 < most) all.push(size * 1.5);
  }
  return all;
}

/** A size as a slider and a box for exact numbers. */
class Slide {
  constructor(name, least, most, settings) {
    this.name = name;
    this.stops = stops(least, most);
    this.row = byId("slide-" + name);
    this.slider = byId(name + "-slider");
    this.box = byId(name);
    this.slider.min = 0;
    this.slider.max = this.stops.length - 1;
    this.slider.addEventListener("input", () => {
      this.box.value = this.stops[this.slider.value];
      settings.set(name, this.box.value);
      this.tell();
    });
    this.box.addEventListener("input", () => {
      settings.set(name, this.box.value);
      this.place(+this.box.value);
    });
  }

  /** Shows a value; without one, the value in force. */
  show(value, inForce) {
    this.row.hidden = value === undefined && !inForce && this.name === "sequence";
    if (document.activeElement !== this.box) this.box.value = value === undefined ? "" : value;
    this.box.placeholder = inForce || "";
    if (document.activeElement !== this.slider) this.place(+(value || inForce || 1));
    this.tell();
  }

  place(size) {
    const at = this.stops.findIndex(stop => stop >= size);
    this.slider.value = at < 0 ? this.stops.length - 1 : at;
  }

  tell() {
    this.slider.setAttribute("aria-valuetext", this.box.value || this.box.placeholder || "the usual");
  }
}

/** The fields of a run that were set, by name. */
class Settings {
  constructor(onChange) {
    this.fields = {};
    this.onChange = onChange;
    this.controls = new Map();
  }

  set(name, value) {
    if (value === "" || value === false || value === undefined) delete this.fields[name];
    else this.fields[name] = value;
    if (name === "model") delete this.fields["model-file"];
    if (name === "model-file") delete this.fields.model;
    this.changed();
  }

  /** Takes these fields instead. */
  take(fields) {
    this.fields = { ...fields };
    this.changed();
  }

  changed() {
    history.replaceState(null, "", location.pathname + location.search + "#" + this.text());
    this.onChange();
  }

  text() {
    return new URLSearchParams(Object.entries(this.fields).map(([name, value]) => [name, Array.isArray(value) ? JSON.stringify(value) : value])).toString();
  }

  /** Reads the part of an address after `#`. */
  static read(text) {
    const fields = {};
    for (const [name, value] of new URLSearchParams(text)) {
      if (value) fields[name] = value === "true" ? true : /^\[.*\]$/.test(value) ? JSON.parse(value) : value;
    }
    return fields;
  }

  /** Makes the controls of fields, by task: the first are open. */
  offer(groups) {
    const place = byId("fields");
    groups.forEach((group, i) => {
      const box = i ? make("details", {}, make("summary", {}, group.task)) : make("div");
      for (const field of group.fields) box.append(this.control(field));
      place.append(box);
    });
  }

  control(field) {
    const id = "field-" + field.name;
    const label = make("label", { for: id, title: field.help }, plainName(field.name).replace(/-/g, " "));
    const only = field.suggested.length === 1 && field.suggested[0];
    let input, read;
    if (field.kind === "switch" || only) {
      input = make("input", { id, type: "checkbox" });
      if (only) label.append(": " + only);
      read = () => input.checked && (only || true);
      this.controls.set(field.name, value => { input.checked = only ? value === only : !!value; });
    } else if (field.closed) {
      input = make("select", { id }, make("option", { value: "" }, ""), ...field.values.map(value => make("option", { value }, value)));
      read = () => input.value;
      this.controls.set(field.name, (value, inForce) => {
        input.value = value === undefined ? "" : value;
        input.options[0].textContent = inForce ? `${inForce} (as it is)` : "as it is";
      });
    } else {
      input = make("input", { id, spellcheck: "false", ...(field.kind === "number" ? { type: "number", step: "any", inputmode: "decimal" } : {}) });
      read = () => input.value.trim();
      this.controls.set(field.name, (value, inForce) => {
        if (document.activeElement !== input) input.value = value === undefined ? "" : value;
        input.placeholder = inForce === undefined || inForce === null || inForce === false ? "" : inForce;
      });
    }
    input.addEventListener(input.type === "checkbox" || input.tagName === "SELECT" ? "change" : "input", () => this.set(field.name, read()));
    const row = make("div", { class: input.type === "checkbox" ? "row switch" : "row" });
    const known = field.closed ? [] : only ? [] : [...field.values, ...field.suggested];
    if (known.length) {
      input.setAttribute("list", id + "-values");
      row.append(make("datalist", { id: id + "-values" }, ...known.map(value => make("option", { value }))));
    }
    row.append(...(input.type === "checkbox" ? [input, label] : [label, input]));
    // What a field means is said while it has the focus: a finger has no hover.
    const help = make("p", { class: "note", id: id + "-help", hidden: "" }, field.help);
    input.setAttribute("aria-describedby", help.id);
    row.append(help);
    row.addEventListener("focusin", () => { help.hidden = false; });
    row.addEventListener("focusout", () => { help.hidden = true; });
    return row;
  }

  /** Shows what was set, and what is in force where nothing was. */
  show(inForce) {
    for (const [name, show] of this.controls) show(this.fields[name], inForce[name]);
  }
}
