// The map of a space: a canvas to zoom and pan, what an item looks like, what it finds, and where a class lies.

const SOME = 36; // items of a class that the panel shows

function mapOf(space) {
  const labels = flat(space.labels).values;
  const at = {x: flat(space.map.x).values, y: flat(space.map.y).values};
  const count = at.x.length;
  const thumbnails = space.thumbnails ? flat(space.thumbnails).values : null;
  const found = {
    places: flat(space.neighbors),
    labels: flat(space.neighbor_labels),
    scores: flat(space.neighbor_scores),
    thumbnails: space.neighbor_thumbnails ? flat(space.neighbor_thumbnails) : null,
  };
  const known = found.labels.values.length > 0;
  const right = (place) => found.labels.values[place * found.labels.width] === labels[place];
  const pictured = thumbnails !== null && Boolean(content.thumbnails?.sheets?.length);
  const state = {marked: [], selected: null, hovered: null, by: known ? "neighbor" : "class", pictures: false};

  const canvas = element("canvas", {
    tabindex: 0,
    role: "application",
    "aria-label":
      `map of ${space.name}: arrow keys move it, plus and minus zoom, zero shows all, escape clears; ` +
      "find classes by the search box",
  });
  const tip = element("div", {class: "readout", hidden: true});
  const legend = element("p", {class: "soft key"});
  const panel = element("aside", {class: "panel", "aria-live": "polite", "aria-label": "what was chosen on the map"});
  const view = mapView(canvas, at, count, () => draw());
  const stage = element(
    "div",
    {class: "stage"},
    canvas,
    tip,
    element(
      "div",
      {class: "zoom"},
      [
        ["+", "nearer", () => view.zoom(1.6)],
        ["−", "farther", () => view.zoom(1 / 1.6)],
        ["all", "show all", view.reset],
      ].map(([sign, meaning, act]) =>
        element("button", {type: "button", title: meaning, "aria-label": meaning, onclick: act}, sign),
      ),
    ),
  );

  function item(place) {
    return {place, label: labels[place], name: className(space, labels[place]), thumbnail: thumbnails?.[place] ?? -1};
  }

  function neighborsOf(place) {
    const scores = row(found.scores, place),
      pictures = found.thumbnails ? row(found.thumbnails, place) : null;
    const theirs = row(found.labels, place);
    return row(found.places, place).map((other, rank) => {
      const label = theirs[rank] ?? (other < 0 ? -1 - other : labels[other]);
      return {
        place: other >= 0 && other < count ? other : null,
        label,
        name: className(space, label),
        score: scores[rank],
        thumbnail: pictures?.[rank] ?? thumbnails?.[other] ?? -1,
        mark: label === labels[place] ? "right" : "wrong",
      };
    });
  }

  function draw() {
    key();
    paintMap(canvas, view, {
      count,
      labels,
      right,
      known,
      state,
      thumbnails,
      neighbors: state.selected === null ? [] : neighborsOf(state.selected),
    });
  }

  const many = space.classes.length;
  const shared = many > LOOKS ? `; ${many} classes share ${LOOKS} looks` : "";
  // what the colours mean now
  function key() {
    const spot = (kind) => element("span", {class: `spot ${kind}`, "aria-hidden": "true"});
    const pieces =
      state.selected !== null
        ? [
            spot("first"),
            "the class of the chosen item; lines lead to its neighbours, solid to right ones, dashed to wrong ones",
          ]
        : state.marked.length
          ? state.marked.flatMap((label, rank) => [
              spot(rank ? "second" : "first"),
              named(className(space, label)),
              " ",
            ])
          : state.by === "neighbor"
            ? [spot("first"), "nearest neighbour of its class ", spot("second"), "nearest neighbour of another class"]
            : [`colour and shape by class${shared}`];
    const words = pieces.map((piece) => piece.textContent ?? piece).join("");
    if (legend.textContent !== words) legend.replaceChildren(...pieces);
  }

  function hover(place, h, v) {
    if (place !== state.hovered) {
      state.hovered = place;
      canvas.style.cursor = place === null ? "" : "pointer";
      tip.hidden = place === null;
      if (place !== null) {
        const one = item(place);
        tip.replaceChildren(
          hasPicture(one.thumbnail) ? picture(one.thumbnail, 96, one.name) : "",
          named(one.name, {class: "class"}),
        );
      }
      draw();
    }
    if (place === null) return;
    tip.style.left = `${h + 14 + tip.offsetWidth < view.width ? h + 14 : Math.max(0, h - 14 - tip.offsetWidth)}px`;
    tip.style.top = `${Math.min(Math.max(0, v - 20), Math.max(0, view.height - tip.offsetHeight - 4))}px`;
  }

  function select(place) {
    const one = item(place);
    state.selected = place;
    state.marked = [one.label];
    const others = neighborsOf(place);
    const correct = others.filter((other) => other.mark === "right").length;
    panel.replaceChildren(
      element(
        "div",
        {class: "asked"},
        tile({...one, mark: "query", size: 80}),
        element(
          "div",
          {class: "what"},
          named(one.name, {class: "class"}),
          element(
            "span",
            {class: "soft"},
            others.length
              ? `of this class: ${correct} of its ${plural(others.length, "nearest neighbour")}`
              : "its neighbours were not kept",
          ),
        ),
      ),
      others.length ? frames() : "",
      element(
        "div",
        {class: "tiles"},
        others.map((other) =>
          tile({
            ...other,
            text: rounded(other.score),
            size: 56,
            below: [hasPicture(other.thumbnail) ? named(other.name) : null, rounded(other.score)].filter(Boolean),
            press:
              other.place === null
                ? null
                : () => {
                    view.reveal([other.place]);
                    select(other.place);
                  },
          }),
        ),
      ),
      others.some((other) => other.place === null)
        ? element("p", {class: "soft"}, "Neighbours that are not on the map cannot be chosen.")
        : "",
      clearButton(),
    );
    draw();
  }

  // by class names; of two, the first is blue and the second orange
  function mark(names) {
    const wanted = names.map((name) => space.classes.indexOf(name)).filter((label) => label >= 0);
    state.selected = null;
    state.marked = wanted;
    const members = wanted.map((label) => places(label));
    const most = Math.ceil(SOME / wanted.length);
    view.reveal(members.flat());
    panel.replaceChildren(
      ...wanted.flatMap((label, rank) => [
        element(
          "p",
          {},
          element("span", {class: `spot ${rank ? "second" : "first"}`, "aria-hidden": "true"}),
          named(className(space, label), {class: "class"}),
          " ",
          element("span", {class: "soft"}, `${plural(members[rank].length, "item")} on the map`),
        ),
        element(
          "div",
          {class: "tiles"},
          members[rank]
            .slice(0, most)
            .map((place) => tile({...item(place), mark: "unknown", size: 44, press: () => select(place)})),
        ),
        members[rank].length > most ? element("p", {class: "soft"}, `and ${members[rank].length - most} more`) : "",
      ]),
      wanted.length < names.length ? absent("A class of this pair has no item among those shown on the map.") : "",
      clearButton(),
    );
    draw();
  }

  function places(label) {
    const all = [];
    for (let place = 0; place < count; place++) if (labels[place] === label) all.push(place);
    return all;
  }

  function clear() {
    state.selected = null;
    state.marked = [];
    panel.replaceChildren(
      absent(
        pictured
          ? "Point at an item to see its picture and class; choose it to see what it finds."
          : "Point at an item to see its class; choose it to see what it finds. " +
              "There are no pictures, so labels stand in their place.",
      ),
    );
    draw();
  }

  function clearButton() {
    return element(
      "button",
      {
        type: "button",
        class: "quiet",
        onclick: () => {
          clear();
          canvas.focus();
        },
      },
      "clear",
    );
  }

  view.listen({hover, select: (place) => (place === null ? clear() : select(place)), clear});
  window.addEventListener("theme", () => canvas.isConnected && draw());
  const sizes = new Map();
  for (const label of labels) sizes.set(label, (sizes.get(label) ?? 0) + 1);
  const tools = element(
    "div",
    {class: "tools"},
    classSearch(
      space.classes.map((name, label) => ({name: String(name), size: sizes.get(label) ?? 0})),
      (name) => mark([name]),
    ),
  );
  if (known)
    tools.append(
      choice(
        "colour",
        [
          ["neighbor", "nearest neighbour right or wrong"],
          ["class", "class"],
        ],
        state.by,
        (by) => {
          state.by = by;
          draw();
        },
      ).label,
    );
  if (pictured) {
    const box = element("input", {type: "checkbox"});
    box.addEventListener("change", async () => {
      state.pictures = box.checked;
      if (box.checked) state.sheet = await sheetsFor(thumbnails);
      draw();
    });
    tools.append(element("label", {class: "choice check"}, box, element("span", {}, "pictures")));
  }
  clear();
  return {element: element("div", {}, tools, element("div", {class: "map"}, stage, panel), legend), mark};
}

async function sheetsFor(thumbnails) {
  const all = new Map();
  await Promise.all(
    Array.from(new Set(thumbnails))
      .filter(hasPicture)
      .map(async (index) => all.set(index, await spriteOf(index))),
  );
  return all;
}
