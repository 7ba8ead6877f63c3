// One node at one moment: its picture and its pods.

let shownNode = null;
let shownMoment = 0;

/** Show a node; its section comes into view. */
async function openNode(node, moment) {
  await showNode(node, moment);
  reveal("node");
}

async function showNode(node, moment) {
  shownNode = node;
  shownMoment = moment;
  document.getElementById("node-title").textContent = `${fleet.nodes[node]} at ${duration(fleet.moments[moment])}`;
  const number = states[node * fleet.moments.length + moment];
  const picture = number ? await unpackedPicture(fleet.pictures[number - 1], "Picture of the node") : notDrawn(node, moment);
  // Another one may have been asked for meanwhile.
  if (shownNode !== node || shownMoment !== moment) return;
  const body = document.getElementById("node-body");
  if (body.dataset.node !== `${node}`) body.replaceChildren(makeSlider(), make("div", { id: "node-now" }));
  body.dataset.node = node;
  document.getElementById("moment").value = moment;
  document.getElementById("moment").setAttribute("aria-valuetext", duration(fleet.moments[moment]));
  document.getElementById("node-now").replaceChildren(usesOf(node, moment), picture, podsOf(node, moment, number));
}

function makeSlider() {
  const slider = make("input", { type: "range", id: "moment", min: 0, max: fleet.moments.length - 1, step: 1 });
  slider.addEventListener("input", () => showNode(shownNode, Number(slider.value)));
  return make("div", { className: "tools" }, make("label", { htmlFor: "moment" }, "Moment"), slider);
}

function usesOf(node, moment) {
  const words = Object.entries(shares).map(([name, bytes]) => `${name} ${bytes[node * fleet.moments.length + moment]} %`);
  return make("p", { className: "quiet-text" }, `requested: ${words.join(", ")}`);
}

/** What stands where a state has no picture: the nearest moment at which the node has one. */
function notDrawn(node, moment) {
  const own = fleet.moments.map((_, at) => at).filter((at) => states[node * fleet.moments.length + at]);
  const nearest = own.sort((one, two) => Math.abs(one - moment) - Math.abs(two - moment))[0];
  const line = make("p", {}, "This state of the node is not among those that the page draws. ");
  if (nearest !== undefined) {
    const button = make("button", { type: "button" }, `Show it at ${duration(fleet.moments[nearest])}`);
    button.addEventListener("click", () => showNode(node, nearest));
    line.append(button);
  }
  return line;
}

function podsOf(node, moment, number) {
  const now = fleet.moments[moment];
  const marks = number ? fleet.marks[number - 1] : {};
  const there = (nodePods.get(node) ?? []).filter((pod) => pod.admitted !== null && pod.admitted <= now && (pod.ended === null || pod.ended > now));
  if (!there.length) return make("p", {}, "No pod is on it.");
  const rows = there.map((pod) => [podButton(pod.name), marks[pod.place] ?? "–", pod.requests, duration(pod.admitted), pod.ended === null ? "–" : duration(pod.ended)]);
  return table(["Pod", "Letters", "Requests", "Admitted", "Ends"], rows, `${plural(there.length, "pod")} on it`);
}

function podButton(name) {
  const button = make("button", { type: "button", className: "link" }, name);
  button.addEventListener("click", () => openPod(name));
  return button;
}

function nodeButton(node, moment) {
  const button = make("button", { type: "button", className: "link" }, `${fleet.nodes[node]} at ${duration(fleet.moments[moment])}`);
  button.addEventListener("click", () => openNode(node, moment));
  return button;
}

/** The last moment that is not after a time. */
function momentOf(time) {
  return Math.max(0, fleet.moments.findLastIndex((moment) => moment <= time));
}

document.getElementById("node-search").addEventListener("input", (event) => {
  const list = document.getElementById("node-matches");
  listMatches(list, event.target.value, fleet.nodes, (name) => openNode(fleet.nodes.indexOf(name), fleet.moments.length - 1));
});
