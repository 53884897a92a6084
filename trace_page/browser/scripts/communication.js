// The picture of a communication: what each rank gave, what it got, and in colours where that came from.
import { element } from "./elements.js";
import { colour, recorded } from "./recording.js";
import { drawCells, drawRecorded, shortNumber } from "./recorded_values.js";

const SUM = -1;

export function drawMove({ op, how, root, ranks }, world, followed) {
  const sums = /reduce/.test(op);
  const toOne = ["send", "isend"].includes(op) && ranks.length === 2;
  const head = element("caption", "", element("b", "", toOne ? `${op} → recv` : op));
  const told = [];
  if (how) told.push({ SUM: "sum", AVG: "average" }[how] ?? how);
  if (root !== null) told.push(`root: rank ${root}`);
  const lines = [...new Set(ranks.map(([, line]) => line))];
  if (lines.length > 1) told.push(ranks.map(([rank, line]) => `rank ${rank} in line ${line}`).join(", "));
  told.push(sums ? `grey: made of all ${world} ranks’ numbers` : "colour: the rank it came from");
  head.append(element("span", "kind", ` ${told.join("; ")}`));
  const brief = ranks.some((row) => row[3].some(([, index]) => Array.isArray(recorded().values[index].c) && !recorded().values[index].s));
  const names = [2, 3].map((side) => [...new Set(ranks.flatMap((row) => row[side].map(([name]) => name)))]);
  const heads = ["", "before", "", "after"].map((text, place) => {
    const cell = element(text ? "th" : "td", "", text);
    const named = text ? names[place >> 1] : [];
    if (named.length === 1) cell.append(element("b", "", ` ${named[0]}`));
    if (text) cell.scope = "col";
    return cell;
  });
  const rows = ranks.map(([rank, , before, after, peer], index) => {
    const name = element("th", `of ${colour(rank)}`, element("span", "mark", `rank ${rank}`));
    name.scope = "row";
    const received = after.length ? drawBoxes(after, world, names[1].length > 1, brief) : [element("span", "kind", toOne ? `sent to rank ${peer}` : "—")];
    const sent = before.length ? drawBoxes(before, world, names[0].length > 1, brief) : [element("span", "kind", "—")];
    const cells = [name, element("td", "", ...sent), element("td", "", ...received)];
    // One arrow for a collective, whose ranks act together; else each rank's own.
    if (index === 0 || toOne) cells.splice(2, 0, element("td", "arrow", "→"));
    if (!toOne && index === 0) cells[2].rowSpan = ranks.length;
    return element("tr", rank === followed ? "followed" : "", ...cells);
  });
  return element("table", "moved", head, element("thead", "", element("tr", "", ...heads)), element("tbody", "", ...rows));
}

function drawBoxes(boxes, world, named, brief) {
  return boxes.map(([name, index, origins]) => {
    const value = recorded().values[index];
    const drawn = element("div", "boxes");
    const from = (place) => (Array.isArray(origins) ? origins[place] : origins);
    if (value.s && value.c) drawn.append(...drawCells(value, (place) => tinted("cell", from(place), world)));
    else if (value.s) drawn.append(block(value, from(0), world, brief));
    else if (Array.isArray(value.c)) value.c.forEach((item, place) => drawn.append(block(item, from(place), world, brief)));
    else drawn.append(drawRecorded(value));
    return element("div", "box", ...(named ? [element("span", "kind", name)] : []), drawn);
  });
}

// A tensor as one box: shape, first elements, norm unless there are many boxes.
function block(value, origin, world, brief) {
  const drawn = tinted("block", origin, world);
  const lines = [];
  if (value.s) lines.push(element("span", "kind", value.s.join("×") || "scalar"));
  if (value.f) {
    lines.push(element("span", "", `${shortNumber(value.f[0], value.d)}…`));
    if (!brief && value.q !== undefined) lines.push(element("span", "kind", `norm ${shortNumber(value.q)}`));
  } else if (value.c) lines.push(element("span", "", [value.c].flat().slice(0, 4).map((item) => shortNumber(item, value.d)).join(" ")));
  else lines.push(element("span", "kind", "not recorded"));
  drawn.prepend(...lines);
  return drawn;
}

// A box in the colour of the rank that its content came from; a sum is grey over the colours of all.
function tinted(kind, origin, world) {
  if (origin === SUM) {
    const strip = element("span", "strip");
    for (let rank = 0; rank < world; rank++) strip.append(element("i", colour(rank)));
    return element("span", `${kind} sum`, strip);
  }
  return element("span", origin >= 0 ? `${kind} came ${colour(origin)}` : kind);
}
