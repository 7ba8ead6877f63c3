// The live pages: changes are announced by server-sent events, and what changed is fetched.

const main = document.querySelector("main");
const live = document.getElementById("live");
const link = document.getElementById("link");
const moment = document.getElementById("moment");
const form = document.getElementById("view");
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const RETRY = 2000; // milliseconds until a body that could not be fetched is asked for again
let fetching = false;
let again = false;
let sorted = null; // column and direction

/** The elements of a text of the server; nothing in it runs. */
function elementsOf(text) {
  return [...new DOMParser().parseFromString(text, "text/html").body.childNodes];
}

async function textOf(address, options = {}) {
  const answer = await fetch(address, options);
  if (answer.status === 401) location.reload();
  return answer.text();
}

/** The elements of an answer, or of why there is none. */
async function answerOf(address, options = {}) {
  try {
    return elementsOf(await textOf(address, options));
  } catch {
    return elementsOf('<p class="refusal">The server does not answer.</p>');
  }
}

/** Fetch the page's body again; while that is under way, remember that it must be fetched once more. */
async function refresh() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    do {
      again = false;
      const text = await textOf(main.dataset.body + viewOf());
      const start = performance.now();
      replaceBody(elementsOf(text));
      live.dataset.updates = Number(live.dataset.updates ?? 0) + 1;
      live.dataset.milliseconds = performance.now() - start;
    } while (again);
  } catch {
    setTimeout(refresh, RETRY);
  } finally {
    fetching = false;
  }
}

/** Put a new body in place; what is searched, how a table is sorted, and the focus stay. */
function replaceBody(elements) {
  const search = document.getElementById("pod-search");
  const focused = live.contains(document.activeElement) ? document.activeElement : null;
  const [name, value] = Object.entries(focused?.dataset ?? {})[0] ?? [];
  live.replaceChildren(...elements);
  if (search) document.getElementById("pod-search")?.replaceWith(search);
  const again = name ? live.querySelector(`[data-${name}="${CSS.escape(value)}"]`) : focused === search && search;
  if (again) again.focus({ preventScroll: true });
  arrange();
  countTime();
}

/** Sort and narrow the pods as they were before. */
function arrange() {
  const table = document.getElementById("pods-here");
  if (table && sorted) sortTable(table, ...sorted);
  const rows = [...live.querySelectorAll("[data-row]")];
  const words = document.getElementById("pod-search")?.value ?? "";
  const shown = filterRows(rows, words);
  if (words || rows.length) document.getElementById("pod-count").textContent = words ? `${shown} of ${rows.length}` : "";
}

/** What of it is shown: a moment of the timeline, or what the form asks for. */
function viewOf() {
  if (moment) return isNow() ? "" : `?number=${moment.value}`;
  const fields = [...new FormData(form)].filter(([, value]) => value);
  return fields.length ? `?${new URLSearchParams(fields)}` : "";
}

function isNow() {
  return !moment || moment.value === moment.max;
}

function say(state, good) {
  link.textContent = state;
  link.className = `verdict ${good ? "yes" : "no"}`;
}

function listenToEvents() {
  const events = new EventSource(main.dataset.events);
  events.addEventListener("changed", (event) => {
    const news = JSON.parse(event.data);
    say("live", true);
    if (moment) {
      const wasNow = isNow();
      moment.min = news.first;
      moment.max = news.number;
      moment.disabled = news.first === news.number;
      if (wasNow) moment.value = news.number;
      if (wasNow && Number(live.dataset.version ?? 0) === news.version) return;
    }
    live.dataset.version = news.version;
    document.getElementById("since").textContent = `changed ${new Date(news.at * 1000).toLocaleTimeString()}`;
    if (isNow()) refresh();
  });
  events.addEventListener("error", () => say("disconnected; trying again", false));
}

/** Seconds that are left of each delay, and the age of what has one. */
function countTime() {
  for (const one of document.querySelectorAll("[data-due]")) {
    const left = Number(one.dataset.due) - Date.now() / 1000;
    one.textContent = left > 0 ? `in ${Math.ceil(left)} s` : "at the next reconciliation";
  }
  for (const one of document.querySelectorAll("[data-since]")) {
    const age = Math.max(1, Date.now() / 1000 - Number(one.dataset.since));
    const [unit, word] = UNITS.find(([seconds]) => age >= seconds);
    one.textContent = `${Math.floor(age / unit)} ${word}`;
  }
}

/** Open what the address names: a pod, or a code. */
function openNamed() {
  const named = new URLSearchParams(location.hash.slice(1));
  if (named.has("code")) openStory(named.get("code"), `${main.dataset.code}?code=${encodeURIComponent(named.get("code"))}`);
  const pod = named.get("pod");
  if (pod) openPod(pod, [...live.querySelectorAll("[data-uid]")].find((one) => one.dataset.name === pod)?.dataset.uid ?? "");
}

function openPod(name, uid) {
  const then = moment ? viewOf().replace("?", "&") : "";
  return openStory(name, `${main.dataset.pod}?uid=${encodeURIComponent(uid)}${then}`);
}

async function openStory(title, address) {
  const answer = await answerOf(address);
  document.getElementById("story-title").textContent = title;
  document.getElementById("story-body").replaceChildren(...answer);
  countTime();
  const section = document.getElementById("story");
  section.hidden = false;
  document.getElementById("story-title").focus({ preventScroll: true });
  section.scrollIntoView({ block: "nearest" });
}

/** A time in words, with its day where that is not today. */
function momentText(seconds) {
  if (seconds === undefined) return "cannot be read";
  const at = new Date(Number(seconds) * 1000);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? at.toLocaleTimeString() : at.toLocaleString();
}

function listenToBody() {
  live.addEventListener("click", (event) => {
    const { target } = event;
    const title = target.closest("svg g")?.querySelector(":scope > title")?.textContent ?? "";
    const owned = [...live.querySelectorAll("[data-uid]")].find((one) => title.includes(` ${one.dataset.name}/`) || title.startsWith(`${one.dataset.name}/`));
    const pod = target.closest("[data-uid]") ?? owned;
    const figure = target.closest("[data-show],[data-resource]");
    const head = target.closest("thead button")?.parentNode;
    if (pod) {
      event.preventDefault();
      history.pushState(null, "", `#pod=${encodeURIComponent(pod.dataset.name)}`);
      openPod(pod.dataset.name, pod.dataset.uid);
    } else if (figure) {
      const [[name, value]] = Object.entries(figure.dataset);
      form.elements[name].value = figure.ariaPressed === "true" ? "" : value;
      showView();
    } else if (head) {
      sorted = [head.cellIndex, nextDirection(head)];
      arrange();
    }
  });
  live.addEventListener("input", arrange);
  moment?.addEventListener("input", async () => {
    await refresh();
    const words = isNow() ? "now" : momentText(live.querySelector("[data-at]")?.dataset.at);
    document.getElementById("moment-words").textContent = words;
    moment.setAttribute("aria-valuetext", words);
    document.getElementById("now").hidden = isNow();
  });
  document.getElementById("now")?.addEventListener("click", () => {
    moment.value = moment.max;
    moment.dispatchEvent(new Event("input"));
  });
}

function listenToForms() {
  document.getElementById("whatif")?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const answer = document.getElementById("answer");
    answer.replaceChildren("Asking…");
    const body = document.getElementById("manifest").value;
    answer.replaceChildren(...(await answerOf(main.dataset.whatif, { method: "POST", body, headers: { "Content-Type": "application/yaml" } })));
  });
  form?.addEventListener("input", showView);
  form?.addEventListener("submit", (event) => event.preventDefault());
  for (const [name, value] of new URLSearchParams(location.search)) if (form?.elements[name]) form.elements[name].value = value;
}

/** Show what the form asks for, and let the address say so. */
function showView() {
  history.replaceState(null, "", (viewOf() || location.pathname) + location.hash);
  refresh();
}

document.documentElement.classList.add("scripted");
listenToTheme();
listenToBody();
listenToForms();
arrange();
countTime();
setInterval(countTime, 1000);
listenToEvents();
openNamed();
addEventListener("hashchange", openNamed);
performance.mark("interactive");
