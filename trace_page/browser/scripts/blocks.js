// Functions as blocks: below the line that first calls them, or in raw mode where the file has them.
import { all } from "./elements.js";
import { rowId, trace, view } from "./state.js";

const blocks = all("[data-home]").map((home) => {
  const block = document.getElementById(home.dataset.home);
  const away = document.createComment("");
  block.before(away);
  return { home, block, away };
});

let atHome = false;
export function placeBlocks() {
  if (atHome === view.raw) return;
  atHome = view.raw;
  for (const { home, block, away } of blocks) {
    (atHome ? home : away).after(block);
    if (atHome) block.open = true;
  }
}

export function unfold(row) {
  for (let fold = row.closest("details:not([open])"); fold; fold = fold.parentElement.closest("details:not([open])")) fold.open = true;
}

// When a call is over, the reader stays at the end of its block instead of leaping up to the line that called.
export function endOfCallLeftAt(number, row) {
  if (view.raw || number < 1 || trace.out[number - 1] !== number) return null;
  const from = document.getElementById(rowId(trace.file[number - 1], trace.line[number - 1]));
  let left = null;
  for (let block = from?.closest(".called"); block && !block.contains(row); block = block.parentElement.closest(".called")) {
    left = block;
  }
  let above = left?.previousElementSibling;
  while (above && !above.classList.contains("row")) above = above.previousElementSibling;
  return left && above === row ? left.querySelector(":scope > .ends") : null;
}
