// Elements and words that several parts of the page need.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with properties, attributes where a property does not do, and children; texts are texts. */
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/** An SVG element with attributes. */
function draw(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Bytes in the largest binary unit, with at most one decimal. */
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (unit + 1 < units.length && bytes >= 1024 ** (unit + 1)) unit += 1;
  return `${Math.round((bytes * 10) / 1024 ** unit) / 10}\u00a0${units[unit]}`;
}

/** What a step is called: the start, or its pod. */
function stepName(step) {
  const pod = report.steps[step].pod;
  return pod === null ? "start" : report.pods[pod].name;
}

/** A cell as on the map, as large as a word, for tables. */
function swatch(style, mark) {
  const cell = draw("rect", { class: style, x: 0.5, y: 0.5, width: 27, height: 17, rx: 2 });
  const sign = draw("text", { class: `mark on-${style}`, x: 14, y: 13, "text-anchor": "middle" }, mark);
  return draw("svg", { class: "mooring swatch", width: 28, height: 18, "aria-hidden": "true" }, cell, sign);
}

const ruler = document.createElement("canvas").getContext("2d");

/** The pixels that a text takes. */
function textWidth(text, font) {
  ruler.font = font;
  return ruler.measureText(text).width;
}

/** A table under a note; rows are lists of cells, the first of each names its row. */
function table(headings, rows, note) {
  const head = make("thead", {}, make("tr", {}, ...headings.map((heading) => make("th", { scope: "col" }, heading))));
  const body = make("tbody");
  for (const [first, ...rest] of rows) {
    body.append(make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((cell) => make("td", {}, cell))));
  }
  const scroll = { className: "scroll", tabIndex: 0, role: "region", "aria-label": note };
  return make("div", {}, make("p", { className: "quiet-text" }, note), make("div", scroll, make("table", {}, head, body)));
}
