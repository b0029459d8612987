// Thumbnails from sprite sheets inside the file; an item without an image is shown by its name.

const sprites = {info: content.thumbnails, sheets: new Map(), perSheet: null};

function hasPicture(index) {
  return Boolean(sprites.info?.sheets?.length) && isNumber(index) && index >= 0 && index < sprites.info.count;
}

// A sheet, decoded once, when it is first needed.
function loadSheet(number) {
  if (!sprites.sheets.has(number)) {
    const source = String(sprites.info.sheets[number]);
    const loading = (async () => {
      if (!source.startsWith("data:image/")) throw new Error("images come from inside this file only");
      const image = new Image();
      image.src = source;
      await image.decode();
      return createImageBitmap(image);
    })();
    sprites.sheets.set(number, loading);
  }
  return sprites.sheets.get(number);
}

// all sheets but the last hold as many images as the first
async function loadSprite(index) {
  const {tile, columns} = sprites.info;
  const first = await loadSheet(0);
  sprites.perSheet ??= columns * Math.max(1, Math.floor(first.height / tile));
  const inside = index % sprites.perSheet;
  return {
    image: await loadSheet(Math.floor(index / sprites.perSheet)),
    left: (inside % columns) * tile,
    upper: Math.floor(inside / columns) * tile,
    tile,
  };
}

// at `size` CSS pixels; small pictures keep sharp pixels, as the grids of `kinfold search` do
function createPicture(index, size, name) {
  const canvas = element("canvas", {class: "picture", role: "img", "aria-label": name});
  canvas.width = canvas.height = sprites.info.tile;
  canvas.style.width = canvas.style.height = `${size}px`;
  undrawn.set(canvas, index);
  nearView.observe(canvas);
  return canvas;
}

const undrawn = new WeakMap(); // canvas -> the index of its picture

// pictures are drawn when they come near the view: a page opens before all of its sheets are decoded
const nearView = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => drawPicture(entry.target)),
  {rootMargin: "800px"},
);
window.addEventListener("beforeprint", () => document.querySelectorAll("canvas.picture").forEach(drawPicture));

function drawPicture(canvas) {
  if (!undrawn.has(canvas)) return;
  nearView.unobserve(canvas);
  loadSprite(undrawn.get(canvas))
    .then(({image, left, upper, tile}) => {
      canvas.getContext("2d").drawImage(image, left, upper, tile, tile, 0, 0, tile, tile);
    })
    .catch(() => canvas.classList.add("broken"));
  undrawn.delete(canvas);
}

// mark: "query" (thin gray), "right" (thick solid blue), "wrong" (dashed orange), "unknown"
function createTile({thumbnail, name, text, mark, size = 56, below = [], press}) {
  const description = [name, text, {right: "right", wrong: "wrong"}[mark]].filter(Boolean).join(", ");
  const inside = hasPicture(thumbnail)
    ? createPicture(thumbnail, size, name)
    : element("span", {class: "instead"}, createName(name));
  if (!hasPicture(thumbnail)) inside.style.width = inside.style.height = `${size}px`;
  const options = {
    class: `tile ${mark}`,
    title: description,
    ...(press ? {type: "button", onclick: press, "aria-label": description} : {}),
  };
  return element(
    press ? "button" : "span",
    options,
    inside,
    below.map((line) => element("span", {class: "below"}, line)),
  );
}

function createFrameLegend() {
  return element(
    "p",
    {class: "frames soft"},
    [
      ["right", "the class of the query"],
      ["wrong", "another class"],
    ].map(([mark, meaning]) =>
      element("span", {}, element("span", {class: `tile ${mark}`, "aria-hidden": "true"}), ` ${meaning}`),
    ),
  );
}
