// What differs between two steps: CPUs of each owner, pools, memory, devices.

function makeDifferences() {
  const place = document.getElementById("differences");
  if (!place) return;
  const choose = (id, label, chosen) => {
    const options = report.steps.map((_, step) => make("option", { value: step }, `${step}: ${stepName(step)}`));
    const select = make("select", { id }, ...options);
    select.value = chosen;
    select.addEventListener("change", drawDifferences);
    return make("label", {}, `${label} `, select);
  };
  const outlined = make("input", { type: "checkbox", id: "outline-differences" });
  outlined.addEventListener("change", drawOutlines);
  place.append(
    make("div", { className: "tools" }, choose("step-a", "From step", 0), choose("step-b", "to step", lastStep),
      make("label", {}, outlined, " outline these CPUs on the map")),
    make("div", { id: "difference-tables" }),
  );
  drawDifferences();
}

/** The two frames that are compared. */
function compared() {
  return ["step-a", "step-b"].map((id) => frames[Number(document.getElementById(id).value)]);
}

/** Who has a CPU: its owners, or its pool; the key, and how to name it. */
function holdersOf(state) {
  return state.owners.length ? state.owners.map((owner) => `owner ${owner}`) : [`use ${state.use}`];
}

/** CPUs that each holder gained and lost. */
function cpuDifferences(before, after) {
  const found = new Map();
  const note = (holder, side, cpu) => {
    if (!found.has(holder)) found.set(holder, { gained: [], lost: [] });
    found.get(holder)[side].push(cpu);
  };
  for (const [position, cpu] of report.cpus.entries()) {
    const [old, now] = [holdersOf(before.cpus[position]), holdersOf(after.cpus[position])];
    for (const holder of now) if (!old.includes(holder)) note(holder, "gained", cpu.id);
    for (const holder of old) if (!now.includes(holder)) note(holder, "lost", cpu.id);
  }
  return [...found].sort(([one], [two]) => one.localeCompare(two, "en", { numeric: true }));
}

function holderName(holder) {
  const [kind, index] = holder.split(" ");
  const it = kind === "owner" ? report.owners[index] : report.uses[index];
  return make("span", {}, swatch(it.style, it.mark), ` ${it.label ?? it.name}`);
}

function amount(sign, cpus) {
  return cpus.length ? `${sign}${cpus.length}: ${listText(cpus)}` : "–";
}

function drawDifferences() {
  const [before, after] = compared();
  const cpus = cpuDifferences(before, after).map(([holder, { gained, lost }]) =>
    [holderName(holder), amount("+", gained), amount("−", lost)]);
  const memory = report.accounts.flatMap((account, index) => {
    const [old, now] = [before.accounts[index], after.accounts[index]];
    if (!old || old.assigned === now.assigned) return [];
    const sign = now.assigned > old.assigned ? "+" : "−";
    return [[`${account.resource} on NUMA node ${account.node}`, `${sign}${size(Math.abs(now.assigned - old.assigned))}`,
      `${size(now.free)}`]];
  });
  const devices = report.devices.flatMap((device, index) => {
    const [old, now] = [before.devices[index], after.devices[index]];
    return old === now ? [] : [[`${device.resource} ${device.id}`, old || "free", now || "free"]];
  });
  const tables = [
    cpus.length && table(["owner or pool", "gained", "lost"], cpus, "CPUs with another owner or pool"),
    memory.length && table(["memory", "assigned", "free now"], memory, "Memory assigned or released"),
    devices.length && table(["device", "before", "now"], devices, "Devices with another holder"),
  ].filter(Boolean);
  const place = document.getElementById("difference-tables");
  place.replaceChildren(...(tables.length ? tables : [make("p", {}, "Nothing differs.")]));
  drawOutlines();
}
