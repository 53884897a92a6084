// The address of the page: it always leads back to what the reader sees.
import { upTo } from "./elements.js";
import { last, state, trace, view } from "./state.js";

// The view's parameters; "hideEnv" has the opposite sense of `values`.
export const parameters = { animate: "animate", raw: "raw", values: "hideEnv", notes: "showNotes" };

// One history entry a move, but moves of a held key or a dragged slider share one. Browsers refuse more than about 100
// changes in 30 s, so from the 40th on they are put together.
const writes = [];
let pending;
export function writeAddress(push) {
  clearTimeout(pending);
  const now = Date.now();
  while (writes.length && now - writes[0] > 30000) writes.shift();
  if (push && writes.length < 40) {
    writes.push(now);
    history.pushState(null, "", address());
  } else {
    pending = setTimeout(replaceAddress, 600);
  }
}

export function replaceAddress() {
  clearTimeout(pending);
  history.replaceState(null, "", address());
}

export const forgetPendingAddress = () => clearTimeout(pending);

function address() {
  const url = new URL(location.href);
  const query = url.searchParams;
  query.set("step", numberInAddress(state.step));
  query.delete("source");
  query.delete("line");
  for (const [name, parameter] of Object.entries(parameters)) {
    if (view[name] === (name === "values")) query.delete(parameter);
    else query.set(parameter, "1");
  }
  if (state.followed === null) query.delete("rank");
  else query.set("rank", state.followed);
  url.hash = "";
  return url.href.replace(/#$/, "");
}

// Addresses count the steps of the trace, so that they outlive a recording: 12.3 is the third step after step 12.
function numberInAddress(number) {
  if (!trace.traced) return `${number}`;
  const traced = upTo(trace.traced, number);
  const after = number - trace.traced[traced];
  return after ? `${traced}.${after}` : `${traced}`;
}

export function stepOfAddress(text) {
  const [traced, after] = text.split(".").map((part) => Math.trunc(Number(part)) || 0);
  if (!trace.traced) return Math.min(Math.max(traced, 0), last);
  return Math.min(Math.max(traced < 0 ? 0 : (trace.traced[traced] ?? last) + (after ?? 0), 0), last);
}
