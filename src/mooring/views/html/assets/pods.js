// The table of the pods: sorting, filtering, marking.

function listenToPods() {
  const pods = document.getElementById("pods");
  if (!pods) return;
  for (const [column, head] of [...pods.tHead.rows[0].cells].entries()) {
    head.querySelector("button")?.addEventListener("click", () => sortPods(pods, column));
  }
  document.getElementById("pod-filter").addEventListener("change", () => filterPods(pods));
  document.getElementById("pod-search").addEventListener("input", () => filterPods(pods));
  document.getElementById("pod-none").addEventListener("click", () => markPod(null));
  pods.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.step) showStep(Number(button.dataset.step));
    else if (button?.dataset.mark) markPod(Number(button.dataset.mark) === markedPod ? null : Number(button.dataset.mark));
    else if (!button && event.target.closest("tbody tr")) markPod(Number(event.target.closest("tr").dataset.pod));
  });
}

/** Sort by a column: ascending, then descending; rows without a value come last. */
function sortPods(pods, column) {
  const head = pods.tHead.rows[0].cells[column];
  const direction = head.ariaSort === "ascending" ? "descending" : "ascending";
  for (const other of pods.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  const key = (row) => row.cells[column].dataset.sort;
  const compare = head.dataset.kind === "number"
    ? (one, two) => sign * (Number(key(one)) - Number(key(two)))
    : (one, two) => sign * key(one).localeCompare(key(two), "en", { numeric: true });
  const body = pods.tBodies[0];
  const order = [...body.rows].sort((one, two) => (key(one) === "") - (key(two) === "") || compare(one, two));
  body.append(...order);
}

function filterPods(pods) {
  const verdict = document.getElementById("pod-filter").value;
  const words = document.getElementById("pod-search").value.toLowerCase().split(/\s+/);
  let shown = 0;
  for (const row of pods.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !(hasVerdict(row, verdict) && words.every((word) => text.includes(word)));
    if (!row.hidden) shown += 1;
  }
  const all = pods.tBodies[0].rows.length;
  document.getElementById("pod-count").textContent = shown === all ? plural(all, "pod") : `${shown} of ${plural(all, "pod")}`;
}

function hasVerdict(row, verdict) {
  return !verdict || row.dataset.verdict === verdict;
}
