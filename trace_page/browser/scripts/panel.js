// The panel of values: what the step's call has inspected, or what every rank holds, and which rank is followed.
import { $, all, element, upTo } from "./elements.js";
import { showOutputsOf } from "./outputs.js";
import { drawRanks } from "./rank_columns.js";
import { hasRanks, ranksAt } from "./recording.js";
import { isRecorded, root, rowId, state, trace, view } from "./state.js";
import { drawValue, kindOf } from "./values.js";

const panel = $("aside");
const choices = all("[data-rank]");

export function showPanel() {
  if (!view.values) return;
  const { step, followed } = state;
  const call = trace.calls[trace.call[step]];
  const recorded = isRecorded(step) && drawRanks(step, followed);
  const drawn = recorded ? recorded.nodes : [];
  for (const [name, [at, what]] of Object.entries(recorded ? {} : call.values)) {
    const index = upTo(at, step);
    if (index < 0 || what[index] < 0) continue;
    drawn.push(drawVariable(name, trace.values[what[index]], at[index] === step));
  }
  if (drawn.length) $(".values").replaceChildren(...drawn);
  else $(".values").replaceChildren(element("p", "kind", "Nothing inspected in this call so far."));
  showFresh(recorded);
  $(".from").textContent = recorded ? recorded.from : hasRanks ? "traced, in one process" : "";
  panel.classList.toggle("of-ranks", Boolean(recorded));
  panel.classList.toggle("empty", !drawn.length);
  giveRoom(!drawn.length);
  offerRanks(recorded ? ranksAt(step) : 0);
  showCalls(call);
}

// Where there are no values the text has the panel's room too. That lays out the whole page, so it waits for the next
// frame: the step itself is shown at once.
let roomTimer = 0;
function giveRoom(nothing) {
  cancelAnimationFrame(roomTimer);
  if (root.hasAttribute("data-nothing") === nothing) return;
  if (document.readyState === "loading") {
    root.toggleAttribute("data-nothing", nothing);
    return;
  }
  roomTimer = requestAnimationFrame(() => {
    root.toggleAttribute("data-nothing", nothing);
    dispatchEvent(new Event("room"));
  });
}

function showCalls(call) {
  const frames = [];
  for (const [file, line, name] of call.frames) {
    const link = element("a", "", file >= 0 ? `${name}:${line}` : name);
    if (file >= 0) {
      link.href = `#${rowId(file, line)}`;
      link.dataset.file = file;
      link.dataset.line = line;
    }
    frames.push(link, " → ");
  }
  $(".where").replaceChildren(...frames, element("b", "", trace.functions[trace.function[state.step]]));
}

// Buttons for the ranks that the program has; a reader who follows one anywhere can stop.
let offered;
function offerRanks(count) {
  const known = `${count} ${state.followed}`;
  if (!hasRanks || offered === known) return;
  offered = known;
  for (const choice of choices) {
    const rank = choice.dataset.rank === "" ? null : Number(choice.dataset.rank);
    choice.hidden = rank === null ? count < 2 && state.followed === null : rank !== state.followed && (count < 2 || rank >= count);
  }
}

// What a communication moved stands at the top; else what the line changed may stand below the panel's edge.
// While the page loads the panel is at its top, and asking would lay out the whole page.
function showFresh(recorded) {
  if (recorded || document.readyState !== "loading") panel.scrollTop = 0;
  const fresh = recorded && !panel.querySelector(".moved") && panel.querySelector(".fresh");
  if (!fresh) return;
  const below = fresh.getBoundingClientRect().bottom - panel.getBoundingClientRect().bottom;
  if (below > 0) panel.scrollTop = below + 12;
}

function drawVariable(name, value, fresh) {
  const head = element("div", "head", element("b", "", name));
  const drawn = element("div", fresh ? "value fresh" : "value", head);
  head.append(element("span", "kind", kindOf(value)));
  const body = drawValue(value);
  (body.className === "plain" ? head : drawn).append(body);
  return drawn;
}

export function follow(rank) {
  state.followed = rank;
  for (const choice of choices) choice.setAttribute("aria-pressed", choice.dataset.rank === `${rank ?? ""}`);
  showOutputsOf(rank);
}

// On a phone the panel is a sheet at the bottom that its grip draws up and down.
const grip = $(".grip");
let drawnFrom = null;
grip.addEventListener("pointerdown", (event) => {
  drawnFrom = { y: event.clientY, height: panel.offsetHeight, moved: false };
  grip.setPointerCapture(event.pointerId);
});
grip.addEventListener("pointermove", (event) => {
  if (!drawnFrom) return;
  drawnFrom.moved ||= Math.abs(event.clientY - drawnFrom.y) > 4;
  if (drawnFrom.moved) setSheet(drawnFrom.height + drawnFrom.y - event.clientY);
});
grip.addEventListener("click", () => {
  // A drag ends in a click too.
  if (!drawnFrom?.moved) setSheet(panel.offsetHeight > innerHeight * 0.5 ? innerHeight * 0.12 : panel.offsetHeight > innerHeight * 0.2 ? innerHeight * 0.75 : innerHeight * 0.34);
  drawnFrom = null;
});

function setSheet(height) {
  const limited = Math.round(Math.min(Math.max(height, 48), innerHeight * 0.8));
  panel.style.height = panel.style.maxHeight = `${limited}px`;
}
