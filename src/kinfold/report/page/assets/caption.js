// The frame of every chart: a figure with its caption, drawn again when its width changes.

let chartCount = 0;

// draw(svg, width) fills the SVG element; more: elements below the plot
function createFigure(chart, draw, {readout = null, legend = null, focusable = false} = {}) {
  const id = `chart-${++chartCount}`;
  const options = focusable ? {tabindex: 0, "aria-roledescription": "chart"} : {};
  const svg = svgElement("svg", {role: "img", "aria-labelledby": id, ...options});
  const plot = element("div", {class: "plot"}, svg, readout);
  const remarks = [chart.subject, chart.note].filter(Boolean);
  const caption = element(
    "figcaption",
    {id},
    element("strong", {}, createName(chart.title)),
    remarks.length ? [" ", element("span", {class: "soft"}, createName(remarks.join("; ")))] : null,
  );
  let width = 0;
  new ResizeObserver(([{contentRect}]) => {
    if (Math.floor(contentRect.width) === width) return;
    width = Math.floor(contentRect.width);
    if (width >= 40) draw(svg, width);
  }).observe(plot);
  return {svg, figure: element("figure", {class: "chart"}, caption, plot, legend)};
}
