// The data of the page, and the node after each step, by adding up what the steps changed.

const report = JSON.parse(document.getElementById("data").textContent);
const lastStep = report.steps.length - 1;
const cpuPosition = new Map(report.cpus.map((cpu, position) => [cpu.id, position]));

/** The ids of a CPU list such as "0-3,8". */
function parseCpus(list) {
  const found = [];
  for (const part of list ? list.split(",") : []) {
    const [first, last = first] = part.split("-").map(Number);
    for (let cpu = first; cpu <= last; cpu += 1) found.push(cpu);
  }
  return found;
}

/** Ids as a CPU list. */
function listText(ids) {
  const runs = [];
  for (const id of [...ids].sort((one, two) => one - two)) {
    const run = runs.at(-1);
    if (run && run[1] === id - 1) run[1] = id;
    else runs.push([id, id]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

/** A frame for each step: states of all CPUs, accounts and holders of devices, by their positions. */
function replay() {
  const nothing = { cpus: [], accounts: [], devices: report.devices.map(() => "") };
  let before = nothing;
  return report.steps.map((step) => {
    const frame = {
      cpus: [...before.cpus],
      accounts: [...before.accounts],
      devices: [...before.devices],
    };
    for (const change of step.cpus) {
      const state = { use: change.use, owners: change.owners };
      for (const cpu of parseCpus(change.cpus)) frame.cpus[cpuPosition.get(cpu)] = state;
    }
    for (const change of step.accounts) frame.accounts[change.account] = change;
    for (const change of step.devices) frame.devices[change.device] = change.holder;
    before = frame;
    return frame;
  });
}

const frames = replay();

/** Whether two states of a CPU mean the same. */
function sameState(one, two) {
  return one === two || (one.use === two.use && `${one.owners}` === `${two.owners}`);
}

/** The ids of the CPUs whose state differs between two frames. */
function changedCpus(before, after) {
  return report.cpus.filter((_, position) => !sameState(before.cpus[position], after.cpus[position])).map((cpu) => cpu.id);
}

/** The style of a state: that of its owner, or of its use. */
function styleOf(state) {
  const use = report.uses[state.use];
  return use.name === "exclusive" && state.owners.length ? report.owners[state.owners[0]].style : use.style;
}

/** The letters or the sign of a state. */
function markOf(state) {
  const use = report.uses[state.use];
  return state.owners.length && use.name !== "contested" ? report.owners[state.owners[0]].mark : use.mark;
}
