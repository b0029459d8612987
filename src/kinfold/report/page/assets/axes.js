// Axes and scales of the figures, and the paths between them.

// whole: steps and ranks have no halves
function ticks(low, high, count, whole) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const sizes = [1, 2, 2.5, 5, 10].map((times) => times * power).filter((size) => !whole || Number.isInteger(size));
  const step = sizes.find((size) => size >= rough * 0.999) ?? 1;
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) found.push(place * step);
  return found;
}

function logTicks(low, high, count, whole) {
  const decades = Math.log10(high / low);
  const times = decades > 2 ? [1] : [1, 2, 5];
  const every = Math.max(1, Math.ceil(decades / Math.max(count, 1)));
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    if (decades > 2 && power % every) continue;
    found.push(...times.map((one) => one * 10 ** power));
  }
  return found.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001 && (!whole || Number.isInteger(tick)));
}

function tickText(value, all) {
  if (value === 0) return "0";
  const size = Math.max(...all.map(Math.abs));
  if (size >= 1e5 || size < 1e-3) {
    const [digits, power] = value.toExponential(1).split("e");
    return `${digits.replace(/\.0$/, "").replace("-", "−")}e${power.replace("+", "").replace("-", "−")}`;
  }
  return String(Number(value.toPrecision(6))).replace("-", "−");
}

function scale(range, from, to, log) {
  let [low, high] = range;
  if (log) {
    const span = Math.log(high / low) || 1;
    return (value) => from + (Math.log(value / low) / span) * (to - from);
  }
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

function extent(values, log) {
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

function widened([low, high], by, log) {
  if (log) return [low / (high / low) ** by, high * (high / low) ** by];
  return [low - (high - low) * by, high + (high - low) * by];
}

// a range for shares: it goes no further than 0 and 1, unless a value does
function sharesRange(values, by) {
  const known = [...values].filter(isNumber);
  const [low, high] = widened(extent(known), by);
  return [
    known.some((value) => value < -1e-6) ? low : Math.max(0, low),
    known.some((value) => value > 1 + 1e-6) ? high : Math.min(1, high),
  ];
}

// The frame of any figure: an SVG as wide as its place, axes, and the scales between them.
function axes(svg, width, height, {x, y, xLabel, yLabel, logX, logY, wholeX}) {
  const yTicks = logY ? logTicks(...y, 5) : ticks(...y, Math.max(2, Math.round(height / 55)));
  const longest = Math.max(...yTicks.map((tick) => tickText(tick, yTicks).length), 1);
  const box = {left: 14 + longest * 6.6, right: width - 12, top: yLabel ? 24 : 10, bottom: height - (xLabel ? 38 : 22)};
  const room = Math.round(width / 90);
  const xTicks = logX ? logTicks(...x, room, wholeX) : ticks(...x, Math.max(2, room), wholeX);
  const across = scale(x, box.left, box.right, logX);
  const up = scale(y, box.bottom, box.top, logY);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  for (const tick of yTicks) {
    const where = up(tick);
    svg.append(drawn("line", {class: tick === 0 ? "zero" : "rule", x1: box.left, x2: box.right, y1: where, y2: where}));
    svg.append(
      drawn("text", {class: "tick", x: box.left - 7, y: where + 4, "text-anchor": "end"}, tickText(tick, yTicks)),
    );
  }
  svg.append(drawn("line", {class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom}));
  for (const tick of xTicks) {
    const where = across(tick);
    const anchor = where > box.right - 14 ? "end" : "middle";
    svg.append(drawn("line", {class: "axis", x1: where, x2: where, y1: box.bottom, y2: box.bottom + 4}));
    const text = tickText(tick, xTicks);
    svg.append(
      drawn(
        "text",
        {class: "tick", x: anchor === "end" ? box.right + 8 : where, y: box.bottom + 17, "text-anchor": anchor},
        text,
      ),
    );
  }
  if (yLabel) svg.append(drawn("text", {class: "label", x: 4, y: 12}, yLabel));
  if (xLabel) svg.append(drawn("text", {class: "label", x: box.right, y: height - 4, "text-anchor": "end"}, xLabel));
  return {box, across, up};
}

function linePath(xs, ys, across, up) {
  let path = "",
    pen = false;
  const alone = [];
  for (let place = 0; place < xs.length; place++) {
    const there = isNumber(ys[place]) && isNumber(xs[place]);
    const h = there ? across(xs[place]) : NaN,
      v = there ? up(ys[place]) : NaN;
    if (!isNumber(h) || !isNumber(v)) {
      pen = false;
      continue;
    }
    path += `${pen ? "L" : "M"}${h.toFixed(1)} ${v.toFixed(1)}`;
    if (!pen && !isNumber(ys[place + 1])) alone.push([h, v]);
    pen = true;
  }
  return {path, alone};
}

function bandPaths(one, across, up) {
  const paths = [];
  let upper = [],
    lower = [];
  const close = () => {
    if (upper.length > 1) paths.push(`M${upper.join("L")}L${lower.reverse().join("L")}Z`);
    upper = [];
    lower = [];
  };
  for (let place = 0; place < one.x.length; place++) {
    const ends = [one.low[place], one.high[place]];
    // zero has no place on a logarithmic axis
    if (!ends.every(isNumber) || !ends.map(up).every(isNumber)) {
      close();
      continue;
    }
    const h = across(one.x[place]).toFixed(1);
    lower.push(`${h} ${up(ends[0]).toFixed(1)}`);
    upper.push(`${h} ${up(ends[1]).toFixed(1)}`);
  }
  close();
  return paths;
}
