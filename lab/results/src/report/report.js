// Every run of the page: its drawing, its moment, its search; then the words that are explained.

const views = [];
for (const section of document.querySelectorAll("section[data-run]")) {
  const run = new Run(JSON.parse(document.getElementById(section.dataset.run).textContent));
  if (!run.count) continue;
  const moment = new MomentView(run);
  const timeline = new TimelineView(run, (i, block) => moment.show(i, block));
  moment.onMove = i => timeline.go(i, true);
  moment.onBlock = block => timeline.trace(block);
  const search = new Search(run, found => { timeline.paint(); moment.again(); }, i => timeline.go(i, true));
  section.querySelector(".stage").append(timeline.element, search.element, moment.element);
  views.push(timeline);
}
// Runs side by side share one scale.
if (document.querySelector(".beside")) {
  const highest = Math.max(...views.map(view => view.run.highest));
  views.forEach(view => { view.scale = highest; });
}
views.forEach(view => view.start());
for (const block of document.querySelectorAll("main > *, article > *")) explain(block);
document.documentElement.dataset.ready = "yes";
