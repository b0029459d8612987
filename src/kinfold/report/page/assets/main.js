// The page from top to bottom. Every section says what is missing where it has nothing to show.

function header() {
  const about = content.about ?? {};
  const facts = [
    ["data", (about.data ?? []).join(", ")],
    ["protocol", about.protocol],
    ["seeds", (about.seeds ?? []).join(", ")],
    ["folder", about.folder],
    ["kinfold", about.kinfold],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
  const kind = {bench: "Bench report", run: "Run report"}[content.kind] ?? "Report";
  // inflation has a notice of its own
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
      element("h1", {}, named(content.title ?? "report")),
      element(
        "p",
        {class: "lead"},
        "Results with their intervals, the training behind them, and the space itself to look at. " +
          "All of it is inside this file; nothing is loaded from elsewhere.",
      ),
      element(
        "dl",
        {class: "facts"},
        facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, named(value)))),
      ),
      content.inflated
        ? element(
            "div",
            {class: "notice strong", role: "note"},
            element("strong", {}, "Inflated numbers. "),
            "The steps were chosen by looking at the test classes: expect honest numbers to be lower, " +
              "and do not compare these with them.",
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
              missing.map((sentence) => element("li", {}, named(sentence))),
            ),
          )
        : null,
    ].filter(Boolean),
  );
}

function resultsSection() {
  const tables = (content.tables ?? []).filter((table) => table.rows?.length);
  if (!tables.length) return [absent("There are no results yet: no run of this folder has been evaluated.")];
  return [
    element(
      "p",
      {class: "lead"},
      "Sort by any heading. A method opens to the command and the configuration that give its row again.",
    ),
    tables.map(resultsTable),
  ];
}

// One choice of a space for all sections that show one.
function spaceSections(places) {
  const spaces = content.spaces ?? [];
  if (!spaces.length) {
    const why = "No space is shown: a space needs a trained run whose test items can be embedded.";
    for (const place of [places.map, places.queries, places.curves]) place.append(absent(why));
    places.spectra.append(absent("There are no spectra without a space."));
    return;
  }
  const selects = [];
  const bodies = {};
  for (const [name, place] of Object.entries(places)) {
    if (spaces.length > 1) {
      const {label, select} = choice(
        "space",
        spaces.map((space, at) => [String(at), [space.name, space.data].filter(Boolean).join(" · ")]),
        "0",
        (at) => show(Number(at)),
      );
      selects.push(select);
      place.append(label);
    }
    bodies[name] = place.appendChild(element("div", {}));
  }
  function show(at) {
    const space = spaces[at];
    for (const select of selects) select.value = String(at);
    let marked = null;
    fill(bodies.map, () => {
      if (!space.map || !flat(space.map.x).values.length) return [absent("This space has no map.")];
      const map = mapOf(space);
      marked = map.mark;
      return [caption(space), map.element];
    });
    fill(bodies.queries, () =>
      queriesOf(space, (names) => {
        if (!marked) return;
        marked(names);
        document.getElementById("map").scrollIntoView({block: "start"});
      }),
    );
    fill(bodies.curves, () => curvesOf(space));
    fill(bodies.spectra, () => spectraOf(space));
  }
  show(0);
}

function caption(space) {
  const whole = space.count ?? space.shown,
    part = space.shown ?? whole;
  const amount = isNumber(part)
    ? part < whole
      ? `${part.toLocaleString("en")} of ${plural(whole, "item")}`
      : plural(whole, "item")
    : "items";
  return element(
    "p",
    {class: "lead"},
    named(space.name),
    `: ${amount}${space.split ? ` of the ${space.split} split` : ""}, laid out by t-SNE. ` +
      `Neighbours are exact, by ${space.distance ?? "the run's"} distance over the whole split; ` +
      "on the map only nearness means something, not size or the gaps between groups.",
  );
}

// a section that cannot be drawn says so and leaves the others alone
function fill(place, make) {
  try {
    place.replaceChildren(
      ...make()
        .flat(Infinity)
        .filter((part) => part !== null && part !== undefined),
    );
  } catch (wrong) {
    place.replaceChildren(element("p", {class: "notice"}, `This section could not be drawn: ${wrong.message}`));
    console.error(wrong);
  }
}

function section(id, title) {
  const body = element("div", {class: "body"});
  document
    .getElementById("main")
    .append(
      element("section", {id, "aria-labelledby": `${id}-title`}, element("h2", {id: `${id}-title`}, title), body),
    );
  document.getElementById("contents").append(element("a", {href: `#${id}`}, title));
  return body;
}

header();
fill(section("results", "Results"), resultsSection);
fill(section("training", "Training"), trainingSection);
const places = {
  map: section("map", "Map"),
  queries: section("queries", "Queries"),
  curves: section("curves", "Curves"),
  spectra: section("spectra", "Spectra"),
};
spaceSections(places);
fill(places.spectra.appendChild(element("div", {})), diagnosticsScatter);
fill(section("weights", "Pair weights"), weightsSection);
document
  .getElementById("foot")
  .append(`Made by kinfold ${content.about?.kinfold ?? ""}`.trim(), ". One file, no server, no network.");
document.documentElement.dataset.ready = "yes";
