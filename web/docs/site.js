// What the theme adds to a page, repaired for keyboards and screen readers.
const repair = () => {
  for (const buttons of document.querySelectorAll(".md-code__nav:not([role])")) buttons.role = "none"  // no landmark
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap"))
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0  // scrolled by arrow keys
}
new MutationObserver(repair).observe(document.body, { childList: true, subtree: true })
addEventListener("resize", repair)
