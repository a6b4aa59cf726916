// The page of a host: what its agent says of itself.

import { Charts } from "/static/chart.js";
import {
  $, JOB_STATES, Table, badge, bar, bytes, clock, cores, duration, day, facts, lines, notices, number, outOf,
  percent, progress, rate, say,
} from "/static/dom.js";
import { follow } from "/static/live.js";

const KINDS = { cpu: "CPU", disk: "Disk", network: "Network" };
const STATES = { running: "good", paused: "warn", warned: "warn", stopping: "warn" };

const charts = new Charts($("resources"));

// ---------------------------------------------------------------- queues

function head(one) {
  if (!one.head) return one.queued ? "–" : "nobody waits";
  const { name, task, waits_s: waits, holder, held_s: held } = one.head;
  const meanwhile = holder ? `; ${holder} has held a slot for ${duration(held)}` : "";
  return lines(name, `${task ? `task ${task}, ` : ""}waits for ${duration(waits)}${meanwhile}`);
}

const queues = new Table(
  $("queues"),
  "Queues of monotasks by resource",
  [
    { label: "Resource", of: ({ kind }) => KINDS[kind] },
    { label: "Waiting", look: "number", of: ({ queued }) => number(queued) },
    { label: "Slots in use", of: ({ running, slots, withheld }) =>
      bar(running / slots, `${running} of ${slots}${withheld ? `, ${withheld} promised` : ""}`) },
    { label: "Work not done", look: "number", of: (one) => bytes(one.pending_bytes) },
    { label: "Processing rate", look: "number", of: (one) => (one.rate_bytes_per_s ? rate(one.rate_bytes_per_s) : "–") },
    { label: "At the head", look: "wide", of: head },
  ],
  "No queues.",
);

// ---------------------------------------------------------------- containers

// Used against its limit; the mark is what its profile wants now.
function against(used, limit, wants, text) {
  if (used === undefined) return "–";
  const says = [limit ? outOf(text, used, limit) : text(used), wants ? `profile ${text(wants)}` : ""];
  const scale = limit || wants;
  return scale ? bar(used / scale, says, { mark: (wants || 0) / scale, alarms: text === bytes }) : says[0];
}

function pressure({ sample }) {
  const parts = [
    ["CPU", sample.cpu_stalled], ["throttled", sample.cpu_throttled], ["memory", sample.memory_stalled], ["disk", sample.disk_stalled],
  ].filter(([, share]) => share >= 0.005);
  return parts.length ? lines(...parts.map(([what, share]) => `${what} ${percent(share)}`)) : "none";
}

function traffic({ sample }) {
  const send = sample.network_send_bytes_per_s;
  const receive = sample.network_receive_bytes_per_s;
  return send || receive ? lines(`out ${rate(send)}`, `in ${rate(receive)}`) : "–";
}

function remarks(one) {
  const executor = one.executor;
  return lines(
    one.note,
    one.rank?.of > 1 || one.rank?.tenant ? `${one.rank.why}: ${duration(one.rank.cpu_s)} of CPU so far, queue ${one.rank.queue}` : "",
    one.profile ? `slot ${one.profile.slot + 1} of ${one.profile.slots} of its profile` : "",
    executor?.behind ? `stage takes ${number(executor.behind)} × what was predicted${executor.stuck ? ", stuck" : ""}` : "",
    ...Object.entries(one.not_enforced).map(([limit, why]) => `${limit} not enforced: ${why}`),
  );
}

const ranked = ({ rank }) => (rank ? lines(`${rank.rank} of ${rank.of}`, `weight ${rank.weight}`) : "–");

const who = (one) => lines(one.name, [one.task || one.container, one.user].filter(Boolean).join(" · "));
const classOf = (one) => badge(one.class, one.class === "opportunistic" ? "slack" : "");

const containers = new Table(
  $("containers"),
  "Containers that run, their limits and what they use",
  [
    { label: "Container", look: "name", of: who },
    { label: "Class", of: classOf },
    { label: "State", of: (one) => badge(one.state, STATES[one.state] ?? "") },
    { label: "Rank", look: "number", of: ranked },
    { label: "CPU", of: (one) => against(one.sample.cpu_cores, one.limits.cpu_cores, one.profile?.wants.cpu_cores, cores) },
    {
      label: "Memory",
      of: ({ sample, limits, profile }) =>
        against(sample.memory_bytes, limits.memory_max_bytes ?? limits.memory_high_bytes, profile?.wants.memory_bytes, bytes),
    },
    { label: "Disk", of: ({ sample, limits, profile }) =>
        against(sample.disk_bytes_per_s, limits.disk_read_bytes_per_s, profile?.wants.disk_bytes_per_s, rate) },
    { label: "Network", of: traffic },
    { label: "Pressure", of: pressure },
    { label: "Remarks", look: "wide", of: remarks },
  ],
  "Nothing runs in a container.",
);

const ended = new Table(
  $("ended"),
  "Containers that ended",
  [
    { label: "Container", look: "name", of: who },
    { label: "Class", of: classOf },
    { label: "Ended by", of: ({ ended: { by, exit_status: status } }) =>
        badge(by === "exit" ? `exit ${status ?? 0}` : by, by === "exit" && !status ? "good" : "bad") },
    { label: "Ran for", look: "number", of: ({ ended: { wall_seconds: wall } }) => duration(wall ?? 0) },
    { label: "CPU time", look: "number", of: ({ ended: { cpu_seconds: spent } }) => duration(spent ?? 0) },
    { label: "Most memory", look: "number", of: ({ ended: { memory_peak_bytes: peak } }) => bytes(peak ?? 0) },
    { label: "Reason", look: "wide", of: ({ ended: { reason } }) => reason || "–" },
  ],
  "None has ended yet.",
);

// ---------------------------------------------------------------- jobs, preemptions, events

const jobs = new Table(
  $("jobs"),
  "Jobs on this node",
  [
    { label: "Job", look: "name", of: (job) => lines(job.name || job.job, `${job.job} · ${job.user}`) },
    { label: "State", of: (job) => badge(job.state, JOB_STATES[job.state]) },
    { label: "Rank", look: "number", of: ranked },
    { label: "CPU time", look: "number", of: (job) => duration(job.cpu_s) },
    { label: "Running", look: "number", of: (job) => number(job.running) },
    { label: "Waiting", look: "number", of: (job) => number(job.queued) },
    { label: "Done", look: "number", of: (job) => number(job.done) },
    { label: "Failed", look: "number", of: (job) => number(job.failed) },
    { label: "Stages", look: "wide", of: (job) =>
        job.stages.length ? progress(job.stages.map(({ stage: name, done, skipped, tasks }) => ({ name, done, skipped, tasks }))) : "–" },
    { label: "Why it waits", look: "wide", of: (job) => job.waits || "–" },
  ],
  "No jobs.",
);

const preemptions = new Table(
  $("preemptions"),
  "What was done to opportunistic containers, the latest first",
  [
    { label: "When", look: "time", of: ({ at }) => clock(at) },
    { label: "Container", look: "name", of: ({ container, name }) => (name ? lines(name, container) : container) },
    { label: "What", of: ({ action }) => badge(action, action === "preempted" ? "bad" : "warn") },
    { label: "For", of: ({ resource }) => resource },
    { label: "Reason", look: "wide", of: ({ reason }) => reason },
  ],
  "No opportunistic container had to make way.",
);

const events = new Table(
  $("events"),
  "What the agent did, the latest first",
  [
    { label: "When", look: "time", of: ({ at }) => clock(at) },
    { label: "What", of: ({ what }) => what },
    { label: "Details", look: "wide", of: ({ at, what, ...rest }) =>
        Object.entries(rest).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ") },
  ],
  "Nothing worth a note yet.",
);

// The latest first; equal ones are told apart by how many there are.
function latestFirst(items) {
  const seen = new Map();
  return items.map((item) => {
    const said = JSON.stringify(item);
    const times = (seen.get(said) ?? 0) + 1;
    seen.set(said, times);
    return [`${said}${times}`, item];
  }).reverse();
}

// ---------------------------------------------------------------- all of it

// What cannot be enforced, by reason.
function missing(enforcement) {
  const reasons = new Map();
  const failing = Object.entries(enforcement).filter(([, fact]) => !fact.ok);
  for (const [what, { why, remedy }] of failing) {
    const reason = remedy ? `${why}; remedy: ${remedy}` : why;
    reasons.set(reason, [...(reasons.get(reason) ?? []), what]);
  }
  const told = [...reasons].map(([reason, what]) => `${what.join(", ")}: ${reason}`);
  return failing.length ? [{ summary: `This host cannot enforce everything (${failing.length} of ${Object.keys(enforcement).length} missing)`, lines: told }] : [];
}

function warnings({ enforcement, master, drain }) {
  const away = master.address && !master.linked;
  return [
    ...(away ? [`The master at ${master.address} does not answer.`] : []),
    ...(drain ? [`This node takes no work from the cluster: ${drain.state} by ${drain.by} since ${day(drain.since)}.`] : []),
    ...missing(enforcement),
  ];
}

function masterSays({ address, linked }) {
  if (!address) return "none";
  return linked ? address : `${address}, no answer`;
}

follow((status, history) => {
  say($("name"), status.node);
  document.title = `${status.node} · Penstock agent`;
  const host = status.host;
  facts($("facts"), [
    ["version", status.version],
    ["since", day(status.started_at)],
    ["master", masterSays(status.master)],
    ["T_alloc", number(status.t_alloc)],
    ["whole host", host.cpu_percent === undefined ? "no sample yet" : `CPU ${Math.round(host.cpu_percent)} %, memory ${outOf(bytes, host.memory_used_bytes, host.memory_total_bytes)}`],
  ]);
  notices($("notices"), warnings(status));
  charts.show(status.resources, history);
  const names = new Map(status.jobs.map((job) => [job.job, job.name]));
  const nameOf = (job) => names.get(job) || job;
  queues.show(Object.entries(status.kinds).map(([kind, one]) => [
    kind, { kind, ...one, head: one.head && { ...one.head, name: nameOf(one.head.job), holder: nameOf(one.head.held_by) } },
  ]));
  const live = status.containers.filter((one) => !one.ended);
  const over = status.containers.filter((one) => one.ended);
  containers.show(live.map((one) => [one.container, one]));
  say($("containers-count"), live.length ? `${live.length}, ${live.filter((one) => one.class === "opportunistic").length} opportunistic` : "");
  ended.show(over.map((one) => [one.container, one]));
  say($("ended-count"), status.more.ended ? `the last ${over.length} of ${over.length + status.more.ended}` : "");
  jobs.show(status.jobs.map((job) => [job.job, job]));
  say($("jobs-count"), status.more.jobs ? `${status.jobs.length} of ${status.jobs.length + status.more.jobs}` : "");
  const called = new Map(status.containers.map((one) => [one.container, one.name]));
  preemptions.show(latestFirst(status.preemptions.map((one) => ({ ...one, name: called.get(one.container) }))));
  events.show(latestFirst(status.events));
});
