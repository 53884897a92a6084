// Moving from step to step: in order, over calls, to the next communication or section.
import { writeAddress } from "./address.js";
import { sections } from "./contents.js";
import { executes } from "./recording.js";
import { showStep } from "./step_view.js";
import { last, lastPart, nearestLine, nearestStep, state, trace } from "./state.js";

// Where a move leads, or -1. A reader who follows a rank passes over what that rank does not execute.
export function targetOf(name) {
  if (name === "nextSection") return sections().find((step) => step > state.step) ?? -1;
  let target = state.step;
  do {
    if (name === "back") target -= 1;
    else if (name === "next") target = target < last ? target + 1 : -1;
    else if (name === "nextCommunication") target = trace.communications.find((step) => step > target) ?? -1;
    else if (name === "lastCommunication") target = trace.communications.findLast((step) => step < target) ?? -1;
    else target = trace[name][target];
  } while (target >= 0 && state.followed !== null && !executes(target, state.followed));
  return target;
}

const forward = (name) => name === "next" || name === "overNext";
const backward = (name) => name === "back" || name === "overBack";

// Whether there are parts of this step left to show, or to take away.
export function moreParts(name) {
  return forward(name) ? state.part < lastPart(state.step) : backward(name) && state.part > 0;
}

// Whether there was somewhere to go.
export function move(name, held) {
  if (moreParts(name)) {
    state.part += forward(name) ? 1 : -1;
    showStep();
    return true;
  }
  const target = targetOf(name);
  if (target >= 0) go(target, held, forward(name) ? 0 : undefined);
  return target >= 0;
}

export function go(target, held = false, firstPart = undefined) {
  state.step = Math.min(Math.max(target, 0), last);
  state.part = Math.min(firstPart ?? Infinity, lastPart(state.step));
  showStep();
  writeAddress(!held);
}

// The step to show for a line: its nearest one, else that of the nearest line that has one, and then the page says so.
export function stepForLine(file, line) {
  const found = nearestStep(file, line);
  if (found >= 0) return found;
  const nearest = nearestLine(file, line);
  if (nearest) state.notice = `Line ${line} has no step, line ${nearest} has. `;
  return nearest ? nearestStep(file, nearest) : -1;
}
