// Draws charts in SVG from their descriptions (kinfold/report/charts.py): lines with bands, and histograms. A legend
// toggles series; the pointer or the arrow keys read values out.

const MAX_VISIBLE = 8; // series shown at first, and series in a readout

// the index of the value nearest to a target
function findNearest(values, target) {
  let best = -1,
    distance = Infinity;
  for (let index = 0; index < values.length; index++) {
    const difference = isNumber(values[index]) ? Math.abs(values[index] - target) : Infinity;
    if (difference < distance) [best, distance] = [index, difference];
  }
  return best;
}

// bins as a line with steps: each value from one edge to the next
function expandBins(edges, values) {
  const x = [],
    y = [];
  for (let bin = 0; bin < values.length; bin++) {
    x.push(edges[bin], edges[bin + 1]);
    y.push(values[bin], values[bin]);
  }
  return {x, y};
}

function decodeSeries(series, kind) {
  const [x, y] = [decodeArray(series.x).values, decodeArray(series.y).values];
  return {
    name: series.name,
    ...getStyle(series.style),
    ...(kind === "histogram" ? expandBins(x, y) : {x, y}),
    low: series.low ? decodeArray(series.low).values : null,
    high: series.high ? decodeArray(series.high).values : null,
  };
}

function createChart(chart, height = 250) {
  if (chart.kind === "scatter") return createScatter(chart);
  const all = chart.series.map((series) => decodeSeries(series, chart.kind));
  const hidden = new Set(all.slice(MAX_VISIBLE).map((series) => series.name));
  const getVisible = () => all.filter((series) => !hidden.has(series.name));
  const readout = element("div", {class: "readout", hidden: true, role: "status"});
  const legend = element("div", {class: "legend"});
  let frame = null,
    cursor = null;
  const {svg, figure} = createFigure(chart, (_, width) => draw(width), {readout, legend, focusable: true});

  function draw(width) {
    const visible = getVisible();
    const ranges = {
      x: computeExtent(
        visible.flatMap((series) => Array.from(series.x)),
        chart.x.scale === "log",
      ),
      y: computeRange(
        visible.flatMap(({y, low, high}) => [...y, ...(low ?? []), ...(high ?? [])]),
        chart.y,
        0.04,
      ),
    };
    frame = {...drawAxes(svg, width, height, chart, ranges), range: ranges.x, width};
    const {across, up} = frame;
    for (const series of visible)
      if (series.low && series.high)
        for (const path of buildBandPaths(series, across, up))
          svg.append(svgElement("path", {class: `band c${series.color}`, d: path}));
    for (const {x, y, color, dash} of visible) {
      const {path, single} = buildLinePath(x, y, across, up);
      svg.append(svgElement("path", {class: `line c${color}`, d: path, "stroke-dasharray": dash || null}));
      for (const [h, v] of single) svg.append(svgElement("circle", {class: `dot c${color}`, cx: h, cy: v, r: 3}));
    }
    cursor = svgElement("g", {class: "cursor"});
    svg.append(cursor);
  }

  function hideReadout() {
    readout.hidden = true;
    cursor?.replaceChildren();
  }

  // the value of every series at `x`; of many series, those nearest to the height of the pointer
  function showReadout(x, pointerHeight) {
    const points = [];
    for (const series of getVisible()) {
      const index = findNearest(series.x, x);
      if (index >= 0 && isNumber(series.y[index]))
        points.push({series, index, x: series.x[index], v: frame.up(series.y[index])});
    }
    if (!points.length) return hideReadout();
    const nearest = points[
      findNearest(
        points.map((point) => point.x),
        x,
      )
    ].x;
    const h = frame.across(nearest);
    const distance = (point) => (isNumber(pointerHeight) ? Math.abs(point.v - pointerHeight) : point.v);
    points.sort((a, b) => distance(a) - distance(b));
    const shown = points.slice(0, MAX_VISIBLE).sort((a, b) => a.v - b.v);
    cursor.replaceChildren(
      svgElement("line", {x1: h, x2: h, y1: frame.box.top, y2: frame.box.bottom}),
      ...shown.map((point) =>
        svgElement("circle", {class: `dot c${point.series.color}`, cx: frame.across(point.x), cy: point.v, r: 3.5}),
      ),
    );
    readout.replaceChildren(
      element("div", {class: "at"}, `${chart.x.label || "x"} ${formatRounded(nearest)}`),
      element("table", {}, shown.map(createReadoutRow)),
      points.length > shown.length ? element("div", {class: "soft"}, `and ${points.length - shown.length} more`) : "",
    );
    readout.hidden = false;
    // beside the line if there is space, else below the chart
    const space = readout.offsetWidth + 14;
    const fitsRight = h + space < frame.width,
      fitsLeft = h - space > 0;
    const middle = Math.max(0, Math.min(h - space / 2, frame.width - space));
    readout.style.left = `${fitsRight ? h + 12 : fitsLeft ? h - space : middle}px`;
    readout.style.top = `${fitsRight || fitsLeft ? frame.box.top : height}px`;
  }

  function createReadoutRow({series, index}) {
    const {low, high, y} = series;
    const band = low && isNumber(low[index]) ? `${formatRounded(low[index])} to ${formatRounded(high[index])}` : "";
    return element(
      "tr",
      {},
      element("td", {}, createSwatch(series)),
      element("td", {}, createName(series.name)),
      element("td", {class: "number"}, formatRounded(y[index])),
      element("td", {class: "number soft"}, band),
    );
  }

  function toValue(h) {
    const share = (h - frame.box.left) / (frame.box.right - frame.box.left);
    const [low, high] = frame.range;
    return chart.x.scale === "log" ? low * (high / low) ** share : low + share * (high - low);
  }

  let current = null; // the x that is read out
  svg.addEventListener("pointermove", (event) => {
    if (!frame) return;
    const box = svg.getBoundingClientRect();
    current = toValue(Math.min(Math.max(event.clientX - box.left, frame.box.left), frame.box.right));
    showReadout(current, event.clientY - box.top);
  });
  svg.addEventListener("pointerleave", hideReadout);
  svg.addEventListener("blur", hideReadout);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hideReadout();
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step || !frame) return;
    event.preventDefault();
    const values = [...new Set(getVisible().flatMap((series) => Array.from(series.x)))]
      .filter(isNumber)
      .sort((a, b) => a - b);
    const index = current === null ? (step > 0 ? -1 : values.length) : findNearest(values, current);
    current = values[Math.min(Math.max(index + step, 0), values.length - 1)];
    if (isNumber(current)) showReadout(current, null);
  });

  function redraw() {
    if (frame) draw(frame.width);
  }

  function createKey(series) {
    const button = element(
      "button",
      {type: "button", class: "key", "aria-pressed": String(!hidden.has(series.name))},
      createSwatch(series),
      createName(series.name),
    );
    button.addEventListener("click", () => {
      if (!hidden.delete(series.name)) hidden.add(series.name);
      button.setAttribute("aria-pressed", String(!hidden.has(series.name)));
      redraw();
    });
    return button;
  }

  function fillLegend() {
    legend.replaceChildren(...all.map(createKey));
    if (all.length <= MAX_VISIBLE) return;
    const toggleAll = (visible) => () => {
      for (const {name} of all)
        if (visible) hidden.delete(name);
        else hidden.add(name);
      fillLegend();
      redraw();
    };
    legend.append(
      element("button", {type: "button", class: "quiet", onclick: toggleAll(true)}, "all"),
      element("button", {type: "button", class: "quiet", onclick: toggleAll(false)}, "none"),
    );
  }
  fillLegend();
  return figure;
}

function createSwatch({color, dash}) {
  return svgElement(
    "svg",
    {class: "swatch", width: 24, height: 10, viewBox: "0 0 24 10", "aria-hidden": "true"},
    svgElement("path", {class: `line c${color}`, d: "M1 5H23", "stroke-dasharray": dash || null}),
  );
}
