// Tables: sorted by a click on a head; and lists narrowed by words.

/** Sort by a column; rows without a value come last. */
function sortTable(table, column, direction) {
  const head = table.tHead.rows[0].cells[column];
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  const key = (row) => row.cells[column].dataset.sort;
  const compare = head.dataset.kind === "number"
    ? (one, two) => sign * (Number(key(one)) - Number(key(two)))
    : (one, two) => sign * key(one).localeCompare(key(two), "en", { numeric: true });
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort((one, two) => (key(one) === "") - (key(two) === "") || compare(one, two)));
}

/** The direction after a click on a head: ascending, then descending. */
function nextDirection(head) {
  return head.ariaSort === "ascending" ? "descending" : "ascending";
}

/** Hide rows that do not have all words; return how many are shown. */
function filterRows(rows, text, also = () => true) {
  const words = text.toLowerCase().split(/\s+/);
  for (const row of rows) {
    const content = row.textContent.toLowerCase();
    row.hidden = !(also(row) && words.every((word) => content.includes(word)));
  }
  return rows.filter((row) => !row.hidden).length;
}
