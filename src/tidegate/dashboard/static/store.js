// State of the page: the journals, the rows of the one shown, and updates by server-sent events.

export const MOST_ROWS = 3000; // above this, ask the server for a thinned series again
const POINTS = 1500;

export async function get(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  if (answer.status === 401) { location.assign("/login"); throw new Error("a token is required"); }
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error || `the server answered ${answer.status}`);
  return body;
}

export async function post(path, request) {
  const answer = await fetch(path, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(request),
  });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error || `the server answered ${answer.status}`);
  return body;
}

export const store = {
  journals: [], id: 0, about: {}, rows: null, connected: false,
  listeners: new Set(), source: null, wanted: 0, fetching: false,

  on(listener) { this.listeners.add(listener); return () => this.listeners.delete(listener); },

  notify(event) { for (const listener of [...this.listeners]) listener(event); },

  async begin(id) {
    this.close();
    this.id = id;
    this.rows = null;
    const wanted = ++this.wanted;
    const read = await get(`/api/journals/${id}/series?points=${POINTS}`);
    if (wanted !== this.wanted) return;
    this.take(read);
    this.listen();
    this.notify({ kind: "begin" });
  },

  take(read) {
    const { rows, ...about } = read;
    this.about = about;
    this.rows = rows;
  },

  listen() {
    const last = this.rows.index.at(-1) ?? -1;
    const source = new EventSource(`/events/${this.id}?after=${this.about.edition}-${last}`);
    this.source = source;
    source.addEventListener("open", () => this.seem(true));
    source.addEventListener("error", () => this.seem(false));
    source.addEventListener("begin", () => this.begin(this.id).catch(() => this.seem(false)));
    source.addEventListener("turns", (event) => this.add(JSON.parse(event.data)));
  },

  seem(connected) {
    if (this.connected !== connected) { this.connected = connected; this.notify({ kind: "connection" }); }
  },

  add(read) {
    const { rows, ...about } = read;
    this.about = about;
    const known = this.rows.index.at(-1) ?? -1;
    const from = rows.index.findIndex((index) => index > known);
    if (from < 0) return;
    for (const [name, values] of Object.entries(rows)) this.rows[name].push(...values.slice(from));
    this.notify({ kind: "turns", from: this.rows.index.length - (rows.index.length - from) });
    if (this.rows.index.length > MOST_ROWS) this.thin();
  },

  /** Load a thinned series; rows that arrive meanwhile are in it or are appended. */
  async thin() {
    if (this.fetching) return;
    this.fetching = true;
    const id = this.id;
    try {
      const read = await get(`/api/journals/${id}/series?points=${POINTS}`);
      if (id !== this.id) return;
      const last = read.rows.index.at(-1);
      const later = this.rows.index.findIndex((index) => index > last);
      if (later >= 0) for (const name of Object.keys(read.rows)) read.rows[name].push(...this.rows[name].slice(later));
      this.take(read);
      this.notify({ kind: "thinned" });
    } catch {
      for (const name of Object.keys(this.rows)) this.rows[name] = this.rows[name].slice(-POINTS);
    } finally {
      this.fetching = false;
    }
  },

  close() { this.source?.close(); this.source = null; },

  turn(index, id = this.id) { return get(`/api/journals/${id}/turns/${index}`); },
};

/** One row as an object. */
export function rowAt(rows, n) {
  const row = {};
  for (const [name, values] of Object.entries(rows)) row[name] = values[n];
  return row;
}

/** The last row with a snapshot, or null. */
export function lastRow(rows) {
  for (let n = rows.index.length - 1; n >= 0; n--) if (rows.time_s[n] !== null) return rowAt(rows, n);
  return null;
}

export function firstTime(rows) {
  for (const time of rows.time_s) if (time !== null) return time;
  return 0;
}

/** Rows with a decision, oldest first. */
export function decisions(rows) {
  const found = [];
  for (let n = 0; n < rows.index.length; n++) if (rows.change[n]) found.push(rowAt(rows, n));
  return found;
}
