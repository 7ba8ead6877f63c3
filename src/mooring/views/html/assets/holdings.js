// Memory of the NUMA nodes as bars, and devices with their holders.

const BAR = 400;

/** The parts of an account after a step: what they are, how they look, how many bytes. */
function memoryParts(account, state) {
  const pools = account.total - account.reserved - account.allocatable;
  return [
    ["reserved", "reserved", account.reserved, "#"],
    ["huge page pools", "shared", Math.max(0, pools), "~"],
    ["assigned", "used", state.assigned, ""],
    ["free", "free", state.free, "·"],
  ].filter(([name, , bytes]) => bytes > 0 || name === "assigned" || name === "free");
}

function memoryBar(account, state) {
  const bar = draw("svg", {
    class: "mooring memory-bar", viewBox: `0 0 ${BAR} 16`, preserveAspectRatio: "none", "aria-hidden": "true",
  });
  let start = 0;
  for (const [, style, bytes] of memoryParts(account, state)) {
    const width = Math.min(BAR - start, (bytes / account.total) * BAR);
    bar.append(draw("rect", { class: style, x: start, y: 0, width, height: 16 }));
    start += width;
  }
  bar.append(draw("rect", { class: "bar", x: 0, y: 0, width: BAR, height: 16 }));
  return bar;
}

function drawMemory(frame) {
  const place = document.getElementById("memory");
  if (!place) return;
  if (!report.accounted) {
    const totals = report.accounts.map((account) => [`${account.node}`, size(account.total)]);
    place.replaceChildren(table(["NUMA node", "memory"], totals, "No memory manager accounts for memory here."));
    return;
  }
  const rows = report.accounts.map((account, index) => {
    const state = frame.accounts[index];
    const words = memoryParts(account, state).map(([name, style, bytes, sign]) =>
      make("span", { className: "part" }, swatch(style, sign), ` ${name} ${size(bytes)} `));
    const group = state && state.group.length > 1 ? `with ${state.group.filter((node) => node !== account.node).join(", ")}` : "–";
    return [`${account.node}`, account.resource, size(account.total), memoryBar(account, state),
      make("span", { className: "parts" }, ...words), group];
  });
  const headings = ["NUMA node", "type", "total", "use", "in figures", "group"];
  place.replaceChildren(table(headings, rows, "Memory of the NUMA nodes after the step shown."));
}

function drawDevices(frame) {
  const place = document.getElementById("devices");
  if (!place) return;
  const rows = report.devices.map((device, index) => {
    const holder = frame.devices[index];
    return [device.id, device.resource, device.address || "–", device.numa.join(", ") || "unknown",
      make("span", {}, deviceSwatch(device, holder), ` ${deviceState(device, holder)}`)];
  });
  const headings = ["device", "resource", "PCI address", "NUMA node", "state"];
  place.replaceChildren(table(headings, rows, "Devices after the step shown."));
}

function deviceState(device, holder) {
  if (!device.offered) return "not offered to pods";
  if (holder) return `${device.healthy ? "" : "unhealthy, "}in use by ${holder}`;
  return device.healthy ? "free" : "unhealthy";
}

function deviceSwatch(device, holder) {
  const [style, mark] = deviceStyle(device, holder);
  return swatch(style, mark);
}

/** The style and the mark of a device. */
function deviceStyle(device, holder) {
  const owner = report.owners.find((one) => one.label === holder);
  if (!device.offered) return ["left-out", ""];
  if (holder) return [device.healthy ? owner?.style ?? "contested" : "broken", owner?.mark ?? ""];
  return device.healthy ? ["free", "·"] : ["offline", "×"];
}
