// The words of the glossary, explained where they stand: pointed at, focused or touched.

const words = new Map();
for (const means of document.querySelectorAll("#words dd")) {
  for (const word of means.previousElementSibling.textContent.split(", ")) words.set(plainName(word.toLowerCase()), means);
}
// These have their everyday sense more often than not.
for (const word of ["loop", "full", "split", "stage", "policy", "rank"]) words.delete(word);
const longestFirst = [...words.keys()].sort((a, b) => b.length - a.length);
const wordPattern = new RegExp("(?<![\\w.-])(" + longestFirst.join("|").replace(/ /g, "[ _]") + ")(s?)(?![\\w-])", "i");
const WITHIN = "script, style, svg, button, a, code, pre, summary, label, h1, h2, #words, .plot, [aria-hidden]";

/** Marks the first of each word in an element. */
function explain(root) {
  if (root.closest(WITHIN)) return;
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT,
    node => node.parentElement.closest(WITHIN) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  const texts = [], seen = new Set();
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (let text of texts) {
    let from = 0, match;
    while ((match = wordPattern.exec(text.data.slice(from)))) {
      const word = plainName(match[1].toLowerCase()), at = from + match.index;
      from = at + match[0].length;
      if (seen.has(word)) continue;
      seen.add(word);
      const rest = text.splitText(at);
      text = rest.splitText(match[0].length);
      rest.replaceWith(term(match[0], word));
      from = 0;
    }
  }
}

function term(shown, word) {
  const means = words.get(word);
  const button = make("button", { type: "button", class: "term", "aria-describedby": means.id }, shown);
  const tell = () => {
    const box = button.getBoundingClientRect();
    showTip([word, means.textContent], box.left - 12, box.bottom - 10);
  };
  for (const event of ["focus", "click", "pointerenter"]) button.addEventListener(event, tell);
  for (const event of ["blur", "pointerleave"]) button.addEventListener(event, hideTip);
  button.addEventListener("keydown", event => { if (event.key === "Escape") hideTip(); });
  return button;
}
