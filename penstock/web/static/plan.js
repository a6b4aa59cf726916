// What is promised ahead of time: stacked, by reservation, below the line of what there is.

import { $, Table, amount, badge, bytes, cores, day, el, lines, outOf, say, svg } from "/static/dom.js";

const WIDTH = 600;
const HEIGHT = 100;
const NAMED = 6; // so many have a colour of their own; the others share one
const LONGEST_S = 7 * 86400;
const MOST_ROWS = 100;
const RESOURCES = [["cpu_cores", "CPU", "cores"], ["memory_bytes", "Memory", "bytes"]];

// null: the master is away, or takes no reservations; its log says why.
async function asked(path) {
  const answer = await fetch(path).catch(() => null);
  return answer?.ok ? answer.json() : null;
}

const called = (one) => one.name || one.reservation;
const begins = ({ promised }) => promised[0].start; // they come in order
const ends = ({ promised }) => promised.reduce((last, { finish }) => Math.max(last, finish), 0);

// The most that is promised at any time: what begins is added, what finishes is taken away, in order.
function mostOf({ promised }, resource) {
  const changes = promised.flatMap((piece) => {
    const held = piece.bundles * piece[resource];
    return [[piece.start, held], [piece.finish, -held]];
  });
  changes.sort(([at, change], [other, otherChange]) => at - other || change - otherChange);
  let held = 0;
  return changes.reduce((most, [, change]) => Math.max(most, (held += change)), 0);
}

// [name, what is promised to it over time] of the first ones by themselves, of the rest as one.
function layers(promised, resource) {
  const all = Object.entries(promised).map(([name, columns]) => [name, columns[resource]]);
  if (all.length <= NAMED) return all;
  const rest = all.slice(NAMED - 1);
  const sum = rest[0][1].map((_, i) => rest.reduce((total, [, heights]) => total + heights[i], 0));
  return [...all.slice(0, NAMED - 1), [`${rest.length} others`, sum]];
}

class Stack {
  constructor(place, resource, title, unit) {
    this.resource = resource;
    this.title = title;
    this.unit = unit;
    this.name = svg("title", { id: `p-${resource}` });
    this.drawing = svg("svg", {
      role: "img", "aria-labelledby": `p-${resource}`, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
    }, this.name);
    this.most = el("p", { class: "now" });
    this.axis = [el("span"), el("span")];
    this.legend = el("ul", { class: "layers" });
    place.append(el(
      "figure", { id: `plan-${resource}` },
      el("figcaption", {}, el("h3", {}, `${title} promised`), this.most),
      this.drawing, el("p", { class: "axis", "aria-hidden": "true" }, ...this.axis), this.legend,
    ));
  }

  // times, until, capacity, promised: as /plan has them; called: what stands there for a name.
  show({ times, until, capacity, promised }, called) {
    const { resource, unit } = this;
    const from = times[0];
    const there = capacity[resource];
    const stacked = layers(promised, resource).map(([name, heights]) => [called(name), heights]);
    const total = times.map((_, i) => stacked.reduce((sum, [, heights]) => sum + heights[i], 0));
    const top = Math.max(...there, ...total) || 1;
    const x = (at) => (WIDTH * (at - from) / (until - from)).toFixed(1);
    const y = (value) => (HEIGHT * (1 - value / top)).toFixed(1);
    // Steps: each height holds until the next time.
    const stairs = (heights) => heights.map((height, i) => `${x(times[i])} ${y(height)}L${x(times[i + 1] ?? until)} ${y(height)}`);
    let below = times.map(() => 0);
    const bands = stacked.map(([, heights], layer) => {
      const above = heights.map((height, i) => below[i] + height);
      const back = stairs(below).map((step) => step.split("L").reverse().join("L")).reverse();
      below = above;
      return svg("path", { class: `layer c${layer}`, d: `M${stairs(above).join("L")}L${back.join("L")}Z` });
    });
    const line = svg("path", { class: "there", d: `M${stairs(there).join("L")}` });
    this.drawing.replaceChildren(this.name, ...bands, line);
    const most = Math.max(0, ...total);
    const text = (value) => amount(unit, value);
    say(this.most, `at most ${outOf(text, most, top)}`);
    say(this.name, `${this.title} promised from ${day(from)} to ${day(until)}: at most ${outOf(text, most, top)}, to ${stacked.map(([name]) => name).join(", ")}; the table has each.`);
    say(this.axis[0], "now");
    say(this.axis[1], day(until));
    this.legend.replaceChildren(...stacked.map(([name], layer) => el("li", { class: `c${layer}` }, name)));
  }
}

export class Plan {
  constructor() {
    this.section = $("reservations-section");
    this.stacks = RESOURCES.map(([resource, title, unit]) => new Stack($("plan"), resource, title, unit));
    this.table = new Table($("reservations"), "Reservations and what is promised to them", [
      { label: "Reservation", look: "name", of: (one) => lines(called(one), `${one.reservation} · ${one.user}`) },
      { label: "State", of: ({ state: [text, look] }) => badge(text, look) },
      { label: "Promised", of: (one) => (one.promised.length ? lines(`from ${day(begins(one))}`, `to ${day(ends(one))}`) : "–") },
      { label: "At most", of: ({ most }) => (most ? lines(...most) : "–") },
      { label: "Asked for", look: "wide", of: ({ rdl }) => rdl },
      { label: "Remarks", look: "wide", of: ({ dropped }) => dropped },
    ], "No reservations.");
  }

  async refresh() {
    const said = await asked("/reservations");
    if (!said) return;
    const { at, reservations } = said;
    this.section.hidden = reservations.length === 0;
    this.table.show(reservations.slice(-MOST_ROWS).reverse().map((one) => [one.reservation, describe(one, at)]));
    const coming = reservations.filter((one) => one.promised.some(({ finish }) => finish > at));
    $("plan").hidden = coming.length === 0;
    if (coming.length === 0) return;
    const by = coming.length > NAMED ? "user" : "reservation";
    const until = Math.min(at + LONGEST_S, Math.max(...coming.map(ends)));
    const plan = await asked(`/plan?since=${at}&until=${until}&by=${by}`);
    const names = new Map(coming.map((one) => [one.reservation, called(one)]));
    if (plan) this.stacks.forEach((stack) => stack.show(plan, (name) => names.get(name) ?? name));
  }
}

function describe(one, at) {
  let state = ["over", ""];
  if (one.dropped) state = ["dropped", "bad"];
  else if (one.promised.some(({ start, finish }) => start <= at && at < finish)) state = ["now", "good"];
  else if (one.promised.some(({ start }) => start > at)) state = ["later", ""];
  const most = one.promised.length ? [cores(mostOf(one, "cpu_cores")), bytes(mostOf(one, "memory_bytes"))] : null;
  return { ...one, state, most };
}
