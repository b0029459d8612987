// Tables that sort by any column, and whose rows open to details.

// columns: [{title, numeric, downFirst, sorted (rows are in its order), value(row) -> number | string | null, cell(row) -> children}]
// details(row): a function that creates what a row opens to, or null
function createTable({caption, columns, rows, details}) {
  const heads = columns.map((column) => {
    const arrow = element("span", {class: "arrow", "aria-hidden": "true"});
    // before the title of a number column, so that titles and numbers are aligned
    const button = element(
      "button",
      {type: "button", class: "sort"},
      column.numeric ? [arrow, column.title] : [column.title, arrow],
    );
    const order = column.sorted ? (column.downFirst ? "descending" : "ascending") : null;
    const options = {scope: "col", class: column.numeric ? "number" : null, "aria-sort": order};
    return {column, button, th: element("th", options, button)};
  });
  const bodies = rows.map((one) => ({one, body: createRow(one, columns, details)}));
  const table = element(
    "table",
    {class: "data"},
    element("caption", {class: "unseen"}, caption),
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        heads.map((head) => head.th),
      ),
    ),
    bodies.map(({body}) => body),
  );
  for (const {column, button, th} of heads)
    button.addEventListener("click", () => {
      const before = th.getAttribute("aria-sort");
      const down = before ? before === "ascending" : Boolean(column.downFirst);
      for (const head of heads) head.th.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      bodies.sort((a, b) => compareValues(column.value(a.one), column.value(b.one), down));
      table.append(...bodies.map(({body}) => body));
    });
  return element("div", {class: "across", tabindex: 0, role: "region", "aria-label": caption}, table);
}

// missing values come last in both directions
function compareValues(a, b, down) {
  const none = (value) => value === null || value === undefined || Number.isNaN(value);
  if (none(a) || none(b)) return none(a) - none(b);
  const order =
    typeof a === "number" && typeof b === "number"
      ? a - b
      : typeof a === "number"
        ? -1
        : typeof b === "number"
          ? 1
          : String(a).localeCompare(String(b), "en", {numeric: true});
  return down ? -order : order;
}

function createRow(one, columns, details) {
  const cells = columns.map((column, index) =>
    element(
      index ? "td" : "th",
      {scope: index ? null : "row", class: column.numeric ? "number" : null},
      column.cell(one),
    ),
  );
  const line = element("tr", {class: one.quoted ? "quoted" : null}, cells);
  const body = element("tbody", {}, line);
  const more = details?.(one);
  if (more) {
    const button = element("button", {
      type: "button",
      class: "open",
      "aria-expanded": "false",
      title: "command and configuration",
    });
    button.append(...cells[0].childNodes);
    cells[0].append(button);
    let detailRow = null;
    button.addEventListener("click", () => {
      // created at the first opening: a benchmark has many rows and long configurations
      detailRow ??= body.appendChild(
        element(
          "tr",
          {class: "more", hidden: true},
          element("td", {colspan: columns.length}, element("div", {class: "inside"}, more())),
        ),
      );
      detailRow.hidden = !detailRow.hidden;
      button.setAttribute("aria-expanded", String(!detailRow.hidden));
    });
  }
  return body;
}
