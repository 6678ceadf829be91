// Controls of a running loop. Each change asks for confirmation and is recorded in the journal.
import { h, swap } from "./dom.js";
import { plural } from "./format.js";
import { get, post } from "./store.js";

const dialog = h("dialog", { class: "confirm", "aria-labelledby": "confirm-title" });
document.getElementById("panel").append(dialog);

/** Show a confirmation dialog; resolves to true if the user confirms. */
function confirmed(title, text, word) {
  return new Promise((resolve) => {
    let yes = false;
    const done = (answer) => { yes = answer; dialog.close(); };
    swap(dialog, h("h2", { id: "confirm-title" }, title), h("p", {}, text),
      h("div", { class: "row end" },
        h("button", { type: "button", onclick: () => done(false) }, "Cancel"),
        h("button", { type: "button", class: "primary", onclick: () => done(true) }, word)));
    dialog.addEventListener("close", () => resolve(yes), { once: true });
    dialog.showModal();
    dialog.querySelector("button").focus();
  });
}

const PAUSES = [
  ["no", "Scale", "Decisions are applied.", "Resume scaling?", "From the next turn on, decisions are applied again in both directions."],
  ["in", "Pause scale-in", "No host is released; scaling out continues.", "Pause scale-in?", "From the next turn on, no host is released. Scaling out continues, so this may cost more but never slows the application down."],
  ["both", "Pause", "The number of hosts stays as it is.", "Pause scaling?", "From the next turn on, the number of hosts stays as it is whatever the load. Bounds still apply."],
];

export function controls(root, store) {
  const body = h("div", { class: "stack tight" });
  const status = h("p", { class: "small", role: "status" });
  root.append(h("h2", { id: "controls" }, "Controls"), body, status);
  let state = null, drawn = "", asked = 0, edited = false;

  async function read() {
    const wanted = ++asked;
    try {
      const read = await get(`/api/journals/${store.id}/controls`);
      if (wanted === asked) { state = read; draw(); }
    } catch (error) { status.textContent = error.message; }
  }

  async function ask(request, title, text, word) {
    if (!(await confirmed(title, text, word))) return;
    try {
      const answer = await post(`/api/journals/${store.id}/controls`, request);
      edited = false;
      status.textContent = `Requested: ${answer.asked}. It takes effect before the next turn.`;
    } catch (error) { status.textContent = `Rejected: ${error.message}`; }
    read();
  }

  function draw() {
    const key = JSON.stringify(state);
    if (key === drawn || (edited && state.enabled)) return;
    drawn = key;
    const sign = state.sign_in && h("a", { href: "/login" }, "Enter the token");
    swap(body, !state.enabled && h("p", { class: "note muted" }, state.why, sign && " ", sign), pauses(), dry(), policy(), heard());
  }

  function pauses() {
    return h("fieldset", { disabled: !state.enabled }, h("legend", {}, "Scaling"),
      h("div", { class: "segments" }, PAUSES.map(([value, name, hint, title, text]) =>
        h("button", { type: "button", title: hint, "aria-pressed": String(state.steering.paused === value),
          onclick: () => state.steering.paused !== value && ask({ do: "pause", value }, title, text, name) }, name))));
  }

  function dry() {
    const on = state.steering.dry_run;
    return h("fieldset", { disabled: !state.enabled }, h("legend", {}, "Dry run"),
      h("button", { type: "button", "aria-pressed": String(on), onclick: () => ask(
        { do: "dry-run", value: on ? "off" : "on" },
        on ? "End the dry run?" : "Start a dry run?",
        on ? "From the next turn on, decisions are applied." : "From the next turn on, decisions are made and recorded but not applied: nothing is started, moved or released, not even queries that lost their host.",
        on ? "End dry run" : "Start") }, on ? "End dry run" : "Start dry run"));
  }

  function policy() {
    if (!state.enabled) return null;
    const chosen = h("select", { id: "policy", onchange: () => { edited = true; fields(); } },
      state.policies.map((entry) => h("option", { value: entry.name, selected: entry.name === state.policy }, entry.name)));
    const inputs = h("div", { class: "parameters" });
    function fields() {
      const entry = state.policies.find((other) => other.name === chosen.value);
      const input = (parameter) => h("label", {}, h("span", {}, h("code", {}, parameter.name)),
        h("input", { name: parameter.name, value: String(parameter.value ?? ""), "data-was": String(parameter.value ?? ""), oninput: () => { edited = true; } }),
        h("small", { class: "muted" }, parameter.doc));
      const [target, ...rest] = entry.parameters;
      swap(inputs, target && input(target), rest.length > 0 && h("details", {}, h("summary", {}, plural(rest.length, "more setting")), rest.map(input)));
    }
    fields();
    function changed() {
      const found = {};
      for (const input of inputs.querySelectorAll("input")) if (input.value !== input.dataset.was) found[input.name] = input.value;
      return found;
    }
    return h("form", { onsubmit: (event) => {
      event.preventDefault();
      const parameters = changed(), value = chosen.value;
      const pairs = Object.entries(parameters).map(([name, text]) => `${name} = ${text}`).join(", ");
      if (value === state.policy && !pairs) { status.textContent = "No setting differs from the current one."; return; }
      const fresh = value !== state.policy ? " It starts without what the current policy has learnt." : "";
      ask({ do: "policy", value, parameters }, value === state.policy ? "Change settings?" : `Switch to ${value}?`,
        `From the next turn on, ${value} decides${pairs ? ` with ${pairs}` : ""}. The guards do not change.${fresh}`, "Change");
    } }, h("fieldset", {}, h("legend", {}, "Policy"), h("label", {}, h("span", { class: "unseen" }, "Name"), chosen), inputs,
      h("button", { type: "submit" }, "Change …")));
  }

  function heard() {
    if (!state.heard.length) return null;
    return h("details", { open: true }, h("summary", {}, "Requests so far"), h("ul", { class: "plain small" }, state.heard.map((control) =>
      h("li", { class: control.refused ? "bad" : "" }, `turn ${control.number}: ${control.text}${control.refused ? `, refused: ${control.refused}` : ""}`))));
  }

  let seen = "";
  read();
  const timer = setInterval(read, 5000);
  return {
    update() {
      const key = JSON.stringify(store.about.steering) + store.about.live + store.rows.controls.reduce((sum, list) => sum + list.length, 0);
      if (key !== seen) { seen = key; read(); }
    },
    leave() { clearInterval(timer); },
  };
}
