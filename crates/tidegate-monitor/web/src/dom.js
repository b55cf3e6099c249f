// Builds elements. Text always becomes a text node, so a name with HTML in it stays a name.

// Creates an element with attributes, listeners (`onclick`) and children: nodes, text, numbers, lists.
export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children) {
    if (child === undefined || child === null || child === false) continue;
    if (Array.isArray(child)) append(node, child);
    else node.append(child instanceof Node ? child : visible(String(child)));
  }
}

// Replaces the children of an element only if the text changes, so that a screen reader is not interrupted.
export function say(node, text) {
  const shown = visible(text);
  if (node.textContent !== shown) node.textContent = shown;
}

// Shows control characters and marks of writing direction as their code, because a name may hide behind them.
export function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) =>
    `\\u{${c.codePointAt(0).toString(16)}}`);
}

const kind = (column) => (column.number ? "number" : column.wide ? "wide" : undefined);

// Makes a table: `columns` have a `title`, `number: true` where the cells are numbers, and `wide: true` where
// names should not break early. The table scrolls by itself, so the page does not become wider than the screen.
export function table(caption, columns, rows, empty) {
  const head = columns.map((c) => el("th", { scope: "col", class: kind(c) }, c.title));
  const body = rows.map((cells) => el("tr", null, cells.map((cell, i) => {
    const tag = i === 0 ? "th" : "td";
    return el(tag, { scope: i === 0 && "row", class: kind(columns[i]) }, cell);
  })));
  if (rows.length === 0) body.push(el("tr", null, el("td", { colspan: columns.length }, empty ?? "none")));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", null, el("caption", null, caption), el("thead", null, el("tr", null, head)), el("tbody", null, body)));
}
