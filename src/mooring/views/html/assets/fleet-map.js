// The heat map under pointer and keys, and the start of the page.

const SVG_ROOTS = [...document.querySelectorAll(".heatmap")];
let cell = [0, fleet.moments.length - 1];

function numbersOf(svg) {
  const { left, column, row, tops } = svg.dataset;
  return { left: Number(left), column: Number(column), row: Number(row), tops: tops.split(" ").map(Number) };
}

/** Row and moment under a point of the window, or null. */
function cellAt(svg, event) {
  const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const { left, column, row, tops } = numbersOf(svg);
  const moment = Math.floor((place.x - left) / column);
  const line = tops.findLastIndex((top) => top <= place.y);
  const inside = moment >= 0 && moment < fleet.moments.length && line >= 0 && place.y < tops[line] + row;
  return inside ? [line, moment] : null;
}

/** Say what a cell stands for, and put the frame around it. */
function pointAt(svg, [row, moment]) {
  cell = [row, moment];
  const { left, column, row: high, tops } = numbersOf(svg);
  let frame = svg.querySelector(".required");
  if (!frame) svg.append(frame = draw("rect", { class: "required" }));
  for (const [key, value] of Object.entries({ x: left + moment * column - 1, y: tops[row] - 1, width: column + 2, height: high + 2 })) {
    frame.setAttribute(key, value);
  }
  const resource = svg.closest(".heat").dataset.resource;
  const nodes = fleet.rows[row];
  const mean = nodes.reduce((sum, node) => sum + shares[resource][node * fleet.moments.length + moment], 0) / nodes.length;
  const name = nodes.length === 1 ? fleet.nodes[nodes[0]] : `${nodes.length} nodes from ${fleet.nodes[nodes[0]]} on`;
  document.getElementById("heat-words").textContent = `${name} at ${duration(fleet.moments[moment])}: ${Math.round(mean)} % of ${resource} requested`;
}

/** Open the node of a row; of several, let the reader choose. */
function openCell([row, moment]) {
  const nodes = fleet.rows[row];
  const list = document.getElementById("node-matches");
  list.hidden = nodes.length === 1;
  if (nodes.length === 1) {
    openNode(nodes[0], moment);
    return;
  }
  list.replaceChildren(...nodes.map((node) => make("li", {}, nodeButton(node, moment))));
  list.querySelector("button").focus();
}

const STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

function onKey(event) {
  const step = STEPS[event.key];
  if (step) {
    const next = [cell[0] + step[0], cell[1] + step[1]];
    if (fleet.rows[next[0]] && next[1] >= 0 && next[1] < fleet.moments.length) pointAt(event.currentTarget, next);
    event.preventDefault();
  } else if (event.key === "Enter" || event.key === " ") {
    openCell(cell);
    event.preventDefault();
  }
}

for (const svg of SVG_ROOTS) {
  svg.setAttribute("tabindex", "0");
  svg.setAttribute("role", "application");
  svg.setAttribute("aria-roledescription", "heat map of nodes over time");
  svg.addEventListener("pointermove", (event) => {
    const found = cellAt(svg, event);
    if (found) pointAt(svg, found);
  });
  svg.addEventListener("click", (event) => {
    const found = cellAt(svg, event);
    if (found) openCell(found);
  });
  svg.addEventListener("focus", () => pointAt(svg, cell));
  svg.addEventListener("keydown", onKey);
}
document.getElementById("resource").addEventListener("change", (event) => {
  for (const [place, heat] of document.querySelectorAll(".heat").entries()) heat.hidden = place !== Number(event.target.value);
});
document.documentElement.classList.add("scripted");
listenToTheme();
document.documentElement.dataset.ready = "yes";
performance.mark("interactive");
