// Returns what is wrong with the structure of a page at this width, in this theme and medium.
async () => {
  for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame); // charts follow the width
  const numbers = (text) => { const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number); return [r, g, b, a]; };
  const over = ([r, g, b, a], below) => [r, g, b].map((each, i) => each * a + below[i] * (1 - a));
  const light = (part) => part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const ground = (each) => each === null ? [255, 255, 255]
    : over(numbers(getComputedStyle(each).backgroundColor), ground(each.parentElement));
  const visible = (each) => each.checkVisibility({ visibilityProperty: true }) && each.getBoundingClientRect().width > 0;
  const text = (each) => each.textContent.trim().replace(/\s+/g, " ").slice(0, 60);
  const named = (each) => each.getAttribute("aria-label") || text(each.querySelector("figcaption") || { textContent: "" })
    || [...each.querySelectorAll("[role=img]")].some((part) => part.getAttribute("aria-label"));
  const found = [];

  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) found.push(`the page is ${width} pixels wide`);
  let level = 0;
  for (const each of [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(visible)) {
    const next = Number(each.tagName[1]);
    if (next > level + 1 || (next === 1 && level)) found.push(`${each.tagName} after H${level}: ${text(each)}`);
    level = next;
  }
  for (const each of document.querySelectorAll("figure, svg, [role=img]")) {
    if (!named(each)) found.push(`no name: ${each.outerHTML.slice(0, 80)}`);
  }
  for (const each of document.querySelectorAll("svg:not([role=img])")) found.push("an svg is no image");
  for (const each of document.querySelectorAll(".scroll:not([tabindex='0'][aria-label])")) found.push("no keyboard or name");
  for (const each of document.querySelectorAll("table")) {
    const cut = !each.closest(".scroll") && each.scrollWidth > each.parentElement.clientWidth;
    if (cut) found.push(`does not scroll: ${text(each)}`);
    for (const cell of each.querySelectorAll("th")) if (!text(cell)) found.push("a heading of a table is empty");
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const each = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || each.closest("script, style, noscript") || !visible(each)) continue;
    const style = getComputedStyle(each), below = ground(each.closest("svg") ? document.body : each);
    const ink = over(numbers(each.closest("svg") ? style.fill : style.color), below);
    const [dark, bright] = [luminance(ink), luminance(below)].sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dark + 0.05);
    if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(2)}: ${text(each)}`);
  }
  return [...new Set(found)];
}
