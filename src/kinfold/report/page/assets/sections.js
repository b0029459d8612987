// The figures that are lines: training, curves of retrieval and verification, histograms, spectra, pair weights.

function trainingSection() {
  const figures = (content.training ?? []).filter((one) => one.series?.length);
  if (!figures.length) return [absent("No training curves were recorded in this folder.")];
  const gaps = "A gap in a line is a value that is missing or was not a number.";
  const bands = figures.some((one) => one.series.some(({low}) => low && flat(low).values.some(isNumber)));
  return [
    element(
      "p",
      {class: "lead"},
      bands
        ? `Mean over the seeds; the band reaches from the smallest to the largest of them. ${gaps}`
        : `One seed for each method, so there are no bands. ${gaps}`,
    ),
    element(
      "div",
      {class: "figures"},
      figures.map((one) =>
        chart({
          title: one.title,
          note: one.log_y ? "log scale, because losses of different methods differ in size; zero is not on it" : null,
          xLabel: one.x ?? "step",
          logY: one.log_y,
          shares: one.share,
          wholeX: true,
          series: one.series.map((line) => ({
            ...look(line.name),
            name: line.name,
            x: line.x,
            y: line.mean,
            low: line.low,
            high: line.high,
          })),
        }),
      ),
    ),
  ];
}

// the spaces of one data set can be laid over each other
function companions(space) {
  return content.spaces.filter((other) => other.data === space.data && other.split === space.split);
}

function curvesOf(space) {
  const together = companions(space);
  const titles = new Map();
  for (const other of together)
    for (const curve of other.curves ?? []) {
      if (!titles.has(curve.title)) titles.set(curve.title, {curve, series: []});
      titles.get(curve.title).series.push({...look(other.name), name: other.name, x: curve.x, y: curve.y});
    }
  const figures = [...titles.values()].map(({curve, series}) =>
    chart({
      title: curve.title,
      series,
      xLabel: curve.x_label,
      yLabel: curve.y_label,
      logX: curve.log_x,
      shares: true,
      wholeX: curve.x_label === "k",
    }),
  );
  const histogram = histogramOf(space);
  if (histogram) figures.push(histogram);
  if (!figures.length)
    return [absent("No curves were made for this space: retrieval curves need classes with at least two items each.")];
  const several =
    together.length > 1
      ? element(
          "p",
          {class: "lead"},
          "Spaces of the same data are laid over each other; the histogram is of the chosen one.",
        )
      : null;
  return [
    several,
    element("div", {class: "figures"}, figures),
    histogram ? null : absent("There is no histogram of similarities for this space."),
  ];
}

function histogramOf(space) {
  if (!space.histogram) return null;
  const edges = flat(space.histogram.edges).values;
  const steps = (given) => {
    const shares = flat(given).values,
      x = [],
      y = [];
    for (let bin = 0; bin < shares.length; bin++) {
      x.push(edges[bin], edges[bin + 1]);
      y.push(shares[bin], shares[bin]);
    }
    return {x, y};
  };
  const measure = space.distance === "euclidean" ? "distance" : "similarity";
  return chart({
    title: measure === "distance" ? "distances" : "similarities",
    note: `of kin and of others, ${space.name}`,
    zero: true,
    shares: true,
    xLabel: space.distance ? `${space.distance} ${measure}` : measure,
    yLabel: "share of pairs",
    series: [
      {...KIN, ...steps(space.histogram.kin)},
      {...OTHERS, ...steps(space.histogram.others)},
    ],
  });
}

function spectraOf(space) {
  const together = companions(space).filter((other) => other.spectrum);
  if (!together.length) return [absent("The spectra of this space were not computed.")];
  const kinds = [
    ["whole", "whole space", "singular values"],
    ["classes", "within a class", "mean over classes"],
  ];
  const figures = kinds
    .map(([key, title, note]) => {
      const series = together
        .filter((other) => other.spectrum[key] && flat(other.spectrum[key]).values.length)
        .map((other) => {
          const y = Array.from(flat(other.spectrum[key]).values);
          return {...look(other.name), name: other.name, x: y.map((_, place) => place + 1), y};
        });
      if (!series.length) return null;
      const positive = series.flatMap((one) => one.y).filter((value) => value > 0);
      const logY = positive.length > 0 && Math.max(...positive) / Math.min(...positive) > 30;
      return chart({
        title,
        note,
        series,
        xLabel: "rank of the singular value",
        wholeX: true,
        yLabel: logY ? "value, log scale" : "value",
        logY,
      });
    })
    .filter(Boolean);
  return [
    figures.length
      ? element("div", {class: "figures"}, figures)
      : absent("The spectra of this space were not computed."),
    diagnosticsTable(together),
  ];
}

function diagnosticsTable(spaces) {
  const keys = [...new Set(spaces.flatMap((space) => Object.keys(space.diagnostics ?? {})))];
  if (!keys.length) return null;
  return sortable({
    caption: "diagnostics of the spaces",
    rows: spaces.filter((space) => space.diagnostics),
    columns: [
      {title: "space", value: (space) => space.name, cell: (space) => named(space.name)},
      ...keys.map((key) => ({
        title: key,
        numeric: true,
        downFirst: true,
        value: (space) => space.diagnostics[key] ?? null,
        cell: (space) => rounded(space.diagnostics[key]),
      })),
    ],
  });
}

function diagnosticsScatter() {
  const given = content.diagnostics;
  const columns = given?.columns ?? [];
  const goal = columns.includes("recall@1") ? "recall@1" : columns.at(-1);
  const usable = columns.filter(
    (key) =>
      key !== goal &&
      (given.points ?? []).filter(({values}) => isNumber(values[key]) && isNumber(values[goal])).length > 0,
  );
  const heading = element("h3", {}, "What goes with good retrieval");
  if (!usable.length)
    return [
      heading,
      absent("No diagnostics over methods: they need runs with both a training space and a test result."),
    ];
  const place = element("div", {});
  const show = (key) => {
    const points = given.points
      .filter(({values}) => isNumber(values[key]) && isNumber(values[goal]))
      .map(({method, values}) => ({name: String(method), x: values[key], y: values[goal]}));
    place.replaceChildren(
      scatter({
        title: `${goal} against ${key}`,
        note: points.length < 3 ? "two points or fewer show no trend" : `${points.length} methods`,
        points,
        xLabel: key,
        yLabel: goal,
        shares: goal === "recall@1",
      }),
    );
  };
  show(usable[0]);
  return [
    heading,
    choice(
      "across",
      usable.map((key) => [key, key]),
      usable[0],
      show,
    ).label,
    place,
  ];
}

function weightsSection() {
  const losses = (content.weights ?? []).filter((one) => one.similarity);
  if (!losses.length)
    return [absent("Pair weights were not computed: they need a loss of pairs, a model and a batch of the data.")];
  return [
    element(
      "p",
      {class: "lead"},
      "The slope of the loss with respect to the similarity of a pair, dL/dS, averaged over the pairs of one batch. " +
        "Below zero a pair is pulled together, above zero it is pushed apart; near zero the loss does not look.",
    ),
    element(
      "div",
      {class: "figures small"},
      losses.map((one) =>
        chart({
          title: one.name,
          height: 200,
          zero: true,
          xLabel: "similarity",
          yLabel: "dL/dS",
          series: [
            {...KIN, x: one.similarity, y: one.kin},
            {...OTHERS, x: one.similarity, y: one.others},
          ],
        }),
      ),
    ),
  ];
}
