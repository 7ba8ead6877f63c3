// The table of the pods: sorting, filtering, marking.

function listenToPods() {
  const pods = document.getElementById("pods");
  if (!pods) return;
  for (const [column, head] of [...pods.tHead.rows[0].cells].entries()) {
    head.querySelector("button")?.addEventListener("click", () => sortTable(pods, column, nextDirection(head)));
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

function filterPods(pods) {
  const verdict = document.getElementById("pod-filter").value;
  const rows = [...pods.tBodies[0].rows];
  const shown = filterRows(rows, document.getElementById("pod-search").value, (row) => !verdict || row.dataset.verdict === verdict);
  document.getElementById("pod-count").textContent = shown === rows.length ? plural(shown, "pod") : `${shown} of ${plural(rows.length, "pod")}`;
}
