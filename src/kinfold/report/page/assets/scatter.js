// Draws scatter plots from their descriptions: points with the style of their method, and its name if there is space.

function createScatter(chart, height = 320) {
  const points = chart.series.flatMap((series) => {
    const [x, y] = [decodeArray(series.x).values, decodeArray(series.y).values];
    return Array.from(x, (value, index) => ({name: String(series.name), x: value, y: y[index], ...getStyle(series.style)}));
  });

  function draw(svg, width) {
    const ranges = {
      x: widenRange(computeExtent(points.map((point) => point.x)), 0.08),
      y: computeRange(
        points.map((point) => point.y),
        chart.y,
        0.1,
      ),
    };
    const {box, across, up} = drawAxes(svg, width, height, chart, ranges);
    const names = [];
    for (const point of points) {
      const h = across(point.x),
        v = up(point.y);
      const values = `${chart.x.label} ${formatRounded(point.x)}, ${chart.y.label} ${formatRounded(point.y)}`;
      const description = `${point.name}: ${values}`;
      svg.append(
        svgElement(
          "circle",
          {class: `dot c${point.color} method`, cx: h, cy: v, r: 5.5, tabindex: 0, role: "img", "aria-label": description},
          svgElement("title", {}, description),
        ),
      );
      addName(svg, point.name, h, v, box, names);
    }
  }

  // beside, above or below the point, where no other name is; names: boxes of the names so far
  function addName(svg, name, h, v, box, names) {
    const text = name.length > 24 ? `${name.slice(0, 23)}…` : name;
    const width = text.length * 6.8;
    const left = h + 10 + width < box.right ? h + 10 : h - 10 - width;
    const overlaps = (line) =>
      names.some(
        (other) => Math.abs(other.line - line) < 13 && other.left < left + width && left < other.left + other.width,
      );
    const line = [v + 4, v - 9, v + 17].find((height) => left > 0 && !overlaps(height));
    if (line === undefined) return;
    names.push({line, left, width});
    const anchor = left < h ? "end" : "start";
    svg.append(
      svgElement("text", {class: "tick name", x: left < h ? h - 10 : left, y: line, "text-anchor": anchor}, text),
    );
  }

  return createFigure(chart, draw).figure;
}
