// The page: receives the state as patches, keeps a minute of it, and draws it. Texts of programs and nodes are only
// ever set as text. Forms state their commands: see `submit`.
const $ = (id) => document.getElementById(id);
const TOKEN = document.querySelector('meta[name="token"]').content;
const SPAN_S = 60, DRAW_MS = 200;
const FULL = 12; // nodes in one column with their names; of more, only numbers are shown
const SVG = ["svg", "g", "line", "text", "title"];
const SHAPE = { role: "img", "aria-label": "links" };
const PLACES = {
  endpoint: "endpoint", uplink: "uplink", remote: "remote node", downlink: "downlink", path: "network and server",
};
const CHARTS = [
  ["Rate, mean of 1 s", "Mbit/s", (link) => link.bit_rate / 1e6],
  ["Bottleneck queue", "kB", (link) => link.queue_bytes / 1e3],
  ["One-way delay, mean of 100 ms", "ms", (link) => link.delay_ms],
];
let state = { time_s: 0, beds: {}, ended: {} }, history = [state], drawn = null;
let chosenBed, chosenLink; // identifier of a testbed; name of a link or a direction
let finished = { runs: [], files: [], strategies: [], folder: "" };

// ---- elements

function element(tag, attributes = {}, ...children) {
  const made = document.createElementNS(`http://www.w3.org/${SVG.includes(tag) ? "2000/svg" : "1999/xhtml"}`, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Replaces the children of an element if `key` has changed, and returns whether it has.
function rebuild(parent, key, make) {
  const text = JSON.stringify(key);
  if (parent.dataset.key === text) return false;
  parent.dataset.key = text;
  parent.replaceChildren(...make());
  return true;
}

// Shows [key, item] in the rows of a table. Each function shows an item in a cell, or returns its text. Rows are kept
// by key, so that the focus stays.
function fill(body, items, ...shows) {
  const heads = body.parentElement.tHead.rows[0].cells;
  const left = new Map([...body.rows].map((row) => [row.dataset.row, row]));
  items.forEach(([key, item], at) => {
    const row = left.get(key) ?? element("tr", { "data-row": key }, ...shows.map((_, i) => (
      element(i ? "td" : "th", { class: heads[i].className, ...(i ? {} : { scope: "row" }) }))));
    left.delete(key);
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
    shows.forEach((show, i) => {
      const text = show(item, row.cells[i], key);
      if (typeof text === "string") setText(row.cells[i], text);
    });
  });
  for (const row of left.values()) row.remove();
}

function setOptions(select, options) {
  const before = select.value;
  const make = () => options.map(([value, text]) => element("option", { value }, text));
  if (rebuild(select, options, make) && options.some(([value]) => value === before)) select.value = before;
}

const number = (value, digits) => value?.toFixed(digits) ?? "–";
const memory = (bytes) => bytes < 2 ** 30 ? `${number(bytes / 2 ** 20, 0)} MiB` : `${number(bytes / 2 ** 30, 2)} GiB`;
const seconds = (s) => s === undefined ? "–" : s < 1 ? `${(s * 1e3).toPrecision(3)} ms` : `${s.toPrecision(3)} s`;
const length = (s) => s < 60 ? `${Math.floor(s)} s` : `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
const linkOf = (direction) => direction?.replace(/\.?(up|down)link$/, ""); // empty for the link of a shell
const wayOf = (direction) => direction.endsWith("downlink") ? "downlink" : "uplink";

function say(text, isBad = false) {
  $("say").className = isBad ? "bad" : "";
  setText($("say"), text);
}

// ---- the state

function merge(target, patch) { // RFC 7396
  if (typeof patch !== "object" || Array.isArray(patch)) return patch;
  const made = { ...target };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete made[key];
    else made[key] = merge(made[key], value);
  }
  return made;
}

function take(next) {
  const before = state;
  state = next;
  history.push(state);
  while (history[0].time_s < state.time_s - SPAN_S) history.shift();
  if (Object.keys(before.beds).join() !== Object.keys(state.beds).join()) loadFinished();
  for (const [key, { command, status, text }] of Object.entries(state.ended)) {
    if (key in before.ended || !before.time_s) continue; // it ended before the page was opened
    say(`${status ? "Failed" : "Done"}: ${command}\n${text.split("\n").slice(-8).join("\n")}`, status !== 0);
    loadFinished();
  }
}

let source = null;
function connect() { // a page that nobody sees costs nothing
  source?.close();
  setText($("connection"), document.hidden ? "paused" : "connecting");
  if (document.hidden) return;
  source = new EventSource("events");
  let known = {}; // each connection begins with the whole state
  source.onopen = () => { known = {}; setText($("connection"), "connected"); };
  source.onmessage = (event) => take(known = merge(known, JSON.parse(event.data)));
  source.onerror = () => setText($("connection"), "not connected: is cellbed ui running?");
}

// ---- drawing

function draw() {
  drawn = state;
  const identifiers = Object.keys(state.beds);
  if (!(chosenBed in state.beds)) choose(identifiers.at(-1), undefined);
  const bed = state.beds[chosenBed];
  setOptions($("beds"), identifiers.map((key) => [key, state.beds[key].name]));
  $("beds").value = chosenBed;
  $("beds").hidden = identifiers.length < 2;
  $("bed").hidden = !bed;
  $("stop").hidden = !bed || bed.kind === "shell";
  const since = bed?.started_s === undefined ? "" : ` for ${length(state.time_s - bed.started_s)}`;
  const facts = bed ? [`${bed.kind} ${bed.state}${since}`, bed.title, bed.folder] : ["Start a testbed or a run below."];
  setText($("title"), bed?.name ?? "Nothing is running");
  setText($("facts"), facts.filter(Boolean).join(" · "));
  const now = Object.values(bed?.now ?? {});
  rebuild($("now"), now, () => now.map((text) => element("li", {}, text)));
  if (!bed) return;
  for (const each of document.querySelectorAll(".bed")) each.value = chosenBed;
  for (const each of document.querySelectorAll(".only-nodes")) each.hidden = bed.kind === "shell";
  const directions = Object.keys(bed.directions);
  const links = [...new Set(directions.map(linkOf))];
  if (!links.includes(linkOf(chosenLink))) chosenLink = links[0];
  setOptions($("link"), links.flatMap((link) => [
    [link, link || "link"], ...directions.filter((name) => linkOf(name) === link).map((name) => [name, name]),
  ]));
  $("link").value = chosenLink;
  const shown = directions.filter((name) => linkOf(name) === linkOf(chosenLink));
  setText($("does"), shown.map((name) => `${name}: ${bed.directions[name].does}`).join("\n"));
  drawTopology(bed);
  drawCharts(bed, shown);
  drawTables(bed);
  const named = (names) => names.map((name) => [name, name]);
  const apps = Object.keys(bed.apps).filter((name) => bed.apps[name].servers.length);
  $("move").hidden = !apps.length;
  setOptions($("app"), named(apps));
  setOptions($("to"), named(Object.keys(bed.nodes).filter((name) => bed.nodes[name].type !== "endpoint")));
  setOptions($("strategy"), [["", "the scenario's"], ...named(finished.strategies)]);
  setOptions($("paused"), named(Object.keys(bed.nodes)));
}

function choose(bed, link) {
  if (bed !== chosenBed) $("ask").close(); // its question is about the other
  [chosenBed, chosenLink] = [bed, link];
  drawn = null;
}

// Columns of places: endpoints; towers and sites, which have nodes; places that join these; other nodes.
function columns(bed, wires) {
  const near = new Set(wires.filter(({ from }) => from in bed.nodes).map(({ to }) => to));
  const names = new Set([...Object.keys(bed.nodes), ...wires.flatMap(({ from, to }) => [from, to])]);
  const made = [[], [], [], []];
  for (const name of names) {
    const type = bed.nodes[name]?.type;
    made[type === "endpoint" ? 0 : type && type !== "tower" ? 3 : near.has(name) ? 1 : 2].push(name);
  }
  return made.filter((each) => each.length);
}

// A screen reader finds the same in the tables, so the drawing is one image.
function drawTopology(bed) {
  const place = $("topology"), wires = Object.values(bed.directions), names = Object.keys(bed.directions);
  const links = [...new Set(names.map(linkOf))];
  const key = [chosenBed, place.clientWidth, names, wires.map(({ from, to }) => [from, to]), Object.keys(bed.nodes)];
  const isNew = rebuild(place, key, () => [element("svg", SHAPE), ...columns(bed, wires).map((column) => {
    const isLong = column.length > FULL;
    const boxes = column.map((name) => element("div", { class: `box ${bed.nodes[name]?.type ?? ""}`, title: name },
      isLong ? name.replace(/^.*?(\d+)$/, "$1") : name, ...(name in bed.nodes ? [element("meter")] : [])));
    return element("div", { class: isLong ? "long" : "column" }, ...boxes);
  })]);
  const boxes = Object.fromEntries([...place.querySelectorAll(".box")].map((box) => [box.title, box]));
  if (isNew) {
    for (const link of links) {
      const { from, to } = wires[names.findIndex((name) => linkOf(name) === link)];
      const [a, b] = [from, to].map((name) => boxes[name]).map((box) => (
        [box.offsetLeft + box.offsetWidth / 2, box.offsetTop + box.offsetHeight / 2]));
      const line = { x1: a[0], y1: a[1], x2: b[0], y2: b[1] };
      const value = { x: a[0] + (b[0] - a[0]) * 0.42, y: a[1] + (b[1] - a[1]) * 0.42 - 5 };
      place.firstChild.append(element("g", { "data-link": link, click: () => choose(chosenBed, link) },
        element("title", {}, link), element("line", { ...line, class: "glow" }), element("line", line),
        ...(links.length <= 8 ? [element("text", value)] : [])));
    }
    place.ariaLabel = `${Object.keys(boxes).length} places, ${links.length} links: ${links.slice(0, 12).join(", ")}`;
  }
  for (const group of place.firstChild.children) {
    const states = names.filter((name) => linkOf(name) === group.dataset.link)
      .map((name) => [wayOf(name) === "downlink" ? "↓" : "↑", bed.links[name]]).filter(([, link]) => link);
    const isClosed = states.some(([, link]) => link.closed);
    const isQueued = states.some(([, link]) => link.queue_packets > 10);
    const rate = Math.max(0, ...states.map(([, link]) => link.bit_rate));
    const look = isClosed ? "closed" : isQueued ? "queued" : rate > 1000 ? "busy" : "";
    group.setAttribute("class", `${look}${group.dataset.link === linkOf(chosenLink) ? " chosen" : ""}`);
    group.children[2].setAttribute("stroke-width", (1.5 + Math.min(6, Math.log10(1 + rate / 2e4) * 2)).toFixed(0));
    const text = states.map(([way, link]) => `${way} ${number(link.bit_rate / 1e6, 1)}`).join("  ");
    if (group.children[3]) setText(group.children[3], isClosed ? "outage" : text);
  }
  for (const [name, { cpu, cpus }] of Object.entries(bed.nodes)) {
    Object.assign(boxes[name].lastElementChild, { max: cpus ?? 1, value: cpu ?? 0 });
  }
}

let plots = [];
function drawCharts(bed, names) {
  const key = [names, $("charts").clientWidth, matchMedia("(prefers-color-scheme: dark)").matches];
  if (rebuild($("charts"), key, () => CHARTS.map(() => element("figure", {}, element("figcaption"))))) {
    const axis = { stroke: colour("muted"), grid: { stroke: colour("rule"), width: 1 }, ticks: { show: false } };
    plots = [...$("charts").children].map((figure) => new uPlot({
      width: figure.clientWidth, height: 105, legend: { show: false }, cursor: { show: false }, padding: [8, 12, 0, 0],
      scales: {
        x: { time: false, range: (_, min, max) => [Math.max(min, max - SPAN_S), Math.max(max, min + 1)] },
        y: { range: (_, min, max) => [0, (max || 0.1) * 1.1] },
      },
      series: [{}, ...names.map((name) => ({ stroke: colour(wayOf(name)), width: 1.5, points: { show: false } }))],
      axes: [{ ...axis, size: 24 }, { ...axis, size: 44, space: 24 }],
    }, [[], ...names.map(() => [])], figure));
  }
  const seen = history.filter(({ beds }) => chosenBed in beds);
  const times = seen.map(({ time_s }) => time_s - (bed.started_s ?? seen[0].time_s));
  CHARTS.forEach(([title, unit, read], i) => {
    const columns = names.map((name) => seen.map(({ beds }) => {
      const link = beds[chosenBed].links[name];
      return (link && read(link)) ?? null;
    }));
    plots[i].setData([times, ...columns]);
    const latest = columns.map((column) => number(column.at(-1) ?? undefined, 2)).join(" and ");
    setText($("charts").children[i].firstChild, `${title}: ${latest} ${unit}`);
  });
}

const showUse = (key, limit, words) => (node, cell) => {
  const value = node[key], most = node[limit];
  if (value === undefined || most === undefined) return value === undefined ? "–" : words(value);
  if (!cell.firstElementChild) cell.replaceChildren(element("meter", { "aria-hidden": "true" }), element("span"));
  Object.assign(cell.firstChild, { max: most, high: 0.9 * most, value });
  setText(cell.lastChild, ` ${words(value)} of ${words(most)}`);
};

function showParts(longest) {
  return ({ parts = {} }, cell) => {
    const words = Object.entries(parts).map(([name, ms]) => `${PLACES[name]} ${number(ms, 1)} ms`).join(", ");
    const attributes = { class: "stack", role: "img", "aria-label": words || "no reply", title: words };
    rebuild(cell, parts, () => [
      element("div", attributes, ...Object.keys(parts).map((name) => element("i", { class: name })))]);
    Object.values(parts).forEach((ms, i) => { cell.firstChild.children[i].style.width = `${100 * ms / longest}%`; });
  };
}

function drawTables(bed) {
  const programs = Object.entries(bed.programs).map(([name, { node, state: how }]) => {
    const isGood = ["started", "ready", "connected", "done"].includes(how);
    return [node, name.replace(`.${node}.`, " ") + (isGood ? "" : ` (${how})`)];
  });
  fill($("nodes"), Object.entries(bed.nodes),
    (node, cell, name) => name,
    showUse("cpu", "cpus", (value) => number(value, 2)),
    showUse("memory", "memory_limit", memory),
    (node, cell, name) => programs.filter(([at]) => at === name).map(([, text]) => text).join(", "));
  fill($("links"), Object.entries(bed.links),
    (link, cell, name) => {
      cell.parentElement.className = linkOf(name) === linkOf(chosenLink) ? "chosen" : "";
      rebuild(cell, name, () => [
        element("button", { type: "button", class: "plain", click: () => choose(chosenBed, name) }, name)]);
    },
    (link) => number(link.bit_rate / 1e6, 2),
    (link) => number(link.queue_bytes / 1e3, 1),
    (link) => number(link.delay_ms, 1),
    (link) => number(link.longest_ms, 1),
    (link) => link.closed ? "outage" : Object.entries(link.dropped).map(([why, n]) => `${n} ${why}`).join(", ") || "0");
  const requests = Object.entries(bed.requests).reverse().slice(0, 30);
  const used = Object.keys(PLACES).filter((name) => requests.some(([, { parts }]) => parts?.[name]));
  rebuild($("parts"), used, () => used.map((name) => element("span", {}, element("i", { class: name }), PLACES[name])));
  fill($("requests"), requests,
    (each) => `${each.app} · ${each.node}`,
    (each) => number(each.at_s, 1),
    (each) => each.latency === undefined ? each.status : number(each.latency, 1),
    showParts(Math.max(1, ...requests.map(([, each]) => each.latency ?? 0))));
  fill($("events"), Object.entries(bed.events).reverse(), (each) => number(each.at_s, 1), (each) => each.text);
}

// ---- finished runs

async function loadFinished() {
  const reply = await fetch("finished").catch(() => null);
  if (!reply?.ok) return;
  finished = await reply.json();
  $("out").value = `--out=${finished.folder}`;
  setText($("folder"), finished.runs.length ? finished.folder : `No run in ${finished.folder}.`);
  rebuild($("files"), finished.files, () => finished.files.map((value) => element("option", { value })));
  const of = (run, show) => run.apps?.map(show).join(", ") || "–";
  fill($("runs"), finished.runs.map((run) => [run.key, run]),
    (run, cell) => { rebuild(cell, [run.report, run.status], () => showRun(run)); },
    (run) => [run.kind, run.trials ? `${run.trials} trials` : run.status, run.verdict].filter(Boolean).join(", "),
    (run) => of(run, (app) => `${app.answered} of ${app.requests}`),
    (run) => of(run, (app) => seconds(app.median)),
    (run) => of(run, (app) => seconds(app.p99)));
  filterRuns();
}

function* showRun({ key, kind, report, started, status }) {
  const page = { href: `report?run=${encodeURIComponent(key)}`, target: "_blank", rel: "noopener" };
  const words = ["report", `${finished.folder}/${key}`, "--open", "no"];
  if (kind !== "sweep") yield element("input", { type: "checkbox", value: key, "aria-label": `Compare ${key}` });
  yield report ? element("a", page, key) : element("span", {}, key);
  yield element("span", { class: "muted" }, new Date(started).toLocaleString());
  if (!report && kind !== "sweep" && status !== "running") {
    yield element("button", { type: "button", class: "plain", click: () => give(words) }, "Make its report");
  }
}

function filterRuns() {
  const wanted = $("filter").value.trim().toLowerCase();
  for (const row of $("runs").rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  const keys = [...$("runs").querySelectorAll(":checked")].map((box) => `run=${encodeURIComponent(box.value)}`);
  $("compare").hidden = keys.length < 2;
  $("compare").href = `compare?${keys.reverse().join("&")}`;
  setText($("compare"), `Compare ${keys.length} runs`);
}

// ---- commands

async function give(words) {
  say(`cellbed ${words.join(" ")}`);
  const headers = { "Content-Type": "application/json", "X-Cellbed-Token": TOKEN };
  try {
    const { error } = await (await fetch("do", { method: "POST", headers, body: JSON.stringify(words) })).json();
    if (error) say(error, true);
  } catch {
    say("cellbed ui does not answer: start it again", true);
  }
}

// The words of a command are those of the button, then the values of the form with their prefixes. A button that stands
// alone leaves out values with prefixes.
function submit(event) {
  const { target: form, submitter } = event;
  if (submitter.formMethod === "dialog") return;
  event.preventDefault();
  const words = submitter.dataset.words.split(" ");
  for (const control of form.elements) {
    const { type, checked, dataset } = control, value = control.value.trim();
    const isGiven = type === "submit" ? control === submitter : type !== "checkbox" || checked;
    const isLeftOut = "alone" in submitter.dataset && dataset.prefix;
    if (value && isGiven && !isLeftOut) words.push((dataset.prefix ?? "") + value);
  }
  form.closest("dialog")?.close();
  give(words);
}

document.addEventListener("submit", submit);
document.addEventListener("visibilitychange", connect);
$("beds").addEventListener("change", () => choose($("beds").value, undefined));
$("link").addEventListener("change", () => choose(chosenBed, $("link").value));
$("stop").addEventListener("click", () => {
  setText($("ask-name"), state.beds[chosenBed].name);
  $("ask").showModal();
});
$("filter").addEventListener("input", filterRuns);
$("runs").addEventListener("change", filterRuns);
setInterval(() => { if (state !== drawn) draw(); }, DRAW_MS);
loadFinished();
connect();
draw();
