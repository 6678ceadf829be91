// Topology: operators with their rates, queues and times; the bottleneck is highlighted.
import { h, s, swap, table } from "../dom.js";
import { duration, number, percent, perSecond, plural } from "../format.js";
import { latest } from "../latest.js";

const WIDE = 224, TALL = 128, GAP_X = 74, GAP_Y = 26, SOURCE = 92, MOST = 24, TRACK = 22, SMALLEST = 0.7;

export function topology(root, store) {
  const picture = h("div", { class: "card scroll graph", tabindex: "0", role: "group", "aria-label": "Operators and the flow between them" });
  const said = h("p", { class: "muted" });
  const text = h("div", {});
  root.append(h("div", { class: "stack" }, h("div", {}, h("h1", {}, "Topology"), said), picture,
    h("section", { class: "card" }, h("h2", {}, "Operators"), text)));
  let last = null;

  function draw(turn) {
    last = turn;
    const neck = turn.operators.find((operator) => operator.bottleneck);
    text.classList.toggle("tall", turn.operators.length > 12);
    said.textContent = neck
      ? `The bottleneck is ${neck.name}: ${plural(neck.instances, "instance")}, ${percent(neck.busy)} busy with ${perSecond(neck.arrival_per_s)}.`
      : "The utilisation of the operators was not measured.";
    swap(picture, graph(turn, picture.clientWidth - 40));
    swap(text, table("", ["operator", "arrivals", "processed", "backlog", "instances", "utilisation", "predicted", "measured"], turn.operators.map((operator) => [
      operator.bottleneck ? h("b", {}, operator.name) : operator.name, perSecond(operator.arrival_per_s), perSecond(operator.processed_per_s), number(operator.queue), instancesText(operator),
      percent(operator.busy), predictedText(operator), duration(operator.measured_s)]), [1, 2, 3, 4, 5, 6, 7]),
    h("p", { class: "small muted" }, "Predicted: mean time of an item in the operator in steady state, by the queueing or micro-batch model. Measured: mean of the last items."));
  }
  const update = latest(store, draw, (error) => swap(picture, h("p", { class: "empty", role: "alert" }, error.message)));
  return { update(news) { if (news.kind === "resize" && last) draw(last); update(); } };
}

const predictedText = (operator) => (operator.overloaded && operator.predicted_s === null ? "unbounded" : duration(operator.predicted_s));
const instancesText = (operator) => (operator.requested === operator.instances ? String(operator.instances) : `${operator.instances} → ${operator.requested}`);

/** Columns by the longest path from a source; loops are cut where they close. */
function layers(names, edges) {
  const depth = new Map(names.map((name) => [name, 0]));
  for (let round = 0; round < names.length; round++) {
    let moved = false;
    for (const { origin, target } of edges) {
      if (!depth.has(origin) || !depth.has(target) || origin === target) continue;
      if (depth.get(target) <= depth.get(origin) && depth.get(origin) + 1 < names.length) { depth.set(target, depth.get(origin) + 1); moved = true; }
    }
    if (!moved) break;
  }
  const used = [...new Set(depth.values())].sort((a, b) => a - b);
  return new Map([...depth].map(([name, at]) => [name, used.indexOf(at)]));
}

function graph(turn, width) {
  const most = width < 620 ? 8 : MOST;
  const busiest = [...turn.operators].sort((a, b) => (b.busy ?? -1) - (a.busy ?? -1));
  const kept = new Set(busiest.slice(0, most).map((operator) => operator.name));
  const hidden = turn.operators.length - kept.size;
  const operators = turn.operators.filter((operator) => kept.has(operator.name));
  const sources = turn.sources.length > 6 ? [] : turn.sources;
  const edges = turn.edges.filter((edge) => kept.has(edge.target) && (kept.has(edge.origin) || sources.includes(edge.origin)));
  const column = layers(operators.map((operator) => operator.name), edges);
  const single = Math.max(...column.values()) === 0 && operators.length > 4;
  const down = !single && width < 620;
  const per = single ? Math.max(1, Math.floor((width + GAP_X / 2) / (WIDE + GAP_X / 2))) : 1;
  const at = new Map(), filled = new Map();
  const left = sources.length && !single && !down ? SOURCE + GAP_X : 0;
  const above = sources.length && down ? 40 + GAP_X / 2 : 0;
  operators.forEach((operator, n) => {
    const layer = column.get(operator.name);
    const row = filled.get(layer) || 0;
    filled.set(layer, row + 1);
    if (single) at.set(operator.name, [(n % per) * (WIDE + GAP_X / 2), Math.floor(n / per) * (TALL + GAP_Y)]);
    else if (down) at.set(operator.name, [row * (WIDE + GAP_Y), above + layer * (TALL + GAP_X / 1.6)]);
    else at.set(operator.name, [left + layer * (WIDE + GAP_X), row * (TALL + GAP_Y)]);
  });
  const all = [...at.values()];
  const w = Math.max(...all.map((p) => p[0])) + WIDE + 4, bottom = Math.max(...all.map((p) => p[1])) + TALL + 8;
  // Place sources by the operators they feed, so that edges do not cross.
  const height = (name) => Math.min(...edges.filter((edge) => edge.origin === name).map((edge) => at.get(edge.target)[1]));
  [...sources].sort((a, b) => height(a) - height(b)).forEach((name, n) => { if (!single) at.set(name, down ? [0, 0] : [0, n * (TALL + GAP_Y) + TALL / 2 - 20]); });
  // An edge past other columns would run behind their boxes, so it is routed below all of them.
  const far = single || down ? [] : edges.filter((edge) => column.get(edge.target) > (column.get(edge.origin) ?? -1) + 1);
  const tall = bottom + far.length * TRACK;
  const shrink = single || down ? 1 : Math.min(1, Math.max(SMALLEST, width / w));
  const head = edges.some((edge) => edge.origin === edge.target) ? 40 : 0; // for loops above the boxes
  const svg = s("svg", { width: w * shrink, height: (tall + head) * shrink, viewBox: `-2 ${-2 - head} ${w} ${tall + head}`, class: "topology", role: "presentation" });
  for (const edge of edges) if (at.has(edge.origin)) svg.append(way(edge, at, sources, down, far.indexOf(edge), bottom));
  for (const name of single ? [] : sources) {
    const [x, y] = at.get(name);
    svg.append(s("g", { transform: `translate(${x} ${y})` }, s("rect", { class: "source", width: SOURCE, height: 40, rx: 20 }), s("text", { x: SOURCE / 2, y: 25, "text-anchor": "middle" }, cut(name, 11))));
  }
  for (const operator of operators) svg.append(node(operator, at.get(operator.name)));
  return [svg, hidden > 0 && h("p", { class: "small muted" }, `The ${most} busiest of ${turn.operators.length}; the others are in the table.`)];
}

function way(edge, at, sources, down, track, bottom) {
  const fromSource = sources.includes(edge.origin);
  const [ox, oy] = at.get(edge.origin), [tx, ty] = at.get(edge.target);
  const wide = fromSource ? SOURCE : WIDE, tall = fromSource ? 40 : TALL;
  const label = edge.ratio === 1 ? null : `× ${number(edge.ratio, 2)}`;
  let d, mx, my;
  if (edge.origin === edge.target) {
    d = `M${ox + WIDE - 80} ${oy}c0 -26 50 -26 50 -2m-5 -6l5 7l5 -7`; mx = ox + WIDE - 55; my = oy - 24;
  } else if (down) {
    const x1 = ox + wide / 2, y1 = oy + tall, x2 = tx + WIDE / 2, y2 = ty;
    d = `M${x1} ${y1}C${x1} ${y1 + 24} ${x2} ${y2 - 24} ${x2} ${y2 - 3}`; mx = (x1 + x2) / 2 + 18; my = (y1 + y2) / 2 + 4;
  } else if (track >= 0) {
    const x1 = ox + wide, y1 = oy + tall / 2, y2 = ty + TALL / 2, y = bottom + (track + 0.5) * TRACK;
    const aside = GAP_X / 4 + 6 * (track % 5), out = x1 + aside, into = tx - aside;
    d = `M${x1} ${y1}H${out}V${y}H${into}V${y2}H${tx - 4}`; mx = (out + into) / 2; my = y - 5;
  } else {
    const x1 = ox + wide, y1 = oy + tall / 2, x2 = tx, y2 = ty + TALL / 2;
    d = `M${x1} ${y1}C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2 - 4} ${y2}`; mx = (x1 + x2) / 2; my = (y1 + y2) / 2 - 8;
  }
  const ends = down ? `M${tx + WIDE / 2 - 5} ${ty - 8}l5 7l5 -7` : `M${tx - 9} ${ty + TALL / 2 - 5}l8 5l-8 5`;
  return s("g", { class: "way" }, s("path", { d }), edge.origin !== edge.target && s("path", { d: ends }), label && s("text", { x: mx, y: my, "text-anchor": "middle" }, label));
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function node(operator, [x, y]) {
  const busy = operator.busy === null ? 0 : Math.min(1, operator.busy);
  const top = Math.max(operator.predicted_s ?? 0, operator.measured_s ?? 0) || 1;
  const bar = (row, value, style, name, text = duration(value)) => [
    s("text", { class: "small", x: 14, y: row + 9 }, name),
    value !== null && s("rect", { class: `bar ${style}`, x: 84, y: row, width: Math.max(2, (value / top) * 62), height: 10, rx: 3 }),
    s("text", { class: "small value", x: WIDE - 14, y: row + 9, "text-anchor": "end" }, text)];
  return s("g", { class: `operator ${operator.bottleneck ? "bottleneck" : ""}`, transform: `translate(${x} ${y})`, role: "img",
    "aria-label": `${operator.name}${operator.bottleneck ? ", the bottleneck" : ""}: ${perSecond(operator.arrival_per_s)} arrive, ${number(operator.queue)} wait, ${plural(operator.instances, "instance")}, ${percent(operator.busy)} busy` },
  s("rect", { class: "box", width: WIDE, height: TALL, rx: 10 }),
  s("text", { class: "name", x: 14, y: 24 }, cut(operator.name, operator.bottleneck ? 14 : 22)),
  operator.bottleneck && [s("rect", { class: "flag", x: WIDE - 90, y: 10, width: 78, height: 19, rx: 9.5 }), s("text", { class: "flag-text", x: WIDE - 51, y: 23.5, "text-anchor": "middle" }, "bottleneck")],
  s("text", { class: "small", x: 14, y: 45 }, `${perSecond(operator.arrival_per_s)} arrive · ${number(operator.queue)} wait`),
  s("text", { class: "small", x: 14, y: 63 }, `${instancesText(operator)} × ${duration(operator.service_s)} · ${percent(operator.busy)} busy`),
  s("rect", { class: "track", x: 14, y: 71, width: WIDE - 28, height: 6, rx: 3 }),
  s("rect", { class: "busy", x: 14, y: 71, width: (WIDE - 28) * busy, height: 6, rx: 3 }),
  bar(87, operator.predicted_s, "predicted", "predicted", predictedText(operator)), bar(105, operator.measured_s, "measured", "measured"));
}
