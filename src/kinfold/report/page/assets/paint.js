// Paints a map: dots or images, marked classes, and lines from the chosen item to its neighbors.

const SHAPES = ["disc", "diamond", "square"];
const LOOKS = COLORS * SHAPES.length;
const CELL = 36; // pixels of one image with its margin

function paintMap(canvas, view, {count, labels, isCorrect, hasNeighbors, state, thumbnails, neighbors}) {
  if (view.width < 1) return;
  const ratio = canvas.width / view.width;
  const ink = canvas.getContext("2d");
  ink.setTransform(ratio, 0, 0, ratio, 0, 0);
  ink.clearRect(0, 0, view.width, view.height);
  const size = Math.min(9, Math.min(4, Math.max(2.2, 150 / Math.sqrt(count))) * view.times ** 0.4);
  const inView = (item) => {
    const h = view.h(item),
      v = view.v(item);
    return h > -CELL && v > -CELL && h < view.width + CELL && v < view.height + CELL;
  };

  // one path per style: thousands of dots in a few strokes
  const groups = new Map();
  const put = (item, key) => {
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  };
  const marked = state.marked;
  for (let item = 0; item < count; item++) {
    if (!inView(item)) continue;
    const rank = marked.indexOf(labels[item]);
    if (rank >= 0) put(item, rank ? "marked wrong diamond" : "marked right disc");
    else if (marked.length) put(item, "dim faint disc");
    else if (state.by === "neighbor" && hasNeighbors) put(item, isCorrect(item) ? "plain right disc" : "plain wrong diamond");
    else {
      const label = labels[item];
      put(item, `plain s${label % COLORS} ${SHAPES[Math.floor(label / COLORS) % SHAPES.length]}`);
    }
  }
  const order = (key) => ["dim", "plain", "marked"].indexOf(key.split(" ")[0]) + (key.includes("wrong") ? 0.5 : 0);
  for (const key of [...groups.keys()].sort((a, b) => order(a) - order(b))) {
    const [layer, name, shape] = key.split(" ");
    ink.globalAlpha = layer === "plain" ? 0.78 : layer === "dim" ? 0.5 : 1;
    ink.fillStyle = themeColor(name);
    ink.beginPath();
    for (const item of groups.get(key))
      traceShape(ink, shape, view.h(item), view.v(item), layer === "marked" ? size * 1.3 : size);
    if (layer === "marked") {
      ink.strokeStyle = themeColor("paper");
      ink.lineWidth = 3;
      ink.stroke();
    }
    ink.fill();
  }
  ink.globalAlpha = 1;
  if (state.pictures && state.sheet)
    paintPictures(ink, view, {count, labels, isCorrect, hasNeighbors, state, thumbnails, neighbors, inView});
  if (state.selected !== null) paintChosen(ink, view, state.selected, neighbors, size, state.pictures);
  if (state.hovered !== null && state.hovered !== state.selected)
    drawRing(ink, view, state.hovered, size + 3.5, "ink", 1.5);
}

function traceShape(ink, shape, h, v, size) {
  if (shape === "disc") {
    ink.moveTo(h + size, v);
    ink.arc(h, v, size, 0, 2 * Math.PI);
  } else if (shape === "square") ink.rect(h - size * 0.9, v - size * 0.9, size * 1.8, size * 1.8);
  else {
    const far = size * 1.35;
    ink.moveTo(h, v - far);
    ink.lineTo(h + far, v);
    ink.lineTo(h, v + far);
    ink.lineTo(h - far, v);
    ink.closePath();
  }
}

// Images that do not overlap: the chosen item and its neighbors first, then marked classes. They do not depend on
// what is in view, so panning changes none of them; zooming shows more.
function paintPictures(ink, view, {count, labels, isCorrect, hasNeighbors, state, thumbnails, neighbors, inView}) {
  const side = CELL - 6;
  const first = state.selected === null ? [] : [state.selected, ...neighbors.map((other) => other.item)];
  const rank = (item) =>
    item === state.selected ? -1 : first.includes(item) ? 0 : state.marked.includes(labels[item]) ? 1 : 2;
  const order = Array.from({length: count}, (_, item) => item).filter((item) => state.sheet.has(thumbnails[item]));
  if (state.marked.length) order.sort((a, b) => rank(a) - rank(b) || a - b);
  const taken = new Map(); // square of a grid -> position of its image
  ink.imageSmoothingQuality = "high";
  for (const item of order) {
    const h = view.h(item) - view.left,
      v = view.v(item) - view.upper;
    const [column, line] = [Math.floor(h / side), Math.floor(v / side)];
    let free = true;
    for (let a = column - 1; a <= column + 1; a++) {
      for (let b = line - 1; b <= line + 1; b++) {
        const other = taken.get(`${a} ${b}`);
        if (other && Math.abs(other.h - h) < side && Math.abs(other.v - v) < side) free = false;
      }
    }
    if (!free) continue;
    taken.set(`${column} ${line}`, {h, v});
    if (!inView(item)) continue;
    const isWrong = hasNeighbors && state.by === "neighbor" && !isCorrect(item);
    const piece = state.sheet.get(thumbnails[item]);
    const [left, upper] = [view.h(item) - side / 2, view.v(item) - side / 2];
    ink.globalAlpha = !state.marked.length || rank(item) < 2 ? 1 : 0.3;
    ink.drawImage(piece.image, piece.left, piece.upper, piece.tile, piece.tile, left, upper, side, side);
    ink.strokeStyle = themeColor(!hasNeighbors || state.by === "class" ? "rule" : isWrong ? "wrong" : "right");
    ink.lineWidth = 1.5;
    ink.setLineDash(isWrong ? [4, 3] : []);
    ink.strokeRect(left, upper, side, side);
  }
  ink.setLineDash([]);
  ink.globalAlpha = 1;
}

function drawRing(ink, view, item, size, name, width) {
  ink.beginPath();
  ink.arc(view.h(item), view.v(item), size, 0, 2 * Math.PI);
  ink.strokeStyle = themeColor(name);
  ink.lineWidth = width;
  ink.stroke();
}

function paintChosen(ink, view, chosen, neighbors, size, pictures) {
  const around = pictures ? CELL / 2 + 2 : size + 2; // rings do not cover images
  for (const other of neighbors) {
    if (other.item === null) continue;
    ink.setLineDash(other.mark === "wrong" ? [5, 4] : []);
    ink.strokeStyle = themeColor(other.mark);
    ink.lineWidth = other.mark === "right" ? 2 : 1.6;
    ink.beginPath();
    ink.moveTo(view.h(chosen), view.v(chosen));
    ink.lineTo(view.h(other.item), view.v(other.item));
    ink.stroke();
    drawRing(ink, view, other.item, around, other.mark, 2);
  }
  ink.setLineDash([]);
  if (!pictures) {
    ink.beginPath();
    ink.arc(view.h(chosen), view.v(chosen), size * 1.5, 0, 2 * Math.PI);
    ink.fillStyle = themeColor("ink");
    ink.fill();
  }
  drawRing(ink, view, chosen, around + 4, "ink", 2.5);
}
