"use strict";
// Draws the nodes and links of a testbed as SVG: endpoints, towers, sites, edge and cloud nodes in columns, or in rows on
// a narrow screen. A test and a screen reader find the same in the tables, so the drawing is one image.
const Topology = (() => {
  const NS = "http://www.w3.org/2000/svg";
  const FULL = 12; // endpoints in one column with their names; more are drawn as small boxes with numbers
  const make = (parent, tag, attributes = {}, text) => {
    const made = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const set = (node, name, value) => { if (node.getAttribute(name) !== value) node.setAttribute(name, value); };
  const linkName = (direction) => direction.replace(/\.?(up|down)link$/, ""); // empty for the link of a shell

  // Links by name: two ends, and their directions.
  function links(bed) {
    const found = new Map();
    for (const [name, { from, to }] of Object.entries(bed.directions)) {
      const link = found.get(linkName(name)) ?? { ends: [from, to], directions: [] };
      link.directions.push(name);
      found.set(linkName(name), link);
    }
    return found;
  }

  // Columns of vertices: endpoints; towers and sites, which have nodes; what joins these; other nodes.
  function columns(bed, wires) {
    const vertices = new Set(Object.keys(bed.nodes));
    const near = new Set();
    const isEndpoint = (name) => bed.nodes[name]?.type === "endpoint";
    for (const { ends: [a, b] } of wires.values()) {
      vertices.add(a).add(b);
      if (a in bed.nodes) near.add(b);
      if (b in bed.nodes) near.add(a);
    }
    if (bed.kind === "shell") return [...vertices].map((name) => [name]);
    const found = [[], [], [], []];
    for (const name of vertices) {
      const kind = bed.nodes[name]?.type;
      found[isEndpoint(name) ? 0 : kind ? 3 : near.has(name) ? 1 : 2].push(name);
    }
    return found.filter((each) => each.length);
  }

  // Places of all vertices. Along the main axis come the columns, across it the vertices of a column.
  function layout(bed, wires, width) {
    const isFlat = width < 520;
    const places = new Map();
    const found = columns(bed, wires);
    const parts = found.map((names) => {
      const isSmall = names.length > FULL;
      const box = isSmall ? { w: 40, h: 24 } : { w: Math.min(118, isFlat ? (width - 8) / Math.min(3, names.length) - 8 : 118), h: 36 };
      const across = isFlat ? Math.max(1, Math.min(names.length, Math.floor((width - 4) / (box.w + 6)))) : Math.min(names.length, isSmall ? 14 : FULL);
      return { names, box, across, lines: Math.ceil(names.length / across), isSmall };
    });
    const step = (part) => isFlat ? part.box.h + 10 : part.box.w + 6;
    const length = parts.reduce((sum, part) => sum + part.lines * step(part), 0);
    const gap = isFlat ? 62 : Math.max(56, (width - 4 - length) / Math.max(1, parts.length - 1));
    const room = isFlat ? width : Math.max(220, ...parts.map((part) => part.across * (part.box.h + 10)));
    let at = 2;
    for (const part of parts) {
      part.names.forEach((name, i) => {
        const line = Math.floor(i / part.across);
        const main = at + line * step(part) + (isFlat ? part.box.h : part.box.w) / 2;
        const cross = ((i % part.across) + 0.5) * room / part.across;
        places.set(name, { x: isFlat ? cross : main, y: isFlat ? main : cross, ...part.box, isSmall: part.isSmall });
      });
      at += part.lines * step(part) + gap;
    }
    const main = at - gap + 2;
    return { places, width: isFlat ? width : Math.max(width, main), height: isFlat ? main : room };
  }

  const short = (text, most) => text.length <= most ? text : `${text.slice(0, most - 1)}…`;

  // A drawing in `parent`; choose: called with the name of a link. `update` shows the state of links and nodes.
  function draw(parent, bed, choose) {
    const wires = links(bed);
    const { places, width, height } = layout(bed, wires, Math.max(260, parent.clientWidth));
    const svg = document.createElementNS(NS, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("role", "img");
    const shown = new Map(), uses = new Map();
    for (const [name, link] of wires) {
      const [a, b] = link.ends.map((end) => places.get(end));
      const group = make(svg, "g", { class: "link" });
      const line = { x1: a.x, y1: a.y, x2: b.x, y2: b.y };
      make(group, "line", { ...line, class: "glow" });
      make(group, "title", {}, name);
      const wire = make(group, "line", { ...line, class: "wire" });
      group.addEventListener("click", () => choose(name));
      const free = Math.max(Math.abs(a.x - b.x) - (a.w + b.w) / 2, 2.2 * (Math.abs(a.y - b.y) - (a.h + b.h) / 2));
      const label = wires.size <= 8 && free > 85 ? { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 } : null;
      shown.set(name, { group, wire, label, link });
    }
    for (const item of shown.values()) {
      if (item.label) item.value = make(svg, "text", { class: "value", x: item.label.x, y: item.label.y - 6, "text-anchor": "middle" });
    }
    for (const [name, place] of places) {
      const node = bed.nodes[name];
      const group = make(svg, "g");
      make(group, "title", {}, name);
      const corner = { x: place.x - place.w / 2, y: place.y - place.h / 2 };
      make(group, "rect", { ...corner, width: place.w, height: place.h, rx: node ? 6 : place.h / 2, class: `box ${node?.type ?? "place"}` });
      const text = place.isSmall ? name.replace(/^.*?(\d+)$/, "$1") : short(name, Math.floor(place.w / 7.4));
      make(group, "text", { x: place.x, y: place.y + (node && !place.isSmall ? 1 : 4), "text-anchor": "middle", class: node ? "" : "where" }, text);
      if (node) uses.set(name, { bar: make(group, "rect", { x: corner.x + 8, y: corner.y + place.h - 9, width: 0, height: 4, rx: 2, class: "use" }), most: place.w - 16 });
    }
    parent.replaceChildren(svg);

    function update(now, chosen) {
      const words = [];
      for (const [name, { group, wire, value, link }] of shown) {
        const states = link.directions.map((direction) => [direction, now.links[direction]]).filter(([, state]) => state);
        const rate = Math.max(0, ...states.map(([, state]) => state.rate));
        const isClosed = states.some(([, state]) => state.closed), isQueued = states.some(([, state]) => state.packets > 10);
        set(wire, "class", `wire ${isClosed ? "closed" : isQueued ? "queued" : rate > 1000 ? "busy" : ""}`);
        set(wire, "stroke-width", (1.5 + Math.min(6, Math.log10(1 + rate / 2e4) * 2)).toFixed(0));
        set(group, "class", `link${name === chosen ? " chosen" : ""}`);
        const rates = states.map(([direction, state]) => `${direction.endsWith("downlink") ? "↓" : "↑"} ${(state.rate / 1e6).toFixed(state.rate < 1e7 ? 2 : 0)}`);
        const text = isClosed ? "outage" : rates.join("  ");
        if (value && value.textContent !== text) value.textContent = text;
        words.push(`${name} from ${link.ends[0]} to ${link.ends[1]}${isClosed ? ", outage" : ""}`);
      }
      for (const [name, { bar, most }] of uses) {
        const node = now.nodes[name];
        const share = node?.cpu === undefined ? 0 : Math.min(1, node.cpu / (node.cpus ?? 1));
        set(bar, "width", (share * most).toFixed(0));
      }
      const label = `${places.size} places, ${shown.size} links: ${words.slice(0, 12).join("; ")}`;
      set(svg, "aria-label", label);
    }
    return { update };
  }

  return { draw, links, linkName };
})();
