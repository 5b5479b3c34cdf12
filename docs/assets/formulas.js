// Sets what pymdownx.arithmatex marked: \( … \) in a span, \[ … \] in a div.
document.querySelectorAll(".arithmatex").forEach(place =>
  renderMathInElement(place, { delimiters: [
    { left: "\\(", right: "\\)", display: false },
    { left: "\\[", right: "\\]", display: true } ] }));
