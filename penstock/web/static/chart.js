// A resource over the last ten minutes: used as an area, the slack above it, promised as a dashed line.

import { amount, el, outOf, say, svg } from "/static/dom.js";

const SPAN_S = 600;
const WIDTH = 600;
const HEIGHT = 100;
const GAP_S = 60; // longer than between two rows, which are as far apart as samples: the host slept

const NAMES = { cpu: "CPU", memory: "Memory", disk: "Disk", network: "Network" };

function runs(at) {
  const found = [];
  let begin = 0;
  for (let i = 1; i <= at.length; i += 1) {
    if (i === at.length || at[i] - at[i - 1] > GAP_S) {
      found.push([begin, i]);
      begin = i;
    }
  }
  return found;
}

class Chart {
  constructor(place, name) {
    this.name = name;
    this.used = el("strong");
    this.of = el("span", { class: "of" });
    this.legend = {
      used: el("dd"),
      promised: el("dd"),
      slack: el("dd"),
    };
    this.title = svg("title", { id: `t-${name}` });
    this.paths = {
      slack: svg("path", { class: "slack" }),
      area: svg("path", { class: "area" }),
      used: svg("path", { class: "used" }),
      promised: svg("path", { class: "promised" }),
    };
    const grid = [25, 50, 75].map((y) => svg("path", { class: "grid", d: `M0 ${y}H${WIDTH}` }));
    const drawing = svg(
      "svg",
      { role: "img", "aria-labelledby": `t-${name}`, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" },
      this.title,
      ...grid,
      this.paths.slack,
      this.paths.area,
      this.paths.promised,
      this.paths.used,
    );
    const entry = (look, label, value) => el("div", { class: look }, el("dt", {}, label), value);
    place.append(
      el(
        "figure",
        { id: `chart-${name}` },
        el("figcaption", {}, el("h3", {}, NAMES[name] ?? name), el("p", { class: "now" }, this.used, this.of)),
        drawing,
        el("p", { class: "axis", "aria-hidden": "true" }, el("span", {}, "−10 min"), el("span", {}, "now")),
        el(
          "dl",
          { class: "legend" },
          entry("used", "used", this.legend.used),
          entry("promised", "promised", this.legend.promised),
          entry("slack", "slack", this.legend.slack),
        ),
      ),
    );
  }

  show(now, at, columns) {
    const text = (value) => (value === null ? "–" : amount(now.unit, value));
    const [value, whole] = now.unit === "share" ? [text(now.used)] : outOf(text, now.used, now.capacity).split(" of ");
    say(this.used, value);
    say(this.of, whole ? ` of ${whole}` : " in use");
    for (const what of ["used", "promised", "slack"]) say(this.legend[what], text(now[what]));
    const used = columns?.used ?? [];
    const least = used.length ? Math.min(...used) : now.used;
    const most = used.length ? Math.max(...used) : now.used;
    say(
      this.title,
      `${NAMES[this.name] ?? this.name} over the last ten minutes: ${outOf(text, now.used, now.capacity)} used now, ` +
        `between ${text(least)} and ${text(most)} before; ` +
        `${now.promised === null ? "" : `${text(now.promised)} promised, `}${text(now.slack)} slack.`,
    );
    this.plot(now, at, columns ?? {});
  }

  plot(now, at, columns) {
    const top = Math.max(now.capacity, ...(columns.used ?? []), ...(columns.promised ?? [])) || 1;
    const end = at.at(-1) ?? 0;
    const x = (i) => (WIDTH * (1 - (end - at[i]) / SPAN_S)).toFixed(1);
    const y = (value) => (HEIGHT * (1 - value / top)).toFixed(1);
    const line = (values, from, to) => {
      const points = [];
      for (let i = from; i < to; i += 1) points.push(`${x(i)} ${y(values[i])}`);
      return `M${points.join("L")}`;
    };
    const band = (above, below, from, to) => {
      const back = [];
      for (let i = to - 1; i >= from; i -= 1) back.push(`${x(i)} ${y(below[i])}`);
      return `${line(above, from, to)}L${back.join("L")}Z`;
    };
    const { used, promised, slack } = columns;
    const draw = (name, d) => this.paths[name].setAttribute("d", d);
    if (!used) return;
    const zero = used.map(() => 0);
    const full = used.map((value, i) => value + (slack?.[i] ?? 0));
    const parts = runs(at);
    const each = (of) => parts.map(([from, to]) => of(from, to)).join("");
    draw("used", each((from, to) => line(used, from, to)));
    draw("area", each((from, to) => band(used, zero, from, to)));
    draw("slack", each((from, to) => band(full, used, from, to)));
    draw("promised", promised ? each((from, to) => line(promised, from, to)) : "");
  }
}

export class Charts {
  constructor(place) {
    this.place = place;
    this.charts = new Map();
  }

  show(resources, history) {
    for (const [name, now] of Object.entries(resources)) {
      if (!this.charts.has(name)) this.charts.set(name, new Chart(this.place, name));
      this.charts.get(name).show(now, history.at, history.resources[name]);
    }
  }
}
