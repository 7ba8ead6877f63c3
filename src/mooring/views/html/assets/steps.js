// Going through the steps: slider, buttons, and what the step was.

const PAUSE = 900;

let shownStep = lastStep;
let playing = null;

function makeSteps() {
  const place = document.getElementById("steps");
  if (!place) return;
  const slider = make("input", { type: "range", id: "step", min: 0, max: lastStep, value: lastStep, step: 1 });
  slider.addEventListener("input", () => {
    stopPlaying();
    showStep(Number(slider.value));
  });
  const button = (id, sign, label, act) => {
    const made = make("button", { type: "button", id, title: label, "aria-label": label }, sign);
    made.addEventListener("click", act);
    return made;
  };
  const go = (target) => () => {
    stopPlaying();
    showStep(Math.max(0, Math.min(lastStep, target())));
  };
  place.append(
    make("div", { className: "tools" },
      make("label", { htmlFor: "step" }, "Step"),
      button("step-first", "|◀", "First step", go(() => 0)),
      button("step-back", "◁", "One step back", go(() => shownStep - 1)),
      button("step-play", "▶ Play", "Play the steps", togglePlaying),
      button("step-on", "▷", "One step on", go(() => shownStep + 1)),
      button("step-last", "▶|", "Last step", go(() => lastStep)),
      slider,
      make("output", { id: "step-number", htmlFor: "step" })),
    make("div", { id: "step-story", tabIndex: 0, role: "region", "aria-label": "What happened", "aria-live": "polite" }),
  );
}

function togglePlaying() {
  if (playing !== null) {
    stopPlaying();
    return;
  }
  // A story that changes every second is not to be read aloud.
  document.getElementById("step-story").setAttribute("aria-live", "off");
  const button = document.getElementById("step-play");
  button.textContent = "❚❚ Pause";
  button.setAttribute("aria-label", "Pause");
  if (shownStep === lastStep) showStep(0);
  playing = setInterval(() => {
    if (shownStep === lastStep) stopPlaying();
    else showStep(shownStep + 1);
  }, PAUSE);
}

function stopPlaying() {
  if (playing === null) return;
  clearInterval(playing);
  playing = null;
  document.getElementById("step-story").setAttribute("aria-live", "polite");
  const button = document.getElementById("step-play");
  button.textContent = "▶ Play";
  button.setAttribute("aria-label", "Play the steps");
}

/** Show the node after a step, everywhere on the page. */
function showStep(step) {
  shownStep = step;
  const frame = frames[step];
  drawFrame(frame);
  drawMarks();
  drawOutlines();
  drawMemory(frame);
  drawDevices(frame);
  hideDetails();
  if (document.getElementById("step")) drawStep(step);
}

/** Outline what the step changed, or what differs between the two compared steps. */
function drawOutlines() {
  if (document.getElementById("outline-differences")?.checked) outline(changedCpus(...compared()));
  else outline(shownStep ? changedCpus(frames[shownStep - 1], frames[shownStep]) : []);
}

function drawStep(step) {
  const slider = document.getElementById("step");
  slider.value = step;
  slider.setAttribute("aria-valuetext", `step ${step}: ${stepName(step)}`);
  document.getElementById("step-number").textContent = `${step} of ${lastStep}`;
  document.getElementById("step-story").replaceChildren(...storyOf(step));
  for (const row of document.querySelectorAll("#pods tbody tr")) {
    const later = Number(row.cells[0].dataset.sort || Infinity) > step;
    row.classList.toggle("later", later);
    row.classList.toggle("now", Number(row.cells[0].dataset.sort || -1) === step);
  }
}

/** What to do, folded where nothing has to be done. */
function adviceOf(pod) {
  if (pod.admitted) return make("details", {}, make("summary", {}, "Advice"), pod.remedy);
  return make("p", {}, make("b", {}, "In general: "), pod.remedy);
}

/** What happened in a step, in words. */
function storyOf(step) {
  const index = report.steps[step].pod;
  if (index === null) return [make("p", {}, make("strong", {}, "The node at the start"), ", before any pod was asked.")];
  const pod = report.pods[index];
  const sign = make("span", { "aria-hidden": "true" }, pod.admitted ? "✓ " : "✕ ");
  const verdict = make("span", { className: `verdict ${pod.admitted ? "yes" : "no"}` }, sign, pod.verdict);
  const head = make("p", {}, make("strong", {}, pod.name), " ", verdict);
  if (pod.reason) head.append(" ", make("strong", {}, pod.reason));
  if (pod.code) head.append(" ", make("span", { className: "code", title: `mooring explain ${pod.code}` }, pod.code));
  const changed = changedCpus(frames[step - 1], frames[step]).length;
  const words = [pod.why, changed ? `${plural(changed, "CPU")} changed, outlined on the map.` : "No CPU changed."];
  const todo = pod.remedy ? [adviceOf(pod)] : [];
  const said = pod.message ? [make("p", {}, "The kubelet says: ", make("q", { className: "message" }, pod.message))] : [];
  return [head, make("p", {}, words.filter(Boolean).join(" ")), ...todo, ...said];
}
