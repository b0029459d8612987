// The content, and how elements are created: text from data becomes text nodes, never markup.

const content = JSON.parse(document.getElementById("content").textContent);

const SVG = "http://www.w3.org/2000/svg";

// element("p", {class: "note", onclick: f}, "text", otherElement, [more, elements], null)
function element(tag, options = {}, ...children) {
  return fillElement(document.createElement(tag), options, children);
}

function svgElement(tag, options = {}, ...children) {
  return fillElement(document.createElementNS(SVG, tag), options, children);
}

function fillElement(node, options, children) {
  for (const [key, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

// A name from data: right-to-left names do not reorder the text around them, and long names may break at separators.
function createName(text, options = {}) {
  const pieces = (text === "" ? "(empty name)" : String(text)).split(/(?<=[_./-])(?=[^_./\s-])/u);
  return element(
    "bdi",
    options,
    pieces.flatMap((piece, index) => (index ? [element("wbr"), piece] : [piece])),
  );
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// 1234.5 -> "1,234.5", with a real minus sign
function formatNumber(value, decimals) {
  if (!isNumber(value)) return "–";
  const text = Math.abs(value).toLocaleString("en", {minimumFractionDigits: decimals, maximumFractionDigits: decimals});
  return value < 0 && /[1-9]/.test(text) ? `−${text}` : text;
}

// about three significant digits
function formatRounded(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e6) return value.toExponential(2).replaceAll("-", "−").replace("e+", "e");
  return formatNumber(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.01 ? 3 : 4);
}

function formatCount(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

// A list, a list of lists, or {base64, type, shape}: as {values, width}, where width is the length of one row.
function decodeArray(array) {
  if (!array) return {values: [], width: 1};
  if (Array.isArray(array)) {
    if (!Array.isArray(array[0])) return {values: array, width: 1};
    return {values: array.flat(), width: array[0].length};
  }
  const kinds = {
    float32: Float32Array,
    float64: Float64Array,
    int32: Int32Array,
    int16: Int16Array,
    int8: Int8Array,
    uint8: Uint8Array,
    uint16: Uint16Array,
    uint32: Uint32Array,
  };
  if (!kinds[array.type]) throw new Error(`numbers encoded as ${array.type} are unknown to this page`);
  const letters = atob(array.base64);
  const bytes = new Uint8Array(letters.length);
  for (let index = 0; index < letters.length; index++) bytes[index] = letters.charCodeAt(index);
  const shape = array.shape ?? [];
  return {values: new kinds[array.type](bytes.buffer), width: shape.length > 1 ? shape[1] : 1};
}

function getRow({values, width}, index) {
  return Array.from(values.slice(index * width, (index + 1) * width));
}

function createCopyButton(text) {
  const button = element("button", {type: "button", class: "quiet copy"}, "copy");
  const say = (text) => {
    button.textContent = text;
    setTimeout(() => {
      button.textContent = "copy";
    }, 1600);
  };
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      say("copied");
    } catch {
      // if the page may not use the clipboard: copy a selection
      const area = element("textarea", {readonly: true, class: "unseen"});
      area.value = text;
      button.after(area);
      area.select();
      say(document.execCommand("copy") ? "copied" : "select and copy manually");
      area.remove();
      button.focus();
    }
  });
  return button;
}

function createChoice(label, options, chosen, change) {
  const select = element(
    "select",
    {},
    options.map(([value, text]) => element("option", {value, dir: "auto"}, text)),
  );
  select.value = chosen;
  select.addEventListener("change", () => change(select.value));
  return {label: element("label", {class: "choice"}, element("span", {}, label), select), select};
}

function createRemark(sentence) {
  return element("p", {class: "absent"}, sentence);
}

// colors of the theme, for canvases; read again when the theme changes
let colors = {};
window.addEventListener("theme", () => {
  colors = {};
});
function themeColor(name) {
  return (colors[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
}
