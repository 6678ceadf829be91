// Placement: hosts filled by utilisation, operators inside, the lease as a ring.
import { h, swap, table } from "../dom.js";
import { duration, percent, plural } from "../format.js";
import { drawHosts, taken } from "../hosts.js";
import { latest } from "../latest.js";

export function place(root, store) {
  const hosts = h("div", { class: "hosts" });
  const text = h("div", {});
  const sum = h("p", { class: "muted" });
  const paid = h("span", {}, h("i", { class: "key ring-key" }), "ring: paid time left");
  root.append(h("div", { class: "stack" },
    h("div", {}, h("h1", {}, "Placement"), sum),
    hosts,
    h("p", { class: "small muted key-line" }, h("i", { class: "key level-key" }), "filled: share of the host's CPU in use", paid),
    h("details", { class: "card" }, h("summary", {}, "As a table"), text)));

  function draw(turn) {
    if (!turn.hosts.length) { swap(hosts, h("p", { class: "empty" }, "The last turn had no hosts.")); return; }
    const instances = turn.hosts.reduce((many, host) => many + host.instances.length, 0);
    sum.textContent = `Turn ${turn.number}: ${plural(turn.hosts.length, "host")}, ${plural(instances, "instance")} of ${plural(turn.operators.length, "operator")}.`;
    paid.hidden = turn.hosts.every((host) => host.lease_left_s === null);
    drawHosts(hosts, turn);
    swap(text, table("", ["host", "status", "utilisation", "paid time left", "instances"], turn.hosts.map((host) => [
      host.id, host.status, percent(host.utilisation), duration(host.lease_left_s), host.instances.map((instance) => `${instance.id}${taken(instance)}`).join("; ") || "none"]), [2, 3]));
  }
  const update = latest(store, draw, (error) => swap(hosts, h("p", { class: "empty", role: "alert" }, error.message)));
  return { update };
}
