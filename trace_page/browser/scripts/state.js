// Where the reader is and how the page is shown, and what the builder has worked out for every step.
import { $, upTo } from "./elements.js";

// See step_table in steps.py.
export const trace = JSON.parse($("#trace").textContent);
export const last = trace.line.length - 1;
export const root = document.documentElement;

// What the address holds: the step, which parts of an @animate step have appeared (counted from 0), the followed rank.
// `notice` is said once, with the next step shown.
export const state = { step: 0, part: 0, followed: null, notice: "" };
export const view = { animate: false, raw: false, values: true, notes: false };

export const lastPart = (number) => (view.animate ? (trace.parts[number] ?? 1) - 1 : 0);
export const rowId = (file, line) => `${file ? `F${file}` : ""}L${trace.rows[file][line] ?? line}`;
export const isRecorded = (number) => Boolean(trace.calls[trace.call[number]].recorded);

let stepsAt;
function stepsByPlace() {
  if (!stepsAt) {
    stepsAt = new Map();
    trace.line.forEach((at, number) => {
      const key = `${trace.file[number]}:${at}`;
      if (!stepsAt.has(key)) stepsAt.set(key, []);
      stepsAt.get(key).push(number);
    });
  }
  return stepsAt;
}

// The step at a line that is nearest to the current one, or -1.
export function nearestStep(file, line) {
  const found = stepsByPlace().get(`${file}:${line}`) ?? stepsByPlace().get(`${file}:${trace.rows[file]?.[line]}`);
  if (!found) return -1;
  const { step } = state;
  const after = found[upTo(found, step - 1) + 1] ?? -1;
  const before = found[upTo(found, step)] ?? -1;
  return after < 0 || (before >= 0 && step - before < after - step) ? before : after;
}

// The first step at a line, or -1.
export function firstStep(file, line) {
  return (stepsByPlace().get(`${file}:${line}`) ?? stepsByPlace().get(`${file}:${trace.rows[file]?.[line]}`))?.[0] ?? -1;
}

// The line nearest to one without a step that has one: below it if there is any, or 0.
export function nearestLine(file, line) {
  let [above, below] = [0, Infinity];
  trace.line.forEach((at, number) => {
    if (trace.file[number] !== file) return;
    if (at > line) below = Math.min(below, at);
    else above = Math.max(above, at);
  });
  return below < Infinity ? below : above;
}
