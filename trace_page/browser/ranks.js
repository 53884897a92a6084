"use strict";
// What every rank held at a step, and what its line moved between them, from the recording of a real run.
const everyRank = ({ element, kindOf, drawValue, number, plain, upTo }) => {
  const [NEVER, SUM] = [-1, -1];
  const COLOURS = 8;
  const MOST = 16;
  let table;

  // Read when the first step asks for it: the page is ready sooner.
  function at(step) {
    table ??= JSON.parse(document.querySelector("#ranks").textContent);
    return table.steps[step];
  }

  const colour = (rank) => `r${rank % COLOURS}`;

  // Keys (call.rank.step) of what the ranks executed at this step.
  function turns(step) {
    const [call, bounds] = at(step) ?? [0, []];
    const keys = [];
    for (let rank = 0; rank * 2 < bounds.length; rank++) {
      const [first, last] = bounds.slice(rank * 2, rank * 2 + 2);
      for (let own = first; first >= 0 && own <= last; own++) keys.push(`${call}.${rank}.${own}`);
    }
    return keys;
  }

  // Whether a rank executes the line of a step; of a step outside recorded programs, all do.
  function executes(step, rank) {
    const found = at(step);
    return !found || rank >= table.calls[found[0]].ranks.length || found[1][rank * 2] >= 0;
  }

  // The nodes of the panel and where its values are from; nothing for a step that was not recorded.
  function drawn(step, followed) {
    const found = at(step);
    if (!found) return null;
    const [number, bounds, moves, elsewhere] = found;
    const call = table.calls[number];
    const world = call.ranks.length;
    const all = call.ranks.map((_, rank) => rank);
    const shown = followed !== null && followed < world ? [followed] : all;
    const nodes = moves.map((index) => drawMove(table.moves[index], world, followed));
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
      const states = shown.map((rank) => state(call.ranks[rank][name], bounds[rank * 2], bounds[rank * 2 + 1]));
      if (states.every(({ index }) => index < 0)) continue;
      const value = table.values[states[0].index];
      const equal = states.every(({ index }) => index === states[0].index);
      const text = equal ? draw(value) : null;
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
  function state(variable, first, last) {
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
    const values = states.map(({ index }) => table.values[index]);
    const fresh = states.some((one) => one.fresh);
    const head = element("div", "head", element("b", "", name));
    const kinds = values.map((value) => (value ? kind(value) : ""));
    const sameKind = kinds.every((kind) => kind === kinds[0]);
    if (sameKind) head.append(element("span", "kind", kinds[0]));
    const body = element("tbody", fresh ? "fresh" : "");
    const title = element("th", "name", head);
    title.colSpan = shown.length;
    title.scope = "colgroup";
    const drawn = values.map((value) => (value ? draw(value) : element("span", "kind", "—")));
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

  // Values

  const short = (value, dtype = "float") => number(value, dtype, 2, (value) => `${Number(value.toPrecision(4))}`);

  // `brief`: of a tensor that is not whole only the first element.
  function draw(value, brief = false) {
    if (value.s) return drawTensor(value, brief);
    if (value.t === "float" && typeof value.c === "number") return plain(`${Number(value.c.toPrecision(6))}`);
    if (value.c === null || typeof value.c !== "object") return drawValue(value);
    const items = Object.entries(value.c);
    if (items.every(([, item]) => !item.s && (item.c === null || typeof item.c !== "object"))) return drawValue(value);
    return drawList(items, value.n ?? 0);
  }

  // Neighbours that are equal are drawn once.
  function drawList(items, length) {
    const list = element("ul", "");
    for (let start = 0; start < items.length; ) {
      let end = start + 1;
      const text = JSON.stringify(items[start][1]);
      while (end < items.length && JSON.stringify(items[end][1]) === text) end++;
      const keys = end - start > 1 ? `${items[start][0]}–${items[end - 1][0]}` : items[start][0];
      list.append(element("li", "", element("span", "kind", `${keys}: `), draw(items[start][1], true)));
      start = end;
    }
    if (length) list.append(element("li", "kind", `… ${length} in all`));
    return list;
  }

  function drawTensor(value, brief) {
    if (brief && value.f) {
      const first = (one) => (one.f ? `${short(one.f[0], one.d)}\u00a0…` : "not recorded");
      return plain(first(value) + (value.g ? `\ngrad ${first(value.g).replace("\u00a0…", "")}` : ""));
    }
    const drawn = element("div", "tensor");
    if (value.u) drawn.append(element("span", "kind", "not filled yet"));
    else if (value.c && !value.s.length) return plain(short(value.c[0], value.d));
    else if (value.c) drawn.append(...cells(value, () => element("span", "cell")));
    else if (value.f) drawn.append(...summary(value));
    else drawn.append(element("span", "kind", "content not recorded: more than 2²⁰ elements"));
    if (value.g) drawn.append(element("div", "grad", element("span", "kind", "grad "), ...drawTensor(value.g, brief).childNodes));
    return drawn;
  }

  function summary(value) {
    const drawn = [element("span", "plain", `${value.f.map((item) => short(item, value.d)).join(" ")}\u00a0…`)];
    if (value.q !== undefined) drawn.push(element("span", "kind", ` norm ${short(value.q)}`));
    return drawn;
  }

  // Elements in rows as long as the tensor's last dimension, or 8.
  function cells(value, make) {
    const width = value.s[value.s.length - 1] <= 8 ? value.s[value.s.length - 1] : 8;
    const rows = [];
    value.c.slice(0, MOST).forEach((item, index) => {
      if (index % width === 0) rows.push(element("span", "cells"));
      const cell = make(index);
      cell.prepend(short(item, value.d));
      rows[rows.length - 1].append(cell);
    });
    if (!value.c.length) rows.push(plain("no elements"));
    if (value.c.length > MOST) rows.push(element("span", "kind", `… ${value.c.length} in all`));
    return rows;
  }

  // What moved

  function drawMove({ op, how, root, ranks }, world, followed) {
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
    const brief = ranks.some((row) => row[3].some(([, index]) => Array.isArray(table.values[index].c) && !table.values[index].s));
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
      const value = table.values[index];
      const drawn = element("div", "boxes");
      const from = (place) => (Array.isArray(origins) ? origins[place] : origins);
      if (value.s && value.c) drawn.append(...cells(value, (place) => tinted("cell", from(place), world)));
      else if (value.s) drawn.append(block(value, from(0), world, brief));
      else if (Array.isArray(value.c)) value.c.forEach((item, place) => drawn.append(block(item, from(place), world, brief)));
      else drawn.append(draw(value));
      return element("div", "box", ...(named ? [element("span", "kind", name)] : []), drawn);
    });
  }

  // A tensor as one box: shape, first elements, norm unless there are many boxes.
  function block(value, origin, world, brief) {
    const drawn = tinted("block", origin, world);
    const lines = [];
    if (value.s) lines.push(element("span", "kind", value.s.join("×") || "scalar"));
    if (value.f) {
      lines.push(element("span", "", `${short(value.f[0], value.d)}…`));
      if (!brief && value.q !== undefined) lines.push(element("span", "kind", `norm ${short(value.q)}`));
    } else if (value.c) lines.push(element("span", "", [value.c].flat().slice(0, 4).map((item) => short(item, value.d)).join(" ")));
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

  return { drawn, executes, turns };
};
