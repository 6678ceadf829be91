// The last turn in full, for views that need more than rows; reloaded when there is a newer one.

/** Call `draw` with the last turn, with at most one request at a time. */
export function latest(store, draw, fail) {
  let shown = null, reading = false;
  async function update() {
    const rows = store.rows;
    let n = rows.index.length - 1;
    while (n > 0 && rows.time_s[n] === null) n--;
    const key = `${store.id} ${store.about.edition} ${rows.index[n]}`;
    if (reading || key === shown) return;
    reading = true;
    try {
      const turn = await store.turn(rows.index[n]);
      shown = key;
      draw(turn);
    } catch (error) {
      fail(error);
    } finally {
      reading = false;
    }
    if (store.rows === rows && rows.index.at(-1) !== rows.index[n] && rows.time_s.at(-1) !== null) setTimeout(update, 250);
  }
  return update;
}
