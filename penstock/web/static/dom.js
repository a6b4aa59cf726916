// Elements, tables that change in place, and quantities as people read them. All text goes in as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const el = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// ---------------------------------------------------------------- quantities

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// Three digits at most: 0.25, 1.5, 24.
export function number(value) {
  const size = Math.abs(value);
  return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)));
}

export function bytes(value) {
  let unit = 0;
  let size = value;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${number(size)} ${UNITS[unit]}`;
}

export const rate = (value) => `${bytes(value)}/s`;
export const percent = (share) => `${Math.round(share * 100)} %`;
export const cores = (value) => `${number(value)} core${value === 1 ? "" : "s"}`;
export const amount = (unit, value) => ({ cores, bytes, share: percent })[unit](value);

export function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

// "1.5 of 2 cores": the unit once where it is the same.
export function outOf(text, used, there) {
  const [value, unit] = text(used).split(" ");
  const whole = text(there);
  const same = whole.split(" ")[1].replace(/s$/, "") === unit.replace(/s$/, "");
  return `${same ? value : `${value} ${unit}`} of ${whole}`;
}

export const day = (unix) => new Date(unix * 1000).toLocaleString("sv", { dateStyle: "short", timeStyle: "short" });
export const clock = (unix) => new Date(unix * 1000).toLocaleTimeString("sv");

// ---------------------------------------------------------------- facts

export function facts(list, pairs) {
  const wanted = JSON.stringify(pairs);
  if (list.dataset.shown === wanted) return;
  list.dataset.shown = wanted;
  list.replaceChildren(
    ...pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

// What is wrong, if anything: lines of text, and groups of them behind a summary: {summary, lines}.
export function notices(place, found) {
  const wanted = JSON.stringify(found);
  if (place.dataset.shown === wanted) return;
  place.dataset.shown = wanted;
  place.replaceChildren(...found.map((one) => {
    if (typeof one === "string") return el("p", { class: "notice" }, one);
    const items = one.lines.map((line) => el("li", {}, line));
    return el("details", { class: "notice" }, el("summary", {}, one.summary), el("ul", {}, ...items));
  }));
}

// ---------------------------------------------------------------- cells

// A cell is a string, or one of the following as plain data: what has not changed is not drawn again.
// Of a bar the text may be several lines; it alarms where it is full and that is bad.
export const bar = (share, text, { mark = null, alarms = false } = {}) =>
  ({ bar: [share, mark, alarms], text: [text].flat().filter(Boolean) });
// Where a job stands, in the words of the status documents.
export const JOB_STATES = { running: "good", admitted: "good", waiting: "warn", cancelling: "warn", expected: "" };
export const badge = (text, look = "") => ({ badge: look, text });
export const lines = (...texts) => ({ lines: texts.filter(Boolean) });
export const progress = (stages) => ({ stages });
export const action = (before, text, about, run) => ({ before, text, action: about, run });

const clamp = (share) => Math.max(0, Math.min(1, share || 0));

function drawBar([share, mark, alarms]) {
  const full = alarms && share >= 0.95 ? " full" : "";
  const drawing = svg("svg", { class: `bar${full}`, viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
  drawing.append(svg("rect", { class: "track", width: 100, height: 8 }));
  drawing.append(svg("rect", { class: "fill", width: 100 * clamp(share), height: 8 }));
  if (mark) drawing.append(svg("rect", { class: "mark", x: Math.min(98, 100 * clamp(mark)), width: 2, height: 8 }));
  return drawing;
}

function drawStages(stages) {
  const list = el("ol", { class: "stages" });
  for (const { name, done, skipped = 0, tasks } of stages) {
    const label = `${name} ${done - skipped}/${tasks}${skipped ? `, ${skipped} skipped` : ""}`;
    const item = el("li", {}, drawBar([tasks ? done / tasks : 0]), el("span", {}, label));
    list.append(item);
  }
  return list;
}

function draw(cell) {
  if (typeof cell === "string") return [cell];
  if (cell.bar) return [drawBar(cell.bar), ...draw(lines(...cell.text))];
  if (cell.badge !== undefined) return [el("span", { class: `badge ${cell.badge}` }, cell.text)];
  if (cell.lines) return cell.lines.map((line, index) => el("span", { class: index ? "line second" : "line" }, line));
  if (cell.stages) return [drawStages(cell.stages)];
  const button = el("button", { type: "button", "aria-label": `${cell.text} ${cell.action}`, "aria-expanded": "false" }, cell.text);
  button.addEventListener("click", () => cell.run(button));
  return [...draw(lines(cell.before)), button];
}

// ---------------------------------------------------------------- tables

// columns: {label, of(item) → cell, look?}; items: [[key, item], …] in their order.
// Roles are written out: on narrow screens rows are laid out as blocks, and browsers then drop those of the elements.
export class Table {
  constructor(place, caption, columns, empty) {
    this.columns = columns;
    this.rows = new Map();
    this.empty = el("p", { class: "empty" }, empty);
    const heads = columns.map(({ label, look = "" }) =>
      el("th", { scope: "col", role: "columnheader", class: look }, label),
    );
    this.body = el("tbody", { role: "rowgroup" });
    this.table = el(
      "table",
      { role: "table" },
      el("caption", { class: "unseen" }, caption),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads)),
      this.body,
    );
    place.append(this.table, this.empty);
    place.setAttribute("tabindex", "0");
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", caption);
  }

  show(items) {
    this.table.hidden = items.length === 0;
    this.empty.hidden = items.length > 0;
    const wanted = new Set(items.map(([key]) => key));
    for (const [key, row] of this.rows) {
      if (!wanted.has(key)) {
        row.below?.remove();
        row.element.remove();
        this.rows.delete(key);
      }
    }
    let at = this.body.firstElementChild;
    for (const [key, item] of items) {
      const row = this.rows.get(key) ?? this.fresh(key);
      this.fill(row, item);
      if (row.element === at) {
        at = at.nextElementSibling;
      } else {
        this.body.insertBefore(row.element, at);
      }
      if (row.below) {
        if (row.below === at) at = at.nextElementSibling;
        else row.element.after(row.below);
      }
    }
  }

  fresh(key) {
    const cells = this.columns.map(({ label, look = "" }, index) =>
      el(index ? "td" : "th", {
        ...(index ? {} : { scope: "row" }),
        role: index ? "cell" : "rowheader",
        "data-label": label,
        class: look,
      }),
    );
    const row = { element: el("tr", { role: "row" }, ...cells), cells, shown: [], below: null };
    this.rows.set(key, row);
    return row;
  }

  fill(row, item) {
    this.columns.forEach(({ of }, index) => {
      const cell = of(item);
      const shown = JSON.stringify(cell);
      if (row.shown[index] !== shown) {
        row.shown[index] = shown;
        row.cells[index].replaceChildren(...draw(cell));
      }
    });
  }

  // Open or close what stands below a row.
  toggle(key, button, content) {
    const row = this.rows.get(key);
    if (!row) return;
    const opens = !row.below;
    button.setAttribute("aria-expanded", String(opens));
    if (opens) {
      const cell = el("td", { colspan: this.columns.length, role: "cell" }, content);
      row.below = el("tr", { role: "row", class: "below" }, cell);
      row.element.after(row.below);
    } else {
      row.below.remove();
      row.below = null;
    }
  }
}
