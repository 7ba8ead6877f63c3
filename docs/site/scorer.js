// Order of the search: the page of a code that is searched for first, decisions and the specification last.
"use strict";
var Scorer = {
  score: function (result) {
    var page = result[0], score = result[4];
    var code = /moor-?\d{3}/i.exec(new URLSearchParams(location.search).get("q") || "");
    if (code && page.endsWith("/" + code[0].toUpperCase().replace(/MOOR-?/, "MOOR-"))) return score + 1000;
    if (page.startsWith("decisions/") || page.startsWith("spec/") || page === "changelog") return score - 500;
    return page.startsWith("how-to/") || page.startsWith("tutorial/") ? score + 5 : score;
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2
};
