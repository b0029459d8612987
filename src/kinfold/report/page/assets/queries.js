// The best and the worst queries with their neighbors, and the pairs of classes that are confused most often.

function getClassName(space, label) {
  return typeof label === "number" ? String(space.classes?.[label] ?? `class ${label}`) : String(label ?? "");
}

function createQueryRow(space, one) {
  const name = getClassName(space, one.query.label);
  return element(
    "li",
    {class: "hunt"},
    element(
      "div",
      {class: "asked"},
      createTile({thumbnail: one.query.thumbnail, name, text: one.query.text, mark: "query", size: 64}),
      element(
        "div",
        {class: "what"},
        createName(name, {class: "class"}),
        one.query.text && one.query.text !== name ? createName(one.query.text, {class: "soft text"}) : null,
        element("span", {class: "soft number"}, `average precision ${formatRounded(one.value)}`),
      ),
    ),
    element(
      "div",
      {class: "tiles"},
      one.neighbors.map((other) =>
        createTile({
          thumbnail: other.thumbnail,
          name: getClassName(space, other.label),
          text: [other.text, isNumber(other.score) ? formatRounded(other.score) : ""].filter(Boolean).join(", "),
          mark: other.right === true ? "right" : other.right === false ? "wrong" : "unknown",
          size: 48,
        }),
      ),
    ),
  );
}

// says how many queries have the same value as the last one shown
function describeTies(queries, ties) {
  const value = queries.at(-1).value;
  const among = queries.filter((one) => one.value === value).length;
  if (!isNumber(ties) || ties <= among) return "";
  return (
    ` ${formatCount(ties, "query", "queries")} share the average precision ${formatRounded(value)}, and ${among} of them are ` +
    "shown: those with more positives first, then those that come first in the data."
  );
}

function createQueryGroup(title, sentence, space, queries, ties) {
  if (!queries?.length) return null;
  return [
    element("h3", {}, title),
    element("p", {class: "soft"}, sentence + describeTies(queries, ties)),
    element(
      "ul",
      {class: "queries"},
      queries.map((one) => createQueryRow(space, one)),
    ),
  ];
}

function createConfusedPairs(space, mark) {
  const pairs = space.confused ?? [];
  if (!pairs.length)
    return [
      element("h3", {}, "Most confused classes"),
      createRemark("Every nearest neighbor is of the same class, or this was not measured."),
    ];
  const most = Math.max(...pairs.map((pair) => pair.count), 1);
  return [
    element("h3", {}, "Most confused classes"),
    element(
      "p",
      {class: "soft"},
      "Queries of either class whose nearest neighbor belongs to the other, and their share of both classes. " +
        "Choose a pair to see both on the map.",
    ),
    element(
      "ul",
      {class: "pairs"},
      pairs.map((pair) => {
        const names = [getClassName(space, pair.first), getClassName(space, pair.second)];
        const bar = element("span", {class: "fill"});
        bar.style.width = `${(100 * pair.count) / most}%`;
        return element(
          "li",
          {},
          element(
            "button",
            {type: "button", class: "pair", onclick: () => mark(names)},
            element(
              "span",
              {class: "names"},
              createName(names[0]),
              element("span", {class: "soft"}, " and "),
              createName(names[1]),
            ),
            element(
              "span",
              {class: "number"},
              formatCount(pair.count, "query", "queries"),
              element("span", {class: "soft"}, `, ${formatNumber(100 * pair.share, 0)} % of both`),
            ),
            element("span", {class: "bar", "aria-hidden": "true"}, bar),
          ),
        );
      }),
    ),
  ];
}

function createQueries(space, mark) {
  const parts = [
    createQueryGroup(
      "Worst queries",
      "By average precision at R, the number of positives of a query; one query of each class, with its neighbors in order.",
      space,
      space.worst,
      space.ties?.worst,
    ),
    createQueryGroup("Best queries", "The other end of the same ranking.", space, space.best, space.ties?.best),
  ];
  return [
    parts.some(Boolean) ? [createFrameLegend(), ...parts] : createRemark("The queries of this embedding space were not ranked."),
    createConfusedPairs(space, mark),
  ];
}
