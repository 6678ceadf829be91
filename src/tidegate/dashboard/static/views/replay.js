// Replay: a slider over a journal, or over two journals side by side.
import { calm, h, swap, table } from "../dom.js";
import { clock, count, DASH, duration, money, number, percent, perSecond } from "../format.js";
import { firstTime, get, rowAt } from "../store.js";
import { charts, legend, legendsOf } from "./timeline.js";
import { drawHosts } from "../hosts.js";
import { openTurn } from "../detail.js";

const SPEEDS = [["20", "slow"], ["60", "normal"], ["240", "fast"]];

export function replay(root, store) {
  const slider = h("input", { type: "range", min: "0", max: "1000", value: "1000", id: "moment", "aria-label": "Time in the run" });
  const play = h("button", { type: "button", class: "primary", onclick: () => (timer ? stop() : start()) }, "▶ Play");
  const speed = h("select", { "aria-label": "Speed" }, SPEEDS.map(([value, text]) => h("option", { value, selected: value === "60" }, text)));
  const other = h("select", { id: "other", onchange: () => compare() });
  const at = h("output", { for: "moment", class: "at" });
  const figures = h("section", { class: "card", "aria-labelledby": "sums" });
  const sides = h("div", { class: "sides" });
  root.append(h("div", { class: "stack" },
    h("section", { class: "card player", "aria-label": "Player" }, h("div", { class: "row apart" }, h("h1", {}, "Replay"), h("label", { class: "pick" }, "Compare with ", other)),
      h("div", { class: "row player-row" }, play, speed, at), slider),
    sides, figures));
  let timer = null, second = null, share = 1, waiting = null;
  const columns = [side(), side()];

  function side() {
    const parts = { title: h("h2", {}), said: h("p", { class: "sentence" }), facts: h("dl", { class: "facts" }), plots: h("div", {}), hosts: h("div", { class: "hosts small-hosts" }),
      open: h("button", { type: "button" }, "Why") };
    parts.root = h("section", { class: "card stack tight" }, h("div", { class: "row apart" }, parts.title, parts.open), parts.said, parts.facts, parts.plots, parts.hosts);
    return parts;
  }

  function start() {
    if (share >= 1) share = 0;
    swap(play, "❚❚ Pause");
    timer = setInterval(() => {
      const step = Number(speed.value) / 20000;
      share = Math.min(1, share + step);
      slider.value = String(1000 * share);
      draw();
      if (share >= 1) stop();
    }, calm() ? 500 : 60);
  }
  function stop() { clearInterval(timer); timer = null; swap(play, "▶ Play"); }
  slider.addEventListener("input", () => { share = Number(slider.value) / 1000; draw(); });

  const mine = () => ({ id: store.id, name: store.about.name, about: store.about, rows: store.rows });

  async function compare() {
    second = null;
    if (other.value !== "") {
      const id = Number(other.value);
      const read = await get(`/api/journals/${id}/series?points=1500`);
      const { rows, ...about } = read;
      if (Number(other.value) === id) second = { id, name: about.name, about, rows };
    }
    lay();
    draw();
  }

  function lay() {
    swap(sides, columns[0].root, second && columns[1].root);
    sides.classList.toggle("two", second !== null);
  }

  function options() {
    const kept = other.value;
    swap(other, h("option", { value: "" }, "none"), store.journals.filter((journal) => journal.id !== store.id).map((journal) => h("option", { value: String(journal.id) }, journal.name)));
    other.value = kept;
  }

  function length(run) {
    const times = run.rows.time_s.filter((time) => time !== null);
    return times.length ? times.at(-1) - times[0] : 0;
  }

  function draw() {
    const runs = [mine(), ...(second ? [second] : [])];
    const whole = Math.max(1, ...runs.map(length));
    const passed = share * whole;
    at.textContent = `${clock(passed)} of ${clock(whole)}`;
    slider.setAttribute("aria-valuetext", `${clock(passed)} after the start`);
    runs.forEach((run, n) => drawSide(columns[n], run, passed, whole));
    clearTimeout(waiting);
    waiting = setTimeout(() => runs.forEach((run, n) => detail(columns[n], run)), timer ? 0 : 120);
    swap(figures, h("h2", { id: "sums" }, "Totals so far"), sums(runs, passed));
  }

  function drawSide(parts, run, passed, whole) {
    const first = firstTime(run.rows);
    let n = 0;
    for (let k = 0; k < run.rows.index.length; k++) if (run.rows.time_s[k] !== null && run.rows.time_s[k] <= first + passed + 1e-6) n = k;
    const row = run.rows.index.length ? rowAt(run.rows, n) : null;
    const policy = run.about.policy.split(" → ")[0];
    swap(parts.title, run.name, policy !== run.name ? h("small", { class: "muted" }, ` ${policy}`) : null);
    if (!row) return;
    parts.index = row.index;
    parts.open.onclick = () => openTurn(parts.index, run.id);
    swap(parts.facts, [["rate", perSecond(row.rate_per_s)], ["capacity", perSecond(row.capacity_per_s)], ["hosts", count(row.running)], ["p95", duration(row.p95_s)], ["backlog", number(row.lag)], ["cost", row.usd_per_h ? money(row.cost_usd) : DASH]]
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    const width = parts.plots.clientWidth || 500;
    const drawn = charts(run.rows, run.about, width, { from: first, until: first + whole, cursor: first + passed, relative: true, low: second ? 110 : 120 });
    swap(parts.plots, drawn.map((picture, k) => [legend(...legendsOf(run.rows)[k]), picture]));
  }

  async function detail(parts, run) {
    const index = parts.index;
    if (index === undefined || parts.reading) return;
    parts.reading = true;
    try {
      const turn = await store.turn(index, run.id);
      parts.said.textContent = `Turn ${turn.number}. ${turn.text}`;
      drawHosts(parts.hosts, turn);
    } catch { parts.said.textContent = "Cannot read this turn."; } finally { parts.reading = false; }
    if (parts.index !== index) detail(parts, run);
  }

  function sums(runs, passed) {
    const made = runs.map((run) => summary(run, passed));
    const names = Object.keys(made[0]);
    return table("", ["", ...runs.map((run) => run.name)], names.map((name) => [name, ...made.map((sum) => sum[name])]), runs.map((_, n) => n + 1));
  }

  options();
  lay();
  return {
    update(news) {
      options();
      if (news.kind === "begin" || news.kind === "resize" || (share >= 1 && !timer)) draw();
    },
    leave() { stop(); clearTimeout(waiting); },
  };
}

/** Totals of a run up to a time; each row counts until the next one. */
function summary(run, passed) {
  const { rows } = run;
  const first = firstTime(rows);
  let hosts = 0, spanned = 0, within = 0, judged = 0, changes = 0, cost = null, worst = null;
  for (let n = 0; n < rows.index.length; n++) {
    const time = rows.time_s[n];
    if (time === null || time > first + passed + 1e-6) continue;
    const next = Math.min(rows.time_s.slice(n + 1).find((value) => value !== null) ?? time, first + passed);
    const span = Math.max(0, next - time);
    hosts += rows.hosts[n] * span; spanned += span;
    if (rows.p95_s[n] !== null && rows.slo_s[n] !== null) { judged += span; if (rows.p95_s[n] <= rows.slo_s[n]) within += span; }
    if (rows.p95_s[n] !== null) worst = Math.max(worst ?? 0, rows.p95_s[n]);
    if (rows.change[n] && rows.change[n].before !== rows.change[n].after) changes++;
    if (rows.usd_per_h[n]) cost = rows.cost_usd[n];
  }
  return {
    "mean hosts": spanned ? number(hosts / spanned) : DASH,
    "time with p95 within the SLO": judged ? percent(within / judged) : DASH,
    "worst p95": duration(worst), "scaling operations": String(changes), cost: money(cost),
  };
}
