// Axes and scales of the charts, and the paths between them. An axis is described as in kinfold/report/charts.py.

function computeTicks(low, high, count, integer) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const sizes = [1, 2, 2.5, 5, 10].map((factor) => factor * power).filter((size) => !integer || Number.isInteger(size));
  const step = sizes.find((size) => size >= rough * 0.999) ?? 1;
  const ticks = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index++) ticks.push(index * step);
  return ticks;
}

function computeLogTicks(low, high, count, integer) {
  const decades = Math.log10(high / low);
  const factors = decades > 2 ? [1] : [1, 2, 5];
  const every = Math.max(1, Math.ceil(decades / Math.max(count, 1)));
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    if (decades > 2 && power % every) continue;
    ticks.push(...factors.map((factor) => factor * 10 ** power));
  }
  return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001 && (!integer || Number.isInteger(tick)));
}

function formatTick(value, all) {
  if (value === 0) return "0";
  const size = Math.max(...all.map(Math.abs));
  if (size >= 1e5 || size < 1e-3) {
    const [digits, power] = value.toExponential(1).split("e");
    return `${digits.replace(/\.0$/, "").replace("-", "−")}e${power.replace("+", "").replace("-", "−")}`;
  }
  return String(Number(value.toPrecision(6))).replace("-", "−");
}

// a function from values to pixels; NaN for what a log axis cannot show
function createScale([low, high], from, to, log) {
  if (log) {
    const span = Math.log(high / low) || 1;
    return (value) => (value > 0 ? from + (Math.log(value / low) / span) * (to - from) : NaN);
  }
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

function computeExtent(values, log) {
  let low = Infinity,
    high = -Infinity;
  for (const value of values) {
    if (!isNumber(value) || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (low === high)
    return log ? [low / 2, high * 2] : [low - (Math.abs(low) * 0.1 || 0.5), high + (Math.abs(high) * 0.1 || 0.5)];
  return [low, high];
}

function widenRange([low, high], by, log) {
  if (log) return [low / (high / low) ** by, high * (high / low) ** by];
  return [low - (high - low) * by, high + (high - low) * by];
}

// the range of an axis: around its values, and no further than its limits unless a value is beyond them
function computeRange(values, axis, by) {
  const log = axis.scale === "log";
  const numbers = [...values].filter(isNumber);
  if (axis.include_zero) numbers.push(0);
  const [low, high] = widenRange(computeExtent(numbers, log), by, log);
  if (!axis.limits) return [low, high];
  const [least, most] = axis.limits;
  return [
    numbers.some((value) => value < least - 1e-6) ? low : Math.max(least, low),
    numbers.some((value) => value > most + 1e-6) ? high : Math.min(most, high),
  ];
}

function labelAxis(axis) {
  return axis.scale === "log" && axis.label ? `${axis.label}, log scale` : axis.label;
}

// Draws the axes of a chart into an SVG; returns the box of the plot and the scales.
function drawAxes(svg, width, height, chart, ranges) {
  // the title says it already where both are the same
  const yLabel = chart.y.label === chart.title ? "" : labelAxis(chart.y);
  const xLabel = labelAxis(chart.x);
  const [logX, logY] = [chart.x.scale === "log", chart.y.scale === "log"];
  const yTicks = logY ? computeLogTicks(...ranges.y, 5) : computeTicks(...ranges.y, Math.max(2, Math.round(height / 55)));
  const longest = Math.max(...yTicks.map((tick) => formatTick(tick, yTicks).length), 1);
  const box = {left: 14 + longest * 6.6, right: width - 12, top: yLabel ? 24 : 10, bottom: height - (xLabel ? 38 : 22)};
  const xCount = Math.round(width / 90);
  const xTicks = logX
    ? computeLogTicks(...ranges.x, xCount, chart.x.integer)
    : computeTicks(...ranges.x, Math.max(2, xCount), chart.x.integer);
  const across = createScale(ranges.x, box.left, box.right, logX);
  const up = createScale(ranges.y, box.bottom, box.top, logY);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  for (const tick of yTicks) {
    const v = up(tick);
    svg.append(svgElement("line", {class: tick === 0 ? "zero" : "rule", x1: box.left, x2: box.right, y1: v, y2: v}));
    svg.append(
      svgElement("text", {class: "tick", x: box.left - 7, y: v + 4, "text-anchor": "end"}, formatTick(tick, yTicks)),
    );
  }
  svg.append(svgElement("line", {class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom}));
  for (const tick of xTicks) {
    const h = across(tick);
    const anchor = h > box.right - 14 ? "end" : "middle";
    const x = anchor === "end" ? box.right + 8 : h;
    svg.append(svgElement("line", {class: "axis", x1: h, x2: h, y1: box.bottom, y2: box.bottom + 4}));
    svg.append(
      svgElement("text", {class: "tick", x, y: box.bottom + 17, "text-anchor": anchor}, formatTick(tick, xTicks)),
    );
  }
  if (yLabel) svg.append(svgElement("text", {class: "label", x: 4, y: 12}, yLabel));
  if (xLabel)
    svg.append(svgElement("text", {class: "label", x: box.right, y: height - 4, "text-anchor": "end"}, xLabel));
  return {box, across, up};
}

// a path with gaps, and the points between two gaps, which have no line
function buildLinePath(xs, ys, across, up) {
  let path = "",
    drawing = false;
  const single = [];
  for (let index = 0; index < xs.length; index++) {
    const defined = isNumber(ys[index]) && isNumber(xs[index]);
    const h = defined ? across(xs[index]) : NaN,
      v = defined ? up(ys[index]) : NaN;
    if (!isNumber(h) || !isNumber(v)) {
      drawing = false;
      continue;
    }
    path += `${drawing ? "L" : "M"}${h.toFixed(1)} ${v.toFixed(1)}`;
    if (!drawing && !isNumber(ys[index + 1])) single.push([h, v]);
    drawing = true;
  }
  return {path, single};
}

function buildBandPaths({x, low, high}, across, up) {
  const paths = [];
  let upper = [],
    lower = [];
  const close = () => {
    if (upper.length > 1) paths.push(`M${upper.join("L")}L${lower.reverse().join("L")}Z`);
    upper = [];
    lower = [];
  };
  for (let index = 0; index < x.length; index++) {
    const ends = [low[index], high[index]];
    if (!ends.every(isNumber) || !ends.map(up).every(isNumber)) {
      close();
      continue;
    }
    const h = across(x[index]).toFixed(1);
    lower.push(`${h} ${up(ends[0]).toFixed(1)}`);
    upper.push(`${h} ${up(ends[1]).toFixed(1)}`);
  }
  close();
  return paths;
}
