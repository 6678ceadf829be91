// Learning: the expected reward of each action by utilisation, and the thresholds that follow.
import { h, swap } from "../dom.js";
import { moment, percent } from "../format.js";
import { chart } from "../chart.js";
import { firstTime } from "../store.js";
import { latest } from "../latest.js";

export function learning(root, store) {
  const body = h("div", { class: "stack" });
  const choice = h("select", { id: "learner", onchange: () => last && heat() });
  const map = h("div", {}), lines = h("div", {}), said = h("p", { class: "muted" });
  root.append(body);
  let last = null, laidOut = "";

  function lay(kind, ...content) { if (laidOut !== kind) { laidOut = kind; swap(body, ...content); } }

  function draw(turn) {
    last = turn;
    if (!turn.learning) {
      lay("none", h("h1", {}, "Learning"), h("div", { class: "card" }, h("p", {}, "This policy does not learn."),
        h("p", { class: "muted" }, h("code", {}, turn.policy), " decides by fixed rules. A policy that learns its thresholds is ", h("code", {}, "sarsa"), ".")));
      return;
    }
    lay("learns", h("div", {}, h("h1", {}, "Learning"), said), h("div", { class: "split even" },
      h("section", { class: "card", "aria-labelledby": "heat" }, h("div", { class: "row apart" }, h("h2", { id: "heat" }, "Expected reward"), h("label", { class: "pick" }, "Host ", choice)), map),
      h("section", { class: "card", "aria-labelledby": "thresholds" }, h("h2", { id: "thresholds" }, "Resulting thresholds"), lines)));
    const names = turn.learning.tables.map((table) => table.host);
    const kept = names.includes(choice.value) ? choice.value : names[0];
    if (choice.dataset.names !== names.join()) {
      choice.dataset.names = names.join();
      swap(choice, names.map((name) => h("option", { value: name }, name)));
    }
    choice.value = kept;
    said.textContent = `${names.length === 1 ? "One host" : `Each of ${names.length} hosts`} learns from the effect of its decisions on its utilisation. Each row is a utilisation; the marked cell is the action it would choose.`;
    heat();
    thresholds();
  }

  function heat() {
    const table = last.learning.tables.find((entry) => entry.host === choice.value);
    const values = table.rows.flat();
    const low = Math.min(...values), high = Math.max(...values);
    const shade = (value) => (high > low ? (value - low) / (high - low) : 0.5);
    const steps = table.rows.length - 1;
    swap(map, h("p", { class: "small muted" }, sentence(table)),
      h("table", { class: "heat" }, h("caption", { class: "unseen" }, `Expected reward of ${table.host} by utilisation and action`),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "utilisation"), last.learning.actions.map((action) => h("th", { scope: "col" }, action)), h("th", { scope: "col", class: "num" }, "visits"))),
        h("tbody", {}, table.rows.map((row, n) => {
          const best = [1, 0, 2].reduce((found, action) => (row[action] > row[found] ? action : found), 1);
          return h("tr", {}, h("th", { scope: "row" }, percent(n / steps)), row.map((value, action) => h("td", {
            class: action === best ? "best" : "", style: { "--share": `${Math.round(8 + 62 * shade(value))}%` },
            "aria-label": `${value.toFixed(2)}${action === best ? ", chosen" : ""}` }, value.toFixed(2))), h("td", { class: "num plain-cell" }, table.visits[n] ? `${table.visits[n]} ×` : ""));
        }).reverse())));
  }

  function sentence(table) {
    const grow = table.upper === null ? "it never scales out" : `it scales out from ${percent(table.upper)}`;
    const shrink = table.lower === null ? "it never scales in" : `it scales in up to ${percent(table.lower)}`;
    return `${table.host}: ${shrink}, ${grow}.`;
  }

  function thresholds() {
    const { rows, about } = store;
    const times = rows.time_s.filter((time) => time !== null);
    const first = firstTime(rows);
    const width = lines.clientWidth || 480;
    const picture = chart({ width, height: 250, most: 1, x: rows.time_s, from: first, until: Math.max(times.at(-1), first + 1), offset: first,
      showX: (at) => moment(at, about, first), showY: percent, label: "Thresholds over time, mean of the hosts",
      lines: [{ values: rows.upper, style: "rate" }, { values: rows.lower, style: "wanted" }, { values: rows.utilisation, style: "faint-line" }] });
    swap(lines, h("div", { class: "legend" }, [["rate", "scales out from"], ["wanted", "scales in up to"], ["faint-line", "utilisation"]].map(([style, text]) => h("span", {}, h("i", { class: `key ${style}` }), text))),
      picture, h("p", { class: "small muted" }, "Mean of the hosts. A new host starts from the configured thresholds. What a host has learnt is lost when it is released."));
  }
  const update = latest(store, draw, (error) => swap(body, h("p", { class: "empty", role: "alert" }, error.message)));
  return { update(news) { if (news.kind === "resize" && last?.learning) thresholds(); update(); } };
}
