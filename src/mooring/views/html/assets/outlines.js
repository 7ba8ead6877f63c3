// What stands out on the map: CPUs that changed, and the CPUs of the pod that was marked.

let markedPod = null;

/** Outline some CPUs, and no others. */
function outline(ids) {
  const wanted = new Set(ids);
  for (const [cpu, cells] of cellsOf) {
    for (const cell of cells) cell.group.classList.toggle("changed", wanted.has(cpu));
  }
}

/** Mark a pod's CPUs, or none; everything else steps back. */
function markPod(pod) {
  markedPod = pod;
  drawMarks();
  for (const button of document.querySelectorAll("[data-mark]")) {
    button.setAttribute("aria-pressed", Number(button.dataset.mark) === pod && pod !== null);
    button.closest("tr")?.classList.toggle("marked", Number(button.dataset.mark) === pod && pod !== null);
  }
  for (const cells of pod === null ? [] : cellsOf.values()) {
    const seen = cells.find((cell) => cell.group.classList.contains("marked") && cell.group.getClientRects().length);
    if (seen) {
      seen.group.scrollIntoView({ block: "nearest", inline: "nearest" });
      break;
    }
  }
  const none = document.getElementById("pod-none");
  if (none) none.hidden = pod === null;
}

/** Show the mark on the frame that is drawn. */
function drawMarks() {
  const isMarked = (state) => markedPod !== null && state.owners.some((owner) => report.owners[owner].pod === markedPod);
  for (const map of document.querySelectorAll(".map svg")) map.classList.toggle("marking", markedPod !== null);
  for (const [position, cpu] of report.cpus.entries()) {
    const marked = isMarked(drawn.cpus[position]);
    for (const cell of cellsOf.get(cpu.id)) {
      cell.group.classList.toggle("marked", marked);
      cell.group.setAttribute("aria-pressed", marked);
    }
  }
}
