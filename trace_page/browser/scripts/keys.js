// What keys, buttons and links do.
import { parameters, replaceAddress } from "./address.js";
import { toggleContents } from "./contents.js";
import { $ } from "./elements.js";
import { foldOutputs } from "./outputs.js";
import { follow } from "./panel.js";
import { pause, togglePlay } from "./play.js";
import { hasRanks } from "./recording.js";
import { last, root, state, trace } from "./state.js";
import { keepCurrentInView, showStep } from "./step_view.js";
import { go, move, stepForLine } from "./stepping.js";
import { nextTheme, toggle } from "./view.js";

const keys = {
  ArrowLeft: "back", h: "back", ArrowRight: "next", l: "next", k: "overBack", j: "overNext", u: "out",
  c: "nextCommunication", s: "nextSection", g: "goto", " ": "play", m: "contents",
  a: "animate", r: "raw", e: "values", n: "notes", o: "outputs", t: "theme", "?": "help",
};
const shifted = { ArrowLeft: "overBack", ArrowRight: "overNext", c: "lastCommunication" };

function act(name, held) {
  if (name === "play") {
    togglePlay();
    return;
  }
  pause();
  if (name in parameters) toggle(name);
  else if (name === "outputs") {
    foldOutputs();
    keepCurrentInView();
  } else if (name === "theme") nextTheme();
  else if (name === "help") $("#keys").showModal();
  else if (name === "goto") askWhere();
  else if (name === "contents") toggleContents();
  else move(name, held);
}

// Going to a line or a step

const dialog = $("#goto");
const wanted = dialog.querySelector("input");

function askWhere() {
  dialog.querySelector("output").textContent = "";
  dialog.showModal();
  wanted.select();
}

dialog.querySelector("form").addEventListener("submit", (event) => {
  if (event.submitter?.value === "cancel") return;
  const [, kind, text] = /^\s*(step|s|line|l)?\s*(\d+)\s*$/i.exec(wanted.value) ?? [];
  const number = Number(text);
  const isStep = /^s/i.test(kind ?? "");
  const target = text === undefined ? -1 : isStep ? (number <= last ? number : -1) : stepForLine(trace.file[state.step], number);
  if (target < 0) {
    event.preventDefault();
    dialog.querySelector("output").textContent = `Write a line of this file, or "step" and a number up to ${last}.`;
    return;
  }
  go(target);
});

function choose(rank) {
  pause();
  follow(rank === state.followed ? null : rank);
  showStep(false);
  replaceAddress();
}

function focusNeighbour(from, direction) {
  const numbers = [...document.querySelectorAll("a.no")].filter((link) => link.offsetParent);
  numbers[numbers.indexOf(from) + direction]?.focus();
}

export function listen() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
    if (event.target.matches?.(".no") && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      focusNeighbour(event.target, event.key === "ArrowDown" ? 1 : -1);
      event.preventDefault();
      return;
    }
    if (event.key === "Escape" && root.hasAttribute("data-contents")) {
      toggleContents(false);
      return;
    }
    if (hasRanks && (event.key === "Escape" || /^[0-9]$/.test(event.key)) && !event.shiftKey) {
      const rank = event.key === "Escape" ? state.followed : Number(event.key);
      if (rank === null || !$(`[data-rank="${rank}"]`)) return;
      event.preventDefault();
      choose(rank);
      return;
    }
    // The space bar presses what has the focus, and letters choose in a list.
    if (event.key === " " && event.target.closest?.("a, button, summary, select, input")) return;
    if (event.target.matches?.("select")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const name = (event.shiftKey && shifted[key]) || keys[key];
    if (!name) return;
    event.preventDefault();
    act(name, event.repeat);
  });

  addEventListener("click", (event) => {
    const pressed = event.target.closest("[data-do]");
    if (pressed) {
      act(pressed.dataset.do, false);
      return;
    }
    const choice = event.target.closest("[data-rank]");
    if (choice) {
      choose(choice.dataset.rank === "" ? state.followed : Number(choice.dataset.rank));
      return;
    }
    const link = event.target.closest("a[data-line], span.no");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const file = Number(link.dataset.file ?? link.closest("[data-file]").dataset.file);
    const target = stepForLine(file, Number(link.dataset.line ?? link.textContent));
    if (target < 0) return;
    event.preventDefault();
    pause();
    toggleContents(false);
    go(target);
  });

  const slider = $(".controls input");
  let dragging = false;
  slider.addEventListener("input", () => {
    pause();
    go(Number(slider.value), dragging);
    dragging = true;
  });
  slider.addEventListener("change", () => (dragging = false));
}
