// Sets what pymdownx.arithmatex marked: \( … \) in a span, \[ … \] in a div.
for (const place of document.querySelectorAll(".arithmatex")) {
  const formula = place.textContent.trim();
  katex.render(formula.slice(2, -2), place, { displayMode: formula.startsWith("\\["), throwOnError: false });
}
