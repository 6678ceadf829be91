// Hosts as boxes filled by utilisation, with their operators inside; moves are animated.
import { calm, h, s, swap } from "./dom.js";
import { duration, number, percent, plural } from "./format.js";

const MOST_CHIPS = 18;
const MOVE_MS = 600;

/** Draw hosts into an element; instances that moved since the last call are animated. */
export function drawHosts(root, turn) {
  const before = new Map();
  if (!calm()) for (const chip of root.querySelectorAll("[data-instance]")) before.set(chip.dataset.instance, chip.getBoundingClientRect());
  swap(root, turn.hosts.map(box));
  if (!before.size) return;
  for (const chip of root.querySelectorAll("[data-instance]")) {
    const was = before.get(chip.dataset.instance);
    if (!was) {
      chip.animate([{ opacity: 0, transform: "scale(.6)" }, { opacity: 1, transform: "none" }], { duration: 250 });
      continue;
    }
    const is = chip.getBoundingClientRect();
    const dx = was.left - is.left, dy = was.top - is.top;
    if (Math.abs(dx) + Math.abs(dy) < 2) continue;
    chip.animate([{ transform: `translate(${dx}px, ${dy}px)` }, { transform: "none" }], { duration: MOVE_MS, easing: "cubic-bezier(.3,0,.2,1)" });
  }
}

function box(host) {
  const busy = host.utilisation;
  const shown = busy === null ? 0 : Math.min(1, busy);
  const hot = busy !== null && busy > 0.9;
  return h("article", { class: `host ${host.status} ${hot ? "hot" : ""}`, "aria-label": describe(host), title: executor(host) || null, "data-host": host.id },
    h("div", { class: "level", style: { height: `${100 * shown}%` }, "aria-hidden": "true" }),
    h("header", {}, h("div", {}, h("h3", {}, host.id), h("p", { class: "small muted" }, host.status === "running" ? `${percent(busy)} busy` : stage(host))), ring(host)),
    h("div", { class: "chips" }, chips(host.instances)));
}

function describe(host) {
  const busy = host.utilisation === null ? "not measured" : `${percent(host.utilisation)} busy`;
  const lease = host.lease_left_s === null ? "" : `, ${duration(host.lease_left_s)} of its paid time left`;
  return `${host.id}${executor(host) && ` (${executor(host)})`}: ${stage(host)}, ${busy}, ${plural(host.instances.length, "instance")}${lease}`;
}

/** Stage of life of a host; Spark may exclude an executor for a while. */
export const stage = (host) => (host.excluded ? "excluded by Spark" : host.status);

/** Spark's executor behind a host, and its pod, container or machine. */
const executor = (host) => (host.executor === null ? "" : `executor ${host.executor}${host.place === null ? "" : `, ${host.place}`}`);

function chips(instances) {
  if (instances.length <= MOST_CHIPS) {
    return instances.map((instance) => h("span", { class: `chip ${instance.status}`, "data-instance": instance.id, title: `${instance.id}, ${instance.status}${taken(instance)}` }, instance.operator));
  }
  const counts = new Map();
  for (const instance of instances) counts.set(instance.operator, (counts.get(instance.operator) || 0) + 1);
  const groups = [...counts].sort((a, b) => b[1] - a[1]);
  const rest = groups.length - MOST_CHIPS;
  return [...groups.slice(0, MOST_CHIPS).map(([name, many]) => h("span", { class: "chip" }, many > 1 ? `${name} × ${many}` : name)),
    rest > 0 && h("span", { class: "chip more" }, `and ${rest} more`)];
}

/** CPU that an instance uses of its host, if measured. */
export const taken = (instance) => (instance.cores == null ? "" : `, ${number(instance.cores, 2)} cores`);

/** Remaining paid time, as a ring that empties. */
function ring(host) {
  if (host.lease_left_s === null) return null;
  const share = Math.max(0, Math.min(1, host.lease_left_s / host.lease_unit_s));
  const around = 2 * Math.PI * 15;
  return s("svg", { class: "ring", width: 44, height: 44, viewBox: "0 0 44 44", role: "img", "aria-label": `${duration(host.lease_left_s)} of ${duration(host.lease_unit_s)} paid time left` },
    s("title", {}, `${duration(host.lease_left_s)} of ${duration(host.lease_unit_s)} paid time left`),
    s("circle", { class: "track", cx: 22, cy: 22, r: 15 }),
    s("circle", { class: "left", cx: 22, cy: 22, r: 15, "stroke-dasharray": `${(share * around).toFixed(1)} ${around.toFixed(1)}`, transform: "rotate(-90 22 22)" }),
    s("text", { x: 22, y: 25.5, "text-anchor": "middle" }, short(host.lease_left_s)));
}

function short(seconds) {
  if (seconds < 100) return `${Math.round(seconds)}s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)}m` : `${Math.round(seconds / 3600)}h`;
}
