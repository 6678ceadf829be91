// The frame of the page: view, journal, light or dark, and announcements for screen readers.
import { h, swap } from "./dom.js";
import { moment } from "./format.js";
import { firstTime, get, lastRow, store } from "./store.js";
import { closeTurn } from "./detail.js";
import { now } from "./views/now.js";
import { queries } from "./views/queries.js";
import { timeline } from "./views/timeline.js";
import { place } from "./views/place.js";
import { topology } from "./views/topology.js";
import { learning } from "./views/learning.js";
import { replay } from "./views/replay.js";

const VIEWS = { now, queries, timeline, place, topology, learning, replay };
const TITLES = {
  now: "Now", queries: "Queries", timeline: "Timeline", place: "Placement", topology: "Topology", learning: "Learning", replay: "Replay",
};
const byId = (id) => document.getElementById(id);
const main = byId("main");
let current = null, currentName = "", pending = false, announced = -1;

// --- light and dark ---------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");
function paint() {
  const chosen = localStorage.getItem("tidegate-theme");
  document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");
}
paint();
dark.addEventListener("change", paint);
byId("theme").addEventListener("click", () => {
  localStorage.setItem("tidegate-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  paint();
});

// --- views --------------------------------------------------------------------------------------

swap(byId("tabs"), Object.keys(TITLES).map((name) => h("a", { href: `#${name}` }, TITLES[name])));

function show() {
  const name = location.hash.slice(1).split("/")[0];
  if (location.hash === "#main") return;
  currentName = name in VIEWS ? name : "now";
  for (const link of byId("tabs").children) {
    if (link.hash === `#${currentName}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[currentName]} · Tidegate`;
  current?.leave?.();
  current = null;
  if (!store.rows) return;
  const root = h("div", { class: `view ${currentName}` });
  swap(main, root);
  if (!store.rows.index.length && currentName !== "replay") {
    root.append(h("p", { class: "empty" }, "This journal has no turns yet. The first one appears here as soon as it is written."));
    return;
  }
  current = VIEWS[currentName](root, store);
  current.update({ kind: "begin" });
}

addEventListener("hashchange", () => { closeTurn(); show(); main.focus({ preventScroll: true }); scrollTo(0, 0); });
addEventListener("resize", () => request({ kind: "resize" }));

/** Draw at the next frame, once for all changes up to then. */
function request(event) {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    if (!current && store.rows?.index.length) show();
    else current?.update(event);
    showStatus();
  });
}

function showStatus() {
  const { about } = store;
  const last = store.rows && lastRow(store.rows);
  const live = about.live && store.connected;
  const where = last ? `turn ${last.number}, ${moment(last.time_s, about, firstTime(store.rows))}` : "no turns yet";
  const set = [];
  if (about.steering?.paused === "both") set.push("paused");
  if (about.steering?.paused === "in") set.push("scale-in paused");
  if (about.steering?.dry_run) set.push("dry run");
  const word = store.connected ? (about.live ? "live" : "recording") : "reconnecting …";
  const reading = about.read < 1 ? ` · read ${Math.floor(100 * about.read)} %` : "";
  const text = `${word} · ${where}${reading}`;
  const status = byId("status");
  if (status.dataset.text === text + set) return;
  status.dataset.text = text + set;
  swap(status, h("span", { class: `dot ${live ? "live" : store.connected ? "" : "lost"}`, "aria-hidden": "true" }),
    h("span", {}, text), set.map((word) => h("span", { class: "tag warn" }, word)));
}

/** Announce the last decision to screen readers, if it is new. */
function announce() {
  const rows = store.rows;
  for (let n = rows.index.length - 1; n >= 0; n--) {
    if (!rows.change[n]) continue;
    if (rows.index[n] > announced) byId("announce").textContent = `Turn ${rows.number[n]}: ${rows.change[n].text}`;
    announced = rows.index[n];
    return;
  }
}

store.on((event) => {
  if (event.kind === "begin") {
    announced = store.rows.index.at(-1) ?? -1;
    show();
    showStatus();
  } else {
    if (event.kind === "turns") announce();
    request(event);
  }
});

// --- journals -----------------------------------------------------------------------------------

const picker = byId("journal");
picker.addEventListener("change", () => choose(Number(picker.value)));

async function choose(id) {
  sessionStorage.setItem("tidegate-journal", String(id));
  // Do not show one journal's view under the name of another while that one is loading.
  current?.leave?.();
  current = null;
  swap(main);
  try {
    await store.begin(id);
  } catch (error) {
    swap(main, h("p", { class: "empty", role: "alert" }, `Cannot read the journal: ${error.message}`));
  }
}

async function list() {
  const journals = await get("/api/journals");
  const names = journals.map((journal) => journal.name).join("\n");
  if (picker.dataset.names !== names) {
    picker.dataset.names = names;
    const chosen = picker.value;
    swap(picker, journals.map((journal) => h("option", { value: String(journal.id) }, journal.name)));
    if (chosen) picker.value = chosen;
  }
  store.journals = journals;
  return journals;
}

async function begin() {
  const journals = await list();
  if (!journals.length) {
    swap(main, h("p", { class: "empty" }, "There are no journals yet. One appears here as soon as a run writes it."));
    setTimeout(() => begin().catch(fail), 2000);
    return;
  }
  const kept = Number(sessionStorage.getItem("tidegate-journal"));
  const id = journals.some((journal) => journal.id === kept) ? kept : 0;
  picker.value = String(id);
  await choose(id);
  setInterval(() => list().catch(() => {}), 10000);
}

function fail(error) {
  swap(main, h("p", { class: "empty", role: "alert" }, `Cannot start the dashboard: ${error.message}`));
}

begin().catch(fail);
