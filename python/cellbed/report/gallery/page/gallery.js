"use strict";
// The cards of the archive: found, sorted, drawn when they come into sight, opened on a click.
(() => {
  const entries = JSON.parse(document.getElementById("data").textContent);
  const by = (id) => document.getElementById(id);
  const place = by("cards"), dialog = by("details");
  const made = (tag, className, text) => Object.assign(document.createElement(tag), { className, textContent: text ?? "" });
  const WIDTH = 226, HEIGHT = 64;

  const sight = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue;
      sight.unobserve(target);
      sketch(target, entries[Number(target.dataset.index)]);
    }
  }, { rootMargin: "300px" });

  function sketch(card, entry) {
    const svg = card.querySelector("svg");
    for (const panel of entry.picture.panels) {
      if (panel.kind !== "time") continue;
      const most = Math.max(...panel.curves.flatMap((curve) => curve.y), 1e-9);
      for (const curve of panel.curves) {
        const across = (x) => (x / panel.end * WIDTH).toFixed(1);
        const upwards = (y) => (HEIGHT - 2 - (y ?? 0) / most * (HEIGHT - 6)).toFixed(1);
        const points = curve.x.map((x, i) => `${curve.steps && i ? `${across(x)} ${upwards(curve.y[i - 1])}L` : ""}${across(x)} ${upwards(curve.y[i])}`);
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        path.setAttribute("d", "M" + points.join("L"));
        path.setAttribute("fill", "none");
        path.setAttribute("stroke", curve.colour);
        path.setAttribute("stroke-width", "1.3");
        path.setAttribute("vector-effect", "non-scaling-stroke");
        svg.append(path);
      }
    }
  }

  const cards = entries.map((entry, index) => {
    const card = made("button", "card");
    card.type = "button";
    card.dataset.index = index;
    card.append(made("b", "", entry.name));
    const { origin, ...rest } = entry.about;
    const about = made("span", "about", Object.values(rest).join(" · ") || "nothing known of where it was recorded");
    about.title = about.textContent;
    if (origin === "synthetic") about.prepend(made("span", "tag", "synthetic"), " ");
    card.append(about);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    card.append(svg);
    const words = made("span", "words");
    entry.words.forEach((text) => words.append(made("span", "", text)));
    card.append(words);
    const told = entry.warnings.filter((text) => !text.startsWith("synthetic")).length;
    if (told) card.append(made("span", "warned", told === 1 ? "1 thing to know" : `${told} things to know`));
    card.addEventListener("click", () => open(entry));
    sight.observe(card);
    return card;
  });
  place.append(...cards);

  for (const select of document.querySelectorAll("select[data-key]")) {
    const values = [...new Set(entries.map((entry) => entry.about[select.dataset.key]).filter(Boolean))].sort();
    select.append(new Option("any", ""), ...values.map((value) => new Option(value, value)));
  }
  const texts = entries.map((entry) => [entry.name, ...Object.values(entry.about), ...entry.details.map((pair) => pair[1])].join("\n").toLowerCase());

  function apply() {
    const words = by("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const least = Number(by("least").value) || 0;
    const wanted = [...document.querySelectorAll("select[data-key]")].filter((select) => select.value);
    let shown = 0;
    entries.forEach((entry, i) => {
      const mean = Math.max(entry.figures.uplink ?? 0, entry.figures.downlink ?? 0);
      const fits = words.every((word) => texts[i].includes(word)) && mean >= least &&
        wanted.every((select) => entry.about[select.dataset.key] === select.value);
      cards[i].hidden = !fits;
      shown += fits;
    });
    by("count").textContent = shown === entries.length ? `${shown} entries` : `${shown} of ${entries.length} entries`;
    by("none").hidden = shown > 0;
  }

  function sort() {
    const key = by("sort").value;
    const of = (card) => entries[Number(card.dataset.index)].figures[key] ?? -1;
    const order = [...cards];
    if (key !== "name") order.sort((a, b) => of(b) - of(a));
    place.append(...order);
  }

  let forget = null;
  function open(entry) {
    dialog.querySelector("h2").textContent = entry.name;
    dialog.querySelector(".facts").textContent = entry.picture.about;
    const warned = dialog.querySelector("ul");
    warned.replaceChildren(...entry.warnings.map((text) => made("li", "", text)));
    warned.hidden = !entry.warnings.length;
    dialog.querySelector("dl").replaceChildren(...entry.details.map(([key, value]) => {
      const row = made("div", "");
      row.append(made("dt", "", key), made("dd", "", value));
      return row;
    }));
    dialog.querySelector("pre").textContent = `cellbed traces stats ${entry.name}\ncellbed traces plot ${entry.name} -o ${entry.name}.html`;
    dialog.showModal();
    forget = drawPicture(dialog.querySelector(".picture"), entry.picture, null);
    location.hash = entry.name;
  }
  dialog.addEventListener("close", () => { if (forget) forget(); forget = null; history.replaceState(null, "", location.pathname + location.search); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  by("filter").addEventListener("input", apply);
  by("filter").addEventListener("submit", (event) => event.preventDefault());
  by("sort").addEventListener("change", sort);
  const asked = entries.find((entry) => entry.name === decodeURIComponent(location.hash.slice(1)));
  if (asked) open(asked);
  apply();
  document.documentElement.dataset.ready = "yes";
})();
