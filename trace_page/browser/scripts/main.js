// Where the page's script begins: it shows what the address asks for, then listens.
import { forgetPendingAddress, parameters, stepOfAddress } from "./address.js";
import { $ } from "./elements.js";
import { listen } from "./keys.js";
import { showFold } from "./outputs.js";
import { follow } from "./panel.js";
import { hasRanks } from "./recording.js";
import { lastPart, state, trace, view } from "./state.js";
import { keepCurrentInView, showStep } from "./step_view.js";
import { stepForLine } from "./stepping.js";
import { applyTheme, applyView } from "./view.js";

function readAddress() {
  const query = new URLSearchParams(location.search);
  for (const [name, parameter] of Object.entries(parameters)) {
    view[name] = (query.get(parameter) === "1") !== (name === "values");
  }
  applyView();
  const rank = query.get("rank") ?? "";
  if (hasRanks && (rank || state.followed !== null)) follow(rank && $(`[data-rank="${CSS.escape(rank)}"]`) ? Number(rank) : null);
  state.step = stepOfAddress(query.get("step") ?? "");
  const line = Number(query.get("line"));
  const file = query.has("source") ? trace.files.indexOf(query.get("source")) : 0;
  const target = line && file >= 0 ? stepForLine(file, line) : -1;
  if (target >= 0) state.step = target;
  state.part = lastPart(state.step);
  // An address that asks for no step opens at the top, where the contents are; one with a fragment, there.
  const anchor = query.has("line") ? null : document.getElementById(location.hash.slice(1));
  const asked = query.has("step") || query.has("line");
  showStep(asked && !anchor);
  if (anchor) anchor.scrollIntoView();
  else if (!asked && document.readyState !== "loading") scrollTo(0, 0); // While loading it is there, unmeasured
}

addEventListener("popstate", () => {
  forgetPendingAddress();
  readAddress();
});
addEventListener("toggle", showFold, true);
addEventListener("room", keepCurrentInView);
if (matchMedia("(max-width: 999.98px)").matches) $("nav details").open = false;
history.scrollRestoration = "manual";
applyTheme();
showFold();
readAddress();
listen();
