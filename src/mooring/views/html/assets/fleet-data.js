// The data of a fleet's report; what is compressed is taken apart when it is needed.

const fleet = JSON.parse(document.getElementById("data").textContent);
const parser = new DOMParser();
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream);
}

async function unpackedBytes(text) {
  return new Uint8Array(await (await unpacked(text)).arrayBuffer());
}

/** A picture as an element of the page, with a name for its region. */
async function unpackedPicture(text, name) {
  const root = parser.parseFromString(await (await unpacked(text)).text(), "image/svg+xml").documentElement;
  return make("div", { className: "scroll picture", tabIndex: 0, role: "region", "aria-label": name }, document.importNode(root, true));
}

/** Seconds in the largest unit that makes them at least 1. */
function duration(seconds) {
  for (const [unit, name] of UNITS) {
    if (seconds >= unit || unit === 1) return `${Number((seconds / unit).toPrecision(3))} ${name}`;
  }
  return "";
}

/** The pods, by their fields. */
async function unpackedPods() {
  const rows = JSON.parse(await (await unpacked(fleet.pods)).text());
  return rows.map(([name, fate, node, place, created, admitted, ended, code, requests, story]) => (
    { name, fate, node, place, created, admitted, ended, code, requests, story }));
}

const pods = await unpackedPods();
const podByName = new Map(pods.map((pod) => [pod.name, pod]));
const states = new Uint16Array((await unpackedBytes(fleet.states)).buffer);
const shares = {};
for (const [resource, text] of Object.entries(fleet.shares)) shares[resource] = await unpackedBytes(text);
const nodePods = new Map();
for (const pod of pods) {
  if (pod.node < 0) continue;
  if (!nodePods.has(pod.node)) nodePods.set(pod.node, []);
  nodePods.get(pod.node).push(pod);
}

/** The first names that hold all words, as buttons in a list. */
function listMatches(list, text, names, act) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length ? names.filter((name) => words.every((word) => name.toLowerCase().includes(word))) : [];
  const buttons = found.slice(0, 30).map((name) => {
    const button = make("button", { type: "button" }, name);
    button.addEventListener("click", () => act(name));
    return make("li", {}, button);
  });
  if (found.length > 30) buttons.push(make("li", {}, `and ${found.length - 30} more`));
  if (words.length && !found.length) buttons.push(make("li", {}, "none"));
  list.replaceChildren(...buttons);
  list.hidden = !words.length;
}

function reveal(id) {
  const section = document.getElementById(id);
  section.hidden = false;
  document.getElementById(`${id}-title`).focus({ preventScroll: true });
  section.scrollIntoView({ block: "start" });
}
