// The page: asks while settings change, at most one question at a time, and the latest last. Slow questions wait until the settings rest.

/** Milliseconds without a change before the rest is asked for. */
const REST = 200;

const now = new Answer(byId("now"));
let pinned = null;
let lists = { networks: [] };
let inForce = {}, sizes = {};
let asking = false, stale = false, changed = 0, resting = 0, slow = null;

const settings = new Settings(() => { refresh(); });
const slides = [new Slide("batch", 1, 65536, settings), new Slide("sequence", 16, 131072, settings)];
const files = new Files(settings, problem => now.show({ error: problem }));

function showSettings() {
  const { fields } = settings;
  for (const slide of slides) slide.show(fields[slide.name], sizes[slide.name]);
  for (const name of ["model", "gpu"]) if (document.activeElement !== byId(name)) byId(name).value = fields[name] || "";
  const file = fields["model-file"];
  byId("model").placeholder = file ? file.replace(/^\d+\//, "") : "simple-cnn";
  const known = lists.networks.find(network => network.name === fields.model);
  byId("about").textContent = file ? "From the file that you dropped." : known ? known.description : "";
  settings.show(inForce);
}

/** Asks until the answer is of the settings that there are. */
async function refresh() {
  clearTimeout(resting);
  if (slow) slow.abort();
  showSettings();
  changed = performance.now();
  if (asking) {
    stale = true;
    return;
  }
  asking = true;
  do {
    stale = false;
    const begun = changed, spec = settings.fields;
    let found;
    try {
      found = await ask({ ask: "predict", spec });
    } catch (problem) {
      found = { error: "The server does not answer: " + problem.message };
    }
    if (stale) continue;
    if (found.result) ({ sizes, result: { settings: inForce } } = found);
    now.show(found);
    if (pinned) shareScale();
    showSettings();
    painted(() => { document.documentElement.dataset.ms = (performance.now() - begun).toFixed(1); });
    if (!found.error) resting = setTimeout(() => askSlowly(found, { ...spec }), REST);
  } while (stale);
  asking = false;
}

/** Calls once what was changed is on the screen. */
function painted(then) {
  requestAnimationFrame(() => setTimeout(then));
}

/** The rest of the answer, changes to try, and the curve, of settings that rest. */
async function askSlowly(answer, spec) {
  slow = new AbortController();
  const { signal } = slow, begun = performance.now();
  now.settle(answer, spec);
  try {
    now.refine((await ask({ ask: "picture", spec }, signal)).picture);
    const found = await ask({ ask: "try", spec }, signal);
    now.showTries(found, fields => settings.take(fields));
    document.documentElement.dataset.tries = (performance.now() - begun).toFixed(1);
    const curves = [];
    for (const over of ["batch", ...(sizes.sequence ? ["sequence"] : [])]) {
      const { chart } = await ask({ ask: "curve", spec, over }, signal);
      curves.push(chart || "");
    }
    now.showCurves(curves);
  } catch (problem) {
    if (problem.name !== "AbortError") throw problem;
  }
}

/** Runs side by side share one scale. */
function shareScale() {
  const views = [now.view, pinned && pinned.view].filter(view => view);
  const highest = Math.max(...views.map(view => view.run.highest));
  views.forEach(view => {
    view.scale = views.length > 1 ? highest : 0;
    view.paint();
  });
}

/** Keeps the settings beside those that change from now on. */
async function compare(fields) {
  const place = byId("pinned");
  place.replaceChildren();
  pinned = null;
  place.hidden = !fields;
  byId("compare").textContent = fields ? "Compare with these instead" : "Compare";
  if (!fields) return shareScale();
  const button = (label, act) => {
    const element = make("button", { type: "button" }, label);
    element.addEventListener("click", act);
    return element;
  };
  place.append(make("div", { class: "tools" }, button("Take these settings", () => settings.take(fields)), button("Close", () => compare(null))));
  pinned = new Answer(place);
  const answer = await ask({ ask: "predict", spec: fields });
  pinned.show(answer);
  if (!answer.error) {
    pinned.settle(answer, fields);
    pinned.refine((await ask({ ask: "picture", spec: fields })).picture);
  }
  shareScale();
}

for (const name of ["model", "gpu"]) byId(name).addEventListener("change", event => settings.set(name, event.target.value.trim()));
byId("settings").addEventListener("submit", event => event.preventDefault());
byId("compare").addEventListener("click", () => compare({ ...settings.fields }));
byId("reset").addEventListener("click", () => settings.take({ model: "gpt2", gpu: "rtx4090" }));
addEventListener("hashchange", () => settings.take(Settings.read(location.hash.slice(1))));

(async () => {
  lists = await ask({ ask: "lists" });
  byId("networks").append(...lists.networks.map(one => make("option", { value: one.name, label: one.description })));
  byId("cards").append(...lists.cards.map(one => make("option", { value: one.name, label: `${one.title}, ${short(one.bytes)}` })));
  byId("drop").hidden = !lists.files;
  settings.offer(lists.groups);
  byId("techniques").open = innerWidth > 860;
  const link = location.hash.slice(1);
  settings.take(link ? Settings.read(link) : { model: "gpt2", gpu: "rtx4090" });
})();
