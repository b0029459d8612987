// The best and the worst queries with what they find, and the pairs of classes that are taken for each other.

function className(space, label) {
  return typeof label === "number" ? String(space.classes?.[label] ?? `class ${label}`) : String(label ?? "");
}

function queryRow(space, one) {
  const name = className(space, one.query.label);
  return element(
    "li",
    {class: "hunt"},
    element(
      "div",
      {class: "asked"},
      tile({thumbnail: one.query.thumbnail, name, text: one.query.text, mark: "query", size: 64}),
      element(
        "div",
        {class: "what"},
        named(name, {class: "class"}),
        one.query.text && one.query.text !== name ? named(one.query.text, {class: "soft text"}) : null,
        element("span", {class: "soft number"}, `average precision ${rounded(one.value)}`),
      ),
    ),
    element(
      "div",
      {class: "tiles"},
      one.neighbors.map((other) =>
        tile({
          thumbnail: other.thumbnail,
          name: className(space, other.label),
          text: [other.text, isNumber(other.score) ? rounded(other.score) : ""].filter(Boolean).join(", "),
          mark: other.right === true ? "right" : other.right === false ? "wrong" : "unknown",
          size: 48,
        }),
      ),
    ),
  );
}

// where many queries are as good or as bad as the last one shown, which of them are shown means little
function tied(queries, alike) {
  const value = queries.at(-1).value;
  const among = queries.filter((one) => one.value === value).length;
  if (!isNumber(alike) || alike <= among) return "";
  return (
    ` ${plural(alike, "query", "queries")} share the average precision ${rounded(value)}, and ${among} of them are ` +
    "shown: of equals those with more kin, then those that come first in the data."
  );
}

function queryGroup(title, sentence, space, queries, alike) {
  if (!queries?.length) return null;
  return [
    element("h3", {}, title),
    element("p", {class: "soft"}, sentence + tied(queries, alike)),
    element(
      "ul",
      {class: "queries"},
      queries.map((one) => queryRow(space, one)),
    ),
  ];
}

function confusedPairs(space, mark) {
  const pairs = space.confused ?? [];
  if (!pairs.length)
    return [
      element("h3", {}, "Most confused classes"),
      absent("No item's nearest neighbour belongs to another class, or it was not counted."),
    ];
  const most = Math.max(...pairs.map((pair) => pair.count), 1);
  return [
    element("h3", {}, "Most confused classes"),
    element(
      "p",
      {class: "soft"},
      "Queries of either class whose nearest neighbour belongs to the other, and their share of both classes. " +
        "Choose a pair to see both on the map.",
    ),
    element(
      "ul",
      {class: "pairs"},
      pairs.map((pair) => {
        const names = [className(space, pair.first), className(space, pair.second)];
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
              named(names[0]),
              element("span", {class: "soft"}, " and "),
              named(names[1]),
            ),
            element(
              "span",
              {class: "number"},
              plural(pair.count, "query", "queries"),
              element("span", {class: "soft"}, `, ${shown(100 * pair.share, 0)} % of both`),
            ),
            element("span", {class: "bar", "aria-hidden": "true"}, bar),
          ),
        );
      }),
    ),
  ];
}

function queriesOf(space, mark) {
  const parts = [
    queryGroup(
      "Worst queries",
      "By average precision over as many places as the query has kin, one query of a class; their neighbours in order.",
      space,
      space.worst,
      space.alike?.worst,
    ),
    queryGroup("Best queries", "The other end of the same list.", space, space.best, space.alike?.best),
  ];
  return [
    parts.some(Boolean) ? [frames(), ...parts] : absent("The queries of this space were not ranked."),
    confusedPairs(space, mark),
  ];
}
