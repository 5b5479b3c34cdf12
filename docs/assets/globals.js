// A heading called "Exports" is window.exports to a browser, and KaTeX would take it for the exports of a module.
var exports, module;
