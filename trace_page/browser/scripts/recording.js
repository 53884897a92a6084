// What the recording of a real run has of each step.
// Whether the page has a recording.
export const hasRanks = document.querySelector("#ranks") !== null;

// Read when the first step asks for it: the page is ready sooner.
let table;
export function recorded() {
  table ??= JSON.parse(document.querySelector("#ranks").textContent);
  return table;
}

// What the recording has of a step: [call, bounds of each rank's turn, moves, where the other ranks are].
export const recordedAt = (step) => (hasRanks ? recorded().steps[step] : undefined);

// How many ranks execute the program of a step; 0 outside programs.
export function ranksAt(step) {
  const found = recordedAt(step);
  return found ? recorded().calls[found[0]].ranks.length : 0;
}

const COLOURS = 8;
export const colour = (rank) => `r${rank % COLOURS}`;

// Keys (call.rank.step) of what the ranks executed at this step.
export function turns(step) {
  const [call, bounds] = recordedAt(step) ?? [0, []];
  const keys = [];
  for (let rank = 0; rank * 2 < bounds.length; rank++) {
    const [first, last] = bounds.slice(rank * 2, rank * 2 + 2);
    for (let own = first; first >= 0 && own <= last; own++) keys.push(`${call}.${rank}.${own}`);
  }
  return keys;
}

// Whether a rank executes the line of a step; of a step outside recorded programs, all do.
export function executes(step, rank) {
  const found = recordedAt(step);
  return !found || rank >= recorded().calls[found[0]].ranks.length || found[1][rank * 2] >= 0;
}
