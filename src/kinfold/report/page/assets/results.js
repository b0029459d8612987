// Results: means with intervals, published values, commands that rerun a row, comparisons of methods.

function createResultsTable(table) {
  const notes = []; // footnotes, in the order of the rows
  const counts = new Set();
  for (const {cells, reference} of table.rows)
    for (const column of table.columns) {
      const cell = cells[column.key];
      if (cell?.note && !notes.includes(cell.note)) notes.push(cell.note);
      if (isNumber(cell?.mean) && !reference) counts.add(cell.count);
    }
  const hasQuoted = table.rows.some((one) => one.quoted);
  const columns = [
    {
      title: "method",
      value: (one) => one.method,
      cell: (one) => [
        createName(one.method, {class: "method"}),
        one.quoted ? element("span", {class: "soft source"}, "quoted from ", createName(one.quoted)) : null,
      ],
    },
  ];
  for (const column of table.columns) {
    const cells = table.rows.map((one) => one.cells[column.key]).filter((cell) => isNumber(cell?.mean));
    const ends = computeExtent(cells.flatMap(({mean, half_width: half}) => [mean, mean - (half ?? 0), mean + (half ?? 0)]));
    columns.push({
      title: column.title,
      numeric: true,
      downFirst: !column.smaller_is_better,
      sorted: column.key === table.sorted,
      value: (one) => one.cells[column.key]?.mean ?? null,
      cell: (one) => createResultCell(one.cells[column.key], column, {notes, ends, counts, whiskers: cells.length > 1}),
    });
    if (table.gains?.includes(column.key) && table.rows.some((one) => isNumber(one.cells[column.key]?.start)))
      columns.push(...createGainColumns(column));
    if (table.rows.some((one) => getPublished(one.cells[column.key]) !== null)) {
      columns.push({
        title: "published",
        numeric: true,
        downFirst: !column.smaller_is_better,
        value: (one) => getPublished(one.cells[column.key]),
        cell: (one) => {
          const value = getPublished(one.cells[column.key]);
          const text = typeof value === "number" ? formatNumber(value, column.decimals ?? 1) : (value ?? "");
          // with the digits of the paper, if they are known
          return element("span", {class: "published"}, one.cells[column.key]?.printed ?? text);
        },
      });
    }
  }
  const remarks = [];
  if (counts.size === 1) {
    const [count] = counts;
    remarks.push(count > 1 ? `means over ${count} repeats` : "one repeat each: no intervals");
  } else if (counts.size > 1) remarks.push("means over repeats; n: number of repeats");
  if (hasQuoted) remarks.push("in italics: quoted from others, not run here");
  return element(
    "div",
    {class: "results"},
    table.caption ? element("h3", {}, createName(table.caption)) : null,
    createTable({caption: table.caption || "results", columns, rows: table.rows, details: createRerun}),
    element(
      "div",
      {class: "notes"},
      [...remarks, ...(table.notes ?? [])].map((note) => element("p", {}, createName(note))),
      notes.map((note, index) => element("p", {}, element("sup", {}, index + 1), " ", createName(note))),
    ),
    createComparisons(table),
  );
}

// the score before training, and the gain over it
function createGainColumns({key, factor = 1, decimals = 1, smaller_is_better: smaller}) {
  const about = (title, value, cell) => ({title, numeric: true, downFirst: !smaller, value, cell});
  return [
    about(
      "start",
      (one) => one.cells[key]?.start ?? null,
      (one) => (isNumber(one.cells[key]?.start) ? formatNumber(one.cells[key].start * factor, decimals) : ""),
    ),
    about(
      factor === 100 ? "gain, percentage points" : "gain",
      (one) => one.cells[key]?.gain ?? null,
      (one) => {
        const {gain, gain_half_width: half} = one.cells[key] ?? {};
        if (!isNumber(gain)) return "";
        const wide = isNumber(half) ? ` ± ${formatNumber(half * factor, decimals)}` : "";
        return `${gain > 0 ? "+" : ""}${formatNumber(gain * factor, decimals)}${wide}`;
      },
    ),
  ];
}

// in the unit of the column; a text such as "unreadable" stays a text
function getPublished(cell) {
  const value = cell?.published;
  return typeof value === "string" || isNumber(value) ? value : null;
}

function createResultCell(cell, column, {notes, ends, counts, whiskers}) {
  const mark = cell?.note ? element("sup", {}, notes.indexOf(cell.note) + 1) : null;
  if (!isNumber(cell?.mean)) return ["–", mark];
  const factor = column.factor ?? 1,
    decimals = column.decimals ?? 1;
  const half = isNumber(cell.half_width)
    ? element("span", {class: "half"}, ` ± ${formatNumber(cell.half_width * factor, decimals)}`)
    : null;
  return [
    element(
      "span",
      {class: cell.bold ? "best" : null},
      element(cell.bold ? "strong" : "span", {}, formatNumber(cell.mean * factor, decimals)),
      half,
    ),
    mark,
    counts.size > 1 ? element("span", {class: "soft count"}, `n = ${cell.count}`) : null,
    whiskers ? createWhisker(cell, ends) : null,
  ];
}

// mean and interval on the scale of the column, so that overlaps are visible
function createWhisker({mean, half_width: half}, ends) {
  const across = createScale(ends, 3, 77, false);
  const svg = svgElement("svg", {class: "whisker", width: 80, height: 7, viewBox: "0 0 80 7", "aria-hidden": "true"});
  svg.append(svgElement("line", {class: "rule", x1: 0, x2: 80, y1: 3.5, y2: 3.5}));
  if (half)
    svg.append(svgElement("line", {class: "reach", x1: across(mean - half), x2: across(mean + half), y1: 3.5, y2: 3.5}));
  svg.append(svgElement("circle", {class: "mean", cx: across(mean), cy: 3.5, r: 2.6}));
  return svg;
}

function createRerun(one) {
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
        element("div", {class: "bar"}, element("span", {class: "soft"}, name), createCopyButton(text)),
        element("pre", {tabindex: 0, dir: "ltr"}, text),
      ),
    );
}

function createComparisons(table) {
  const rows = table.comparisons ?? [];
  if (!rows.length) return null;
  const getColumn = (one) => table.columns.find((column) => column.key === one.column) ?? table.columns[0] ?? {};
  const several = new Set(rows.map((one) => one.column)).size > 1;
  const textColumn = (title, key) => ({title, value: (one) => one[key], cell: (one) => createName(one[key])});
  const probabilityColumn = (title, key) => ({
    title,
    numeric: true,
    value: (one) => one[key],
    cell: (one) => formatProbability(one[key]),
  });
  const by = rows[0].column && !several ? ` by ${getColumn(rows[0]).title ?? rows[0].column}` : "";
  const significant = rows.filter((one) => one.significant).length;
  return element(
    "details",
    {class: "comparisons"},
    element("summary", {}, `Comparisons of methods${by}: ${significant} of ${formatCount(rows.length, "pair")} ${significant === 1 ? "differs" : "differ"} significantly`),
    createTable({
      caption: "comparisons of methods",
      rows,
      columns: [
        several
          ? {title: "metric", value: (one) => one.column, cell: (one) => getColumn(one).title ?? String(one.column)}
          : null,
        textColumn("first", "first"),
        textColumn("second", "second"),
        {
          title: several || getColumn(rows[0]).factor !== 100 ? "first minus second" : "first minus second, percentage points",
          numeric: true,
          downFirst: true,
          value: (one) => one.difference,
          cell: (one) => {
            const {factor = 1, decimals = 1} = getColumn(one);
            const half = isNumber(one.half_width) ? ` ± ${formatNumber(one.half_width * factor, decimals + 1)}` : "";
            return isNumber(one.difference) ? `${formatNumber(one.difference * factor, decimals + 1)}${half}` : "–";
          },
        },
        probabilityColumn("p", "p"),
        probabilityColumn("p, corrected", "adjusted"),
        {
          title: "significant",
          value: (one) => (one.significant ? 0 : 1),
          cell: (one) => (one.significant ? element("strong", {}, "yes") : "no"),
        },
      ].filter(Boolean),
    }),
    element(
      "p",
      {class: "soft"},
      "The differences are of paired repeats. Intervals and p are not corrected; " +
        "the corrected p (Holm) counts all pairs that were compared.",
    ),
  );
}

function formatProbability(value) {
  if (!isNumber(value)) return "–";
  return value < 0.0005 ? "< 0.001" : formatNumber(value, 3);
}
