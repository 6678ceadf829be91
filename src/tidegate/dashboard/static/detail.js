// One turn in full, in a side panel: the decision, its reasons and its effect.
import { h, swap, table } from "./dom.js";
import { count, DASH, duration, KINDS, money, moment, number, percent, perSecond } from "./format.js";
import { stage } from "./hosts.js";
import { decisions, firstTime, store } from "./store.js";

const sheet = h("dialog", { class: "sheet", "aria-labelledby": "sheet-title" });
document.getElementById("panel").append(sheet);
sheet.addEventListener("click", (event) => { if (event.target === sheet) sheet.close(); });

export const closeTurn = () => sheet.close();

/** Open the panel for a turn. index: its position in the journal. */
export async function openTurn(index, id = store.id) {
  swap(sheet, h("div", { class: "sheet-body" }, h("p", { class: "muted", id: "sheet-title" }, "Loading …")));
  if (!sheet.open) sheet.showModal();
  try {
    const turn = await store.turn(index, id);
    swap(sheet, body(turn, id));
  } catch (error) {
    swap(sheet, h("div", { class: "sheet-body" }, top("Cannot read this turn"), h("p", { role: "alert" }, error.message)));
  }
  sheet.scrollTop = 0;
  sheet.querySelector("button.close")?.focus();
}

function top(title) {
  return h("div", { class: "row apart" }, h("h2", { id: "sheet-title" }, title),
    h("button", { class: "quiet close", type: "button", "aria-label": "Close", onclick: () => sheet.close() }, "✕"));
}

function body(turn, id) {
  const rows = store.rows;
  const about = store.about;
  const at = moment(turn.time_s, about, firstTime(rows));
  const plan = turn.plan;
  return h("div", { class: "sheet-body stack" },
    top(`Turn ${turn.number} · ${at}`),
    turn.change && h("p", {}, h("span", { class: `tag ${turn.change}` }, KINDS[turn.change])),
    h("p", { class: "sentence" }, turn.text),
    id === store.id && steps(turn.index),
    turn.controls.length > 0 && section("Requested controls", h("ul", {}, turn.controls.map((text) => h("li", {}, text)))),
    plan && section("From target to plan", targets(plan)),
    plan && plan.reasons.length > 0 && section("Reasons", h("ul", { class: "plain" }, plan.reasons.map((reason) =>
      h("li", {}, h("code", {}, reason.code), " ", reason.text)))),
    plan && section("Predicted effect", predicted(turn)),
    turn.effect && section("Measured effect", effect(turn.effect)),
    section("Applied steps", turn.steps.length
      ? h("details", { open: turn.steps.length <= 6 }, h("summary", {}, `${turn.steps.length} steps`), h("ul", {}, turn.steps.map((step) => h("li", {}, step))))
      : h("p", { class: "muted" }, "None."),
    turn.refused.length > 0 && h("ul", { class: "bad" }, turn.refused.map((text) => h("li", {}, `Refused: ${text}`))),
    turn.notes.length > 0 && h("ul", { class: "muted" }, turn.notes.map((text) => h("li", {}, text)))),
    (plan?.shed_fraction > 0 || dropping(turn).length > 0) && section("Dropped items", dropped(turn)),
    plan && plan.unmet.length > 0 && section("Unmet demand", h("ul", {}, plan.unmet.map((unmet) =>
      h("li", {}, `${unmet.operator}: ${unmet.instances} not placed, ${unmet.why}`)))),
    turn.hosts.length > 0 && section("Snapshot", snapshot(turn)),
    h("p", { class: "small muted" }, "Decided by ", h("code", {}, turn.policy), " · ",
      h("a", { href: `/api/journals/${id}/turns/${turn.index}/raw`, target: "_blank", rel: "noopener" }, "raw journal line")));
}

const dropping = (turn) => turn.operators.filter((operator) => operator.dropped_per_s > 0);

/** What is to be dropped, and by operator what was offered, dropped and processed. */
function dropped(turn) {
  const share = turn.plan?.shed_fraction ?? 0;
  const rows = dropping(turn).map((operator) => [operator.name, perSecond(operator.arrival_per_s),
    perSecond(operator.dropped_per_s), perSecond(operator.processed_per_s)]);
  return [
    share > 0 && h("p", {}, `${percent(share)} of the input is dropped before processing.`),
    rows.length > 0 && table("", ["operator", "offered", "dropped", "processed"], rows, [1, 2, 3]),
  ];
}

const section = (title, ...content) => h("section", {}, h("h3", {}, title), ...content);

/** Buttons to the previous and the next decision. */
function steps(index) {
  const every = decisions(store.rows).map((row) => row.index);
  const before = every.filter((other) => other < index).at(-1);
  const after = every.find((other) => other > index);
  const button = (text, to) => h("button", { type: "button", disabled: to === undefined, onclick: () => openTurn(to) }, text);
  return h("div", { class: "row" }, button("← Previous decision", before), button("Next decision →", after));
}

function targets(plan) {
  const changed = plan.counts.filter((entry) => entry.before !== entry.after);
  return h("div", { class: "stack tight" },
    h("ol", { class: "chain" },
      h("li", {}, h("b", {}, count(plan.requested)), h("span", {}, "hosts before")),
      h("li", {}, h("b", {}, count(plan.raw_target)), h("span", {}, "target of the policy")),
      plan.bindings.map((binding) => h("li", { class: "held" }, h("b", {}, `${binding.before} → ${binding.after}`), h("span", {}, binding.guard))),
      h("li", { class: "final" }, h("b", {}, count(plan.target)), h("span", {}, "planned"))),
    plan.bindings.length
      ? h("ul", { class: "plain" }, plan.bindings.map((binding) => h("li", {}, h("code", {}, binding.guard), `: ${binding.why}`)))
      : h("p", { class: "muted small" }, "No guard changed it."),
    changed.length > 0 && h("details", {}, h("summary", {}, `Instances of ${changed.length} operators change`),
      table("", ["operator", "before", "planned"], changed.map((entry) => [entry.operator, entry.before, entry.after]), [1, 2])));
}

function predicted(turn) {
  const expected = turn.plan.predicted;
  const now = turn.effect?.before, then = turn.effect?.after;
  const rows = [
    ["mean latency", duration(now?.mean_s), duration(expected.sojourn_s), duration(then?.mean_s)],
    ["utilisation", percent(now?.utilisation), percent(expected.utilisation), percent(then?.utilisation)],
    ["capacity", perSecond(now?.capacity_per_s), perSecond(expected.capacity_per_s), perSecond(then?.capacity_per_s)],
    ["cost per hour", money(now?.usd_per_h), money(expected.cost_usd_per_h), money(then?.usd_per_h)],
  ].filter((row) => row[2] !== DASH);
  if (!rows.length) return h("p", { class: "muted" }, "The policy made no prediction.");
  return table("", ["", "before", "predicted", "measured after"], rows, [1, 2, 3]);
}

function effect(found) {
  if (!found.after) return h("p", { class: "muted" }, found.text);
  const { before, after } = found;
  const rows = [
    ["running hosts", count(before.running), count(after.running)],
    ["input rate", perSecond(before.rate_per_s), perSecond(after.rate_per_s)],
    ["capacity", perSecond(before.capacity_per_s), perSecond(after.capacity_per_s)],
    ["latency p95", duration(before.p95_s), duration(after.p95_s)],
    ["backlog", number(before.lag), number(after.lag)],
    ["utilisation", percent(before.utilisation), percent(after.utilisation)],
  ];
  return [h("p", {}, found.text), table("", ["", "at the decision", "after"], rows, [1, 2])];
}

function snapshot(turn) {
  const named = turn.hosts.some((host) => host.executor !== null);
  const hosts = turn.hosts.slice(0, 30).map((host) => [host.id, stage(host), percent(host.utilisation), String(host.instances.length),
    ...(named ? [host.executor ?? "", host.place ?? ""] : [])]);
  const columns = ["host", "status", "utilisation", "instances", ...(named ? ["executor", "place"] : [])];
  const operators = turn.operators.slice(0, 30).map((operator) => [
    operator.name, perSecond(operator.arrival_per_s), number(operator.queue), String(operator.instances), duration(operator.service_s)]);
  const least = (latency) => `${latency.at_least && latency.p95_s !== null ? "≥ " : ""}${duration(latency.p95_s)}`;
  const queries = turn.queries.map((query) => [query.name, duration(query.slo_s), least(query.delay), least(query.event_age), duration(query.backlog_s), query.limit]);
  return [
    turn.missing.length > 0 && h("p", { class: "warn small" }, `Not measured: ${turn.missing.slice(0, 4).join(", ")}${turn.missing.length > 4 ? " …" : ""}`),
    h("details", {}, h("summary", {}, `${turn.hosts.length} hosts`), table("", columns, hosts, [2, 3])),
    queries.length > 0 && h("details", { open: queries.length > 1 && queries.length <= 6 }, h("summary", {}, queries.length === 1 ? "1 query" : `${queries.length} queries`),
      table("", ["query", "SLO", "delay, p95", "event age, p95", "backlog", "limit"], queries, [1, 2, 3, 4])),
    h("details", {}, h("summary", {}, `${turn.operators.length} operators`), table("", ["operator", "arrivals", "backlog", "instances", "service time"], operators, [1, 2, 3, 4])),
  ];
}
