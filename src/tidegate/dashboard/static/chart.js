// Line charts in SVG, drawn for the available width so that text stays readable.
import { s } from "./dom.js";

const LEFT = 58, RIGHT = 12, TOP = 10, BOTTOM = 24;

/** Round values between two limits. about: their approximate number. */
export function ticks(low, high, about = 4) {
  const span = high - low || 1;
  const rough = span / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((part) => part * power).find((part) => part >= rough) || rough;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(Number(at.toPrecision(10)));
  return found;
}

const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

export function timeTicks(low, high, about) {
  const rough = (high - low) / about;
  const step = MINUTES.find((part) => part >= rough) || rough;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + 1e-6; at += step) found.push(at);
  return found;
}

/**
 * A chart. x: values; lines: [{name, values, style, step, area}]; limit: {value, label};
 * from, until: on the x axis; time: true for ticks in seconds; showX, showY: values to text;
 * label: text for screen readers; cursor: x of a vertical line; most: upper end of the y axis.
 */
export function chart({ width, height, x, lines, limit, from, until, showX, showY, label, cursor, most, axis = true, offset = 0 }) {
  const bottom = axis ? BOTTOM : 8;
  const inner = { w: Math.max(10, width - LEFT - RIGHT), h: height - TOP - bottom };
  let top = limit?.value ?? 0;
  for (const line of lines) for (let n = 0; n < x.length; n++) {
    const value = line.values[n];
    if (value !== null && x[n] !== null && x[n] >= from && x[n] <= until && value > top) top = value;
  }
  top = most ?? (top > 0 ? top * 1.08 : 1);
  const px = (value) => LEFT + ((value - from) / (until - from || 1)) * inner.w;
  const py = (value) => TOP + inner.h - (Math.min(value, top) / top) * inner.h;
  const made = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "chart" });
  for (const at of ticks(0, top, height > 130 ? 4 : 3)) {
    made.append(s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: py(at), y2: py(at) }),
      s("text", { class: "tick", x: LEFT - 8, y: py(at) + 4, "text-anchor": "end" }, showY(at)));
  }
  const marks = timeTicks(from - offset, until - offset, Math.max(2, Math.floor(inner.w / 95)));
  for (const part of marks) {
    const at = part + offset;
    made.append(s("line", { class: "grid faint", x1: px(at), x2: px(at), y1: TOP, y2: TOP + inner.h }));
    if (axis) {
      const near = px(at) > width - 40 ? "end" : "middle";
      made.append(s("text", { class: "tick", x: px(at), y: height - 6, "text-anchor": near }, showX(at)));
    }
  }
  for (const line of lines) {
    const d = path(x, line.values, px, py, from, until, line.step);
    if (line.area && d) made.append(s("path", { class: `area ${line.style}`, d: areaOf(d, py(0)) }));
    made.append(s("path", { class: `line ${line.style}`, d }));
  }
  if (limit) {
    made.append(s("line", { class: "limit", x1: LEFT, x2: width - RIGHT, y1: py(limit.value), y2: py(limit.value) }),
      s("text", { class: "limit-text", x: width - RIGHT - 4, y: py(limit.value) - 5, "text-anchor": "end" }, limit.label));
  }
  if (cursor !== undefined && cursor !== null && cursor >= from && cursor <= until) {
    made.append(s("line", { class: "cursor", x1: px(cursor), x2: px(cursor), y1: TOP, y2: TOP + inner.h }));
  }
  made.geometry = { px, left: LEFT, right: RIGHT, top: TOP, inner };
  return made;
}

/** A path with gaps for missing values; points within the same pixel are skipped. */
function path(x, values, px, py, from, until, step) {
  let d = "", open = false, last = -10, lastY = null;
  for (let n = 0; n < x.length; n++) {
    if (x[n] === null || x[n] < from || x[n] > until) continue;
    if (values[n] === null) { open = false; continue; }
    const at = px(x[n]), y = py(values[n]);
    if (open && at - last < 0.4 && Math.abs(y - lastY) < 0.8) continue;
    if (!open) d += `M${at.toFixed(1)} ${y.toFixed(1)}`;
    else d += step ? `H${at.toFixed(1)}V${y.toFixed(1)}` : `L${at.toFixed(1)} ${y.toFixed(1)}`;
    open = true; last = at; lastY = y;
  }
  return d;
}

function areaOf(d, base) {
  return d.split("M").filter(Boolean).map((part) => {
    const start = part.match(/^[\d.]+/)[0];
    const ends = [...part.matchAll(/(?:[LH])([\d.]+)/g)];
    const end = ends.length ? ends.at(-1)[1] : start;
    return `M${part}L${end} ${base}L${start} ${base}Z`;
  }).join("");
}

/** A small line without axes, for a card. */
export function spark(values, style, width = 120, height = 30) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return null;
  const top = Math.max(...known) || 1;
  const x = values.map((_, n) => n);
  const px = (n) => 1 + (n / Math.max(1, values.length - 1)) * (width - 2);
  const py = (value) => height - 2 - (value / top) * (height - 4);
  return s("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    s("path", { class: `line ${style}`, d: path(x, values, px, py, 0, values.length, false) }));
}
