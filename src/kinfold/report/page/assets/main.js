// The page from top to bottom. Every section says what is missing if it has nothing to show.

function addHeader() {
  const about = content.about ?? {};
  const facts = [
    ["data", (about.data ?? []).join(", ")],
    ["protocol", about.protocol],
    ["seeds", (about.seeds ?? []).join(", ")],
    ["folder", about.folder],
    ["kinfold", about.kinfold],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
  const kind = {bench: "Benchmark report", run: "Run report"}[content.kind] ?? "Report";
  // inflated numbers have their own notice
  const missing = (content.missing ?? []).filter(
    (sentence) => !(content.inflated && String(sentence).startsWith("inflated:")),
  );
  document.getElementById("head").append(
    ...[
      element(
        "div",
        {class: "top"},
        element("p", {class: "kicker"}, `kinfold · ${kind}`),
        element("button", {type: "button", class: "quiet theme", onclick: () => window.switchTheme()}, "light / dark"),
      ),
      element("h1", {}, createName(content.title ?? "report")),
      element(
        "p",
        {class: "lead"},
        "Results with confidence intervals, training curves, and the embedding space to explore. " +
          "Everything is inside this file; nothing is loaded from elsewhere.",
      ),
      element(
        "dl",
        {class: "facts"},
        facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, createName(value)))),
      ),
      content.inflated
        ? element(
            "div",
            {class: "notice strong", role: "note"},
            element("strong", {}, "Inflated numbers. "),
            "The steps were selected on the test classes. Numbers without this selection are lower; " +
              "do not compare these with them.",
          )
        : null,
      missing.length
        ? element(
            "div",
            {class: "notice", role: "note"},
            element("strong", {}, "What to know about this page"),
            element(
              "ul",
              {},
              missing.map((sentence) => element("li", {}, createName(sentence))),
            ),
          )
        : null,
    ].filter(Boolean),
  );
}

function createResultsSection() {
  const tables = (content.tables ?? []).filter((table) => table.rows?.length);
  if (!tables.length) return [createRemark("There are no results yet: no run of this folder has been evaluated.")];
  return [
    element(
      "p",
      {class: "lead"},
      "Sort by any heading. Open a method to see the command and the configuration that reproduce its row.",
    ),
    tables.map(createResultsTable),
  ];
}

// One choice of an embedding space for all sections that show one.
function fillSpaceSections(containers) {
  const spaces = content.spaces ?? [];
  if (!spaces.length) {
    const reason = "No embedding space is shown: it needs a trained run whose test items can be embedded.";
    for (const container of [containers.map, containers.queries, containers.curves])
      container.append(createRemark(reason));
    containers.spectra.append(createRemark("There are no spectra without an embedding space."));
    return;
  }
  const selects = [];
  const bodies = {};
  for (const [name, container] of Object.entries(containers)) {
    if (spaces.length > 1) {
      const {label, select} = createChoice(
        "embedding space",
        spaces.map((space, number) => [String(number), [space.name, space.data].filter(Boolean).join(" · ")]),
        "0",
        (number) => show(Number(number)),
      );
      selects.push(select);
      container.append(label);
    }
    bodies[name] = container.appendChild(element("div", {}));
  }
  function show(number) {
    const space = spaces[number];
    for (const select of selects) select.value = String(number);
    let markClasses = null;
    fill(bodies.map, () => {
      if (!space.map || !decodeArray(space.map.x).values.length)
        return [createRemark("This embedding space has no map.")];
      const map = createMap(space);
      markClasses = map.mark;
      return [describeSpace(space), map.element];
    });
    fill(bodies.queries, () =>
      createQueries(space, (names) => {
        if (!markClasses) return;
        markClasses(names);
        document.getElementById("map").scrollIntoView({block: "start"});
      }),
    );
    fill(bodies.curves, () => createCurves(number));
    fill(bodies.spectra, () => createSpectra(number));
  }
  show(0);
}

function describeSpace(space) {
  const total = space.count ?? space.shown,
    part = space.shown ?? total;
  const amount = isNumber(part)
    ? part < total
      ? `${part.toLocaleString("en")} of ${formatCount(total, "item")}`
      : formatCount(total, "item")
    : "items";
  return element(
    "p",
    {class: "lead"},
    createName(space.name),
    `: ${amount}${space.split ? ` of the ${space.split} split` : ""}, laid out by t-SNE. ` +
      `Neighbors are exact, by ${space.distance ?? "the run's"} distance over the whole split. ` +
      "On the map only small distances have a meaning, not the size of groups or the gaps between them.",
  );
}

addHeader();
fill(addSection("results", "Results"), createResultsSection);
if (content.adaptations?.length) fill(addSection("adaptation", "Adaptation"), createAdaptationSection);
if (content.audits?.length) fill(addSection("audit", "Audit"), createAuditSection);
fill(addSection("training", "Training"), createTrainingSection);
const containers = {
  map: addSection("map", "Map"),
  queries: addSection("queries", "Queries"),
  curves: addSection("curves", "Curves"),
  spectra: addSection("spectra", "Spectra"),
};
fillSpaceSections(containers);
fill(containers.spectra.appendChild(element("div", {})), createDiagnostics);
fill(addSection("calibration", "Calibration"), createCalibrationSection);
fill(addSection("weights", "Pair weights"), createWeightsSection);
document
  .getElementById("foot")
  .append(`Written by kinfold ${content.about?.kinfold ?? ""}`.trim(), ". One file, no server, no network.");
document.documentElement.dataset.ready = "yes";
