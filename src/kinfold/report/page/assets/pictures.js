// Thumbnails out of sprite sheets inside the file; where an item has no picture, its name stands in its place.

const sprites = {about: content.thumbnails, sheets: new Map(), each: null};

function hasPicture(index) {
  return Boolean(sprites.about?.sheets?.length) && isNumber(index) && index >= 0 && index < sprites.about.count;
}

// A sheet, decoded once and only when a picture of it is needed.
function sheet(number) {
  if (!sprites.sheets.has(number)) {
    const source = String(sprites.about.sheets[number]);
    const loading = (async () => {
      if (!source.startsWith("data:image/")) throw new Error("pictures come from inside this file only");
      const image = new Image();
      image.src = source;
      await image.decode();
      return createImageBitmap(image);
    })();
    sprites.sheets.set(number, loading);
  }
  return sprites.sheets.get(number);
}

// all sheets but the last hold as many pictures as the first
async function spriteOf(index) {
  const {tile, columns} = sprites.about;
  const first = await sheet(0);
  sprites.each ??= columns * Math.max(1, Math.floor(first.height / tile));
  const inside = index % sprites.each;
  return {
    image: await sheet(Math.floor(index / sprites.each)),
    left: (inside % columns) * tile,
    upper: Math.floor(inside / columns) * tile,
    tile,
  };
}

// at `size` CSS pixels; small pictures keep sharp pixels, as the grids of `kinfold search` do
function picture(index, size, name) {
  const canvas = element("canvas", {class: "picture", role: "img", "aria-label": name});
  const {tile} = sprites.about;
  canvas.width = canvas.height = tile;
  canvas.style.width = canvas.style.height = `${size}px`;
  spriteOf(index)
    .then(({image, left, upper}) => {
      canvas.getContext("2d").drawImage(image, left, upper, tile, tile, 0, 0, tile, tile);
    })
    .catch(() => canvas.classList.add("broken"));
  return canvas;
}

// mark: "query" (thin grey), "right" (thick solid blue), "wrong" (dashed orange), "unknown"
function tile({thumbnail, name, text, mark, size = 56, below = [], press}) {
  const said = [name, text, {right: "right", wrong: "wrong"}[mark]].filter(Boolean).join(", ");
  const inside = hasPicture(thumbnail)
    ? picture(thumbnail, size, name)
    : element("span", {class: "instead"}, named(name));
  if (!hasPicture(thumbnail)) inside.style.width = inside.style.height = `${size}px`;
  const options = {
    class: `tile ${mark}`,
    title: said,
    ...(press ? {type: "button", onclick: press, "aria-label": said} : {}),
  };
  return element(
    press ? "button" : "span",
    options,
    inside,
    below.map((line) => element("span", {class: "below"}, line)),
  );
}

function frames() {
  return element(
    "p",
    {class: "frames soft"},
    [
      ["right", "the query's class"],
      ["wrong", "another class"],
    ].map(([mark, words]) =>
      element("span", {}, element("span", {class: `tile ${mark}`, "aria-hidden": "true"}), ` ${words}`),
    ),
  );
}
