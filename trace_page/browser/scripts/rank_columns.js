// The columns of the panel: what every rank holds at a step of its program.
import { drawMove } from "./communication.js";
import { element, plain, upTo } from "./elements.js";
import { drawRecorded } from "./recorded_values.js";
import { colour, recorded, recordedAt } from "./recording.js";
import { kindOf } from "./values.js";

const NEVER = -1;

// The nodes of the panel and where its values are from; nothing for a step that was not recorded.
export function drawRanks(step, followed) {
  const found = recordedAt(step);
  if (!found) return null;
  const [number, bounds, moves, elsewhere] = found;
  const call = recorded().calls[number];
  const world = call.ranks.length;
  const all = call.ranks.map((_, rank) => rank);
  const shown = followed !== null && followed < world ? [followed] : all;
  const nodes = moves.map((index) => drawMove(recorded().moves[index], world, followed));
  if (followed !== null && followed >= world) {
    nodes.unshift(element("p", "kind", `This program has no rank ${followed}: it ran on ${world} ranks.`));
  }
  const columns = element("table", "columns-of-ranks", drawHead(shown, bounds, elsewhere), ...drawRows(call, bounds, shown));
  columns.style.minWidth = `${shown.length * 4.8}rem`;
  nodes.push(columns);
  return { nodes, from: `${world} ranks, recorded run` };
}

// In order of appearance; neighbours that are short and the same on all ranks share a row.
function drawRows(call, bounds, shown) {
  const rows = [];
  let line = null;
  for (const name of call.names) {
    const states = shown.map((rank) => stateAfter(call.ranks[rank][name], bounds[rank * 2], bounds[rank * 2 + 1]));
    if (states.every(({ index }) => index < 0)) continue;
    const value = recorded().values[states[0].index];
    const equal = states.every(({ index }) => index === states[0].index);
    const text = equal ? drawRecorded(value) : null;
    if (text?.className !== "plain" || !isRead(value) || value.s || text.textContent.length > 24) {
      line = null;
      rows.push(equal ? drawOnce(name, value, text, states, shown) : drawRow(name, states, shown));
      continue;
    }
    if (!line) {
      line = element("td", "same short");
      line.colSpan = shown.length;
      if (shown.length > 1) line.append(element("span", "all", "same on all ranks"));
      rows.push(element("tbody", "", element("tr", "", line)));
    }
    const fresh = states.some((one) => one.fresh);
    line.append(element("span", fresh ? "head fresh" : "head", element("b", "", name), " ", text));
  }
  return rows;
}

// A variable after a rank's turn: the index of its value, -1 if it has none, and whether the turn changed it.
function stateAfter(variable, first, last) {
  const place = variable ? upTo(variable[0], last) : -1;
  if (place < 0) return { index: -1, fresh: false };
  return { index: variable[1][place], fresh: first >= 0 && variable[0][place] >= first };
}

function drawHead(shown, bounds, elsewhere) {
  const cells = shown.map((rank) => {
    const cell = element("th", `of ${colour(rank)}`, element("span", "mark", `rank ${rank}`));
    cell.scope = "col";
    const first = bounds[rank * 2];
    if (first < 0) {
      const so = first === NEVER ? "never executes this line" : "not here now";
      cell.append(element("span", "kind", rank in elsewhere ? `${so}: it is after line ${elsewhere[rank]}` : so));
    }
    return cell;
  });
  return element("thead", "", element("tr", "", ...cells));
}

// Content that the recording has not read can be neither equal nor different.
function isRead(value) {
  if (value.s) return "c" in value || "f" in value;
  return !value.o && (value.c === null || typeof value.c !== "object" || Object.values(value.c).every(isRead));
}

const kind = (value) => (value.r === undefined ? kindOf(value) + (value.v ? `, ${value.v}` : "") : "");

function drawOnce(name, value, drawn, states, shown) {
  const head = element("div", "head", element("b", "", name), element("span", "kind", kind(value)));
  const cell = element("td", "same", head);
  cell.colSpan = shown.length;
  (drawn.className === "plain" ? head : cell).append(drawn);
  if (shown.length > 1 && isRead(value)) head.append(element("span", "all", "same on all ranks"));
  return element("tbody", states.some((one) => one.fresh) ? "fresh" : "", element("tr", "", cell));
}

function drawRow(name, states, shown) {
  const values = states.map(({ index }) => recorded().values[index]);
  const fresh = states.some((one) => one.fresh);
  const head = element("div", "head", element("b", "", name));
  const kinds = values.map((value) => (value ? kind(value) : ""));
  const sameKind = kinds.every((kind) => kind === kinds[0]);
  if (sameKind) head.append(element("span", "kind", kinds[0]));
  const body = element("tbody", fresh ? "fresh" : "");
  const title = element("th", "name", head);
  title.colSpan = shown.length;
  title.scope = "colgroup";
  const drawn = values.map((value) => (value ? drawRecorded(value) : element("span", "kind", "—")));
  const alike = drawn.every((one) => one.textContent === drawn[0].textContent);
  const cells = values.map((value, place) => {
    const cell = element("td", `differs ${colour(shown[place])}${states[place].fresh ? " changed" : ""}`);
    if (value && !sameKind) cell.append(element("div", "kind", kind(value)));
    // Numbers that only differ in digits that are not drawn otherwise.
    cell.append(alike && value?.t === "float" ? plain(`${Number(value.c.toPrecision(12))}`) : drawn[place]);
    return cell;
  });
  body.append(element("tr", "", title), element("tr", "", ...cells));
  return body;
}
