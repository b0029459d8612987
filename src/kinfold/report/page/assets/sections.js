// The sections that consist of charts: training, calibration, curves, spectra and diagnostics, pair weights.

function getCharts(section) {
  return (content.charts?.[section] ?? []).filter((chart) => chart.series?.length);
}

function createCharts(charts, height, size = "") {
  return element(
    "div",
    {class: `figures ${size}`.trim()},
    charts.map((chart) => createChart(chart, height)),
  );
}

function createTrainingSection() {
  const charts = getCharts("training");
  if (!charts.length) return [createRemark("No training curves were recorded in this folder.")];
  const gaps = "A gap in a line is a value that is missing or was not a number.";
  const hasBands = charts.some((chart) =>
    chart.series.some(({low}) => low && Array.from(decodeArray(low).values).some(isNumber)),
  );
  return [
    element(
      "p",
      {class: "lead"},
      hasBands
        ? `Mean over the seeds; the band reaches from the smallest to the largest of them. ${gaps}`
        : `One seed for each method, so there are no bands. ${gaps}`,
    ),
    createCharts(charts),
  ];
}

function createAdaptationSection() {
  return content.adaptations.map(({name, verdict, header, rows}) => [
    element("h3", {}, createName(name)),
    element("p", {class: "lead"}, createName(verdict)),
    createTable({
      caption: "steps of the adaptation, in percent on held-out training classes",
      rows,
      columns: header.map((title, index) => ({
        title,
        numeric: index > 1,
        value: (row) => row[index],
        cell: (row) => row[index],
      })),
    }),
  ]);
}

function createAuditSection() {
  const columns = [
    {title: "finding", value: (row) => row.kind, cell: (row) => createName(row.kind)},
    ...["found", "dropped"].map((key) => ({
      title: {found: "items", dropped: "marked"}[key],
      numeric: true,
      downFirst: true,
      value: (row) => row[key],
      cell: (row) => formatNumber(row[key], 0),
    })),
  ];
  return content.audits.map(({file, methods, rows}) => [
    element(
      "p",
      {class: "lead"},
      "What `kinfold data audit` found, from ",
      createName(file),
      ...(methods.length
        ? [". Items are left out of the training of ", createName(methods.join(", ")), "."]
        : [". Nothing was left out of the training."]),
    ),
    createTable({caption: "findings of the audit", rows, columns}),
  ]);
}

function createCalibrationSection() {
  const calibrations = content.calibrations ?? [];
  if (!calibrations.length)
    return [
      createRemark("No run was calibrated. `kinfold calibrate RUN --far 1e-2` chooses a threshold for classes never seen."),
    ];
  return [
    element(
      "p",
      {class: "lead"},
      "Thresholds for classes never seen. ROC and DET are those of the calibration classes; a dot marks the chosen threshold.",
    ),
    calibrations.map(createCalibration),
    createCharts(getCharts("calibration")),
  ];
}

function createCalibration({name, classes, sentences, identification}) {
  return [
    element("h3", {}, createName(name), element("span", {class: "soft"}, ` · ${classes}`)),
    element(
      "ul",
      {class: "sentences"},
      sentences.map((sentence) => element("li", {}, sentence)),
    ),
    createTable({
      caption: "estimated thresholds of identification, by the size of the gallery",
      rows: identification,
      columns: [
        {title: "classes in the gallery", numeric: true, value: (row) => row.classes, cell: (row) => formatNumber(row.classes, 0)},
        {title: "threshold", numeric: true, value: (row) => row.threshold, cell: (row) => formatNumber(row.threshold, 4)},
        {title: "", numeric: true, value: (row) => row.extrapolated, cell: (row) => (row.extrapolated ? "extrapolated" : "")},
      ],
    }),
  ];
}

// charts of a section that belong to one embedding space; those of the same data show all its spaces
function getSpaceCharts(section, number) {
  return getCharts(section).filter((chart) => chart.spaces?.includes(number));
}

function createCurves(number) {
  const charts = getSpaceCharts("curves", number);
  if (!charts.length)
    return [
      createRemark("No curves were computed for this embedding space: they need classes with at least two items each."),
    ];
  const hasHistogram = charts.some((chart) => chart.kind === "histogram");
  const several = charts.some((chart) => chart.spaces.length > 1);
  return [
    several
      ? element(
          "p",
          {class: "lead"},
          "Embedding spaces of the same data are shown in one chart; the histogram is of the chosen one.",
        )
      : null,
    createCharts(charts),
    hasHistogram ? null : createRemark("There is no histogram of similarities for this embedding space."),
  ];
}

function createSpectra(number) {
  const charts = getSpaceCharts("spectra", number);
  const {data, split} = content.spaces[number];
  const spaces = content.spaces.filter((other) => other.data === data && other.split === split);
  return [
    charts.length ? createCharts(charts) : createRemark("The spectra of this embedding space were not computed."),
    createDiagnosticsTable(spaces),
  ];
}

function createDiagnosticsTable(spaces) {
  const keys = [...new Set(spaces.flatMap((space) => Object.keys(space.diagnostics ?? {})))];
  if (!keys.length) return null;
  return createTable({
    caption: "diagnostics of the embedding spaces",
    rows: spaces.filter((space) => space.diagnostics),
    columns: [
      {title: "embedding space", value: (space) => space.name, cell: (space) => createName(space.name)},
      ...keys.map((key) => ({
        title: key,
        numeric: true,
        downFirst: true,
        value: (space) => space.diagnostics[key] ?? null,
        cell: (space) => formatRounded(space.diagnostics[key]),
      })),
    ],
  });
}

function createDiagnostics() {
  const charts = getCharts("diagnostics");
  const heading = element("h3", {}, "Diagnostics and retrieval");
  if (!charts.length)
    return [
      heading,
      createRemark("No diagnostics over methods: they need runs with diagnostics of the training classes and a test result."),
    ];
  const container = element("div", {});
  const show = (index) => container.replaceChildren(createChart(charts[Number(index)]));
  show(0);
  const options = charts.map((chart, index) => [String(index), chart.x.label]);
  return [heading, createChoice("diagnostic", options, "0", show).label, container];
}

function createWeightsSection() {
  const charts = getCharts("weights");
  if (!charts.length)
    return [createRemark("Pair weights were not computed: they need a pair-based loss, a model and a batch of the data.")];
  return [
    element(
      "p",
      {class: "lead"},
      "The derivative of the loss with respect to the similarity of a pair, dL/dS, averaged over the pairs of one " +
        "batch. Below zero a pair is pulled together, above zero it is pushed apart; at zero the loss ignores it.",
    ),
    createCharts(charts, 200, "small"),
  ];
}
