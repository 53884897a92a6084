// How the page is shown: animate, raw, values, notes, outputs, theme.
import { parameters, replaceAddress } from "./address.js";
import { placeBlocks } from "./blocks.js";
import { $ } from "./elements.js";
import { root, state, lastPart, view } from "./state.js";
import { showStep } from "./step_view.js";

export function applyView() {
  placeBlocks();
  for (const name of Object.keys(parameters)) {
    root.toggleAttribute(`data-${name}`, view[name]);
    $(`[data-do="${name}"]`).setAttribute("aria-pressed", view[name]);
  }
}

export function toggle(name) {
  view[name] = !view[name];
  applyView();
  state.part = lastPart(state.step);
  showStep();
  replaceAddress();
}

const themes = ["auto", "light", "dark"];
let theme = "auto";
try {
  theme = localStorage.getItem("theme") ?? "auto";
} catch {
  // No storage for this file: the choice lasts as long as the page.
}

export function applyTheme() {
  if (!themes.includes(theme)) theme = "auto";
  root.dataset.theme = theme;
  const label = `Theme: ${theme === "auto" ? "as the system" : theme}`;
  const button = $('[data-do="theme"]');
  button.setAttribute("aria-label", label);
  button.title = `${label} (T)`;
}

export function nextTheme() {
  // The first press always changes something: from the system's theme to the other one.
  const order = matchMedia("(prefers-color-scheme: dark)").matches ? themes : [themes[0], themes[2], themes[1]];
  theme = order[(order.indexOf(theme) + 1) % order.length];
  applyTheme();
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // As above.
  }
}
