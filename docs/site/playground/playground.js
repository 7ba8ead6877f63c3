// The page: texts in, a picture, a table and an explanation out. The planner itself runs in worker.js.
const part = (id) => document.getElementById(id);
const fields = ["machine", "config", "pods"];
const begun = performance.now();
part("state").textContent = "Loading the planner …";
const { machines, lessons } = await (await fetch("lessons.json")).json();
let lesson = lessons[0];
let asked = "";
let number = 0;
let busy = true;
let waiting = null;

// A worker from a blob has the policy of this page; one from an address would have none of its own.
const address = JSON.stringify(new URL("worker.js", location.href).href);
const program = new Blob([`import(${address}).catch((error) => postMessage({ failed: String(error) }));`], { type: "text/javascript" });
const worker = new Worker(URL.createObjectURL(program), { type: "module" });

function element(name, text = "", attributes = {}, ...children) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const codeLink = (code) => element("a", code, { href: `../reference/codes/${code}.html` });

function ask() {
  waiting = { number: ++number, asked };
  for (const field of fields) {
    waiting[field] = part(field).value;
  }
  part("answer").setAttribute("aria-busy", "true");
  send();
}

// Of the questions that come while the planner works only the last is asked.
function send() {
  if (waiting && !busy) {
    busy = true;
    worker.postMessage(waiting);
    waiting = null;
  }
}

worker.onmessage = ({ data }) => {
  if (data.ready) {
    part("state").textContent = `The planner was ready after ${((performance.now() - begun) / 1000).toFixed(1)} seconds.`;
    busy = false;
    send();
  } else if (data.failed) {
    part("state").textContent = `The planner could not be loaded: ${data.failed}`;
  } else {
    busy = false;
    if (data.number === number) {
      show(data.answer);
    }
    send();
  }
};
worker.onerror = (error) => {
  part("state").textContent = `The planner could not be loaded: ${error.message ?? "see the console"}`;
};

function show(answer) {
  part("answer").setAttribute("aria-busy", "false");
  part("error").textContent = answer.error ?? answer.refusal;
  part("placements").parentElement.hidden = Boolean(answer.error);
  if (answer.error) {
    part("headline").textContent = "This cannot be read";
    for (const id of ["picture", "explained", "findings"]) {
      part(id).replaceChildren();
    }
    return;
  }
  // The picture says how many pods were admitted.
  part("headline").textContent = answer.refusal ? "The kubelet would not start" : "";
  draw(answer.picture);
  const rows = [...answer.pods.flatMap(placements), ...answer.unasked.flatMap((name) => placements({ name }))];
  part("placements").tBodies[0].replaceChildren(...rows);
  part("explained").replaceChildren(...(answer.explained ? explanation(answer.explained) : []));
  part("findings").replaceChildren(
    ...answer.findings.map((finding) => element("li", `${finding.text} `, {}, codeLink(finding.code))),
  );
}

// The picture brings its own styles. The policy forbids them in the page, and a sheet of the script has them instead.
function draw(text) {
  const sheet = new CSSStyleSheet();
  const bare = text.replace(/<style>([^<]*)<\/style>/g, (whole, styles) => {
    sheet.replaceSync(styles);
    return "";
  });
  document.adoptedStyleSheets = [sheet];
  const picture = new DOMParser().parseFromString(bare, "image/svg+xml").documentElement;
  part("picture").replaceChildren(document.adoptNode(picture));
}

function placements(pod) {
  const shown = element("button", pod.name, { type: "button", class: "link" });
  shown.addEventListener("click", () => {
    asked = pod.name;
    ask();
  });
  const verdict = pod.code ? (pod.admitted ? "admitted" : pod.reason || "not admitted") : "not evaluated";
  const first = [
    element("th", "", { scope: "row" }, shown),
    element("td", `${verdict} `, { class: pod.admitted ? "yes" : "no" }, ...(pod.code ? [codeLink(pod.code)] : [])),
  ];
  if (!pod.admitted) {
    return [element("tr", "", {}, ...first, element("td", "", { colspan: "3" }))];
  }
  return pod.containers.map((container, position) =>
    element(
      "tr", "", {},
      ...(position ? [element("td"), element("td")] : first),
      element("td", container.name),
      element("td", container.cpus || "shared pool"),
      element("td", container.numa.join(", ") || "any"),
    ),
  );
}

function explanation(told) {
  const kind = told.verdict === "admitted" ? "yes" : "no";
  const reason = told.reason && told.verdict === "rejected" ? `: ${told.reason}` : "";
  return [
    element("h2", `${told.namespace}/${told.name} is ${told.verdict}${reason} `, { class: kind }, codeLink(told.code)),
    element("p", told.why, { id: "why" }),
    ...(told.message ? [element("p", `The kubelet says: “${told.message}”.`, { class: "quiet" })] : []),
    story(told.story),
    ...told.remarks.map((remark) => element("p", `Note: ${remark.message}. ${remark.remedy} `, {}, codeLink(remark.code))),
    ...(told.remedy ? [element("p", `What helps (general, not run): ${told.remedy}`)] : []),
  ];
}

function story(lines) {
  const marks = { yes: "✓ ", no: "✗ ", "": "" };
  const shown = lines.filter((line) => !line.detail);
  const items = shown.map((line) =>
    element("li", "", {}, element("span", marks[line.mark] + line.text, { class: line.mark }), story(line.below)),
  );
  return items.length ? element("ul", "", {}, ...items) : "";
}

function take() {
  lesson = lessons.find((one) => `#${one.id}` === location.hash) ?? lessons[0];
  asked = lesson.pod;
  for (const field of fields) {
    part(field).value = lesson[field];
  }
  part("lesson-title").textContent = lesson.title;
  part("lesson-text").textContent = lesson.text;
  part("fix").textContent = lesson.fix.text;
  part("fix").disabled = false;
  for (const link of part("lessons").querySelectorAll("a")) {
    link.setAttribute("aria-current", String(link.hash === `#${lesson.id}`));
  }
  ask();
}

function repair() {
  const { field, before, after } = lesson.fix;
  part(field).value = part(field).value.replace(before, () => after);
  part("fix").disabled = true;
  ask();
}

part("machines").append(...machines.map((name) => element("option", "", { value: name })));
part("lessons").append(
  ...lessons.map((one) =>
    element("li", "", {}, element("a", one.title, { href: `#${one.id}` }, element("small", one.reason || "admitted"))),
  ),
);
let typing = 0;
for (const field of fields) {
  part(field).addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(ask, 300);
  });
}
part("fix").addEventListener("click", repair);
part("again").addEventListener("click", take);
addEventListener("hashchange", take);
take();
