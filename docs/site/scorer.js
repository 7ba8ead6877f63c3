// Order of the search: the page of a code that is searched for, then pages with the words in their title; decisions and the specification last.
"use strict";
var Scorer = {
  score: function (result) {
    var page = result[0], score = result[4];
    var asked = (new URLSearchParams(location.search).get("q") || "").toLowerCase();
    var code = /moor-?\d{3}/.exec(asked);
    if (code && page.endsWith("/" + code[0].toUpperCase().replace(/MOOR-?/, "MOOR-"))) return score + 1000;
    if (page.startsWith("decisions/") || page.startsWith("spec/") || page === "changelog") return score - 500;
    // Titles of sections count as much as that of the page for the search itself.
    if (asked && result[1].toLowerCase().includes(asked)) score += 20;
    return page.startsWith("how-to/") || page.startsWith("tutorial/") ? score + 5 : score;
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2
};
