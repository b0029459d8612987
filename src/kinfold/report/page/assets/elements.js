// The content, and making elements from it: text from data always as text nodes, never as markup.

const content = JSON.parse(document.getElementById("content").textContent);

const SVG = "http://www.w3.org/2000/svg";

// element("p", {class: "note", onclick: f}, "text", otherElement, [more, elements], null)
function element(tag, options = {}, ...children) {
  return furnished(document.createElement(tag), options, children);
}

function drawn(tag, options = {}, ...children) {
  return furnished(document.createElementNS(SVG, tag), options, children);
}

function furnished(made, options, children) {
  for (const [key, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

// A name from data: right-to-left names do not turn the words around them, and long ones break where a reader would.
function named(text, options = {}) {
  const pieces = (text === "" ? "(empty name)" : String(text)).split(/(?<=[_./-])(?=[^_./\s-])/u);
  return element(
    "bdi",
    options,
    pieces.flatMap((piece, place) => (place ? [element("wbr"), piece] : [piece])),
  );
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// 1234.5 -> "1,234.5", with a real minus sign
function shown(value, decimals) {
  if (!isNumber(value)) return "–";
  const text = Math.abs(value).toLocaleString("en", {minimumFractionDigits: decimals, maximumFractionDigits: decimals});
  return value < 0 && /[1-9]/.test(text) ? `−${text}` : text;
}

// about three significant digits
function rounded(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e6) return value.toExponential(2).replaceAll("-", "−").replace("e+", "e");
  return shown(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.01 ? 3 : 4);
}

function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

// A list, a list of lists, or {base64, type, shape}: as {values, width}, where width is the length of one row.
function flat(given) {
  if (!given) return {values: [], width: 1};
  if (Array.isArray(given)) {
    if (!Array.isArray(given[0])) return {values: given, width: 1};
    return {values: given.flat(), width: given[0].length};
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
  if (!kinds[given.type]) throw new Error(`numbers packed as ${given.type} are not known to this page`);
  const letters = atob(given.base64);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place++) bytes[place] = letters.charCodeAt(place);
  const shape = given.shape ?? [];
  return {values: new kinds[given.type](bytes.buffer), width: shape.length > 1 ? shape[1] : 1};
}

function row({values, width}, place) {
  return Array.from(values.slice(place * width, (place + 1) * width));
}

function copyButton(text) {
  const button = element("button", {type: "button", class: "quiet copy"}, "copy");
  const say = (word) => {
    button.textContent = word;
    setTimeout(() => {
      button.textContent = "copy";
    }, 1600);
  };
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      say("copied");
    } catch {
      // where the clipboard is closed to pages: the old way, by a selection
      const area = element("textarea", {readonly: true, class: "unseen"});
      area.value = text;
      button.after(area);
      area.select();
      say(document.execCommand("copy") ? "copied" : "select and copy by hand");
      area.remove();
      button.focus();
    }
  });
  return button;
}

function choice(label, options, chosen, change) {
  const select = element(
    "select",
    {},
    options.map(([value, text]) => element("option", {value, dir: "auto"}, text)),
  );
  select.value = chosen;
  select.addEventListener("change", () => change(select.value));
  return {label: element("label", {class: "choice"}, element("span", {}, label), select), select};
}

function absent(sentence) {
  return element("p", {class: "absent"}, sentence);
}

// the colours of the theme, for canvases; forgotten when the theme changes
let colours = {};
window.addEventListener("theme", () => {
  colours = {};
});
function colour(name) {
  return (colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
}
