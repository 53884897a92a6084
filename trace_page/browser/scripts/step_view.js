// Showing the current step: its row, its values, its outputs, and where it is.
import { endOfCallLeftAt, unfold } from "./blocks.js";
import { markContents } from "./contents.js";
import { $, all } from "./elements.js";
import { markOutputs, reveal } from "./outputs.js";
import { showPanel } from "./panel.js";
import { last, lastPart, rowId, state, trace } from "./state.js";
import { moreParts, targetOf } from "./stepping.js";

const slider = $(".controls input");
const status = $(".status");
const MOVES = ["back", "next", "overBack", "overNext", "out", "lastCommunication", "nextCommunication", "nextSection"];
const buttons = MOVES.flatMap((name) => all(`[data-do="${name}"]`).map((button) => [name, button]));

let currentRow;
let currentEnd;
export function showStep(scroll = true) {
  const { step, part, followed } = state;
  const file = trace.file[step];
  const row = document.getElementById(rowId(file, trace.line[step]));
  if (currentRow !== row) {
    if (currentRow) mark(currentRow, false);
    currentRow = row;
    if (row) mark(row, true);
  }
  currentEnd?.classList.remove("current");
  currentEnd = row && endOfCallLeftAt(step, row);
  currentEnd?.classList.add("current");
  reveal();
  showPanel();
  markOutputs();
  slider.value = step;
  const parts = lastPart(step);
  const place = `${file ? `${trace.files[file]} ` : ""}line ${trace.line[step]}`;
  status.textContent =
    `${state.notice}Step ${step} of ${last}, ${place}, ${trace.functions[trace.function[step]]}` +
    (parts ? `, part ${part + 1} of ${parts + 1}` : "") +
    (followed === null ? "" : `, rank ${followed}`);
  state.notice = "";
  slider.setAttribute("aria-valuetext", status.textContent);
  for (const [name, button] of buttons) button.setAttribute("aria-disabled", !moreParts(name) && targetOf(name) < 0);
  markContents(file, trace.line[step]);
  if (row && scroll) keepCurrentInView();
}

function mark(row, on) {
  row.classList.toggle("current", on);
  if (on) row.setAttribute("aria-current", "step");
  else row.removeAttribute("aria-current");
  for (const number of row.querySelectorAll(".no[href]")) number.tabIndex = on ? 0 : -1;
}

export function keepCurrentInView() {
  const shown = currentEnd ?? currentRow;
  if (!shown) return;
  unfold(shown);
  const panel = $("aside");
  const top = getComputedStyle($("header")).position === "sticky" ? $("header").offsetHeight : 0;
  const covered = getComputedStyle(panel).position === "fixed" ? panel.offsetHeight : 0;
  const bottom = innerHeight - covered;
  const box = shown.getBoundingClientRect();
  if (box.top >= top + 8 && (box.bottom <= bottom - 24 || box.top <= top + (bottom - top) * 0.35)) return;
  scrollBy(0, box.top - top - (bottom - top) * 0.3);
}
