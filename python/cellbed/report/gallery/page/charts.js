"use strict";
// Draws a picture: panels with curves, spans or points. Those over the same time share zoom and cursor.
const drawPicture = (() => {
  const INK = "#1d2129", MUTED = "#5b6472", GRID = "#e7ebf0";
  const HEIGHTS = { time: 210, distribution: 260, scatter: 260, hours: 260 };
  const digits = (value) => value == null ? "–" : String(+Number(value).toPrecision(3));

  let margin = 0; // left of the charts over time

  function draw(parent, picture, reset) {
    const font = "12px " + getComputedStyle(document.body).fontFamily;
    const groups = new Map(); // end of the axis → plots over that time
    const plots = [];
    const names = picture.panels.flatMap((panel) => panel.rows.map((row) => shorten(row.name).length));
    margin = Math.max(60, 16 + 6.9 * Math.max(0, ...names)); // the same moment at the same place in all charts over time
    parent.textContent = "";
    for (const panel of picture.panels) {
      const section = document.createElement("section");
      section.className = "panel" + (panel.kind === "time" || panel.kind === "spans" ? " wide" : "");
      section.append(Object.assign(document.createElement("h3"), { textContent: panel.title }));
      section.append(Object.assign(document.createElement("p"), { className: "note", textContent: panel.note }));
      const place = document.createElement("div");
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", `${panel.title}; across: ${panel.x}${panel.y ? "; upwards: " + panel.y : ""}`);
      section.append(place);
      parent.append(section);
      const plot = one(place, panel, font);
      plots.push({ plot, place });
      if (panel.kind === "time" || panel.kind === "spans") {
        if (!groups.has(panel.end)) groups.set(panel.end, []);
        groups.get(panel.end).push(plot);
      }
    }
    for (const [end, group] of groups) join(group, end, reset);
    const fit = () => plots.forEach(({ plot, place }) => plot.setSize({ width: place.clientWidth, height: plot.height }));
    addEventListener("resize", fit);
    return () => { removeEventListener("resize", fit); plots.forEach(({ plot }) => plot.destroy()); parent.textContent = ""; };
  }

  function join(group, end, reset) {
    let busy = false;
    const show = (min, max) => {
      busy = true;
      for (const plot of group) {
        plot.setScale("x", { min, max });
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      }
      if (reset) reset.hidden = min === 0 && max === end;
      busy = false;
    };
    for (const plot of group) {
      plot.hooks.setSelect = [(u) => {
        if (busy || u.select.width < 4) return;
        show(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
      }];
      plot.over.addEventListener("dblclick", () => show(0, end));
    }
    if (reset) reset.addEventListener("click", () => show(0, end));
  }

  function axes(panel, font, values) {
    const line = { stroke: MUTED, font, labelFont: font, grid: { stroke: GRID, width: 1 }, ticks: { show: false } };
    const rounded = (u, splits) => splits.map((v) => v == null ? "" : +v.toPrecision(6));
    return [
      { ...line, label: panel.x, size: 26, labelSize: 20, gap: 4, space: 55, values: rounded, splits: panel.logX ? decades : undefined, filter: panel.logX ? all : undefined },
      { ...line, label: panel.y || undefined, size: values ? margin + 18 : panel.kind === "time" ? margin : 50, labelSize: 18, gap: 4, space: values ? 10 : 28,
        values: values || rounded, splits: panel.logY ? decades : undefined, filter: panel.logY ? all : undefined, grid: values ? { show: false } : line.grid },
    ];
  }

  const all = (u, splits) => splits;

  // As in drawing.py.
  const STEPS = [[1], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]];

  // Round numbers on a logarithmic axis, more of them over fewer decades.
  function decades(u, axis, low, high) {
    let found = [];
    for (const steps of STEPS) {
      found = [];
      for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++) {
        for (const step of steps) if (step * 10 ** k >= low && step * 10 ** k <= high) found.push(+(step * 10 ** k).toPrecision(3));
      }
      if (found.length >= 4 && found[0] <= low * (high / low) ** 0.25) break;
    }
    return found.length ? found : [low, high];
  }

  function options(place, panel, font, more) {
    return {
      width: Math.max(260, place.clientWidth), height: HEIGHTS[panel.kind], padding: [8, 10, 0, 0],
      legend: { live: true }, cursor: { drag: { x: false, y: false, setScale: false }, points: { size: 6 } }, axes: axes(panel, font),
      ...more,
    };
  }

  function one(place, panel, font) {
    if (panel.kind === "spans") return spans(place, panel, font);
    if (panel.kind === "scatter") return scatter(place, panel, font);
    return curves(place, panel, font);
  }

  const overTime = (panel) => ({ drag: { x: true, y: false, setScale: false }, sync: { key: `time-${panel.end}`, scales: ["x", null] }, points: { size: 6 }, bind: { dblclick: () => () => null } });

  function curves(place, panel, font) {
    const series = [{ label: panel.x, value: (u, v) => digits(v) }], tables = [], bands = [];
    for (const curve of panel.curves) {
      const common = { spanGaps: !curve.y.includes(null), points: curve.dots ? { show: true, size: 3.5, space: 0, fill: curve.colour } : { show: panel.kind === "hours" } };
      tables.push([curve.x, curve.y, ...(curve.low ? [curve.low, curve.high] : [])]);
      series.push({
        ...common, label: curve.name, stroke: curve.colour + (curve.faint ? "a0" : ""), width: curve.faint ? 1.2 : 1.5, dash: curve.faint ? [5, 4] : undefined,
        paths: curve.dots ? () => null : curve.steps ? uPlot.paths.stepped({ align: 1 }) : undefined, value: (u, v) => digits(v),
      });
      if (curve.low) {
        const at = series.length;
        for (const word of ["least", "most"]) series.push({ ...common, label: word, stroke: curve.colour + "50", width: 0.5, value: (u, v) => digits(v) });
        bands.push({ series: [at + 1, at], fill: curve.colour + "38" });
      }
    }
    const span = panel.kind === "time" ? [0, panel.end] : panel.kind === "hours" ? [-0.5, (panel.end ?? 23) + 0.5] : null;
    const log = (low, high) => [low * 0.97, high * 1.03];
    const x = { time: false, distr: panel.logX ? 3 : 1 };
    if (span) { x.min = span[0]; x.max = span[1]; x.range = (u, min, max) => [min ?? span[0], max ?? span[1]]; }
    else x.range = panel.logX ? (u, low, high) => log(low, high) : (u, low, high) => [0, high * 1.02 || 1];
    const y = panel.logY ? { distr: 3, range: (u, low, high) => log(low || 1, high || 10) }
      : { range: panel.kind === "distribution" ? () => [0, 101] : (u, low, high) => [0, (high || 1) * 1.06] };
    return new uPlot(options(place, panel, font, {
      series, bands, scales: { x, y }, ...(panel.kind === "time" ? { cursor: overTime(panel) } : {}),
    }), tables.length > 1 ? uPlot.join(tables) : tables[0], place);
  }

  function spans(place, panel, font) {
    const count = panel.rows.length;
    const names = (u, splits) => splits.map((v) => Number.isInteger(v) && panel.rows[count - 1 - v] ? shorten(panel.rows[count - 1 - v].name) : "");
    return new uPlot(options(place, panel, font, {
      height: 66 + 24 * count, legend: { show: false }, cursor: { ...overTime(panel), y: false },
      scales: { x: { time: false, range: (u, min, max) => [min ?? 0, max ?? panel.end], min: 0, max: panel.end }, y: { range: () => [-0.6, count - 0.4] } },
      axes: axes(panel, font, names).map((axis, i) => i ? { ...axis, splits: () => panel.rows.map((_, k) => k) } : axis),
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: { draw: [(u) => {
        const { ctx, bbox } = u, ratio = devicePixelRatio || 1;
        ctx.save();
        ctx.beginPath();
        ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
        ctx.clip();
        panel.rows.forEach((row, i) => {
          ctx.fillStyle = row.colour;
          const top = u.valToPos(count - 1 - i + 0.36, "y", true), bottom = u.valToPos(count - 1 - i - 0.36, "y", true);
          row.begins.forEach((begin, j) => {
            const from = u.valToPos(begin, "x", true), to = u.valToPos(begin + row.lengths[j], "x", true);
            ctx.fillRect(from, top, Math.max(to - from, 1.5 * ratio), bottom - top);
          });
        });
        ctx.restore();
      }] },
    }), [[0, panel.end], [null, null]], place);
  }

  function scatter(place, panel, font) {
    // Each axis has its own scale: where one direction is much slower, the points would lie on a line.
    const most = (key) => Math.max(...panel.curves.flatMap((curve) => curve[key]), 1e-9) * 1.04;
    const mostX = most("x"), mostY = most("y");
    return new uPlot(options(place, panel, font, {
      legend: { show: false }, scales: { x: { time: false, range: () => [0, mostX] }, y: { range: () => [0, mostY] } },
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: { draw: [(u) => {
        const { ctx } = u, ratio = devicePixelRatio || 1;
        ctx.save();
        for (const curve of panel.curves) {
          ctx.fillStyle = ctx.strokeStyle = curve.colour;
          ctx.globalAlpha = curve.dots ? 0.6 : 1;
          ctx.beginPath();
          curve.x.forEach((value, i) => {
            const x = u.valToPos(value, "x", true), y = u.valToPos(curve.y[i], "y", true);
            if (curve.dots) { ctx.moveTo(x, y); ctx.arc(x, y, 2 * ratio, 0, 7); } else if (i) ctx.lineTo(x, y); else ctx.moveTo(x, y);
          });
          if (curve.dots) ctx.fill(); else { ctx.setLineDash([5 * ratio, 4 * ratio]); ctx.stroke(); }
        }
        ctx.restore();
      }] },
    }), [[0, mostX], [null, null]], place);
  }

  const shorten = (text) => text.length > 24 ? text.slice(0, 23) + "…" : text;
  return draw;
})();
