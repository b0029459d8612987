// Line charts in SVG: bands, a legend that toggles, a readout under the pointer or the arrow keys.

const AT_FIRST = 8; // series shown before the reader asks for more
let charts = 0;

// the place of the value nearest to `wanted`
function nearest(values, wanted) {
  let best = -1,
    distance = Infinity;
  for (let place = 0; place < values.length; place++) {
    const apart = isNumber(values[place]) ? Math.abs(values[place] - wanted) : Infinity;
    if (apart < distance) [best, distance] = [place, apart];
  }
  return best;
}

// options: title, note, series [{name, x, y, low, high, colour, dash}], xLabel, yLabel, logX, logY, y (a range), height,
// shares (y lies between 0 and 1), wholeX (steps and ranks)
function chart(options) {
  const series = options.series.map((one) => ({
    ...one,
    x: flat(one.x).values,
    y: flat(one.y).values,
    low: one.low ? flat(one.low).values : null,
    high: one.high ? flat(one.high).values : null,
  }));
  const hidden = new Set(series.length > AT_FIRST ? series.slice(AT_FIRST).map((one) => one.name) : []);
  const name = `chart-${++charts}`;
  const svg = drawn("svg", {role: "img", tabindex: 0, "aria-labelledby": name, "aria-roledescription": "chart"});
  const readout = element("div", {class: "readout", hidden: true, role: "status"});
  const plot = element("div", {class: "plot"}, svg, readout);
  const legend = element("div", {class: "legend"});
  const caption = element(
    "figcaption",
    {id: name},
    element("strong", {}, named(options.title)),
    options.note ? [" ", element("span", {class: "soft"}, options.note)] : null,
  );
  const figure = element("figure", {class: "chart"}, caption, plot, legend);
  const height = options.height ?? 250;
  let frame = null,
    cursor = null,
    wide = 0;
  const visible = () => series.filter((one) => !hidden.has(one.name));

  function draw() {
    if (wide < 40) return;
    const on = visible();
    const logX = options.logX,
      logY = options.logY;
    const x = extent(
      (function* () {
        for (const one of on) yield* one.x;
      })(),
      logX,
    );
    const values = (function* () {
      if (options.zero) yield 0;
      for (const one of on) {
        yield* one.y;
        if (one.low) {
          yield* one.low;
          yield* one.high;
        }
      }
    })();
    const y = options.y ?? (options.shares ? sharesRange(values, 0.04) : widened(extent(values, logY), 0.04, logY));
    const {xLabel, yLabel, wholeX} = options;
    frame = {...axes(svg, wide, height, {x, y, xLabel, yLabel, logX, logY, wholeX}), x, logX};
    const {across, up} = frame;
    const safe = logX ? (value) => (value > 0 ? across(value) : NaN) : across;
    const safeUp = logY ? (value) => (value > 0 ? up(value) : NaN) : up;
    for (const one of on)
      if (one.low && one.high) {
        for (const path of bandPaths(one, safe, safeUp))
          svg.append(drawn("path", {class: `band c${one.colour}`, d: path}));
      }
    for (const one of on) {
      const {path, alone} = linePath(one.x, one.y, safe, safeUp);
      svg.append(drawn("path", {class: `line c${one.colour}`, d: path, "stroke-dasharray": one.dash || null}));
      for (const [h, v] of alone) svg.append(drawn("circle", {class: `dot c${one.colour}`, cx: h, cy: v, r: 3}));
    }
    cursor = drawn("g", {class: "cursor"});
    svg.append(cursor);
  }

  function hide() {
    readout.hidden = true;
    cursor?.replaceChildren();
  }

  // what every line says at `x`; where there are many, those nearest to the pointer's height
  function read(x, height) {
    const found = [];
    for (const one of visible()) {
      const place = nearest(one.x, x);
      if (place >= 0 && isNumber(one.y[place])) found.push({one, place, v: frame.up(one.y[place])});
    }
    if (!found.length) return hide();
    const at =
      found[
        nearest(
          found.map(({one, place}) => one.x[place]),
          x,
        )
      ];
    const where = frame.across(at.one.x[at.place]);
    found.sort((a, b) => (isNumber(height) ? Math.abs(a.v - height) - Math.abs(b.v - height) : a.v - b.v));
    const kept = found.slice(0, AT_FIRST).sort((a, b) => a.v - b.v);
    cursor.replaceChildren(
      drawn("line", {x1: where, x2: where, y1: frame.box.top, y2: frame.box.bottom}),
      ...kept.map(({one, place, v}) =>
        drawn("circle", {class: `dot c${one.colour}`, cx: frame.across(one.x[place]), cy: v, r: 3.5}),
      ),
    );
    readout.replaceChildren(
      element("div", {class: "at"}, `${options.xLabel ?? "x"} ${rounded(at.one.x[at.place])}`),
      element(
        "table",
        {},
        kept.map(({one, place}) =>
          element(
            "tr",
            {},
            element("td", {}, swatch(one)),
            element("td", {}, named(one.name)),
            element("td", {class: "number"}, rounded(one.y[place])),
            element(
              "td",
              {class: "number soft"},
              one.low && isNumber(one.low[place]) ? `${rounded(one.low[place])} to ${rounded(one.high[place])}` : "",
            ),
          ),
        ),
      ),
      found.length > kept.length ? element("div", {class: "soft"}, `and ${found.length - kept.length} more`) : "",
    );
    readout.hidden = false;
    // beside the line where there is room, else below the figure: what is read stays in sight
    const room = readout.offsetWidth + 14;
    const after = where + room < wide,
      before = where - room > 0;
    const middle = Math.max(0, Math.min(where - room / 2, wide - room));
    readout.style.left = `${after ? where + 12 : before ? where - room : middle}px`;
    readout.style.top = `${after || before ? frame.box.top : height}px`;
  }

  function inverse(h) {
    const share = (h - frame.box.left) / (frame.box.right - frame.box.left);
    const [low, high] = frame.x;
    return frame.logX ? low * (high / low) ** share : low + share * (high - low);
  }

  let keyed = null;
  svg.addEventListener("pointermove", (event) => {
    if (!frame) return;
    const box = svg.getBoundingClientRect();
    keyed = inverse(Math.min(Math.max(event.clientX - box.left, frame.box.left), frame.box.right));
    read(keyed, event.clientY - box.top);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step || !frame) return;
    event.preventDefault();
    const places = [...new Set(visible().flatMap((one) => Array.from(one.x)))].filter(isNumber).sort((a, b) => a - b);
    const now = keyed === null ? (step > 0 ? -1 : places.length) : nearest(places, keyed);
    keyed = places[Math.min(Math.max(now + step, 0), places.length - 1)];
    if (isNumber(keyed)) read(keyed, null);
  });

  function legends() {
    legend.replaceChildren(
      ...series.map((one) =>
        element(
          "button",
          {
            type: "button",
            class: "key",
            "aria-pressed": hidden.has(one.name) ? "false" : "true",
            onclick: (event) => {
              if (!hidden.delete(one.name)) hidden.add(one.name);
              event.currentTarget.setAttribute("aria-pressed", hidden.has(one.name) ? "false" : "true");
              draw();
            },
          },
          swatch(one),
          named(one.name),
        ),
      ),
    );
    if (series.length > AT_FIRST) {
      const every = (on) => () => {
        for (const one of series)
          if (on) hidden.delete(one.name);
          else hidden.add(one.name);
        legends();
        draw();
      };
      legend.append(
        element("button", {type: "button", class: "quiet", onclick: every(true)}, "all"),
        element("button", {type: "button", class: "quiet", onclick: every(false)}, "none"),
      );
    }
  }
  legends();
  new ResizeObserver(([{contentRect}]) => {
    const width = Math.floor(contentRect.width);
    if (width !== wide) {
      wide = width;
      draw();
    }
  }).observe(plot);
  return figure;
}

function swatch({colour: kind, dash}) {
  return drawn(
    "svg",
    {class: "swatch", width: 24, height: 10, viewBox: "0 0 24 10", "aria-hidden": "true"},
    drawn("path", {class: `line c${kind}`, d: "M1 5H23", "stroke-dasharray": dash || null}),
  );
}
