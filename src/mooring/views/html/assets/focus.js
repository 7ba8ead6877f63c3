// Details of a CPU under the pointer or with the focus, and the keys of the map.

const details = document.getElementById("details");

function showDetails(group) {
  const cpu = report.cpus[cpuPosition.get(Number(group.dataset.cpu))];
  const state = drawn.cpus[cpuPosition.get(cpu.id)];
  const lines = [["use", report.uses[state.use].name]];
  for (const [position, owner] of state.owners.entries()) {
    lines.push([position ? "also" : "owner", report.owners[owner].label]);
  }
  const siblings = report.cpus.filter((other) => other.core !== null && other.core === cpu.core).map((other) => other.id);
  lines.push(["core", `CPUs ${listText(siblings.length ? siblings : [cpu.id])}`]);
  for (const name of ["l3", "numa", "socket"]) {
    if (cpu[name] !== null) lines.push([{ l3: "L3", numa: "NUMA node", socket: "socket" }[name], `${cpu[name]}`]);
  }
  const list = make("dl", {}, ...lines.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  details.replaceChildren(make("strong", {}, `CPU ${cpu.id}`), list);
  details.hidden = false;
  placeDetails(group.getBoundingClientRect());
}

/** Put the details below the cell, or above it where there is no room, and never out of the window. */
function placeDetails(cell) {
  const room = document.documentElement.clientWidth - details.offsetWidth - 8;
  const below = cell.bottom + 8;
  const fits = below + details.offsetHeight < window.innerHeight;
  const top = fits ? below : Math.max(8, cell.top - details.offsetHeight - 8);
  details.style.left = `${Math.max(8, Math.min(cell.left, room)) + window.scrollX}px`;
  details.style.top = `${top + window.scrollY}px`;
}

function hideDetails() {
  details.hidden = true;
}

/** The cell that lies nearest in a direction: little aside counts more than far ahead. */
function neighbour(group, right, down) {
  const from = group.getBoundingClientRect();
  let best = null;
  let least = Infinity;
  for (const other of group.closest("svg").querySelectorAll(".cell")) {
    const to = other.getBoundingClientRect();
    const ahead = (to.left - from.left) * right + (to.top - from.top) * down;
    const aside = Math.abs((to.left - from.left) * down) + Math.abs((to.top - from.top) * right);
    if (ahead > 1 && ahead + 4 * aside < least) [best, least] = [other, ahead + 4 * aside];
  }
  return best;
}

const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

function onKey(event) {
  const group = event.target.closest(".cell");
  if (event.key === "Escape") {
    if (details.hidden) markPod(null);
    hideDetails();
  }
  if (!group) return;
  const cells = [...group.closest("svg").querySelectorAll(".cell")];
  const ends = { Home: cells[0], End: cells.at(-1) };
  const next = ARROWS[event.key] ? neighbour(group, ...ARROWS[event.key]) : ends[event.key];
  if (next) moveFocus(group, next);
  if (event.key === "Enter" || event.key === " ") toggleOwner(group);
  if (ARROWS[event.key] || event.key in ends || event.key === " ") event.preventDefault();
}

function moveFocus(from, to) {
  from.setAttribute("tabindex", "-1");
  to.setAttribute("tabindex", "0");
  to.focus();
}

/** Mark the pod that owns a CPU; a second time, none. */
function toggleOwner(group) {
  const state = drawn.cpus[cpuPosition.get(Number(group.dataset.cpu))];
  const pod = state.owners.length ? report.owners[state.owners[0]].pod : null;
  markPod(pod === markedPod ? null : pod);
}

function listenToMaps() {
  for (const map of document.querySelectorAll(".map svg")) {
    map.setAttribute("role", "application");
    map.setAttribute("aria-roledescription", "map of the machine");
    const cells = map.querySelectorAll(".cell");
    for (const [position, cell] of cells.entries()) {
      cell.setAttribute("role", "button");
      cell.setAttribute("tabindex", position ? "-1" : "0");
    }
    map.addEventListener("pointerover", (event) => {
      const group = event.target.closest(".cell");
      if (group) showDetails(group);
    });
    map.addEventListener("pointerleave", hideDetails);
    map.addEventListener("focusin", (event) => showDetails(event.target.closest(".cell")));
    map.addEventListener("focusout", hideDetails);
    map.addEventListener("click", (event) => {
      const group = event.target.closest(".cell");
      if (group) toggleOwner(group);
    });
  }
  document.addEventListener("keydown", onKey);
}
