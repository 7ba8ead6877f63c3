// One pod: what became of it, and why.

async function openPod(name) {
  const pod = podByName.get(name);
  document.getElementById("pod-title").textContent = name;
  const body = document.getElementById("pod-body");
  body.replaceChildren(factsOf(pod), ...(await whyOf(pod)));
  reveal("pod");
}

const FATES = {
  ran: "ran and ended",
  runs: "runs at the end",
  waits: "waits for a node at the end",
  left: "was deleted before a node took it",
  refused: "was refused by the kubelet of its node",
  evicted: "was evicted: its node was drained or removed, or it was preempted",
  held: "waits on its node: the agent has no room for it",
};

function factsOf(pod) {
  const facts = [["Requests", pod.requests], ["Created", duration(pod.created)], ["Fate", FATES[pod.fate]]];
  if (pod.node >= 0) facts.push(["Node", nodeButton(pod.node, momentOf(pod.admitted ?? pod.ended ?? pod.created))]);
  if (pod.admitted !== null) facts.push(["Admitted", `${duration(pod.admitted)}, after ${duration(pod.admitted - pod.created)}`]);
  if (pod.ended !== null) facts.push(["Ended", duration(pod.ended)]);
  return make("dl", { className: "facts" }, ...facts.map(([term, fact]) => make("div", {}, make("dt", {}, term), make("dd", {}, fact))));
}

async function whyOf(pod) {
  if (pod.fate === "refused" && pod.story >= 0) return refusalOf(fleet.refusals[pod.story], pod);
  const wait = pod.fate === "waits" ? fleet.waits[pod.story] : undefined;
  if (wait) return [make("p", {}, "No node takes it:"), make("ul", {}, ...wait.map(([cause, count]) => make("li", {}, `${plural(count, "node")}: ${cause}`)))];
  if (pod.fate === "refused") return [make("p", {}, make("span", { className: "code" }, pod.code), " The page explains the most frequent refusals only.")];
  return [];
}

async function refusalOf(refusal, pod) {
  const found = [make("p", {}, make("strong", {}, refusal.reason), " ", make("span", { className: "code" }, refusal.code), ` ${refusal.why}`)];
  if (refusal.remedy) found.push(make("p", {}, make("b", {}, "In general: "), refusal.remedy));
  if (refusal.message) found.push(make("p", {}, "The kubelet says: ", make("q", { className: "message" }, refusal.message)));
  if (refusal.count > 1) {
    const first = refusal.first === pod.name ? "" : `; the picture names the first, ${refusal.first}`;
    found.push(make("p", { className: "quiet-text" }, `${plural(refusal.count, "pod")} were refused so${first}.`));
  }
  found.push(await unpackedPicture(refusal.decision, "Picture of the decision"));
  if (refusal.picture) found.push(make("h3", {}, "The node that refused it"), await unpackedPicture(fleet.pictures[refusal.picture - 1], "Picture of the node that refused"));
  return found;
}

document.getElementById("unhappy")?.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) openPod(button.dataset.pod);
});
document.getElementById("pod-search").addEventListener("input", (event) => {
  listMatches(document.getElementById("pod-matches"), event.target.value, pods.map((pod) => pod.name), openPod);
});
