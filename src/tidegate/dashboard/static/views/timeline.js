// Timeline: rate, capacity, hosts and latency, with a mark for each decision.
import { h, s, swap } from "../dom.js";
import { clock, count, duration, KINDS, moment, number, percent, plural } from "../format.js";
import { chart } from "../chart.js";
import { decisions, firstTime } from "../store.js";
import { openTurn } from "../detail.js";

const SPANS = [["all", "the whole run"], ["3600", "the last hour"], ["900", "the last 15 min"], ["300", "the last 5 min"]];
const MOST_LISTED = 100;
const SIGNS = { out: "M-5 4L0 -5L5 4Z", in: "M-5 -4L0 5L5 -4Z", move: "M-4 0L0 -4L4 0L0 4Z", refused: "M-4 -4L4 4M4 -4L-4 4" };

/** The three charts for a range of rows; also used by the replay. */
export function charts(rows, about, width, { from, until, cursor, relative = false, low = 150 }) {
  const first = firstTime(rows);
  const showX = (at) => (relative ? clock(at - first) : moment(at, about, first));
  const offset = about.clock === "wall" && !relative ? new Date().getTimezoneOffset() * 60 : first;
  const base = { width, x: rows.time_s, from, until, showX, cursor, offset };
  const slo = rows.slo_s.findLast((value) => value !== null) ?? null;
  return [
    chart({ ...base, height: low, axis: false, showY: (v) => number(v, 2), label: "Input rate and capacity in items per second over time",
      lines: [{ values: rows.capacity_per_s, style: "capacity", step: true }, { values: rows.rate_per_s, style: "rate", area: true }] }),
    chart({ ...base, height: low - 20, axis: false, showY: count, label: "Running hosts and target over time",
      lines: [{ values: rows.running, style: "running", step: true, area: true }, { values: rows.wanted, style: "wanted", step: true }] }),
    several(rows) ? chart({ ...base, height: low + 24, showY: percent, label: "Delay of the worst query as a share of its SLO over time, p95", limit: { value: 1, label: "its SLO" },
      lines: [{ values: rows.ratio, style: "p95" }] }) : chart({ ...base, height: low + 24, showY: (v) => duration(v, 2), label: "Latency over time: p50 and p95", limit: slo === null ? null : { value: slo, label: `SLO ${duration(slo)}` },
      lines: [{ values: rows.p50_s, style: "p50" }, { values: rows.p95_s, style: "p95" }] }),
  ];
}

export const legend = (title, unit, keys) => h("div", { class: "legend" }, h("h2", {}, title, h("small", {}, ` ${unit}`)),
  keys.map(([style, text]) => h("span", {}, h("i", { class: `key ${style}`, "aria-hidden": "true" }), text)));

const LEGENDS = [
  ["Rate and capacity", "items/s", [["rate", "input"], ["capacity", "capacity"]]],
  ["Hosts", "", [["running", "running"], ["wanted", "target of the policy"]]],
  ["Latency", "arrival to completion", [["p50", "p50"], ["p95", "p95"]]],
];

/** Whether there are queries that do not depend on each other: each has its own SLO. */
const several = (rows) => rows.worst.some((query) => query !== null);

export const legendsOf = (rows) => (several(rows) ? [...LEGENDS.slice(0, 2), ["Latency", "of the query nearest to its SLO or furthest beyond it, as a share of its SLO", [["p95", "p95"]]]] : LEGENDS);

export function timeline(root, store) {
  const span = h("select", { onchange: () => update({ kind: "begin" }) }, SPANS.map(([value, text]) => h("option", { value }, text)));
  const kinds = h("select", { onchange: () => update({ kind: "begin" }) }, h("option", { value: "all" }, "all"), h("option", { value: "hosts", selected: innerWidth < 640 }, "host changes only"));
  const strip = h("div", { class: "marks", role: "listbox", tabindex: "0", "aria-label": "Decisions over time. Arrow keys select one, Enter opens it." });
  const boxes = legendsOf(store.rows).map((entry) => h("div", {}, legend(...entry), h("div", { class: "plot" })));
  const list = h("div", {});
  const hint = h("p", { class: "small muted" });
  root.append(h("div", { class: "stack" },
    h("section", { class: "card", "aria-label": "Charts" },
      h("div", { class: "row apart" }, h("h1", {}, "Timeline"),
        h("div", { class: "row" }, h("label", { class: "pick" }, "Show ", span), h("label", { class: "pick" }, "Decisions ", kinds))),
      hint, boxes[0], strip, boxes[1], boxes[2]),
    h("section", { class: "card" }, h("h2", {}, "Decisions"), list)));
  let shown = [], active = -1, geometry = null, cursor = null;

  function pick(n, open) {
    if (!shown.length) return;
    active = Math.max(0, Math.min(shown.length - 1, n));
    cursor = shown[active].time_s;
    draw();
    if (open) openTurn(shown[active].index);
  }
  strip.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: active < 0 ? shown.length - 1 : active - 1, ArrowRight: active + 1, Home: 0, End: shown.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); pick(to, false); }
    else if ((event.key === "Enter" || event.key === " ") && active >= 0) { event.preventDefault(); pick(active, true); }
  });

  function update() {
    const every = decisions(store.rows);
    const wanted = kinds.value === "hosts" ? every.filter((row) => row.change.before !== row.change.after || row.change.kind === "refused") : every;
    const kept = shown[active]?.index;
    shown = wanted;
    active = kept === undefined ? -1 : shown.findIndex((row) => row.index === kept);
    draw();
    write();
  }

  function draw() {
    const { rows, about } = store;
    const times = rows.time_s.filter((time) => time !== null);
    if (!times.length) return;
    const until = times.at(-1), first = times[0];
    const from = span.value === "all" ? first : Math.max(first, until - Number(span.value));
    const width = boxes[0].clientWidth || 600;
    const drawn = charts(rows, about, width, { from, until: Math.max(until, from + 1), cursor });
    drawn.forEach((picture, n) => swap(boxes[n].lastChild, picture));
    geometry = drawn[0].geometry;
    marks(from, until, width);
    const inside = shown.filter((row) => row.time_s >= from).length;
    hint.textContent = `${plural(inside, "decision")}, marked below the first chart: ▲ scaled out, ▼ scaled in, ◆ rearranged. Click a mark, or use the arrow keys and Enter, to see its reasons and its effect.`;
  }

  function marks(from, until, width) {
    const first = firstTime(store.rows);
    const picture = s("svg", { width, height: 26, viewBox: `0 0 ${width} 26`, role: "presentation" });
    shown.forEach((row, n) => {
      if (row.time_s < from || row.time_s > until) return;
      const size = row.change.before === row.change.after ? 0.75 : 1.15;
      picture.append(s("g", {
        id: `mark-${row.index}`, role: "option", "aria-selected": String(n === active), class: `mark ${row.change.kind} ${n === active ? "active" : ""}`,
        transform: `translate(${geometry.px(row.time_s).toFixed(1)} 13) scale(${size})`, "aria-label": `${moment(row.time_s, store.about, first)}, ${row.change.text}`,
        onclick: () => pick(n, true),
      }, s("title", {}, row.change.text), s("rect", { x: -8, y: -13, width: 16, height: 26, class: "hit" }), s("path", { d: SIGNS[row.change.kind] })));
    });
    swap(strip, picture);
    if (active >= 0) strip.setAttribute("aria-activedescendant", `mark-${shown[active].index}`);
    else strip.removeAttribute("aria-activedescendant");
  }

  let listed = "";
  function write() {
    const key = `${kinds.value} ${shown.length} ${shown.at(-1)?.index}`;
    if (key === listed) return;
    listed = key;
    const first = firstTime(store.rows);
    const last = shown.slice(-MOST_LISTED).reverse();
    swap(list, shown.length > last.length && h("p", { class: "small muted" }, `The last ${last.length} of ${shown.length}.`),
      h("div", { class: "scroll tall" }, h("table", {}, h("thead", {}, h("tr", {}, ["time", "turn", "hosts", "utilisation", "decision"].map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, last.map((row) => h("tr", {},
          h("th", { scope: "row" }, moment(row.time_s, store.about, first)), h("td", {}, row.number),
          h("td", {}, row.change.before === row.change.after ? String(row.change.after) : `${row.change.before} → ${row.change.after}`),
          h("td", {}, percent(row.utilisation)),
          h("td", {}, h("button", { type: "button", class: "plain-button", onclick: () => openTurn(row.index) }, h("span", { class: `tag ${row.change.kind}` }, KINDS[row.change.kind]), " ", row.change.text))))))));
  }
  return { update };
}
