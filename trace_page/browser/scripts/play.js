// Play: steps by itself at the chosen pace, and stops at each communication, at the end, and at any other move.
import { $ } from "./elements.js";
import { state, trace } from "./state.js";
import { move } from "./stepping.js";

const pace = $("#pace");
const button = $('[data-do="play"]');
let timer = null;

export function togglePlay() {
  if (timer === null) play();
  else pause();
}

export function pause() {
  if (timer === null) return;
  clearTimeout(timer);
  timer = null;
  show(false);
}

function play() {
  show(true);
  tick();
}

function tick() {
  const before = state.step;
  const goesOn = move("next", true);
  const communicates = state.step !== before && trace.communications.includes(state.step);
  if (!goesOn || communicates) {
    timer = null;
    show(false);
  } else {
    timer = setTimeout(tick, Number(pace.value));
  }
}

function show(playing) {
  button.setAttribute("aria-pressed", playing);
  button.classList.toggle("playing", playing);
}
