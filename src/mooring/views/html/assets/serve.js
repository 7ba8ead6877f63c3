// The live pages: changes are announced by server-sent events, and what changed is fetched.

const main = document.querySelector("main");
const live = document.getElementById("live");
const link = document.getElementById("link");
const moment = document.getElementById("moment");
const RETRY = 2000; // milliseconds until a body that could not be fetched is asked for again
let fetching = false;
let again = false;

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
      const focused = document.activeElement?.dataset.uid ?? document.activeElement?.dataset.node;
      const text = await textOf(main.dataset.body + viewOf());
      const start = performance.now();
      live.replaceChildren(...elementsOf(text));
      if (focused) live.querySelector(`[data-uid="${CSS.escape(focused)}"],[data-node="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      countDown();
      live.dataset.updates = Number(live.dataset.updates ?? 0) + 1;
      live.dataset.milliseconds = performance.now() - start;
    } while (again);
  } catch {
    setTimeout(refresh, RETRY);
  } finally {
    fetching = false;
  }
}

/** What of it is shown: a moment of the timeline, or the nodes of some labels. */
function viewOf() {
  if (moment && !isNow()) return `?number=${moment.value}`;
  const filter = document.getElementById("filter");
  return filter?.value ? `?labels=${encodeURIComponent(filter.value)}` : "";
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

/** Seconds that are left of each delay. */
function countDown() {
  for (const one of live.querySelectorAll("[data-due]")) {
    const left = Number(one.dataset.due) - Date.now() / 1000;
    one.textContent = left > 0 ? `in ${Math.ceil(left)} s` : "at the next reconciliation";
  }
}

async function openStory(uid, name) {
  const section = document.getElementById("story");
  const then = viewOf().startsWith("?number=") ? viewOf().replace("?", "&") : "";
  const answer = await answerOf(`${main.dataset.pod}?uid=${encodeURIComponent(uid)}${then}`);
  document.getElementById("story-title").textContent = name;
  document.getElementById("story-body").replaceChildren(...answer);
  section.hidden = false;
  document.getElementById("story-title").focus({ preventScroll: true });
  section.scrollIntoView({ block: "start" });
}

/** A time in words, with its day where that is not today. */
function momentText(seconds) {
  if (seconds === undefined) return "cannot be read";
  const at = new Date(Number(seconds) * 1000);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? at.toLocaleTimeString() : at.toLocaleString();
}

function listenToNode() {
  live.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-uid]");
    if (button) openStory(button.dataset.uid, button.dataset.name);
    const title = event.target.closest("svg g")?.querySelector(":scope > title")?.textContent ?? "";
    const owned = [...live.querySelectorAll("button[data-uid]")].find((one) => title.includes(` ${one.dataset.name}/`) || title.startsWith(`${one.dataset.name}/`));
    if (!button && owned) openStory(owned.dataset.uid, owned.dataset.name);
  });
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
  document.getElementById("filter")?.addEventListener("input", refresh);
}

document.documentElement.classList.add("scripted");
listenToTheme();
listenToNode();
listenToForms();
countDown();
setInterval(countDown, 1000);
listenToEvents();
performance.mark("interactive");
