// Create elements: h("p", {class: "muted"}, "text", child) and the same for SVG with s().

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

/** A table with a header; rows are lists of cells, a cell may be an element. */
export function table(caption, heads, rows, numeric = []) {
  const side = (n) => (numeric.includes(n) ? { class: "num" } : {});
  return h("div", { class: "scroll" }, h("table", {},
    caption && h("caption", {}, caption),
    h("thead", {}, h("tr", {}, heads.map((head, n) => h("th", { scope: "col", ...side(n) }, head)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, n) =>
      n === 0 ? h("th", { scope: "row", ...side(n) }, cell) : h("td", side(n), cell)))))));
}

/** Replace the content of an element. */
export function swap(element, ...content) {
  const made = content.flat(Infinity).filter((part) => part !== null && part !== false && part !== undefined);
  element.replaceChildren(...made);
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
