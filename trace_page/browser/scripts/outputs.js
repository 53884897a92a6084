// What programs print: marked at the step that printed it, in animate mode shown from then on, by rank.
import { $, all } from "./elements.js";
import { turns } from "./recording.js";
import { isRecorded, state, trace, view } from "./state.js";

export const outputs = all(".output");

// Content to come, in order of the step that reaches it; `reached` of it are shown. A step touches only what changes.
let timeline;
let reached;
export function reveal() {
  if (!view.animate) return;
  if (!timeline) {
    timeline = all("[data-at]").map((element) => [Number(element.dataset.at), element]);
    timeline.sort((one, other) => one[0] - other[0]);
    for (const [, element] of timeline) element.classList.add("future");
    reached = 0;
  }
  const now = state.step + state.part / (trace.parts[state.step] ?? 1);
  while (reached < timeline.length && timeline[reached][0] <= now) timeline[reached++][1].classList.remove("future");
  while (reached > 0 && timeline[reached - 1][0] > now) timeline[--reached][1].classList.add("future");
}

let printed;
const now = [];
export function markOutputs() {
  for (const code of now.splice(0)) code.classList.remove("now");
  if (!isRecorded(state.step)) return;
  if (!printed) {
    printed = new Map();
    for (const code of all("[data-by]")) {
      if (!printed.has(code.dataset.by)) printed.set(code.dataset.by, []);
      printed.get(code.dataset.by).push(code);
    }
  }
  for (const key of turns(state.step)) now.push(...(printed.get(key) ?? []));
  for (const code of now) code.classList.add("now");
}

export function showOutputsOf(rank) {
  for (const output of outputs) {
    const rows = [...output.querySelectorAll(".rank")];
    for (const row of rows) row.hidden = rank !== null && "of" in row.dataset && row.dataset.of !== `${rank}`;
    output.hidden = rows.length > 0 && rows.every((row) => row.hidden);
  }
}

export function showFold() {
  $('[data-do="outputs"]').setAttribute("aria-pressed", outputs.some((output) => output.open));
}

export function foldOutputs() {
  const open = !outputs.some((output) => output.open);
  for (const output of outputs) output.open = open;
  showFold();
}
