// The page of the master: the cluster, and why what waits does wait.

import { Charts } from "/static/chart.js";
import {
  $, JOB_STATES, Table, action, badge, bar, bytes, cores, day, duration, el, facts, lines, notices, number, outOf,
  percent, progress, rate, say,
} from "/static/dom.js";
import { follow } from "/static/live.js";
import { Plan } from "/static/plan.js";

const charts = new Charts($("resources"));

// ---------------------------------------------------------------- nodes

const STATES = { connected: "good", draining: "warn", drained: "warn", away: "bad", expected: "warn" };

// Used of what there is; the mark is what is promised.
const room = (used, promised, there, text) =>
  there
    ? bar(used / there, [outOf(text, used, there), `promised ${text(promised)}`], { mark: promised / there, alarms: text === bytes })
    : "–";

const share = (value) => bar(value, percent(value));

const nodes = new Table(
  $("nodes"),
  "Nodes, what they have and what is used of it",
  [
    { label: "Node", look: "name", of: (node) => lines(node.name, node.version) },
    { label: "State", of: (node) => badge(node.state === "away" ? `away ${duration(node.away_s ?? 0)}` : node.state, STATES[node.state]) },
    { label: "CPU", of: ({ load, capacity }) => room(load.used_cores ?? 0, load.promised_cores ?? 0, capacity.cores, cores) },
    { label: "Memory", of: ({ load, capacity }) =>
        room(load.used_memory_bytes ?? 0, load.promised_memory_bytes ?? 0, capacity.memory_bytes, bytes) },
    { label: "Disk", of: ({ load }) => share(load.disk_busy ?? 0) },
    { label: "Network", of: ({ load }) => share(load.network_busy ?? 0) },
    { label: "Work not done", look: "number", of: ({ load: { pending } }) =>
        bytes((pending.cpu ?? 0) + (pending.disk ?? 0) + (pending.network ?? 0)) },
    { label: "Processing rate", of: ({ rates }) => {
        const known = Object.entries(rates).filter(([, value]) => value > 0);
        return known.length ? lines(...known.map(([kind, value]) => `${kind} ${rate(value)}`)) : "–";
      } },
    { label: "Tasks", look: "number", of: (node) =>
        node.opportunistic_tasks ? `${node.tasks}, ${node.opportunistic_tasks} on slack` : String(node.tasks) },
  ],
  "No agent has connected yet. Set `master` in an agent's configuration to this master's address.",
);

// ---------------------------------------------------------------- jobs

// The answer of /explain, as paragraphs.
function explanation(said) {
  if (said.error) return [said.error];
  const found = [];
  if (said.waits) found.push(`It waits: ${said.waits}`);
  found.push(said.sentence[0].toUpperCase() + said.sentence.slice(1));
  for (const at of said.ranks) {
    found.push(`On ${at.node}: rank ${at.rank} of ${at.of}, weight ${at.weight}, ${duration(at.service_container_s)} of service there`);
  }
  found.push(`Rule: ${said.why}`);
  for (const stage of said.stages) {
    found.push(`Stage ${stage.stage || "(no name)"}: ${stage.ready} ready${stage.waits ? `. ${stage.waits}` : ""}`);
  }
  if (!said.stages.length && !said.waits) found.push("No task of it waits for a place.");
  return found;
}

async function explain(job, button) {
  const content = el("div", { class: "explanation" });
  jobs.toggle(job, button, content);
  if (!content.isConnected) return;
  content.append(el("p", {}, "asking …"));
  let paragraphs;
  try {
    const answer = await fetch(`/explain?job=${encodeURIComponent(job)}`);
    paragraphs = explanation(await answer.json());
  } catch (error) {
    paragraphs = [`The master did not answer: ${error.message}`];
  }
  content.replaceChildren(...paragraphs.map((text) => el("p", {}, text)));
}

const jobs = new Table(
  $("jobs"),
  "Jobs, how far they are and why they wait",
  [
    { label: "Job", look: "name", of: (job) => lines(job.name || job.id, `${job.id} · ${job.user}`) },
    { label: "State", of: (job) => badge(job.state, JOB_STATES[job.state]) },
    { label: "Rank", look: "number", of: (job) => (job.rank ? String(job.rank) : "–") },
    { label: "Service", look: "number", of: (job) => duration(job.service_container_s) },
    { label: "Placed", look: "number", of: (job) => number(job.placed) },
    { label: "Ready", look: "number", of: (job) => number(job.ready) },
    { label: "Memory", look: "number", of: (job) => (job.memory_bytes ? bytes(job.memory_bytes) : "–") },
    { label: "Stages", look: "wide", of: (job) =>
        job.progress.length ? progress(job.progress.map(({ stage: name, done, skipped, tasks }) => ({ name, done, skipped, tasks }))) : "–" },
    { label: "Why it waits", look: "wide", of: (job) =>
        action(job.waits, "Explain", `job ${job.name || job.id}`, (button) => explain(job.id, button)) },
  ],
  "No jobs.",
);

// ---------------------------------------------------------------- reservations

const PLAN_EVERY_MS = 30_000;
const plan = new Plan();
let planned = { at: -Infinity, promised: "" };

// The plan moves with time and with what is promised.
function renewPlan(status) {
  const promised = JSON.stringify(Object.keys(status.promised));
  if (promised === planned.promised && performance.now() - planned.at < PLAN_EVERY_MS) return;
  planned = { at: performance.now(), promised };
  plan.refresh();
}

// ---------------------------------------------------------------- all of it

const told = (count, more) => (more ? `${count} of ${count + more}` : String(count));

follow((status, history) => {
  const all = Object.entries(status.nodes).sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true }));
  const connected = all.filter(([, node]) => node.state !== "away" && node.state !== "expected").length;
  const { ready, placed, ended } = status.tasks;
  facts($("facts"), [
    ["version", status.version],
    ["since", day(status.started_at)],
    ["agents connect to", status.listen],
    ["order of jobs", status.ordering],
    ["forecasts by", Object.keys(status.models).filter((model) => !status.models[model]).join(", ")],
    ["tasks", `${placed} placed, ${ready} ready`],
    ["memory reserved", `${bytes(status.memory.reserved_bytes)} of ${bytes(status.memory.reservable_bytes)}`],
  ]);
  notices($("notices"), all.filter(([, node]) => node.state === "away").map(([name, node]) =>
    `${name} has not answered for ${duration(node.away_s ?? 0)}.`));
  charts.show(status.resources, history);
  nodes.show(all.map(([name, node]) => [name, { name, ...node }]));
  say($("nodes-count"), all.length ? `${connected} of ${told(all.length, status.more.nodes)} connected` : "");
  const known = Object.entries(status.jobs);
  const inOrder = known.sort(([, a], [, b]) => (a.rank || Infinity) - (b.rank || Infinity));
  jobs.show(inOrder.map(([id, job]) => [id, { id, ...job }]));
  say($("jobs-count"), known.length ? told(known.length, status.more.jobs) : "");
  renewPlan(status);
  facts($("decisions"), [
    ...Object.entries(status.decisions).map(([name, count]) => [name.replaceAll("_", " "), number(count)]),
    ...Object.entries(ended).map(([by, count]) => [`tasks ended by ${by}`, number(count)]),
  ]);
});
