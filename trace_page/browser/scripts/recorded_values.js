// A recorded value as the columns of ranks show it: small tensors whole, of large ones the first elements and the norm.
import { element, plain } from "./elements.js";
import { drawValue, number } from "./values.js";

const MOST = 16;

export const shortNumber = (value, dtype = "float") => number(value, dtype, 2, (value) => `${Number(value.toPrecision(4))}`);

// `brief`: of a tensor that is not whole only the first element.
export function drawRecorded(value, brief = false) {
  if (value.s) return drawRecordedTensor(value, brief);
  if (value.t === "float" && typeof value.c === "number") return plain(`${Number(value.c.toPrecision(6))}`);
  if (value.c === null || typeof value.c !== "object") return drawValue(value);
  const items = Object.entries(value.c);
  if (items.every(([, item]) => !item.s && (item.c === null || typeof item.c !== "object"))) return drawValue(value);
  return drawRecordedList(items, value.n ?? 0);
}

// Neighbours that are equal are drawn once.
function drawRecordedList(items, length) {
  const list = element("ul", "");
  for (let start = 0; start < items.length; ) {
    let end = start + 1;
    const text = JSON.stringify(items[start][1]);
    while (end < items.length && JSON.stringify(items[end][1]) === text) end++;
    const keys = end - start > 1 ? `${items[start][0]}–${items[end - 1][0]}` : items[start][0];
    list.append(element("li", "", element("span", "kind", `${keys}: `), drawRecorded(items[start][1], true)));
    start = end;
  }
  if (length) list.append(element("li", "kind", `… ${length} in all`));
  return list;
}

function drawRecordedTensor(value, brief) {
  if (brief && value.f) {
    const first = (one) => (one.f ? `${shortNumber(one.f[0], one.d)}\u00a0…` : "not recorded");
    return plain(first(value) + (value.g ? `\ngrad ${first(value.g).replace("\u00a0…", "")}` : ""));
  }
  const drawn = element("div", "tensor");
  if (value.u) drawn.append(element("span", "kind", "not filled yet"));
  else if (value.c && !value.s.length) return plain(shortNumber(value.c[0], value.d));
  else if (value.c) drawn.append(...drawCells(value, () => element("span", "cell")));
  else if (value.f) drawn.append(...summary(value));
  else drawn.append(element("span", "kind", "content not recorded: more than 2²⁰ elements"));
  if (value.g) drawn.append(element("div", "grad", element("span", "kind", "grad "), ...drawRecordedTensor(value.g, brief).childNodes));
  return drawn;
}

function summary(value) {
  const drawn = [element("span", "plain", `${value.f.map((item) => shortNumber(item, value.d)).join(" ")}\u00a0…`)];
  if (value.q !== undefined) drawn.push(element("span", "kind", ` norm ${shortNumber(value.q)}`));
  return drawn;
}

// Elements in rows as long as the tensor's last dimension, or 8.
export function drawCells(value, make) {
  const width = value.s[value.s.length - 1] <= 8 ? value.s[value.s.length - 1] : 8;
  const rows = [];
  value.c.slice(0, MOST).forEach((item, index) => {
    if (index % width === 0) rows.push(element("span", "cells"));
    const cell = make(index);
    cell.prepend(shortNumber(item, value.d));
    rows[rows.length - 1].append(cell);
  });
  if (!value.c.length) rows.push(plain("no elements"));
  if (value.c.length > MOST) rows.push(element("span", "kind", `… ${value.c.length} in all`));
  return rows;
}
