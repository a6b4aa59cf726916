// The daemon's events. While the page is not to be seen, nobody watches, and the daemon computes nothing.

import { $, say } from "/static/dom.js";

const KEEP_S = 600;
const AGAIN_MS = 5000;
const merged = {};
const history = { at: [], resources: {} };

function append(rows) {
  if (rows.at.length === 0) return;
  const names = JSON.stringify(Object.entries(rows.resources).map(([name, of]) => [name, Object.keys(of)]));
  if (names !== history.names) Object.assign(history, { at: [], resources: {}, names }); // another resource became known
  history.at.push(...rows.at);
  const stale = history.at.findIndex((at) => at > history.at.at(-1) - KEEP_S);
  history.at.splice(0, stale);
  for (const [name, of] of Object.entries(rows.resources)) {
    const kept = (history.resources[name] ??= {});
    for (const [what, values] of Object.entries(of)) {
      const column = (kept[what] ??= []);
      column.push(...values);
      column.splice(0, stale);
    }
  }
}

// An EventSource does not tell why it was refused. Empty: it would be accepted now, or nothing answers.
async function refusal() {
  const asked = new AbortController();
  try {
    const answer = await fetch("/events", { signal: asked.signal });
    return answer.ok ? "" : (await answer.json()).error;
  } catch {
    return "";
  } finally {
    asked.abort();
  }
}

// draw(status, history) is called with each event.
export function follow(draw) {
  let source = null;
  let again = null;
  const state = (text, look) => {
    say($("connection"), text);
    $("connection").className = `connection ${look}`;
  };
  const open = () => {
    const mine = (source = new EventSource("/events"));
    source.addEventListener("open", () => Object.assign(history, { at: [], resources: {}, names: "" }));
    source.addEventListener("history", (event) => append(JSON.parse(event.data)));
    source.addEventListener("status", (event) => {
      Object.assign(merged, JSON.parse(event.data));
      state("live", "good");
      draw(merged, history);
    });
    source.addEventListener("error", async () => {
      state("no answer; what is shown is old", "bad");
      if (mine.readyState !== EventSource.CLOSED) return; // it connects again by itself, but not once it was refused
      again = setTimeout(open, AGAIN_MS);
      const why = await refusal();
      if (why && source === mine) state(`${why}; what is shown is old`, "bad");
    });
  };
  document.addEventListener("visibilitychange", () => {
    source?.close();
    source = null;
    clearTimeout(again);
    if (!document.hidden) open();
  });
  open();
}
