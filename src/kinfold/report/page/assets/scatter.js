// Points of methods in a plane, with their names where there is room.

// points: [{name, x, y}], shares: y lies between 0 and 1; every point has the look of its method, and its name where there is room
function scatter({title, note, points, xLabel, yLabel, shares, height = 320}) {
  const name = `chart-${++charts}`;
  const svg = drawn("svg", {role: "img", "aria-labelledby": name});
  const plot = element("div", {class: "plot"}, svg);
  let wide = 0;
  function draw() {
    if (wide < 40) return;
    const x = widened(extent(points.map((point) => point.x)), 0.08);
    const heights = points.map((point) => point.y);
    const y = shares ? sharesRange(heights, 0.1) : widened(extent(heights), 0.1);
    const {box, across, up} = axes(svg, wide, height, {x, y, xLabel, yLabel});
    const taken = [];
    for (const point of points) {
      const {colour: kind} = look(point.name);
      const h = across(point.x),
        v = up(point.y);
      const said = `${point.name}: ${xLabel} ${rounded(point.x)}, ${yLabel} ${rounded(point.y)}`;
      svg.append(
        drawn(
          "circle",
          {class: `dot c${kind} method`, cx: h, cy: v, r: 5.5, tabindex: 0, role: "img", "aria-label": said},
          drawn("title", {}, said),
        ),
      );
      const text = point.name.length > 24 ? `${point.name.slice(0, 23)}…` : point.name;
      const width = text.length * 6.8;
      const left = h + 10 + width < box.right ? h + 10 : h - 10 - width;
      const place = [v + 4, v - 9, v + 17].find(
        (line) =>
          left > 0 &&
          !taken.some(
            (other) => Math.abs(other.line - line) < 13 && other.left < left + width && left < other.left + other.width,
          ),
      );
      if (place === undefined) continue;
      taken.push({line: place, left, width});
      svg.append(
        drawn(
          "text",
          {class: "tick name", x: left < h ? h - 10 : left, y: place, "text-anchor": left < h ? "end" : "start"},
          text,
        ),
      );
    }
  }
  new ResizeObserver(([{contentRect}]) => {
    wide = Math.floor(contentRect.width);
    draw();
  }).observe(plot);
  return element(
    "figure",
    {class: "chart"},
    element(
      "figcaption",
      {id: name},
      element("strong", {}, title),
      note ? [" ", element("span", {class: "soft"}, note)] : null,
    ),
    plot,
  );
}
