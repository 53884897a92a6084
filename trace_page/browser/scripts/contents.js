// The table of contents: the entry that the reader is at, the first steps of its sections, and its place over the page.
import { $, all } from "./elements.js";
import { firstStep, root } from "./state.js";

const entries = all("nav a[data-line]").map((link) => [Number(link.dataset.file), Number(link.dataset.line), link]);

// The entry under which a line stands is the last one above it in the source.
let currentEntry;
export function markContents(file, line) {
  let [above, entry] = [0, null];
  for (const [ofFile, from, link] of entries) {
    if (ofFile === file && from <= line && from > above) [above, entry] = [from, link];
  }
  if (entry === currentEntry) return;
  currentEntry?.removeAttribute("aria-current");
  entry?.setAttribute("aria-current", "true");
  currentEntry = entry;
}

let found;
export function sections() {
  found ??= [...new Set(entries.map(([file, line]) => firstStep(file, line)))].filter((step) => step >= 0).sort((one, other) => one - other);
  return found;
}

// In a window with no room for it beside the text, the contents come over the page when asked for.
export function toggleContents(open = !root.hasAttribute("data-contents")) {
  root.toggleAttribute("data-contents", open);
  $('[data-do="contents"]').setAttribute("aria-expanded", open);
  if (open) {
    $("nav details").open = true;
    (currentEntry ?? $("nav a"))?.focus({ preventScroll: true });
    currentEntry?.scrollIntoView({ block: "nearest" });
  }
}
