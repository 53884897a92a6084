"use strict";
(() => {
  const $ = (selector) => document.querySelector(selector);
  const trace = JSON.parse($("#trace").textContent);
  const last = trace.line.length - 1;
  const root = document.documentElement;
  const slider = $(".controls input");
  const panel = $("aside");
  const outputs = [...document.querySelectorAll(".output")];
  const toggles = { animate: "animate", raw: "raw", values: "hideEnv", notes: "showNotes" };

  // What the address holds: the step, and which parts of an @animate step have appeared (counted from 0).
  let step = 0;
  let part = 0;
  let followed = null;
  const view = { animate: false, raw: false, values: true, notes: false };

  const lastPart = (number) => (view.animate ? (trace.parts[number] ?? 1) - 1 : 0);
  const rowId = (file, line) => `${file ? `F${file}` : ""}L${trace.rows[file][line] ?? line}`;

  // Moving

  // Where a move leads, or -1. A reader who follows a rank passes over what that rank does not execute.
  function moves(name) {
    let target = step;
    do {
      if (name === "back") target -= 1;
      else if (name === "next") target = target < last ? target + 1 : -1;
      else target = trace[name][target];
    } while (target >= 0 && followed !== null && !ranks.executes(target, followed));
    return target;
  }

  // Whether there are parts of this step left to show, or to take away.
  function moreParts(name) {
    return name.endsWith("ext") ? part < lastPart(step) : name.endsWith("ack") && part > 0;
  }

  function move(name, held) {
    if (moreParts(name)) {
      part += name.endsWith("ext") ? 1 : -1;
      show();
      return;
    }
    const target = moves(name);
    if (target >= 0) go(target, held, name.endsWith("ext") ? 0 : undefined);
  }

  function go(target, held = false, firstPart = undefined) {
    step = Math.min(Math.max(target, 0), last);
    part = Math.min(firstPart ?? Infinity, lastPart(step));
    show();
    writeAddress(!held);
  }

  let stepsAt;
  function nearestStep(file, line) {
    if (!stepsAt) {
      stepsAt = new Map();
      trace.line.forEach((at, number) => {
        const key = `${trace.file[number]}:${at}`;
        if (!stepsAt.has(key)) stepsAt.set(key, []);
        stepsAt.get(key).push(number);
      });
    }
    const found = stepsAt.get(`${file}:${line}`) ?? stepsAt.get(`${file}:${trace.rows[file]?.[line]}`);
    if (!found) return -1;
    const after = found[upTo(found, step - 1) + 1] ?? -1;
    const before = found[upTo(found, step)] ?? -1;
    return after < 0 || (before >= 0 && step - before < after - step) ? before : after;
  }

  // The index of the last entry of a sorted list that is at most `value`, by halving; -1 when there is none.
  function upTo(list, value) {
    let low = -1;
    let high = list.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (list[middle] <= value) low = middle;
      else high = middle;
    }
    return low;
  }

  // Showing a step

  let currentRow;
  function show(scroll = true) {
    const file = trace.file[step];
    const row = document.getElementById(rowId(file, trace.line[step]));
    if (currentRow !== row) {
      if (currentRow) mark(currentRow, false);
      currentRow = row;
      if (row) mark(row, true);
    }
    reveal();
    showValues();
    markOutputs();
    currentEnd?.classList.remove("current");
    currentEnd = row && blockLeftAt(step);
    currentEnd?.classList.add("current");
    slider.value = step;
    const parts = lastPart(step);
    const place = `${file ? `${trace.files[file]} ` : ""}line ${trace.line[step]}`;
    $(".status").textContent =
      `Step ${step} of ${last}, ${place}, ${trace.functions[trace.function[step]]}` +
      (parts ? `, part ${part + 1} of ${parts + 1}` : "") +
      (followed === null ? "" : `, rank ${followed}`);
    slider.setAttribute("aria-valuetext", $(".status").textContent);
    for (const name of ["back", "next", "overBack", "overNext", "out"]) {
      button(name).setAttribute("aria-disabled", !moreParts(name) && moves(name) < 0);
    }
    markContents(file, trace.line[step]);
    if (row && scroll) keepInView(currentEnd ?? row);
  }

  // When a call is over, the reader stays at the end of its block instead of leaping up to the line that called.
  let currentEnd;
  function blockLeftAt(number) {
    if (view.raw || number < 1 || trace.out[number - 1] !== number) return null;
    const from = document.getElementById(rowId(trace.file[number - 1], trace.line[number - 1]));
    let left = null;
    for (let block = from?.closest(".called"); block && !block.contains(currentRow); block = block.parentElement.closest(".called")) {
      left = block;
    }
    let above = left?.previousElementSibling;
    while (above && !above.classList.contains("row")) above = above.previousElementSibling;
    return above === currentRow ? left.querySelector(":scope > .ends") : null;
  }

  // The entry of the table of contents under which a line stands: the last one above it in the source.

  const entries = [...document.querySelectorAll("nav a[data-line]")].map((link) => [
    Number(link.dataset.file), Number(link.dataset.line), link,
  ]);
  let currentEntry;
  function markContents(file, line) {
    let [above, entry] = [0, null];
    for (const [ofFile, from, link] of entries) {
      if (ofFile === file && from <= line && from > above) [above, entry] = [from, link];
    }
    if (entry === currentEntry) return;
    currentEntry?.removeAttribute("aria-current");
    entry?.setAttribute("aria-current", "true");
    currentEntry = entry;
  }

  function mark(row, on) {
    row.classList.toggle("current", on);
    if (on) row.setAttribute("aria-current", "step");
    else row.removeAttribute("aria-current");
    for (const number of row.querySelectorAll(".no[href]")) number.tabIndex = on ? 0 : -1;
  }

  function bottomEdge() {
    const covered = getComputedStyle(panel).position === "fixed" ? panel.offsetHeight : 0;
    return innerHeight - covered;
  }

  function keepInView(row) {
    for (let fold = row.closest("details:not([open])"); fold; fold = fold.parentElement.closest("details:not([open])")) fold.open = true;
    const top = getComputedStyle($("header")).position === "sticky" ? $("header").offsetHeight : 0;
    const bottom = bottomEdge();
    const box = row.getBoundingClientRect();
    if (box.top >= top + 8 && (box.bottom <= bottom - 24 || box.top <= top + (bottom - top) * 0.35)) return;
    scrollBy(0, box.top - top - (bottom - top) * 0.3);
  }

  // Content to come, in order of the step that reaches it; `reached` of it are shown. A step touches only what changes.
  let timeline;
  let reached;
  function reveal() {
    if (!view.animate) return;
    if (!timeline) {
      timeline = [...document.querySelectorAll("[data-at]")].map((element) => [Number(element.dataset.at), element]);
      timeline.sort((one, other) => one[0] - other[0]);
      for (const [, element] of timeline) element.classList.add("future");
      reached = 0;
    }
    const now = step + part / (trace.parts[step] ?? 1);
    while (reached < timeline.length && timeline[reached][0] <= now) timeline[reached++][1].classList.remove("future");
    while (reached > 0 && timeline[reached - 1][0] > now) timeline[--reached][1].classList.add("future");
  }

  // Outputs that the step's line printed, and those of a followed rank

  let printed;
  const now = [];
  function markOutputs() {
    for (const code of now.splice(0)) code.classList.remove("now");
    if (!trace.calls[trace.call[step]].recorded) return;
    if (!printed) {
      printed = new Map();
      for (const code of document.querySelectorAll("[data-by]")) {
        if (!printed.has(code.dataset.by)) printed.set(code.dataset.by, []);
        printed.get(code.dataset.by).push(code);
      }
    }
    for (const key of ranks.turns(step)) now.push(...(printed.get(key) ?? []));
    for (const code of now) code.classList.add("now");
  }

  function follow(rank) {
    followed = rank;
    for (const choice of document.querySelectorAll("[data-rank]")) {
      choice.setAttribute("aria-pressed", choice.dataset.rank === `${rank ?? ""}`);
    }
    for (const output of outputs) {
      const rows = [...output.querySelectorAll(".rank")];
      for (const row of rows) row.hidden = rank !== null && "of" in row.dataset && row.dataset.of !== `${rank}`;
      output.hidden = rows.length > 0 && rows.every((row) => row.hidden);
    }
  }

  function choose(rank) {
    follow(rank === followed ? null : rank);
    show(false);
    replaceAddress();
  }

  // Values

  function element(name, className, ...children) {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...children);
    return made;
  }

  function showValues() {
    if (!view.values) return;
    const call = trace.calls[trace.call[step]];
    const recorded = call.recorded && ranks.drawn(step, followed);
    const drawn = recorded ? recorded.nodes : [];
    for (const [name, [at, what]] of Object.entries(recorded ? {} : call.values)) {
      const index = upTo(at, step);
      if (index < 0 || what[index] < 0) continue;
      drawn.push(drawVariable(name, trace.values[what[index]], at[index] === step));
    }
    $(".values").replaceChildren(...drawn);
    showFresh(recorded);
    $(".from").textContent = recorded ? recorded.from : ranks ? "traced, in one process" : "";
    panel.classList.toggle("of-ranks", Boolean(recorded));
    panel.classList.toggle("empty", !drawn.length);
    const frames = [];
    for (const [file, line, name] of call.frames) {
      const link = element("a", "", file >= 0 ? `${name}:${line}` : name);
      if (file >= 0) {
        link.href = `#${rowId(file, line)}`;
        link.dataset.file = file;
        link.dataset.line = line;
      }
      frames.push(link, " → ");
    }
    $(".where").replaceChildren(...frames, element("b", "", trace.functions[trace.function[step]]));
    if (!drawn.length) $(".values").append(element("p", "kind", "Nothing inspected in this call so far."));
  }

  // What a communication moved stands at the top; else what the line changed may stand below the panel's edge.
  // While the page loads the panel is at its top, and asking would lay out the whole page.
  function showFresh(recorded) {
    if (recorded || document.readyState !== "loading") panel.scrollTop = 0;
    const fresh = recorded && !panel.querySelector(".moved") && panel.querySelector(".fresh");
    if (!fresh) return;
    const below = fresh.getBoundingClientRect().bottom - panel.getBoundingClientRect().bottom;
    if (below > 0) panel.scrollTop = below + 12;
  }

  function drawVariable(name, value, fresh) {
    const head = element("div", "head", element("b", "", name));
    const drawn = element("div", fresh ? "value fresh" : "value", head);
    head.append(element("span", "kind", kindOf(value)));
    const body = drawValue(value);
    (body.className === "plain" ? head : drawn).append(body);
    return drawn;
  }

  function kindOf(value) {
    if (value.t === "NoneType") return "";
    if (value.s) return `${value.d}, shape ${value.s.length ? value.s.join(" × ") : "()"}`;
    const counted = value.t === "list" || value.t === "tuple";
    return value.t.split(".").pop() + (counted ? ` of ${value.n ?? value.c.length}` : "");
  }

  // A value as drawn: text, a table, or a list of values.
  function drawValue(value) {
    if (value.r !== undefined) return plain(value.r);
    if (value.t === "NoneType") return plain("None");
    if (value.s) return value.s.length ? drawTensor(value.c, value.s, value.d) : plain(number(value.c, value.d));
    if (value.c !== null && typeof value.c === "object") return drawItems(value);
    const text = value.t === "str" ? JSON.stringify(value.c) : value.t === "bool" ? (value.c ? "True" : "False") : `${value.c}`;
    return plain(value.n ? `${text.slice(0, -1)}… (${value.n} characters)` : text);
  }

  const plain = (text) => element("span", "plain", text);

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
  function number(value, dtype, digits = 4, written = (value) => value.toFixed(4)) {
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

  // Every rank's values, when the page has a recording.
  const ranks = typeof everyRank === "undefined" ? null : everyRank({ element, kindOf, drawValue, number, plain, upTo });

  // The address: one history entry a move, but moves of a held key or a dragged slider share one. Browsers refuse more
  // than about 100 changes in 30 s, so from the 40th on they are put together.

  const writes = [];
  let pending;
  function writeAddress(push) {
    clearTimeout(pending);
    const now = Date.now();
    while (writes.length && now - writes[0] > 30000) writes.shift();
    if (push && writes.length < 40) {
      writes.push(now);
      history.pushState(null, "", address());
    } else {
      pending = setTimeout(replaceAddress, 600);
    }
  }

  function replaceAddress() {
    clearTimeout(pending);
    history.replaceState(null, "", address());
  }

  function address() {
    const url = new URL(location.href);
    const query = url.searchParams;
    query.set("step", numberInAddress(step));
    query.delete("source");
    query.delete("line");
    for (const [name, parameter] of Object.entries(toggles)) {
      if (view[name] === (name === "values")) query.delete(parameter);
      else query.set(parameter, "1");
    }
    if (followed === null) query.delete("rank");
    else query.set("rank", followed);
    url.hash = "";
    return url.href.replace(/#$/, "");
  }

  // Addresses count the steps of the trace, so that they outlive a recording: 12.3 is the third step after step 12.
  function numberInAddress(number) {
    if (!trace.traced) return `${number}`;
    const traced = upTo(trace.traced, number);
    const after = number - trace.traced[traced];
    return after ? `${traced}.${after}` : `${traced}`;
  }

  function stepOfAddress(text) {
    const [traced, after] = text.split(".").map((part) => Math.trunc(Number(part)) || 0);
    if (!trace.traced) return traced;
    return (traced < 0 ? 0 : (trace.traced[traced] ?? last)) + (after ?? 0);
  }

  function readAddress() {
    const query = new URLSearchParams(location.search);
    for (const [name, parameter] of Object.entries(toggles)) {
      view[name] = (query.get(parameter) === "1") !== (name === "values");
    }
    applyView();
    const rank = query.get("rank") ?? "";
    if (ranks && (rank || followed !== null)) follow(rank && document.querySelector(`[data-rank="${CSS.escape(rank)}"]`) ? Number(rank) : null);
    step = Math.min(Math.max(stepOfAddress(query.get("step") ?? ""), 0), last);
    const line = Number(query.get("line"));
    const file = query.has("source") ? trace.files.indexOf(query.get("source")) : 0;
    const target = line && file >= 0 ? nearestStep(file, line) : -1;
    if (target >= 0) step = target;
    part = lastPart(step);
    // An address that asks for no step opens at the top, where the contents are; one with a fragment, there.
    const anchor = query.has("line") ? null : document.getElementById(location.hash.slice(1));
    const asked = query.has("step") || query.has("line");
    show(asked && !anchor);
    if (anchor) anchor.scrollIntoView();
    else if (!asked && document.readyState !== "loading") scrollTo(0, 0); // While loading it is there, unmeasured
    const row = line && file >= 0 && target < 0 ? document.getElementById(rowId(file, line)) : null;
    if (row?.closest(".preamble")) row.closest(".preamble").open = true;
    row?.scrollIntoView({ block: "center" });
  }

  // View

  const button = (name) => buttons[name];
  const buttons = {};
  for (const found of document.querySelectorAll("[data-do]")) buttons[found.dataset.do] = found;

  // In raw mode the code stands as the file has it, else a function stands where it is first called.
  const blocks = [...document.querySelectorAll("[data-home]")].map((home) => {
    const block = document.getElementById(home.dataset.home);
    const away = document.createComment("");
    block.before(away);
    return { home, block, away };
  });
  let atHome = false;
  function placeBlocks() {
    if (atHome === view.raw) return;
    atHome = view.raw;
    for (const { home, block, away } of blocks) {
      (atHome ? home : away).after(block);
      if (atHome) block.open = true;
    }
  }

  function applyView() {
    placeBlocks();
    for (const name of Object.keys(toggles)) {
      root.toggleAttribute(`data-${name}`, view[name]);
      button(name).setAttribute("aria-pressed", view[name]);
    }
  }

  function toggle(name) {
    view[name] = !view[name];
    applyView();
    part = lastPart(step);
    show();
    replaceAddress();
  }

  function showFold() {
    button("outputs").setAttribute("aria-pressed", outputs.some((output) => output.open));
  }

  function foldOutputs() {
    const open = !outputs.some((output) => output.open);
    for (const output of outputs) output.open = open;
    showFold();
    if (currentRow) keepInView(currentRow);
  }

  const themes = ["auto", "light", "dark"];
  let theme = "auto";
  try {
    theme = localStorage.getItem("theme") ?? "auto";
  } catch {
    // No storage for this file: the choice lasts as long as the page.
  }
  function applyTheme() {
    if (!themes.includes(theme)) theme = "auto";
    root.dataset.theme = theme;
    const label = `Theme: ${theme === "auto" ? "as the system" : theme}`;
    button("theme").setAttribute("aria-label", label);
    button("theme").title = `${label} (T)`;
  }
  function nextTheme() {
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

  function act(name, held) {
    if (name in toggles) toggle(name);
    else if (name === "outputs") foldOutputs();
    else if (name === "theme") nextTheme();
    else if (name === "help") $("dialog").showModal();
    else move(name, held);
  }

  // Events

  const keys = {
    ArrowLeft: "back", h: "back", ArrowRight: "next", l: "next", k: "overBack", j: "overNext", u: "out",
    a: "animate", r: "raw", e: "values", n: "notes", o: "outputs", t: "theme", "?": "help",
  };

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("dialog").open) return;
    if (event.target.matches?.(".no") && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      focusNeighbour(event.target, event.key === "ArrowDown" ? 1 : -1);
      event.preventDefault();
      return;
    }
    if (ranks && (event.key === "Escape" || /^[0-9]$/.test(event.key)) && !event.shiftKey) {
      const rank = event.key === "Escape" ? followed : Number(event.key);
      if (rank === null || !document.querySelector(`[data-rank="${rank}"]`)) return;
      event.preventDefault();
      choose(rank);
      return;
    }
    let name = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (event.shiftKey && event.key === "ArrowLeft") name = "overBack";
    if (event.shiftKey && event.key === "ArrowRight") name = "overNext";
    if (!name) return;
    event.preventDefault();
    act(name, event.repeat);
  });

  function focusNeighbour(from, direction) {
    const all = [...document.querySelectorAll("a.no")].filter((link) => link.offsetParent);
    all[all.indexOf(from) + direction]?.focus();
  }

  addEventListener("click", (event) => {
    const pressed = event.target.closest("[data-do]");
    if (pressed) {
      act(pressed.dataset.do, false);
      return;
    }
    const choice = event.target.closest("[data-rank]");
    if (choice) {
      choose(choice.dataset.rank === "" ? followed : Number(choice.dataset.rank));
      return;
    }
    const link = event.target.closest("a[data-line]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const file = Number(link.dataset.file ?? link.closest("[data-file]").dataset.file);
    const target = nearestStep(file, Number(link.dataset.line));
    if (target < 0) return;
    event.preventDefault();
    go(target);
  });

  let dragging = false;
  slider.addEventListener("input", () => {
    go(Number(slider.value), dragging);
    dragging = true;
  });
  slider.addEventListener("change", () => (dragging = false));
  addEventListener("popstate", () => {
    clearTimeout(pending);
    readAddress();
  });
  addEventListener("toggle", showFold, true);

  if (matchMedia("(max-width: 999.98px)").matches) $("nav details").open = false;
  history.scrollRestoration = "manual";
  applyTheme();
  showFold();
  readAddress();
})();
