// Queries: each by its own SLO, with its delay, event age, backlog, batch and what limits it.
import { h, swap } from "../dom.js";
import { DASH, duration, number, percent, perSecond, plural } from "../format.js";
import { spark } from "../chart.js";
import { latest } from "../latest.js";
import { openTurn } from "../detail.js";

const HEADS = ["query", "in time", "delay, p95", "event age, p95", "backlog", "rows/s", "last batch", "state"];
const PARTS = [["overhead", "overhead"], ["fixed", "fixed work"], ["rows", "rows"]];

export function queries(root, store) {
  const said = h("p", { class: "muted" });
  const list = h("section", { class: "card", "aria-label": "Queries" });
  const why = h("section", { class: "card stack tight", "aria-labelledby": "query-why" });
  root.append(h("div", { class: "stack" }, h("div", {}, h("h1", {}, "Queries"), said), list, why));

  function draw(turn) {
    if (!turn.queries.length) {
      said.textContent = "";
      swap(list, h("p", {}, "This journal has no queries: its operators are not streaming queries with micro-batches."));
      swap(why);
      why.hidden = true;
      return;
    }
    const every = [...turn.queries].sort((a, b) => urgency(b) - urgency(a) || a.name.localeCompare(b.name));
    said.textContent = sentence(every);
    swap(list, rows(every, turn.totals || {}), explanation(every));
    why.hidden = false;
    swap(why, h("h2", { id: "query-why" }, `Decision of turn ${turn.number}`), h("p", {}, turn.text),
      turn.plan && turn.plan.reasons.length > 0 && h("ul", { class: "plain" }, turn.plan.reasons.map((reason) => h("li", {}, h("code", {}, reason.code), " ", reason.text))),
      h("p", {}, h("button", { type: "button", onclick: () => openTurn(turn.index) }, "Show this turn")));
  }
  const update = latest(store, draw, (error) => swap(list, h("p", { class: "empty", role: "alert" }, error.message)));
  return { update };
}

const late = (query) => query.slo_s !== null && query.judged.p95_s !== null && query.judged.p95_s > query.slo_s;
const idle = (query) => query.arrival_per_s === 0 && !query.queue;

/** Late queries first, by how late they are; idle ones last. */
function urgency(query) {
  if (idle(query) && !late(query)) return -1;
  return query.slo_s && query.judged.p95_s !== null ? query.judged.p95_s / query.slo_s : 0;
}

function sentence(every) {
  const behind = every.filter(late);
  const judged = every.filter((query) => query.slo_s !== null && query.judged.p95_s !== null);
  const rest = every.length - judged.length;
  const others = rest ? ` ${plural(rest, "query").replace("querys", "queries")} without a measured latency.` : "";
  if (!judged.length) return `No query has a measured latency and an SLO.`;
  if (!behind.length) return `${judged.length === 1 ? "The query is" : `All ${judged.length} queries with a measured latency are`} within the SLO at the 95th percentile.${others}`;
  const named = behind.slice(0, 3).map((query) => `${query.name} (${bound(query.judged)} against ${duration(query.slo_s)})`).join(", ");
  const more = behind.length > 3 ? ` and ${behind.length - 3} more` : "";
  return `${behind.length} of ${judged.length} beyond the SLO: ${named}${more}.${others}`;
}

const bound = (latency) => `${latency.at_least && latency.p95_s !== null ? "at least " : ""}${duration(latency.p95_s)}`;

function rows(every, totals) {
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Queries, can be scrolled" }, h("table", { class: "queries-table" },
    h("thead", {}, h("tr", {}, HEADS.map((head, n) => h("th", { scope: "col", class: [1, 3, 4, 7].includes(n) ? "num" : "" }, head)))),
    every.map((query) => h("tbody", { class: late(query) ? "late" : "" }, h("tr", {},
      h("th", { scope: "row" }, query.name, h("span", { class: "small muted block" }, `SLO ${duration(query.slo_s)}`)),
      h("td", { class: "num" }, share(totals[query.name])),
      h("td", {}, delay(query, totals[query.name])),
      h("td", { class: "num" }, bound(query.event_age)),
      h("td", { class: "num" }, duration(query.backlog_s), h("span", { class: "small muted block" }, query.queue === null ? "" : `${number(query.queue)} rows`)),
      h("td", {}, `${perSecond(query.arrival_per_s)} in`, h("span", { class: "small muted block" }, `${perSecond(query.processed_per_s)} out`)),
      h("td", {}, batch(query)),
      h("td", { class: "num" }, query.state_mb === null ? DASH : `${number(query.state_mb)} MB`)),
    query.limit && h("tr", { class: "limit-row" }, h("td", { colspan: String(HEADS.length) }, h("p", {}, h("span", { class: `tag ${query.limit.includes("do not help") ? "warn" : ""}` }, query.limit.includes("do not help") ? "limit" : "note"), " ", `${query.limit}.`)))))));
}

function share(total) {
  if (!total || !(total.rows + total.unmeasured)) return h("span", { class: "muted" }, "no rows");
  if (!total.rows) return h("span", { class: "muted" }, "not measured");
  const inTime = 1 - total.late / total.rows;
  const known = total.rows / (total.rows + total.unmeasured);
  return [h("b", {}, `${(100 * inTime).toFixed(inTime > 0.9995 ? 0 : 1)} %`), known < 0.9995 && h("span", { class: "small muted block" }, `of ${percent(known)} measured`)];
}

function delay(query, total) {
  const ratio = query.slo_s && query.judged.p95_s !== null ? query.judged.p95_s / query.slo_s : null;
  const line = spark((total?.recent || []).slice(-40), "p95", 84, 22);
  return h("div", { class: "delay" }, h("span", { class: late(query) ? "bad" : "" }, bound(query.delay)), line,
    ratio !== null && h("div", { class: `meter ${ratio > 1 ? "over" : ""}`, role: "img", "aria-label": `delay as a share of the SLO: ${percent(ratio)}` },
      h("span", { style: { width: `${100 * Math.min(1, ratio)}%` } })));
}

function batch(query) {
  const trigger = query.trigger_s === null ? "" : query.trigger_s === 0 ? "no pause" : `every ${duration(query.trigger_s)}`;
  if (!query.parts_s) return [duration(query.batch_s), h("span", { class: "small muted block" }, trigger)];
  const total = query.parts_s.reduce((sum, part) => sum + part, 0) || 1;
  const text = query.parts_s.map((part, n) => `${PARTS[n][1]} ${duration(part, 2)}${query.unclear.includes(PARTS[n][1]) ? " (uncertain)" : ""}`).join(", ");
  return h("div", { class: "batch" }, `${duration(query.batch_s)}`, h("span", { class: "small muted" }, ` ${trigger}`),
    h("div", { class: "stacked", role: "img", "aria-label": text, title: text },
      query.parts_s.map((part, n) => h("span", { class: `${PARTS[n][0]} ${query.unclear.includes(PARTS[n][1]) ? "unclear" : ""}`, style: { width: `${(100 * part) / total}%` } }))),
    query.unclear.length > 0 && h("span", { class: "small muted block" }, `uncertain: ${query.unclear.join(", ")}`));
}

function explanation(every) {
  const legend = every.some((query) => query.parts_s) && h("p", { class: "small muted key-line" },
    PARTS.map(([style, text]) => [h("i", { class: `key part ${style}` }), text]), " of a usual batch: nothing shortens the overhead; slots share the fixed work and the rows.");
  return [legend, h("p", { class: "small muted" }, "In time: share of the rows since the journal began whose delay was within the query's own SLO. Delay: from when a row could be read to the commit of its result. Event age: from the row's own time stamp; late data is old by design. ",
    every.some((query) => query.delay.at_least) && "“At least”: rows are left over, so the delay is a lower bound; it counts with that value.")];
}
