// Now: the last decision, the current figures and the controls.
import { h, swap } from "../dom.js";
import { count, DASH, duration, KINDS, money, moment, number, percent, perSecond, plural } from "../format.js";
import { spark } from "../chart.js";
import { decisions, firstTime, lastRow } from "../store.js";
import { openTurn } from "../detail.js";
import { controls } from "../controls.js";

const RECENT = 6, SPARK = 60;

export function now(root, store) {
  const said = h("section", { class: "card hero", "aria-labelledby": "why" });
  const cards = h("section", { class: "cards", "aria-label": "Figures" });
  const recent = h("section", { class: "card", "aria-labelledby": "recent" });
  const steering = h("section", { class: "card", "aria-labelledby": "controls" });
  root.append(h("h1", { class: "unseen" }, "Now"), h("div", { class: "stack" }, said, cards, h("div", { class: "split" }, recent, steering)));
  const panel = controls(steering, store);
  let drawn = "";

  function update() {
    const rows = store.rows, row = lastRow(rows), about = store.about;
    const every = decisions(rows);
    const last = every.filter((other) => other.change.before !== other.change.after || other.change.kind === "refused").at(-1) || every.at(-1);
    const first = firstTime(rows);
    const key = `${last?.index} ${row?.index} ${every.length}`;
    panel.update();
    if (key === drawn) return;
    drawn = key;
    swap(said, hero(last, row, first, about, rows));
    swap(cards, row ? figures(row, rows) : []);
    swap(recent, h("h2", { id: "recent" }, "Recent decisions"),
      every.length ? h("ol", { class: "decisions" }, every.slice(-RECENT).reverse().map((other) => line(other, first, about)))
        : h("p", { class: "muted" }, "None so far."));
  }
  return { update, leave: panel.leave };
}

function hero(last, row, first, about, rows) {
  const error = rows.error.at(-1);
  const failed = error && h("p", { class: "note bad" }, `The last turn failed and changed nothing: ${error}`);
  if (!last) {
    return [h("h2", { id: "why", class: "over" }, "Last decision"), h("p", { class: "headline" }, "No scaling so far."), failed];
  }
  const { change } = last;
  const ago = row ? duration(row.time_s - last.time_s) : "";
  return [
    h("h2", { id: "why", class: "over" }, `Last decision · ${moment(last.time_s, about, first)}`,
      row && row.time_s > last.time_s ? ` · ${ago} before the last turn` : ""),
    h("p", { class: "headline" }, h("span", { class: `tag ${change.kind}` }, KINDS[change.kind]), " ", `${change.what}.`),
    change.why && h("p", { class: "why" }, h("b", {}, "Why: "), `${change.why}.`),
    change.held && h("p", { class: "why" }, h("b", {}, "Limited: "), `${change.held}.`),
    change.refused && h("p", { class: "why bad" }, change.refused),
    failed,
    h("p", {}, h("button", { type: "button", onclick: () => openTurn(last.index) }, "Show this decision")),
  ];
}

function line(row, first, about) {
  return h("li", {}, h("button", { type: "button", class: "plain-button", onclick: () => openTurn(row.index) },
    h("span", { class: "when" }, moment(row.time_s, about, first)),
    h("span", { class: `tag ${row.change.kind}` }, row.change.before === row.change.after ? KINDS[row.change.kind] : `${row.change.before} → ${row.change.after} hosts`),
    h("span", { class: "what" }, row.change.before === row.change.after ? row.change.text : row.change.why || row.change.text)));
}

function figures(row, rows) {
  const tail = (name) => rows[name].slice(-SPARK);
  const late = row.slo_s !== null && row.p95_s !== null && row.p95_s > row.slo_s;
  const full = row.capacity_per_s ? row.rate_per_s / row.capacity_per_s : null;
  return [
    card("Input rate", perSecond(row.rate_per_s), [`${perSecond(row.capacity_per_s)} capacity${row.shed ? ` · ${percent(row.shed)} shed` : ""}`, meter(full, "rate as a share of capacity")], spark(tail("rate_per_s"), "rate"), full > 1 ? "bad" : ""),
    row.worst ? worst(row, tail("ratio")) : card("Latency, p95", `${row.at_least && row.p95_s !== null ? "≥ " : ""}${duration(row.p95_s)}`, [
      row.slo_s === null ? "no SLO set" : row.p95_s === null ? `not measured; SLO ${duration(row.slo_s)}` : `${late ? "above" : "within"} the SLO of ${duration(row.slo_s)}`,
      `p50 ${duration(row.p50_s)} · p99 ${duration(row.p99_s)}${row.age_p95_s === null ? "" : ` · event age ${duration(row.age_p95_s)}`}`], spark(tail("p95_s"), "p95"), late ? "bad" : ""),
    card("Backlog", row.lag === null ? DASH : `${number(row.lag)}`, [row.lag === null ? "not measured" : "items waiting", drain(row)], spark(tail("lag"), "capacity")),
    card("Hosts", count(row.running), [
      `running, of ${plural(row.hosts, "host")} paid for`, `target ${count(row.wanted)}, planned ${count(row.planned)}${row.guards ? ` (${row.guards})` : ""}`], spark(tail("running"), "capacity")),
    card("Utilisation", percent(row.utilisation), [row.utilisation === null ? "not measured" : "mean of the hosts", meter(row.utilisation, "mean utilisation")], spark(tail("utilisation"), "rate")),
    row.usd_per_h ? card("Cost so far", money(row.cost_usd), [`${money(row.usd_per_h)} per hour now`, "by started billing unit"], spark(tail("usd_per_h"), "capacity"))
      : card("Cost so far", DASH, ["no price set", ""], null),
  ];
}

/** Queries that do not depend on each other have no common latency: show the one nearest to its SLO. */
function worst(row, ratios) {
  const { name, p95_s, slo_s, at_least } = row.worst;
  const all = row.beyond ? `${row.beyond} of ${row.judged} queries beyond their SLO` : row.judged === 1 ? "the only query with a delay" : `all ${row.judged} queries within their SLO`;
  return card("Latency, p95", `${at_least ? "≥ " : ""}${duration(p95_s)}`, [`${name}, with an SLO of ${duration(slo_s)}`,
    h("p", { class: "small" }, h("a", { href: "#queries" }, all))], spark(ratios, "p95"), row.beyond ? "bad" : "");
}

function drain(row) {
  if (!row.lag || row.capacity_per_s === null || row.rate_per_s === null) return "";
  const spare = row.capacity_per_s - row.rate_per_s;
  return spare > 0 ? `cleared in ${duration(row.lag / spare, 2)} at this rate` : "growing: the input exceeds the capacity";
}

function card(title, value, notes, picture, tone = "") {
  return h("div", { class: `card figure ${tone}` }, h("h3", {}, title), h("p", { class: "value" }, value),
    notes.map((note) => note && (note instanceof Node ? note : h("p", { class: "small muted" }, note))), picture);
}

function meter(share, label) {
  if (share === null || Number.isNaN(share)) return null;
  const shown = Math.min(1, share);
  return h("div", { class: `meter ${share > 1 ? "over" : ""}`, role: "img", "aria-label": `${label}: ${percent(share)}` },
    h("span", { style: { width: `${100 * shown}%` } }));
}
