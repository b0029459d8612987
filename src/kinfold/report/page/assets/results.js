// Results: means with intervals, published values, commands to rerun a row, comparisons of methods.

function resultsTable(table) {
  const notes = []; // one number for each sentence, in the order of the rows as they came
  const counts = new Set();
  for (const {cells, reference} of table.rows)
    for (const column of table.columns) {
      const cell = cells[column.key];
      if (cell?.note && !notes.includes(cell.note)) notes.push(cell.note);
      if (isNumber(cell?.mean) && !reference) counts.add(cell.count);
    }
  const quotedAny = table.rows.some((one) => one.quoted);
  const columns = [
    {
      title: "method",
      value: (one) => one.method,
      cell: (one) => [
        named(one.method, {class: "method"}),
        one.quoted ? element("span", {class: "soft source"}, "quoted from ", named(one.quoted)) : null,
      ],
    },
  ];
  for (const column of table.columns) {
    const cells = table.rows.map((one) => one.cells[column.key]).filter((cell) => isNumber(cell?.mean));
    const ends = extent(cells.flatMap(({mean, half_width: half}) => [mean, mean - (half ?? 0), mean + (half ?? 0)]));
    columns.push({
      title: column.title,
      numeric: true,
      downFirst: !column.smaller_is_better,
      sorted: column.key === table.sorted,
      value: (one) => one.cells[column.key]?.mean ?? null,
      cell: (one) => resultCell(one.cells[column.key], column, {notes, ends, counts, whiskers: cells.length > 1}),
    });
    if (table.gains?.includes(column.key) && table.rows.some((one) => isNumber(one.cells[column.key]?.start)))
      columns.push(...startAndGain(column));
    if (table.rows.some((one) => published(one.cells[column.key]) !== null)) {
      columns.push({
        title: "published",
        numeric: true,
        downFirst: !column.smaller_is_better,
        value: (one) => published(one.cells[column.key]),
        cell: (one) => {
          const value = published(one.cells[column.key]);
          const text = typeof value === "number" ? shown(value, column.decimals ?? 1) : (value ?? "");
          // with the digits of the paper, where they are known
          return element("span", {class: "published"}, one.cells[column.key]?.printed ?? text);
        },
      });
    }
  }
  const said = [];
  if (counts.size === 1) {
    const [count] = counts;
    said.push(count > 1 ? `means over ${count} repeats` : "one repeat each: no interval can be given");
  } else if (counts.size > 1) said.push("means over repeats; n: how many are behind the number");
  if (quotedAny) said.push("in italics: quoted from others, not run here");
  return element(
    "div",
    {class: "results"},
    table.caption ? element("h3", {}, named(table.caption)) : null,
    sortable({caption: table.caption || "results", columns, rows: table.rows, details: rerun}),
    element(
      "div",
      {class: "notes"},
      [...said, ...(table.notes ?? [])].map((note) => element("p", {}, named(note))),
      notes.map((note, place) => element("p", {}, element("sup", {}, place + 1), " ", named(note))),
    ),
    comparisons(table),
  );
}

// the score before the first step, and what training added to it
function startAndGain({key, factor = 1, decimals = 1, smaller_is_better: smaller}) {
  const about = (title, value, cell) => ({title, numeric: true, downFirst: !smaller, value, cell});
  return [
    about(
      "start",
      (one) => one.cells[key]?.start ?? null,
      (one) => (isNumber(one.cells[key]?.start) ? shown(one.cells[key].start * factor, decimals) : ""),
    ),
    about(
      factor === 100 ? "gain, percentage points" : "gain",
      (one) => one.cells[key]?.gain ?? null,
      (one) => {
        const {gain, gain_half_width: half} = one.cells[key] ?? {};
        if (!isNumber(gain)) return "";
        const wide = isNumber(half) ? ` ± ${shown(half * factor, decimals)}` : "";
        return `${gain > 0 ? "+" : ""}${shown(gain * factor, decimals)}${wide}`;
      },
    ),
  ];
}

// in the unit that is shown, as printed; a text such as "unreadable" stays one
function published(cell) {
  const value = cell?.published;
  return typeof value === "string" || isNumber(value) ? value : null;
}

function resultCell(cell, column, {notes, ends, counts, whiskers}) {
  const mark = cell?.note ? element("sup", {}, notes.indexOf(cell.note) + 1) : null;
  if (!isNumber(cell?.mean)) return ["–", mark];
  const factor = column.factor ?? 1,
    decimals = column.decimals ?? 1;
  const half = isNumber(cell.half_width)
    ? element("span", {class: "half"}, ` ± ${shown(cell.half_width * factor, decimals)}`)
    : null;
  return [
    element(
      "span",
      {class: cell.bold ? "best" : null},
      element(cell.bold ? "strong" : "span", {}, shown(cell.mean * factor, decimals)),
      half,
    ),
    mark,
    counts.size > 1 ? element("span", {class: "soft count"}, `n = ${cell.count}`) : null,
    whiskers ? whisker(cell, ends) : null,
  ];
}

// mean and interval on the scale of the column: what overlaps is seen at once
function whisker({mean, half_width: half}, ends) {
  const across = scale(ends, 3, 77, false);
  const svg = drawn("svg", {class: "whisker", width: 80, height: 7, viewBox: "0 0 80 7", "aria-hidden": "true"});
  svg.append(drawn("line", {class: "rule", x1: 0, x2: 80, y1: 3.5, y2: 3.5}));
  if (half)
    svg.append(drawn("line", {class: "reach", x1: across(mean - half), x2: across(mean + half), y1: 3.5, y2: 3.5}));
  svg.append(drawn("circle", {class: "mean", cx: across(mean), cy: 3.5, r: 2.6}));
  return svg;
}

function rerun(one) {
  const blocks = [
    ["command", one.command],
    ["configuration", one.configuration],
  ].filter(([, text]) => text);
  if (!blocks.length) return null;
  return () =>
    blocks.map(([name, text]) =>
      element(
        "div",
        {class: "code"},
        element("div", {class: "bar"}, element("span", {class: "soft"}, name), copyButton(text)),
        element("pre", {tabindex: 0, dir: "ltr"}, text),
      ),
    );
}

function comparisons(table) {
  const rows = table.comparisons ?? [];
  if (!rows.length) return null;
  const described = (one) => table.columns.find((column) => column.key === one.column) ?? table.columns[0] ?? {};
  const several = new Set(rows.map((one) => one.column)).size > 1;
  const plain = (title, key) => ({title, value: (one) => one[key], cell: (one) => named(one[key])});
  const small = (title, key) => ({
    title,
    numeric: true,
    value: (one) => one[key],
    cell: (one) => probability(one[key]),
  });
  const by = rows[0].column && !several ? ` by ${described(rows[0]).title ?? rows[0].column}` : "";
  const apart = rows.filter((one) => one.told_apart).length;
  return element(
    "details",
    {class: "comparisons"},
    element("summary", {}, `Comparisons of methods${by}: ${apart} of ${plural(rows.length, "pair")} told apart`),
    sortable({
      caption: "comparisons of methods",
      rows,
      columns: [
        several
          ? {title: "metric", value: (one) => one.column, cell: (one) => described(one).title ?? String(one.column)}
          : null,
        plain("first", "first"),
        plain("second", "second"),
        {
          title: several || described(rows[0]).factor !== 100 ? "first less second" : "first less second, percentage points",
          numeric: true,
          downFirst: true,
          value: (one) => one.difference,
          cell: (one) => {
            const {factor = 1, decimals = 1} = described(one);
            const half = isNumber(one.half_width) ? ` ± ${shown(one.half_width * factor, decimals + 1)}` : "";
            return isNumber(one.difference) ? `${shown(one.difference * factor, decimals + 1)}${half}` : "–";
          },
        },
        small("p", "p"),
        small("p, corrected", "adjusted"),
        {
          title: "told apart",
          value: (one) => (one.told_apart ? 0 : 1),
          cell: (one) => (one.told_apart ? element("strong", {}, "yes") : "no"),
        },
      ].filter(Boolean),
    }),
    element(
      "p",
      {class: "soft"},
      "The differences are of paired repeats, with uncorrected intervals and p; " +
        "the corrected p counts all pairs that were compared.",
    ),
  );
}

function probability(value) {
  if (!isNumber(value)) return "–";
  return value < 0.0005 ? "< 0.001" : shown(value, 3);
}
