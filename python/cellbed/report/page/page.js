"use strict";
// Draws the time charts: all share one time axis, one zoom and one cursor.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  let colours = {}; // in the theme of the page; a print is always light
  function choose(light) {
    const style = getComputedStyle(root);
    const paint = (value) => {
      if (Array.isArray(value)) return value.map(paint);
      const [, name, plain] = value.match(/(--c\w{6}),(#\w{6})/);
      return (!light && style.getPropertyValue(name).trim()) || plain;
    };
    colours = Object.fromEntries(Object.entries(data.colours).map(([name, value]) => [name, paint(value)]));
  }
  choose(false);
  const sync = uPlot.sync("time");
  const font = "12px " + getComputedStyle(document.body).fontFamily;
  const POINTS = 300; // bins drawn over the width of a chart
  const DOTS = 20000; // requests drawn at once: more of them appear on zoom
  const NODES = 6; // with charts; of more nodes, the chosen link's endpoint and the ones that are no endpoints
  const whole = { min: data.span[0], max: Math.max(data.span[1], data.span[0] + 1) };
  let span = whole;
  let charts = []; // {plot, fill(min, max) → columns or null}
  let busy = false;

  const digits = (value) => value == null ? "–" : Number(value.toPrecision(3)).toLocaleString("en");

  // ---- what every chart has in common

  function axes(label, timeLabel, values) {
    const line = { stroke: colours.muted, font, labelFont: font, grid: { stroke: colours.rule, width: 1 }, ticks: { show: false } };
    return [
      { ...line, size: 22, label: timeLabel ? "time since the start of the schedule, s" : undefined,
        labelSize: 20, gap: 4, space: 60, values: (_, splits) => splits.map((s) => +s.toFixed(6)) },
      { ...line, size: 50, label, labelSize: 16, gap: 4, space: 26, values },
    ];
  }

  function add(parent, { title, about, keys, height, label, timeLabel, series, scale, values, fill, data: columns, draw, say }) {
    const chart = document.createElement("figure");
    chart.className = "chart";
    const key = keys.map(([style, words]) => `<i ${style}></i>${words}`).join("");
    chart.innerHTML = '<figcaption><span><b></b><span class="about"></span><span class="key"></span></span><output></output></figcaption><div role="img" tabindex="0"></div>';
    chart.querySelector("b").textContent = title;
    chart.querySelector(".about").textContent = about ? ` (${about})` : "";
    chart.querySelector(".key").innerHTML = key;
    const output = chart.querySelector("output");
    const drawn = chart.lastElementChild;
    drawn.setAttribute("aria-label", `${title}: ${label}, over time since the start of the schedule, s`);
    parent.append(chart);
    const options = {
      width: Math.max(280, chart.clientWidth), height,
      legend: { show: false },
      padding: [8, 8, 0, 0],
      scales: { x: { time: false, min: span.min, max: span.max, range: (u, min, max) => [min, max] }, y: scale },
      series: [{}, ...series],
      axes: axes(label, timeLabel, values),
      cursor: {
        drag: { x: true, y: false, setScale: false },
        sync: { key: sync.key, scales: ["x", null] },
        points: { show: false },
        bind: { dblclick: () => () => { show(whole); return null; } },
      },
      hooks: {
        setCursor: [(u) => {
          const time = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null;
          output.textContent = time == null ? "" : say(u, time);
        }],
        setSelect: [(u) => {
          if (busy || u.select.width < 4) return;
          show({ min: u.posToVal(u.select.left, "x"), max: u.posToVal(u.select.left + u.select.width, "x") });
        }],
        drawClear: [shade],
        draw: draw ? [draw] : [],
      },
    };
    const plot = new uPlot(options, columns ?? fill(span.min, span.max), drawn);
    drawn.addEventListener("keydown", (event) => keyed(plot, event));
    charts.push({ plot, fill, element: chart });
    return plot;
  }

  // Arrow keys move the cursor, + and - zoom around it, 0 shows the whole run.
  function keyed(plot, event) {
    const width = plot.over.clientWidth, left = plot.cursor.left >= 0 ? plot.cursor.left : width / 2;
    const to = { ArrowLeft: left - width / 100, ArrowRight: left + width / 100, Home: 0, End: width }[event.key];
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (to != null) plot.setCursor({ left: Math.min(width, Math.max(0, to)), top: 10 });
    else if (factor) {
      const centre = plot.posToVal(left, "x"), half = (span.max - span.min) * factor / 2;
      const next = { min: Math.max(whole.min, centre - half), max: Math.min(whole.max, centre + half) };
      show(next.max - next.min < whole.max - whole.min ? next : whole);
    } else if (event.key === "0") show(whole);
    else return;
    event.preventDefault();
  }

  function show(next) {
    busy = true;
    span = next.max - next.min < 0.02 ? { min: next.min, max: next.min + 0.02 } : next;
    for (const { plot, fill } of charts) {
      plot.batch(() => {
        if (fill) plot.setData(fill(span.min, span.max), false);
        plot.setScale("x", span);
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      });
    }
    document.getElementById("reset").hidden = span === whole;
    busy = false;
  }

  // Outages stand behind every chart, so that the eye finds the same moment everywhere.
  let link = data.links[0];
  function shade(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    // Phases of migrations in two tones, with their names where there is room.
    ctx.font = `${10 * devicePixelRatio}px sans-serif`;
    ctx.textBaseline = "top";
    (data.phases || []).forEach(({ name, begin, end }, i) => {
      const from = u.valToPos(begin, "x", true), to = u.valToPos(end, "x", true);
      ctx.fillStyle = i % 2 ? "rgba(40,80,160,0.07)" : "rgba(40,80,160,0.13)";
      ctx.fillRect(from, bbox.top, Math.max(to - from, 1), bbox.height);
      const words = name.slice(name.indexOf(": ") + 2);
      ctx.fillStyle = colours.muted;
      if (ctx.measureText(words).width < to - from - 4) ctx.fillText(words, from + 2, bbox.top + 2);
    });
    for (const gap of link ? link.gaps : []) {
      const from = u.valToPos(gap.begin, "x", true), to = u.valToPos(gap.end, "x", true);
      ctx.fillStyle = gap.way === "uplink" ? "rgba(179,38,30,0.10)" : "rgba(179,38,30,0.05)";
      ctx.fillRect(from, bbox.top, Math.max(to - from, 1), bbox.height);
    }
    ctx.restore();
  }

  // ---- latency

  const alone = new Set(data.links.flatMap((each) => each.requests.map((requests) => requests.app))).size < 2;
  const STATES = ["in time", "late", "failed", "timed out", "lost"];

  function latencyChart(parent, requests, logarithmic) {
    const { app, number, time, latency, status } = requests;
    const answered = latency.filter((value) => value != null);
    const top = answered.reduce((a, b) => Math.max(a, b), 1), bottom = answered.reduce((a, b) => Math.min(a, b), top);
    const missing = latency.some((value) => value == null);
    const inSeconds = top >= 2000;
    const factor = inSeconds ? 1e-3 : 1;
    const values = latency.map((value) => value == null ? null : value * factor);
    const range = logarithmic ? [bottom * factor * 0.8, top * factor * 1.5] : [0, top * factor * (missing ? 1.14 : 1.06)];
    let shown = []; // numbers of the drawn requests
    const fill = (min, max) => {
      shown = visible(requests, min, max);
      return [
        shown.map((i) => time[i]),
        shown.map((i) => status[i] === 1 ? null : values[i]),
        shown.map((i) => status[i] === 1 ? values[i] : null),
        shown.map((i) => values[i] == null ? range[1] * (logarithmic ? 0.85 : 0.97) : null),
      ];
    };
    const size = time.length > 4000 ? 3 : time.length > 1200 ? 4 : 5;
    const dots = (stroke, fill) => ({ paths: () => null, points: { show: true, size, width: 1.5, stroke, fill } });
    const key = (style, words) => [`style="${style};border-radius:50%;width:8px;height:8px"`, words];
    const keys = [key(`background:${colours.ink}`, "good reply in time")];
    if (status.includes(1)) keys.push(key(`border:1.5px solid ${colours.alarm}`, "late"));
    if (missing) keys.push(key(`background:${colours.alarm}`, "no good reply, at the top"));
    add(parent, {
      title: `Latency of each request${alone ? "" : ` of ${app}`}, by its intended time`, keys, height: alone ? 250 : 170,
      label: `latency, ${inSeconds ? "s" : "ms"}`,
      series: [dots(colours.ink, colours.ink), dots(colours.alarm, colours.paper), dots(colours.alarm, colours.alarm)],
      scale: logarithmic ? { distr: 3, range: () => range } : { range: () => range },
      values: logarithmic ? (_, splits) => splits.map((s) => s == null ? "" : /^[125]0*$/.test(String(+(s * 1e6).toPrecision(1))) ? digits(s) : "") : undefined,
      fill,
      say: (u, now) => {
        if (!shown.length) return "";
        const last = nearest(u, now), next = u.data[0][last + 1] - now < now - u.data[0][last] ? last + 1 : last, i = shown[next];
        const words = latency[i] == null ? STATES[status[i]] : `${digits(values[i])} ${inSeconds ? "s" : "ms"}`;
        const gap = link.gaps.find((each) => now >= each.begin && now <= each.end);
        const phase = (data.phases || []).find((each) => now >= each.begin && now <= each.end);
        return `request ${number[i]} at ${time[i].toFixed(2)} s: ${words}` + (phase ? `, during ${phase.name}` : "") + (gap ? `, in the ${gap.way} outage of ${digits(gap.end - gap.begin)} s` : "");
      },
    });
  }

  // The requests of a time to draw: of more than DOTS, in slices of time the fastest, the slowest and one without a reply.
  function visible({ time, latency }, min, max) {
    const first = after(time, min - 1e-9), last = after(time, max), step = Math.max(1, Math.ceil((last - first) / (DOTS / 3)));
    const drawn = [];
    for (let i = first - first % step; i < last; i += step) {
      const slice = [...Array(Math.min(step, last - i)).keys()].map((j) => i + j);
      if (step < 4) { drawn.push(...slice); continue; }
      const chosen = new Set([slice.find((j) => latency[j] == null)]);
      const answered = slice.filter((j) => latency[j] != null);
      chosen.add(answered.reduce((a, b) => latency[b] < latency[a] ? b : a, answered[0]));
      chosen.add(answered.reduce((a, b) => latency[b] > latency[a] ? b : a, answered[0]));
      drawn.push(...slice.filter((j) => chosen.has(j)));
    }
    return drawn;
  }

  // ---- links: bytes per bin become means per drawn bin, queues their peak

  function bins(direction, min, max) {
    const { bin, begin, used } = direction;
    const first = Math.max(0, Math.floor((min - begin) / bin));
    const last = Math.min(used.length, Math.ceil((max - begin) / bin) + 1);
    const step = Math.max(1, Math.round((last - first) / POINTS));
    const start = Math.max(0, first - (first % step)); // so that zooming does not move the bins
    return { start, last, step };
  }

  function fold(column, { start, last, step }, join, begin) {
    const folded = [];
    for (let i = start; i < last; i += step) {
      let value = begin;
      for (let j = i; j < Math.min(i + step, column.length); j++) value = join(value, column[j]);
      folded.push(value);
    }
    return folded;
  }

  const plus = (a, b) => a + b;

  function times(direction, { start, last, step }) {
    const column = [];
    for (let i = start; i < last; i += step) column.push(direction.begin + i * direction.bin);
    return column;
  }

  function after(column, time) { // the number of ascending values up to a time
    let low = 0, high = column.length;
    while (low < high) { const mid = (low + high) >> 1; if (column[mid] <= time) low = mid + 1; else high = mid; }
    return low;
  }

  const at = (u, time) => after(u.data[0], time) - 1;

  const nearest = (u, time) => Math.max(0, at(u, time));
  const steps = uPlot.paths.stepped({ align: 1 });

  // Packets that a direction dropped in a bin: a mark at the top. Of the queue over the queue, in red; lost at random
  // over the capacity, in ink, because no queue had to do with them.
  const counts = (column, range) => fold(column, range, plus, 0).map((n) => n || null);
  const unseen = { scale: "none", paths: () => null, points: { show: false } };

  function marks(row, colour) {
    return (u) => {
      const { ctx, bbox } = u, ratio = devicePixelRatio || 1;
      ctx.save();
      ctx.fillStyle = colour;
      u.data[0].forEach((t, i) => {
        if (u.data[row][i] && t >= span.min && t <= span.max) ctx.fillRect(u.valToPos(t, "x", true) - ratio, bbox.top, 2 * ratio, 7 * ratio);
      });
      ctx.restore();
    };
  }

  function rateChart(parent, direction) {
    const shades = colours[direction.way];
    const rate = (column, range) => fold(column, range, plus, 0).map((bytes, i) => {
      const width = Math.min(range.step, direction.used.length - (range.start + i * range.step)) * direction.bin;
      return bytes * 8 / 1e6 / width;
    });
    const series = [];
    const keys = [];
    if (direction.capacity) {
      series.push({ stroke: shades[2], width: 1, fill: shades[2] + "80", paths: steps, points: { show: false } });
      keys.push([`style="background:${shades[2]}"`, "offered"]);
    }
    series.push({ stroke: shades[0], width: 1, fill: shades[1], paths: steps, points: { show: false } });
    keys.push([`style="background:${shades[1]}"`, "used"]);
    series.push(unseen);
    const row = series.length;
    const lost = direction.lost.some((n) => n);
    if (lost) keys.push([`class="mark" style="background:${colours.ink}"`, "packets lost at random"]);
    const fill = (min, max) => {
      const range = bins(direction, min, max);
      const columns = [times(direction, range)];
      if (direction.capacity) columns.push(rate(direction.capacity, range));
      columns.push(rate(direction.used, range));
      columns.push(counts(direction.lost, range));
      return columns;
    };
    add(parent, {
      title: `${name(direction.way)} capacity`, about: direction.trace, keys, height: 128, label: "Mbit/s", series, fill,
      scale: { range: (u, min, max) => [0, Math.max(max || 0, 0.1) * (lost ? 1.16 : 1.06)] },
      draw: marks(row, colours.ink),
      say: (u, time) => {
        const i = at(u, time);
        if (i < 0) return "";
        const value = (n) => digits(u.data[n][i]);
        const rates = direction.capacity ? `offered ${value(1)}, used ${value(2)} Mbit/s` : `used ${value(1)} Mbit/s`;
        return rates + (u.data[row][i] ? `, ${u.data[row][i]} lost at random` : "");
      },
    });
  }

  function queueChart(parent, direction, timeLabel) {
    const shades = colours[direction.way];
    const peak = Math.max(...direction.queue, 1);
    const [unit, factor] = peak >= 2e6 ? ["MB", 1e-6] : ["kB", 1e-3];
    const fill = (min, max) => {
      const range = bins(direction, min, max);
      return [times(direction, range), fold(direction.queue, range, Math.max, 0).map((b) => b * factor), counts(direction.dropped, range)];
    };
    const dropped = direction.dropped.some((n) => n);
    const keys = [[`style="background:${shades[1]}"`, "highest"]];
    if (dropped) keys.push([`class="mark" style="background:${colours.alarm}"`, "packets dropped by the queue"]);
    add(parent, {
      title: `${name(direction.way)} queue`, keys, height: timeLabel ? 116 : 96, label: unit, timeLabel, fill,
      series: [
        { stroke: shades[0], width: 1, fill: shades[1], paths: steps, points: { show: false } },
        unseen,
      ],
      scale: { range: (u, min, max) => [0, Math.max(max || 0, 1.5e3 * factor) * (dropped ? 1.22 : 1.08)] },
      draw: marks(2, colours.alarm),
      say: (u, time) => {
        const i = at(u, time);
        if (i < 0) return "";
        return `${digits(u.data[1][i])} ${unit}` + (u.data[2][i] ? `, ${u.data[2][i]} dropped` : "");
      },
    });
  }

  const name = (way) => way === "uplink" ? "Uplink" : "Downlink";

  // ---- nodes

  function nodeCharts(parent, node, last) {
    const shades = colours[node.class === "endpoint" ? "endpoint" : "remote"];
    const limit = node.time.map(() => node.cpus);
    const peak = Math.max(...node.cpu.filter((v) => v != null), 0.05);
    const throttled = node.throttled.some((v) => v > 0);
    const near = node.cpus && peak > node.cpus * 0.4;
    add(parent, {
      title: `${node.name} CPU`, height: last ? 130 : 110, label: "cores", timeLabel: last,
      keys: [[`style="background:${shades[1]}"`, "used"],
        ...(near ? [[`class="line" style="border-color:${colours.ink}"`, "limit"]] : []),
        ...(throttled ? [[`style="background:${colours.alarm}"`, "throttled"]] : [])],
      series: [
        { stroke: shades[0], width: 1, fill: shades[1] + "b0", paths: steps, points: { show: false } },
        { stroke: colours.ink, dash: [5, 4], width: 1.2, points: { show: false }, show: Boolean(near) },
        { scale: "none", paths: () => null, points: { show: false } },
      ],
      scale: { range: () => [0, (near ? Math.max(peak, node.cpus) : peak) * 1.12] },
      data: [node.time, node.cpu, limit, node.throttled],
      draw: (u) => { // a band at the top: the darker, the more periods were throttled
        const { ctx, bbox } = u, ratio = devicePixelRatio || 1;
        ctx.save();
        ctx.fillStyle = colours.alarm;
        node.time.forEach((t, i) => {
          if (!node.throttled[i] || i === 0 || t < span.min || t > span.max) return;
          const from = u.valToPos(node.time[i - 1], "x", true), to = u.valToPos(t, "x", true);
          ctx.globalAlpha = 0.25 + 0.75 * node.throttled[i] / 100;
          ctx.fillRect(Math.max(from, bbox.left), bbox.top, Math.max(to - from, 1), 6 * ratio);
        });
        ctx.restore();
      },
      say: (u, time) => {
        const i = nearest(u, time);
        return `${digits(node.cpu[i])} of ${digits(node.cpus)} cores` + (node.throttled[i] ? `, throttled in ${digits(node.throttled[i])} %` : "");
      },
    });
    add(parent, {
      title: `${node.name} memory`, height: last ? 130 : 110, label: "MiB", timeLabel: last,
      keys: [[`style="background:${shades[1]}"`, "used"]],
      series: [{ stroke: shades[0], width: 1, fill: shades[1] + "b0", paths: steps, points: { show: false } }],
      scale: { range: (u, min, max) => [0, Math.max(max || 0, 1) * 1.12] },
      data: [node.time, node.used],
      say: (u, time) => `${digits(node.used[nearest(u, time)])} of ${digits(node.memory / 2 ** 20)} MiB`,
    });
  }

  function hostCharts(parent, host) {
    const shown = { stroke: colours.muted, width: 1, fill: colours.rule, paths: steps, points: { show: false } };
    const common = { height: 110, keys: [], timeLabel: true, series: [shown] };
    if (host.pressure) add(parent, {
      ...common, title: "This machine: CPU pressure (PSI)", label: "%", data: [host.time, host.pressure], scale: { range: () => [0, 100] },
      say: (u, time) => `some program waited for ${digits(host.pressure[nearest(u, time)])} % of the second`,
    });
    add(parent, {
      ...common, title: "This machine: used by other programs", label: "processors", data: [host.time, host.foreign], scale: { range: () => [0, host.cpus] },
      say: (u, time) => `${digits(host.foreign[nearest(u, time)])} of ${host.cpus} processors`,
    });
  }

  // ---- the page

  function build() {
    for (const { plot } of charts) plot.destroy();
    charts = [];
    const place = document.getElementById("charts"), nodePlace = document.getElementById("node-charts");
    place.textContent = "";
    if (nodePlace) nodePlace.textContent = "";
    if (link) {
      const logarithmic = document.getElementById("scale")?.value === "log";
      for (const requests of link.requests) latencyChart(place, requests, logarithmic);
      link.directions.forEach((direction, i) => {
        rateChart(place, direction);
        queueChart(place, direction, i === link.directions.length - 1);
      });
      const sum = (count) => link.requests.reduce((all, each) => all + count(each), 0);
      const drawn = sum((each) => each.number.length), total = sum((each) => each.total);
      const ms = link.directions.length ? link.directions[0].bin * 1e3 : 10;
      document.getElementById("legend").textContent =
        `Rates are means and queues the highest values of the bins drawn, at the finest ${digits(ms)} ms. ${link.gaps.length ? "Shaded: no capacity for at least 0.3 s." : "There was no outage of at least 0.3 s."}` +
        (data.phases && data.phases.length ? " In blue: phases of migrations." : "") +
        (drawn < total ? ` ${drawn.toLocaleString("en")} of ${total.toLocaleString("en")} requests are drawn, the slowest and the fastest of each moment among them; all are in requests.parquet.` : "");
    }
    if (nodePlace) {
      const ends = link ? [link.endpoint] : [];
      const near = data.nodes.length <= NODES ? data.nodes
        : data.nodes.filter((node) => ends.includes(node.name) || node.class !== "endpoint").slice(0, NODES);
      near.forEach((node, i) => { if (node.time.length) nodeCharts(nodePlace, node, i === near.length - 1); });
    }
    const machine = document.getElementById("machine-charts");
    if (machine) {
      machine.textContent = "";
      hostCharts(machine, data.host);
    }
  }

  const chooser = document.getElementById("link");
  if (chooser) chooser.addEventListener("change", () => {
    link = data.links[chooser.value];
    build();
  });
  for (const button of document.querySelectorAll("button.more")) {
    button.addEventListener("click", () => { button.previousElementSibling.querySelector("tbody.rest").hidden = false; button.remove(); });
  }
  document.getElementById("scale")?.addEventListener("change", build);
  document.getElementById("reset").addEventListener("click", () => show(whole));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    for (const { plot, element } of charts) plot.setSize({ width: Math.max(280, element.clientWidth), height: plot.height });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { choose(false); build(); });
  const PRINTED = 690; // pixels between the margins of A4
  addEventListener("beforeprint", () => {
    choose(true);
    Object.assign(document.body.style, { width: `${PRINTED}px`, padding: 0 });
    build();
  });
  addEventListener("afterprint", () => {
    choose(false);
    document.body.removeAttribute("style");
    build();
  });
  build();
  root.dataset.ready = "yes";
})();
