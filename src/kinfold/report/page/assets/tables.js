// Tables that sort by any column, and whose rows open.

// columns: [{title, numeric, downFirst, sorted (rows come in its order), value(row) -> number | string | null, cell(row) -> children}]
// details(row) -> element or null: what a row opens to
function sortable({caption, columns, rows, details}) {
  const heads = columns.map((column) => {
    const arrow = element("span", {class: "arrow", "aria-hidden": "true"});
    // beside numbers it stands before the title, so that titles and numbers end at one line
    const button = element(
      "button",
      {type: "button", class: "sort"},
      column.numeric ? [arrow, column.title] : [column.title, arrow],
    );
    const order = column.sorted ? (column.downFirst ? "descending" : "ascending") : null;
    const options = {scope: "col", class: column.numeric ? "number" : null, "aria-sort": order};
    return {column, button, th: element("th", options, button)};
  });
  const bodies = rows.map((one) => ({one, body: rowBody(one, columns, details)}));
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
      bodies.sort((a, b) => compared(column.value(a.one), column.value(b.one), down));
      table.append(...bodies.map(({body}) => body));
    });
  return element("div", {class: "across", tabindex: 0, role: "region", "aria-label": caption}, table);
}

// what is missing comes last, whichever way the column is sorted
function compared(a, b, down) {
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

function rowBody(one, columns, details) {
  const cells = columns.map((column, place) =>
    element(
      place ? "td" : "th",
      {scope: place ? null : "row", class: column.numeric ? "number" : null},
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
    let opened = null;
    button.addEventListener("click", () => {
      // made at the first opening: a bench has many rows and long configurations
      opened ??= body.appendChild(
        element(
          "tr",
          {class: "more", hidden: true},
          element("td", {colspan: columns.length}, element("div", {class: "inside"}, more())),
        ),
      );
      opened.hidden = !opened.hidden;
      button.setAttribute("aria-expanded", String(!opened.hidden));
    });
  }
  return body;
}
