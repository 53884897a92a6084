// How one value is drawn: text, a table of numbers, or a list of values.
import { element, plain } from "./elements.js";

export function kindOf(value) {
  if (value.t === "NoneType") return "";
  if (value.s) return `${value.d}, shape ${value.s.length ? value.s.join(" × ") : "()"}`;
  const counted = value.t === "list" || value.t === "tuple";
  return value.t.split(".").pop() + (counted ? ` of ${value.n ?? value.c.length}` : "");
}

// A value as drawn: text, a table, or a list of values.
export function drawValue(value) {
  if (value.r !== undefined) return plain(value.r);
  if (value.t === "NoneType") return plain("None");
  if (value.s) return value.s.length ? drawTensor(value.c, value.s, value.d) : plain(number(value.c, value.d));
  if (value.c !== null && typeof value.c === "object") return drawItems(value);
  const text = value.t === "str" ? JSON.stringify(value.c) : value.t === "bool" ? (value.c ? "True" : "False") : `${value.c}`;
  return plain(value.n ? `${text.slice(0, -1)}… (${value.n} characters)` : text);
}

function drawItems(value) {
  const items = Object.entries(value.c);
  if (!items.length) return plain(Array.isArray(value.c) ? "[]" : "{}");
  if (Array.isArray(value.c) && value.c.every((item) => !item.s && (item.c === null || typeof item.c !== "object"))) {
    return plain(`[${value.c.map((item) => drawValue(item).textContent).join(", ")}${value.n ? ", …" : ""}]`);
  }
  const list = element("ul", "");
  for (const [key, item] of items) {
    list.append(element("li", "", element("span", "kind", item.s ? `${key}: ${kindOf(item)} ` : `${key}: `), drawValue(item)));
  }
  if (value.n) list.append(element("li", "kind", `… ${value.n} in all`));
  return list;
}

// As PyTorch prints numbers: 4 decimals, a point after a whole float. `digits` and `written` make it shorter.
export function number(value, dtype, digits = 4, written = (value) => value.toFixed(4)) {
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "number" || !/float|complex/.test(dtype)) return `${value}`;
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return `${Object.is(value, -0) ? "-0" : value}.`;
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(digits) : written(value);
}

// `contents` are the first and last elements of each long dimension; the gap between them is drawn as …
function drawTensor(contents, shape, dtype) {
  const tables = element("div", "");
  const draw = (part, sizes, prefix) => {
    if (sizes.length > 2) {
      part.forEach((inner, index) => {
        const at = index < 4 || part.length === sizes[0] ? index : sizes[0] - part.length + index;
        draw(inner, sizes.slice(1), `${prefix}${at}, `);
      });
      return;
    }
    const rows = sizes.length === 2 ? part : [part];
    const table = element("table", "");
    if (prefix) table.append(element("caption", "kind", `[${prefix}:, :]`));
    const width = sizes[sizes.length - 1];
    rows.forEach((row, index) => {
      if (sizes.length === 2 && rows.length < sizes[0] && index === 4) table.append(tableRow(row.map(() => "⋮")));
      const cells = row.map((value) => number(value, dtype));
      if (row.length < width) cells.splice(4, 0, "…");
      table.append(tableRow(cells));
    });
    tables.append(rows.length && rows[0].length ? table : plain("no elements"));
  };
  draw(contents, shape, "");
  return tables;
}

const tableRow = (cells) => element("tr", "", ...cells.map((text) => element("td", "", text)));
