// The map of an embedding space: a canvas to zoom and pan, with the images and the neighbors of items.

const PANEL_ITEMS = 36; // of a class

function createMap(space) {
  const labels = decodeArray(space.labels).values;
  const at = {x: decodeArray(space.map.x).values, y: decodeArray(space.map.y).values};
  const count = at.x.length;
  const thumbnails = space.thumbnails ? decodeArray(space.thumbnails).values : null;
  const nearest = {
    items: decodeArray(space.neighbors),
    labels: decodeArray(space.neighbor_labels),
    scores: decodeArray(space.neighbor_scores),
    thumbnails: space.neighbor_thumbnails ? decodeArray(space.neighbor_thumbnails) : null,
  };
  const hasNeighbors = nearest.labels.values.length > 0;
  const isCorrect = (item) => nearest.labels.values[item * nearest.labels.width] === labels[item];
  const hasImages = thumbnails !== null && Boolean(content.thumbnails?.sheets?.length);
  const state = {marked: [], selected: null, hovered: null, by: hasNeighbors ? "neighbor" : "class", pictures: false};

  const canvas = element("canvas", {
    tabindex: 0,
    role: "application",
    "aria-label":
      `map of ${space.name}: arrow keys move it, plus and minus zoom, zero shows all, escape clears; ` +
      "find classes by the search box",
  });
  const tip = element("div", {class: "readout", hidden: true});
  const legend = element("p", {class: "soft key"});
  const panel = element("aside", {class: "panel", "aria-live": "polite", "aria-label": "the chosen item or class"});
  const view = createMapView(canvas, at, count, () => draw());
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

  function describeItem(item) {
    return {item, label: labels[item], name: getClassName(space, labels[item]), thumbnail: thumbnails?.[item] ?? -1};
  }

  function neighborsOf(item) {
    const scores = getRow(nearest.scores, item),
      pictures = nearest.thumbnails ? getRow(nearest.thumbnails, item) : null;
    const nearestLabels = getRow(nearest.labels, item);
    return getRow(nearest.items, item).map((other, rank) => {
      const label = nearestLabels[rank] ?? (other < 0 ? -1 - other : labels[other]);
      return {
        item: other >= 0 && other < count ? other : null,
        label,
        name: getClassName(space, label),
        score: scores[rank],
        thumbnail: pictures?.[rank] ?? thumbnails?.[other] ?? -1,
        mark: label === labels[item] ? "right" : "wrong",
      };
    });
  }

  function draw() {
    key();
    paintMap(canvas, view, {
      count,
      labels,
      isCorrect,
      hasNeighbors,
      state,
      thumbnails,
      neighbors: state.selected === null ? [] : neighborsOf(state.selected),
    });
  }

  const many = space.classes.length;
  const shared = many > LOOKS ? `; ${many} classes share ${LOOKS} combinations` : "";
  // what the colors mean now
  function key() {
    const spot = (kind) => element("span", {class: `spot ${kind}`, "aria-hidden": "true"});
    const pieces =
      state.selected !== null
        ? [
            spot("first"),
            "the class of the chosen item; solid lines lead to neighbors of its class, dashed lines to others",
          ]
        : state.marked.length
          ? state.marked.flatMap((label, rank) => [
              spot(rank ? "second" : "first"),
              createName(getClassName(space, label)),
              " ",
            ])
          : state.by === "neighbor"
            ? [spot("first"), "nearest neighbor of its class ", spot("second"), "nearest neighbor of another class"]
            : [`color and shape by class${shared}`];
    const text = pieces.map((piece) => piece.textContent ?? piece).join("");
    if (legend.textContent !== text) legend.replaceChildren(...pieces);
  }

  function hover(item, h, v) {
    if (item !== state.hovered) {
      state.hovered = item;
      canvas.style.cursor = item === null ? "" : "pointer";
      tip.hidden = item === null;
      if (item !== null) {
        const one = describeItem(item);
        tip.replaceChildren(
          hasPicture(one.thumbnail) ? createPicture(one.thumbnail, 96, one.name) : "",
          createName(one.name, {class: "class"}),
        );
      }
      draw();
    }
    if (item === null) return;
    tip.style.left = `${h + 14 + tip.offsetWidth < view.width ? h + 14 : Math.max(0, h - 14 - tip.offsetWidth)}px`;
    tip.style.top = `${Math.min(Math.max(0, v - 20), Math.max(0, view.height - tip.offsetHeight - 4))}px`;
  }

  function select(item) {
    const one = describeItem(item);
    state.selected = item;
    state.marked = [one.label];
    const others = neighborsOf(item);
    const correct = others.filter((other) => other.mark === "right").length;
    panel.replaceChildren(
      element(
        "div",
        {class: "asked"},
        createTile({...one, mark: "query", size: 80}),
        element(
          "div",
          {class: "what"},
          createName(one.name, {class: "class"}),
          element(
            "span",
            {class: "soft"},
            others.length
              ? `of this class: ${correct} of its ${formatCount(others.length, "nearest neighbor")}`
              : "its neighbors were not stored",
          ),
        ),
      ),
      others.length ? createFrameLegend() : "",
      element(
        "div",
        {class: "tiles"},
        others.map((other) =>
          createTile({
            ...other,
            text: formatRounded(other.score),
            size: 56,
            below: [hasPicture(other.thumbnail) ? createName(other.name) : null, formatRounded(other.score)].filter(Boolean),
            press:
              other.item === null
                ? null
                : () => {
                    view.reveal([other.item]);
                    select(other.item);
                  },
          }),
        ),
      ),
      others.some((other) => other.item === null)
        ? element("p", {class: "soft"}, "Neighbors that are not on the map cannot be chosen.")
        : "",
      createClearButton(),
    );
    draw();
  }

  // by class names; of two, the first is blue and the second orange
  function mark(names) {
    const chosen = names.map((name) => space.classes.indexOf(name)).filter((label) => label >= 0);
    state.selected = null;
    state.marked = chosen;
    const members = chosen.map((label) => listItems(label));
    const most = Math.ceil(PANEL_ITEMS / chosen.length);
    view.reveal(members.flat());
    panel.replaceChildren(
      ...chosen.flatMap((label, rank) => [
        element(
          "p",
          {},
          element("span", {class: `spot ${rank ? "second" : "first"}`, "aria-hidden": "true"}),
          createName(getClassName(space, label), {class: "class"}),
          " ",
          element("span", {class: "soft"}, `${formatCount(members[rank].length, "item")} on the map`),
        ),
        element(
          "div",
          {class: "tiles"},
          members[rank]
            .slice(0, most)
            .map((item) => createTile({...describeItem(item), mark: "unknown", size: 44, press: () => select(item)})),
        ),
        members[rank].length > most ? element("p", {class: "soft"}, `and ${members[rank].length - most} more`) : "",
      ]),
      chosen.length < names.length ? createRemark("A class of this pair has no item on the map.") : "",
      createClearButton(),
    );
    draw();
  }

  function listItems(label) {
    const all = [];
    for (let item = 0; item < count; item++) if (labels[item] === label) all.push(item);
    return all;
  }

  function clear() {
    state.selected = null;
    state.marked = [];
    panel.replaceChildren(
      createRemark(
        hasImages
          ? "Point at an item to see its image and class; click it to see its neighbors."
          : "Point at an item to see its class; click it to see its neighbors. " +
              "There are no images, so labels are shown instead.",
      ),
    );
    draw();
  }

  function createClearButton() {
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

  view.listen({hover, select: (item) => (item === null ? clear() : select(item)), clear});
  window.addEventListener("theme", () => canvas.isConnected && draw());
  const sizes = new Map();
  for (const label of labels) sizes.set(label, (sizes.get(label) ?? 0) + 1);
  const tools = element(
    "div",
    {class: "tools"},
    createClassSearch(
      space.classes.map((name, label) => ({name: String(name), size: sizes.get(label) ?? 0})),
      (name) => mark([name]),
    ),
  );
  if (hasNeighbors)
    tools.append(
      createChoice(
        "color",
        [
          ["neighbor", "correct nearest neighbor"],
          ["class", "class"],
        ],
        state.by,
        (by) => {
          state.by = by;
          draw();
        },
      ).label,
    );
  if (hasImages) {
    const box = element("input", {type: "checkbox"});
    box.addEventListener("change", async () => {
      state.pictures = box.checked;
      if (box.checked) state.sheet = await loadSprites(thumbnails);
      draw();
    });
    tools.append(element("label", {class: "choice check"}, box, element("span", {}, "images")));
  }
  clear();
  return {element: element("div", {}, tools, element("div", {class: "map"}, stage, panel), legend), mark};
}

async function loadSprites(thumbnails) {
  const all = new Map();
  await Promise.all(
    Array.from(new Set(thumbnails))
      .filter(hasPicture)
      .map(async (index) => all.set(index, await loadSprite(index))),
  );
  return all;
}
