// Numbers with their units. A value that was not measured is shown as a dash.

export const DASH = "–";
const missing = (value) => value === null || value === undefined || Number.isNaN(value);

export function number(value, digits = 3) {
  if (missing(value)) return DASH;
  const size = Math.abs(value);
  if (size >= 1e6) return `${trim(value / 1e6, digits)} M`;
  if (size >= 1e4) return `${trim(value / 1e3, digits)} k`;
  return trim(value, digits);
}

function trim(value, digits) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 100) return String(Math.round(value));
  return String(Number(value.toPrecision(digits)));
}

export const perSecond = (value) => (missing(value) ? DASH : `${number(value)}/s`);
export const percent = (value) => (missing(value) ? DASH : `${Math.round(100 * value)} %`);
export const count = (value) => (missing(value) ? DASH : String(Math.round(value)));

export function money(value) {
  if (missing(value)) return DASH;
  return value !== 0 && Math.abs(value) < 0.1 ? `$${value.toFixed(4)}` : `$${value.toFixed(2)}`;
}

export function duration(seconds, digits = 3) {
  if (missing(seconds)) return DASH;
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${trim(seconds * 1e6, digits)} µs`;
  if (size < 1) return `${trim(seconds * 1e3, digits)} ms`;
  if (size < 60) return `${trim(seconds, digits)} s`;
  if (size < 3600) return `${trim(seconds / 60, digits)} min`;
  return `${trim(seconds / 3600, digits)} h`;
}

/** A time: the time of day for live runs, otherwise the time since the run started. */
export function moment(time, about, first) {
  if (missing(time)) return DASH;
  if (about.clock === "wall") return new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return clock(time - (first ?? 0));
}

export function clock(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (value) => String(value).padStart(2, "0");
  const rest = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return whole >= 3600 ? `${Math.floor(whole / 3600)}:${rest}` : rest;
}

export const plural = (many, word) => `${many} ${word}${many === 1 ? "" : "s"}`;

export const KINDS = { out: "scaled out", in: "scaled in", move: "rearranged", refused: "refused" };
