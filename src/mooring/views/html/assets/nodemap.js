// The map: cells, brackets over whole cores, figures of NUMA nodes, memory bars and the counts of the legend.

const LABEL_FONT = `11px ${getComputedStyle(document.documentElement).getPropertyValue("--font")}`;

/** Pixels between a name and the next bracket. */
const GAP = 8;

/** The drawn cells of every CPU; one for each arrangement of the map. */
const cellsOf = new Map(report.cpus.map((cpu) => [cpu.id, []]));
for (const group of document.querySelectorAll(".cell")) {
  const [number, mark] = group.querySelectorAll("text");
  cellsOf.get(Number(group.dataset.cpu)).push({ group, number, mark, rect: group.querySelector("rect") });
}

/** The rows of cores, with what their brackets need. */
const rows = [...document.querySelectorAll(".row")].map((group) => ({
  strips: group.querySelector(".strips"),
  y: Number(group.dataset.y),
  width: Number(group.closest(".map").dataset.cell),
  end: Number(group.dataset.end),
  cores: [...group.querySelectorAll(".core")].map((core) => ({
    x: Number(core.querySelector("rect").getAttribute("x")) - 0.5,
    cpus: [...core.querySelectorAll(".cell")].map((cell) => Number(cell.dataset.cpu)),
  })),
}));

/** The frame on the maps: the page comes with the last one. */
let drawn = frames[lastStep];

for (const [position, cpu] of report.cpus.entries()) {
  for (const cell of cellsOf.get(cpu.id)) labelCell(cell, cpu, drawn.cpus[position]);
}

/** Show a frame on all maps; only what differs from the frame before is touched. */
function drawFrame(frame) {
  if (frame === drawn) return;
  for (const [position, cpu] of report.cpus.entries()) {
    const state = frame.cpus[position];
    if (sameState(drawn.cpus[position], state)) continue;
    for (const cell of cellsOf.get(cpu.id)) drawCell(cell, cpu, state);
  }
  for (const row of rows) drawBrackets(row, frame);
  drawFigures(frame);
  drawMemoryBars(frame);
  drawDeviceCells(frame);
  drawn = frame;
}

function drawCell(cell, cpu, state) {
  const style = styleOf(state);
  cell.rect.setAttribute("class", style);
  cell.number.setAttribute("class", `cpu on-${style}`);
  cell.mark.setAttribute("class", `mark on-${style}`);
  cell.mark.textContent = markOf(state);
  labelCell(cell, cpu, state);
}

function labelCell(cell, cpu, state) {
  cell.group.setAttribute("aria-label", `CPU ${cpu.id}: ${stateText(state)}; ${placeText(cpu)}`);
}

/** What a CPU is used for, and by whom. */
function stateText(state) {
  const use = report.uses[state.use].name;
  if (!state.owners.length) return use;
  const owners = state.owners.map((owner) => report.owners[owner].label);
  const joint = use === "contested" ? " and " : ", before that ";
  return `${use}, ${use === "offline" ? "but held by " : ""}${owners.join(joint)}`;
}

/** Where a CPU is. */
function placeText(cpu) {
  const places = [["core of CPU", cpu.core], ["L3", cpu.l3], ["NUMA node", cpu.numa], ["socket", cpu.socket]];
  return places.filter(([, id]) => id !== null).map(([name, id]) => `${name} ${id}`).join(", ");
}

/** Use and owner that all CPUs of a core have, when that is worth a bracket. */
function bracketOf(core, frame) {
  const [first, ...rest] = core.cpus.map((cpu) => frame.cpus[cpuPosition.get(cpu)]);
  const same = rest.every((state) => state.use === first.use && state.owners[0] === first.owners[0]);
  return same && ["exclusive", "reserved"].includes(report.uses[first.use].name) ? first : null;
}

function drawBrackets(row, frame) {
  const runs = [];
  for (const core of row.cores) {
    const state = bracketOf(core, frame);
    const run = runs.at(-1);
    if (run && run.state && state && run.state.use === state.use && run.state.owners[0] === state.owners[0]) {
      run.end = core.x + row.width;
    } else {
      runs.push({ state, start: core.x, end: core.x + row.width });
    }
  }
  const named = runs.filter((run) => run.state);
  const drawing = named.map((run, index) => {
    const width = run.end - run.start;
    const room = (index + 1 < named.length ? named[index + 1].start - GAP : row.end) - run.start;
    const bar = draw("rect", { class: styleOf(run.state), x: run.start, y: row.y + 11, width, height: 3 });
    const name = bracketText(run.state, Math.max(width, room) - 2);
    const words = draw("text", { class: "small", x: run.start + 1, y: row.y + 8 }, name);
    return draw("g", {}, words, bar);
  });
  row.strips.replaceChildren(...drawing);
}

/** The longest form of an owner's name that fits; no two owners have the same. */
function bracketText(state, room) {
  const owner = state.owners.length ? report.owners[state.owners[0]] : null;
  const forms = owner ? [owner.label, ...owner.forms] : [report.uses[state.use].name];
  return forms.find((form) => textWidth(form, LABEL_FONT) <= room) ?? "";
}

/** The figures in the titles of NUMA nodes, and the counts of the legend. */
function drawFigures(frame) {
  const counts = new Map();
  const free = new Map();
  for (const [position, cpu] of report.cpus.entries()) {
    const use = report.uses[frame.cpus[position].use];
    counts.set(use.style, (counts.get(use.style) ?? 0) + 1);
    const node = free.get(cpu.numa) ?? { free: 0, all: 0 };
    if (use.name !== "offline") node.all += 1;
    if (use.name === "free") node.free += 1;
    free.set(cpu.numa, node);
  }
  for (const count of document.querySelectorAll(".legend .count")) {
    count.textContent = plural(counts.get(count.dataset.use) ?? 0, "CPU");
  }
  for (const box of document.querySelectorAll("g[data-numa]")) {
    const figures = box.querySelector("tspan");
    const node = free.get(Number(box.dataset.numa));
    if (figures && node) {
      figures.textContent = figures.textContent.replace(/^\d+ of \d+ free/, `${node.free} of ${node.all} free`);
    }
  }
}

/** The devices in the boxes, with what of them is free. */
function drawDeviceCells(frame) {
  for (const cell of document.querySelectorAll(".map .device")) {
    const index = Number(cell.dataset.device);
    const [device, holder] = [report.devices[index], frame.devices[index]];
    const [style, mark] = deviceStyle(device, holder);
    const texts = cell.querySelectorAll("text");
    cell.querySelector("rect").setAttribute("class", style);
    for (const text of texts) text.setAttribute("class", text.classList[0] + ` on-${style}`);
    texts[texts.length - 1].textContent = mark;
    const place = device.numa.length ? `NUMA node ${device.numa.join(", ")}` : "NUMA node unknown";
    const address = device.address && device.address !== device.id ? [`PCI ${device.address}`] : [];
    const parts = [`${device.resource} ${device.id}`, ...address, place, deviceState(device, holder)];
    cell.querySelector("title").textContent = parts.join(" · ");
  }
  for (const group of document.querySelectorAll(".map .devices")) {
    const indices = [...group.querySelectorAll(".device")].map((cell) => Number(cell.dataset.device));
    const free = indices.filter((index) => report.devices[index].healthy && !frame.devices[index]).length;
    const heading = group.querySelector(":scope > text");
    if (heading) heading.textContent = heading.textContent.replace(/\d+ of \d+ free/, `${free} of ${indices.length} free`);
  }
}

/** The bars in the boxes of NUMA nodes. */
function drawMemoryBars(frame) {
  for (const [index, account] of report.accounts.entries()) {
    if (account.resource !== "memory" || !frame.accounts[index]) continue;
    for (const box of document.querySelectorAll(`g[data-numa="${account.node}"] > g`)) {
      drawMemoryBar(box, account, frame.accounts[index].assigned);
    }
  }
}

function drawMemoryBar(box, account, assigned) {
  const [bar, kept, used] = [".bar", ".reserved", ".used"].map((name) => box.querySelector(name));
  const width = Number(bar.getAttribute("width"));
  const reserved = Math.max(0, account.total - account.allocatable);
  const start = Math.min(1, reserved / account.total) * width;
  kept.setAttribute("width", start.toFixed(1));
  used.setAttribute("x", (Number(bar.getAttribute("x")) + start).toFixed(1));
  used.setAttribute("width", Math.min(width - start, (assigned / account.total) * width).toFixed(1));
  const free = size(Math.max(0, account.total - reserved - assigned));
  const figures = box.querySelector("text[text-anchor=end]");
  if (figures) figures.textContent = `${free} free`;
  const title = box.querySelector("title");
  const told = `${size(reserved)} reserved · ${size(assigned)} assigned to containers · ${free} free`;
  if (title) title.textContent = `NUMA node ${account.node} · ${size(account.total)} · ${told}`;
}
