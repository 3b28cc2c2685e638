"use strict";
// The page: receives the state as patches, keeps a minute of history, and draws tables and charts. Texts of programs and
// nodes are only ever set as text.
(() => {
  const $ = (id) => document.getElementById(id);
  const TOKEN = document.querySelector('meta[name="token"]').content;
  const SPAN_S = 60, DRAW_MS = 200, CHART_MS = 100;
  const PLACES = { endpoint: "endpoint", uplink: "uplink", remote: "remote node", downlink: "downlink", path: "network and server" };
  let state = { beds: {}, jobs: {}, time_s: 0 };
  let chosenBed = null, chosenLink = null;
  let history = new Map(); // by testbed and direction: {t, rate, queue, delay}
  let latencies = new Map(); // by testbed: {seen, t, ok, bad}

  // ---- elements

  function element(tag, { text, ...attributes } = {}, ...children) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) {
      if (value === true) made.setAttribute(name, "");
      else if (value !== undefined && value !== false) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }
  const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  const setOptions = (select, values, chosen, empty) => {
    const key = JSON.stringify(values);
    if (select.dataset.key === key) return;
    const before = chosen ?? select.value;
    select.dataset.key = key;
    select.replaceChildren(...values.map((value) => element("option", { value, text: value || empty })));
    if (values.includes(before)) select.value = before;
  };
  const number = (value, digits) => value === undefined ? "–" : value.toFixed(digits);
  const size = (bytes) => bytes === undefined ? "–" : bytes < 1e6 ? `${(bytes / 1e3).toFixed(0)} kB` : bytes < 1e9 ? `${(bytes / 1e6).toFixed(0)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
  const length = (s) => s < 60 ? `${Math.floor(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s` : `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  const ms = (s) => s === undefined ? "–" : s < 1 ? `${(s * 1e3).toPrecision(3)} ms` : `${s.toPrecision(3)} s`;
  const sum = (values) => Object.values(values ?? {}).reduce((total, value) => total + value, 0);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function say(text, isBad = false) {
    $("say").className = isBad ? "bad" : "";
    $("say").textContent = text;
  }

  // A table whose rows are kept by key: only cells that changed are touched, and the focus stays.
  class Table {
    constructor(parent, caption, columns) {
      this.columns = columns;
      this.rows = new Map();
      const head = element("tr", {}, ...columns.map(({ name, n }) => element("th", { scope: "col", class: n ? "n" : undefined, text: name })));
      this.body = element("tbody");
      parent.replaceChildren(element("table", {}, element("caption", { text: caption }), element("thead", {}, head), this.body));
    }
    show(items) { // [[key, item]]
      const keys = new Set(items.map(([key]) => key));
      for (const [key, row] of this.rows) if (!keys.has(key)) { row.remove(); this.rows.delete(key); }
      let before = null;
      for (const [key, item] of items) {
        let row = this.rows.get(key);
        if (!row) {
          row = element("tr", {}, ...this.columns.map(({ n, head, kind }) => element(head ? "th" : "td", { scope: head ? "row" : undefined, class: kind ?? (n ? "n" : undefined) })));
          this.rows.set(key, row);
          this.columns.forEach((column, i) => column.make?.(row.cells[i], item, key));
        }
        const next = before ? before.nextSibling : this.body.firstChild;
        if (next !== row) this.body.insertBefore(row, next);
        before = row;
        this.columns.forEach((column, i) => column.show ? column.show(row.cells[i], item, key) : column.text && setText(row.cells[i], column.text(item, key)));
      }
      return this.rows;
    }
  }

  // ---- the state

  function merge(target, patch) { // RFC 7396
    const made = { ...target };
    for (const [key, value] of Object.entries(patch)) {
      if (value === null) delete made[key];
      else if (typeof value === "object" && !Array.isArray(value)) made[key] = merge(made[key] ?? {}, value);
      else made[key] = value;
    }
    return made;
  }

  function take(next) {
    const before = state;
    state = next;
    const now = state.time_s;
    for (const [identifier, bed] of Object.entries(state.beds)) {
      for (const [direction, link] of Object.entries(bed.links)) {
        const key = `${identifier} ${direction}`;
        const kept = history.get(key) ?? { t: [], rate: [], queue: [], delay: [] };
        history.set(key, kept);
        kept.t.push(now); kept.rate.push(link.rate / 1e6); kept.queue.push(link.queue / 1e3); kept.delay.push(link.delay ?? null);
        if (kept.t.length > 2000) for (const column of Object.values(kept)) column.splice(0, 600);
      }
      const kept = latencies.get(identifier) ?? { seen: new Set(), t: [], ok: [], bad: [] };
      latencies.set(identifier, kept);
      if (before.beds[identifier]?.requests !== bed.requests) {
        for (const [key, each] of Object.entries(bed.requests)) {
          if (kept.seen.has(key) || each.at_s === undefined) continue;
          kept.seen.add(key);
          kept.t.push(each.at_s + bed.started_s); kept.ok.push(each.latency ?? null); kept.bad.push(each.latency === undefined ? 0 : null);
        }
        if (kept.t.length > 6000) { for (const column of [kept.t, kept.ok, kept.bad]) column.splice(0, 3000); kept.seen = new Set(Object.keys(bed.requests)); }
      }
      const old = before.beds[identifier];
      for (const text of Object.values(bed.now)) if (old && !Object.values(old.now).includes(text)) say(text);
    }
    for (const key of history.keys()) if (!(key.split(" ")[0] in state.beds)) history.delete(key);
    for (const [key, job] of Object.entries(state.jobs)) {
      if (job.status !== undefined && before.jobs[key] && before.jobs[key].status === undefined) {
        const last = job.lines.filter((line) => line.trim()).at(-1) ?? "";
        say(job.status === 0 ? `Done: ${job.command}\n${last}` : `Failed: ${job.command}\n${last}`, job.status !== 0);
        if (job.command.startsWith("cellbed report") || job.command.startsWith("cellbed down")) loadFinished();
      }
    }
    schedule();
  }

  let source = null;
  function connect() {
    source?.close();
    source = new EventSource("events");
    source.addEventListener("whole", (event) => { history = new Map(); latencies = new Map(); connected(true); take(JSON.parse(event.data)); });
    source.addEventListener("message", (event) => take(merge(state, JSON.parse(event.data))));
    source.addEventListener("error", () => {
      connected(false);
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 1000);
    });
  }
  function connected(is) {
    $("connection").className = `pill ${is ? "good" : "bad"}`;
    setText($("connection"), is ? "connected" : "not connected: is cellbed ui running?");
  }
  // A page that nobody sees costs nothing.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) connect();
    else { source?.close(); source = null; setText($("connection"), "paused"); }
  });

  // ---- drawing

  let drawn = 0, drawnCharts = 0, isDue = false;
  function schedule() {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame((now) => {
      isDue = false;
      if (now - drawnCharts >= CHART_MS) { drawnCharts = now; drawCharts(); }
      if (now - drawn >= DRAW_MS) { drawn = now; draw(); }
    });
  }
  const shownBed = () => state.beds[chosenBed];

  function draw() {
    const identifiers = Object.keys(state.beds);
    if (!(chosenBed in state.beds)) chooseBed(identifiers.at(-1) ?? null);
    const bed = shownBed();
    $("nothing").hidden = bed !== undefined;
    $("bed").hidden = $("stop").hidden = bed === undefined;
    drawJobs();
    $("beds").hidden = identifiers.length < 2;
    const names = identifiers.length > 1 ? identifiers.map((key) => [key, state.beds[key].name]) : [];
    if ($("beds").dataset.key !== JSON.stringify(names)) {
      $("beds").dataset.key = JSON.stringify(names);
      $("beds").replaceChildren(...names.map(([key, name]) => {
        const made = element("button", { type: "button", text: name, "data-key": key });
        made.addEventListener("click", () => { chooseBed(key); draw(); });
        return made;
      }));
    }
    for (const made of $("beds").children) made.setAttribute("aria-pressed", String(made.dataset.key === chosenBed));
    if (bed === undefined) {
      setText($("title"), "Live testbeds");
      $("facts").replaceChildren();
      $("now").hidden = true;
      return;
    }
    setText($("title"), bed.name);
    $("stop").hidden = bed.kind !== "testbed";
    for (const name of ["requests", "nodes", "events"]) $(`h-${name}`).parentElement.hidden = bed.kind === "shell";
    const facts = [bed.kind === "testbed" ? "standing testbed" : bed.kind, bed.started_s === undefined ? bed.state : `${bed.state} for ${length(state.time_s - bed.started_s)}`, bed.title !== bed.name ? bed.title : undefined, bed.folder].filter(Boolean);
    if ($("facts").children.length !== facts.length) $("facts").replaceChildren(...facts.map(() => element("span")));
    facts.forEach((text, i) => setText($("facts").children[i], text));
    const now = Object.values(bed.now);
    $("now").hidden = !now.length;
    if ($("now").dataset.key !== JSON.stringify(now)) {
      $("now").dataset.key = JSON.stringify(now);
      $("now").replaceChildren(...now.map((text) => element("li", { text })));
    }
    drawTopology(bed);
    drawTables(bed);
    drawForms(bed);
  }

  function chooseBed(key) {
    chosenBed = key;
    chosenLink = null;
    topology = null;
    tables = null;
    const bed = shownBed();
    if (bed) chooseLink([...Topology.links(bed).keys()][0]);
  }

  function chooseLink(name) {
    chosenLink = name;
    charts = null;
    $("link").value = name ?? "";
    setText($("change-name"), name ?? "");
    setText($("h-link"), `Link ${name ?? ""}`);
  }

  let topology = null, topologyKey = "";
  function drawTopology(bed) {
    const key = JSON.stringify([chosenBed, $("topology").clientWidth, Object.entries(bed.directions).map(([name, each]) => [name, each.from, each.to]), Object.keys(bed.nodes)]);
    if (!topology || key !== topologyKey) {
      topologyKey = key;
      topology = Topology.draw($("topology"), bed, (name) => { chooseLink(name); draw(); });
    }
    topology.update(bed, chosenLink);
    const names = [...Topology.links(bed).keys()];
    setOptions($("link"), names, chosenLink, "link");
    if (!names.includes(chosenLink)) chooseLink(names[0]);
    const does = names.includes(chosenLink) ? Topology.links(bed).get(chosenLink).directions.map((name) => `${name}: ${bed.directions[name].does}`).join("\n") : "";
    if ($("does").dataset.text !== does) {
      $("does").dataset.text = does;
      $("does").replaceChildren(...does.split("\n").map((text) => element("p", { text })));
    }
  }

  const useColumn = (name, key, limit, words) => ({
    name,
    make: (cell) => {
      cell.bar = element("i");
      cell.words = element("span");
      cell.append(element("div", { class: "use" }, element("span", { class: "track", "aria-hidden": "true" }, cell.bar), cell.words));
    },
    show: (cell, node) => {
      const value = node[key], most = node[limit];
      const share = value === undefined || !most ? 0 : Math.min(1, value / most);
      cell.bar.parentElement.hidden = most === undefined;
      cell.bar.style.width = `${(share * 100).toFixed(1)}%`;
      cell.bar.className = share > 0.9 ? "full" : "";
      setText(cell.words, value === undefined ? "–" : most === undefined ? words(value) : `${words(value)} of ${words(most)}`);
    },
  });

  let tables = null;
  function makeTables() {
    return {
      nodes: new Table($("nodes"), "Nodes with their use of processors and memory", [
        { name: "node", head: true, text: (_, key) => key },
        useColumn("processors", "cpu", "cpus", (value) => value.toFixed(value < 10 ? 2 : 0)),
        useColumn("memory", "memory", "memory_limit", size),
        { name: "programs", kind: "wrap", text: (node) => node.programs },
      ]),
      links: new Table($("links"), "Directions of links", [
        { name: "direction", head: true, make: (cell, _, key) => {
          const made = element("button", { type: "button", class: "plain", text: key, title: "Show and change this link" });
          made.addEventListener("click", () => { chooseLink(Topology.linkName(key)); draw(); });
          cell.append(made);
        } },
        { name: "Mbit/s", n: true, text: (link) => number(link.rate / 1e6, 2) },
        { name: "queue kB", n: true, text: (link) => number(link.queue / 1e3, 1) },
        { name: "delay ms", n: true, text: (link) => number(link.delay, 1) },
        { name: "longest", n: true, text: (link) => number(link.longest, 1) },
        { name: "dropped", n: true, show: (cell, link) => {
          const text = link.closed ? "outage" : String(sum(link.dropped));
          setText(cell, text);
          cell.className = `n${link.closed || text !== "0" ? " bad" : ""}`;
          const why = Object.entries(link.dropped ?? {}).map(([reason, count]) => `${count} ${reason}`).join(", ");
          if (cell.title !== why) cell.title = why;
        } },
      ]),
      rates: new Table($("rates"), "Requests of the last ten seconds", [
        { name: "last 10 s", head: true, text: (_, key) => key },
        { name: "per s", n: true, text: (rate) => number(rate.per_s, 1) },
        { name: "median ms", n: true, text: (rate) => number(rate.median, 1) },
        { name: "longest ms", n: true, text: (rate) => number(rate.longest, 1) },
        { name: "failed", n: true, show: (cell, rate) => { setText(cell, String(rate.failed)); cell.className = `n${rate.failed ? " bad" : ""}`; } },
      ]),
      requests: new Table($("requests"), "Latest requests with their parts", [
        { name: "at s", n: true, text: (each) => number(each.at_s, 1) },
        { name: "request of", head: true, text: (each) => `${each.app} · ${each.node}` },
        { name: "ms", n: true, show: (cell, each) => { setText(cell, each.latency === undefined ? each.status : each.latency.toFixed(1)); cell.className = `n${each.status === "ok" ? "" : " bad"}`; } },
        { name: "parts", kind: "parts", make: (cell, each) => {
          const parts = Object.entries(each.parts ?? {});
          const words = parts.map(([name, length]) => `${PLACES[name]} ${length.toFixed(1)} ms`).join(", ");
          cell.stack = element("div", { class: "stack", role: "img", "aria-label": words || "no reply", title: words });
          for (const [name] of parts) cell.stack.append(element("i", { class: name }));
          cell.append(cell.stack);
        }, show: (cell, each) => {
          Object.values(each.parts ?? {}).forEach((length, i) => { cell.stack.children[i].style.width = `${(100 * length / longest).toFixed(2)}%`; });
        } },
      ]),
      events: new Table($("events"), "Events, the latest first", [
        { name: "at s", n: true, text: (each) => number(each.at_s, 1) },
        { name: "event", kind: "wrap", text: (each) => each.text },
      ]),
    };
  }

  let longest = 1;
  function drawTables(bed) {
    tables ??= makeTables();
    const programs = {};
    for (const [name, { node, state: how }] of Object.entries(bed.programs)) {
      const isGood = ["started", "ready", "connected", "done"].includes(how);
      const short = name.replace(`.${node}.`, " ");
      (programs[node] ??= []).push(isGood ? short : `${short} (${how})`);
    }
    tables.nodes.show(Object.entries(bed.nodes).map(([name, node]) => [name, { ...node, programs: (programs[name] ?? []).join(", ") }]));
    const wanted = $("links-filter").value.trim().toLowerCase();
    const rows = tables.links.show(Object.entries(bed.links).filter(([name]) => name.toLowerCase().includes(wanted)));
    for (const [name, row] of rows) row.className = Topology.linkName(name) === chosenLink ? "chosen" : "";
    tables.rates.show(Object.entries(bed.rates));
    const requests = Object.entries(bed.requests).reverse().slice(0, 30);
    longest = Math.max(1, ...requests.map(([, each]) => each.latency ?? 0));
    tables.requests.show(requests);
    tables.events.show(Object.entries(bed.events).reverse());
    $("rates").hidden = $("latency").hidden = $("requests").hidden = $("parts-key").hidden = !requests.length;
    $("no-requests").hidden = requests.length > 0;
    const parts = Object.keys(PLACES).filter((name) => requests.some(([, each]) => each.parts?.[name]));
    if ($("parts-key").dataset.key !== parts.join()) {
      $("parts-key").dataset.key = parts.join();
      $("parts-key").replaceChildren(...parts.map((name) => element("span", {}, element("i", { class: name, "aria-hidden": "true" }), PLACES[name])));
    }
  }

  // ---- charts

  let charts = null, latencyChart = null;
  const font = () => `12px ${getComputedStyle(document.body).fontFamily}`;
  function chart(parent, title, unit, height, series) {
    const value = element("b");
    const place = element("div", { "aria-hidden": "true" });
    const figure = element("figure", {}, element("figcaption", {}, element("span", { text: title }), value), place);
    parent.append(figure);
    const axis = { stroke: css("--muted"), font: font(), grid: { stroke: css("--rule"), width: 1 }, ticks: { show: false } };
    const plot = new uPlot({
      width: Math.max(200, parent.clientWidth), height, legend: { show: false }, cursor: { show: false }, padding: [8, 12, 0, 0],
      scales: { x: { time: false, range: (u, min, max) => [min, max] }, y: { range: (u, min, max) => [0, Math.max(max ?? 0, 0.1) * 1.1] } },
      series: [{}, ...series],
      axes: [
        { ...axis, size: 24, gap: 7, space: 50, values: (_, splits) => splits.map((s) => `${Math.round(s)}`) },
        { ...axis, size: 44, gap: 4, space: 24, values: (_, splits) => splits.map((s) => +s.toPrecision(3)) },
      ],
    }, [[], ...series.map(() => [])], place);
    plot.show = (columns, end, text) => {
      plot.batch(() => { plot.setData(columns, false); plot.setScale("x", { min: Math.max(0, end - SPAN_S), max: Math.max(SPAN_S, end) }); plot.setScale("y", { min: null, max: Math.max(...columns.slice(1).flatMap((c) => c.filter((v) => v !== null)), 0) }); });
      setText(value, `${text} ${unit}`);
    };
    return plot;
  }

  function drawCharts() {
    const bed = shownBed();
    if (!bed || $("live").hidden) return;
    const directions = Topology.links(bed).get(chosenLink)?.directions ?? [];
    if (!charts) {
      $("charts").replaceChildren();
      const series = directions.map((name) => ({ stroke: css(name.endsWith("downlink") ? "--downlink" : "--uplink"), width: 1.5, points: { show: false }, spanGaps: false }));
      charts = { rate: chart($("charts"), "Rate, mean of 1 s", "Mbit/s", 112, series), queue: chart($("charts"), "Bottleneck queue", "kB", 112, series), delay: chart($("charts"), "One-way delay, mean of 100 ms", "ms", 112, series) };
    }
    const kept = directions.map((name) => history.get(`${chosenBed} ${name}`)).filter(Boolean);
    if (!kept.length) return;
    // Seconds since the start of the schedule, or of the page.
    const origin = bed.started_s ?? kept[0].t[0], end = state.time_s - origin;
    const from = Math.max(0, kept[0].t.length - 1400);
    const times = kept[0].t.slice(from).map((time) => time - origin);
    for (const [name, plot] of Object.entries(charts)) {
      const columns = kept.map((each) => each[name].slice(from - kept[0].t.length));
      const last = columns.map((column, i) => `${directions[i].endsWith("downlink") ? "↓" : "↑"} ${column.at(-1)?.toFixed(name === "rate" ? 2 : 1) ?? "–"}`);
      plot.show([times, ...columns], end, last.join("  "));
    }
    const seen = latencies.get(chosenBed);
    if (seen?.t.length && !$("latency").hidden) {
      const dots = (colour) => ({ paths: () => null, points: { show: true, size: 5, width: 1, stroke: css(colour), fill: css(colour) } });
      latencyChart ??= ($("latency").replaceChildren(), chart($("latency"), "Latency; red: no good reply", "ms", 120, [dots("--ink"), dots("--alarm")]));
      const order = seen.t.map((time, i) => [time - origin, i]).filter(([time]) => time > end - SPAN_S).sort((a, b) => a[0] - b[0]);
      const column = (values) => order.map(([, i]) => values[i]);
      latencyChart.show([order.map(([time]) => time), column(seen.ok), column(seen.bad)], end, `latest ${number(seen.ok.at(-1) ?? undefined, 1)}`);
    }
  }
  const redraw = () => { charts = latencyChart = topology = null; schedule(); };
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  // ---- commands

  async function give(form) {
    try {
      const reply = await fetch("do", { method: "POST", headers: { "Content-Type": "application/json", "X-Cellbed-Token": TOKEN }, body: JSON.stringify(form) });
      const answer = await reply.json().catch(() => ({ error: "the page has ended: start cellbed ui again" }));
      if (answer.error) say(answer.error, true);
      return !answer.error;
    } catch {
      say("cellbed ui does not answer", true);
      return false;
    }
  }
  const fields = (form) => Object.fromEntries([...new FormData(form)].map(([key, value]) => [key, value.trim()]));

  function drawForms(bed) {
    const apps = Object.keys(bed.apps).filter((name) => bed.apps[name].servers.length);
    $("move").hidden = bed.kind === "shell" || !apps.length;
    if ($("move").hidden) return;
    setOptions($("move").app, apps);
    setOptions($("move").to, Object.keys(bed.nodes).filter((name) => bed.nodes[name].type !== "endpoint"));
    setOptions($("move").strategy, ["", ...(finished?.strategies ?? [])], "", "the scenario's");
  }

  const target = () => (chosenLink + $("change").direction.value).replace(/^\./, "");
  $("change").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = fields(event.target);
    const settings = ["rate", "delay", "loss", "queue"].filter((key) => given[key]).map((key) => `${key}=${given[key]}`);
    give({ verb: "link", bed: chosenBed, link: target(), settings });
  });
  for (const made of document.querySelectorAll("[data-state]")) {
    made.addEventListener("click", () => give({ verb: "link", bed: chosenBed, link: target(), settings: [made.dataset.state] }));
  }
  $("move").addEventListener("submit", (event) => { event.preventDefault(); give({ verb: "migrate", bed: chosenBed, ...fields(event.target) }); });
  $("start").addEventListener("submit", (event) => {
    event.preventDefault();
    const form = event.target;
    give({ verb: "up", file: form.file.value.trim(), name: form.elements.name.value.trim(), start: form.start.checked, proof: form.proof.checked });
  });
  $("stop").addEventListener("click", () => {
    setText($("ask-text"), `Stop the testbed ${shownBed().name}? Its programs end; its folder stays.`);
    $("ask").dataset.bed = chosenBed;
    $("ask").returnValue = "no";
    $("ask").showModal();
  });
  $("ask").addEventListener("close", () => { if ($("ask").returnValue === "yes") give({ verb: "down", bed: $("ask").dataset.bed }); });
  $("link").addEventListener("change", () => { chooseLink($("link").value); draw(); });
  $("links-filter").addEventListener("input", draw);

  function drawJobs() {
    const jobs = Object.entries(state.jobs).reverse();
    $("jobs-section").hidden = !jobs.length;
    const key = JSON.stringify(jobs);
    if ($("jobs").dataset.key === key) return;
    $("jobs").dataset.key = key;
    const focused = document.activeElement?.dataset?.job;
    $("jobs").replaceChildren(...jobs.map(([job, { command, lines, status }]) => {
      const how = status === undefined ? "running" : status === 0 ? "done" : `exit status ${status}`;
      const head = element("div", { class: "head" }, element("code", { text: command }), element("span", { class: status ? "bad small" : "muted small", text: how }));
      if (status === undefined) {
        const made = element("button", { type: "button", text: "Interrupt", "data-job": job });
        made.addEventListener("click", () => give({ verb: "cancel", job }));
        head.append(made);
      }
      return element("div", { class: "job" }, head, ...(lines.length ? [element("pre", { text: lines.join("\n") })] : []));
    }));
    if (focused) $("jobs").querySelector(`[data-job="${focused}"]`)?.focus();
  }

  // ---- finished runs

  let finished = null;
  const picked = new Set();
  async function loadFinished() {
    try {
      finished = await (await fetch("finished")).json();
    } catch {
      return;
    }
    $("files").replaceChildren(...finished.files.map((value) => element("option", { value })));
    if (!$("start").file.value && finished.files.length) $("start").file.value = finished.files.find((file) => file.includes("smoke")) ?? finished.files[0];
    setText($("folder"), finished.folder);
    drawFinished();
  }

  const page = (kind, keys) => `${kind}?${keys.map((key) => `run=${encodeURIComponent(key)}`).join("&")}`;
  let runsTable = null;
  function drawFinished() {
    const { text, kind } = fields($("filter"));
    const wanted = text.toLowerCase();
    const runs = finished.runs.filter((run) => (!kind || run.kind === kind) && (!wanted || JSON.stringify([run.key, run.name, run.kind, run.status, (run.apps ?? []).map((app) => app.name)]).toLowerCase().includes(wanted)));
    runsTable ??= new Table($("runs"), "Finished runs, the latest first", [
      { name: "", make: (cell, run) => {
        if (run.kind === "sweep") return;
        const box = element("input", { type: "checkbox", "aria-label": `Compare ${run.key}` });
        box.addEventListener("change", () => { if (box.checked) picked.add(run.key); else picked.delete(run.key); drawCompare(); });
        cell.append(box);
      } },
      { name: "run", head: true, show: (cell, run) => {
        if (cell.dataset.report === String(run.report)) return;
        cell.dataset.report = run.report;
        const name = run.report ? element("a", { href: page("report", [run.key]), target: "_blank", rel: "noopener", text: run.key }) : element("span", { text: run.key });
        cell.replaceChildren(name, element("span", { class: "small muted", text: new Date(run.started).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) }));
        if (!run.report && run.kind !== "sweep" && run.status !== "running") {
          const made = element("button", { type: "button", class: "plain", text: "Make its report" });
          made.addEventListener("click", () => { made.disabled = true; give({ verb: "report", run: run.key }); });
          cell.append(made);
        }
      } },
      { name: "status", show: (cell, run) => {
        const status = run.kind === "sweep" ? `sweep, ${run.trials} trials` : run.kind === "prediction" ? `predicted, ${run.status}` : run.status;
        setText(cell, run.verdict ? `${status}; ${run.verdict}` : status);
        cell.className = ["complete", "running", "sweep"].includes(run.status) ? "" : "bad";
      } },
      { name: "requests", n: true, text: (run) => run.apps?.length ? run.apps.map((app) => `${app.answered} of ${app.requests}`).join(", ") : "–" },
      { name: "median", n: true, text: (run) => run.apps?.length ? run.apps.map((app) => ms(app.median)).join(", ") : "–" },
      { name: "P99", n: true, text: (run) => run.apps?.length ? run.apps.map((app) => ms(app.p99)).join(", ") : "–" },
    ]);
    runsTable.show(runs.map((run) => [run.key, run]));
    $("no-runs").hidden = finished.runs.length > 0;
    $("runs").hidden = !finished.runs.length;
    for (const key of picked) if (!finished.runs.some((run) => run.key === key)) picked.delete(key);
    drawCompare();
  }
  function drawCompare() {
    const isReady = picked.size > 1;
    $("compare").setAttribute("aria-disabled", String(!isReady));
    if (isReady) $("compare").href = page("compare", finished.runs.map((run) => run.key).filter((key) => picked.has(key)).reverse());
    else $("compare").removeAttribute("href");
    setText($("compare"), isReady ? `Compare ${picked.size} runs` : "Compare: choose two runs or more");
  }
  $("filter").addEventListener("input", () => finished && drawFinished());
  $("filter").addEventListener("submit", (event) => event.preventDefault());

  function route() {
    const isFinished = location.hash === "#finished";
    $("finished").hidden = !isFinished;
    $("live").hidden = isFinished;
    for (const [id, is] of [["to-finished", isFinished], ["to-live", !isFinished]]) {
      if (is) $(id).setAttribute("aria-current", "page"); else $(id).removeAttribute("aria-current");
    }
    document.title = isFinished ? "Finished runs · cellbed" : "Live · cellbed";
    if (isFinished) loadFinished(); else redraw();
  }
  addEventListener("hashchange", route);
  route();
  loadFinished();
  connect();
})();
