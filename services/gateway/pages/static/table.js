// Sorts the rows of a table by the buttons in its head; the order is kept when the rows are renewed.
//
// `valueOf(row, column)` is the value of a row in a column: a number, a text, or null, which is last.
export function makeSortable(root, valueOf) {
  let column = null, isDown = false;

  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  function apply() {
    if (column === null) return;
    const body = root.querySelector("tbody"), rows = [...body.rows].map((row) => [valueOf(row, column), row]);
    rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : isDown ? compare(b, a) : compare(a, b)));
    body.append(...rows.map(([, row]) => row));
    for (const button of root.querySelectorAll("[data-sort]"))
      button.closest("th").setAttribute("aria-sort", button.dataset.sort !== column ? "none" : isDown ? "descending" : "ascending");
  }
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-sort]");
    if (!button) return;
    isDown = column === button.dataset.sort && !isDown;
    column = button.dataset.sort;
    apply();
  });
  return apply;
}
