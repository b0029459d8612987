// Painting a map: dots or pictures, the marked classes, and lines from the chosen item to its neighbours.

const SHAPES = ["disc", "diamond", "square"];
const LOOKS = COLOURS * SHAPES.length;
const CELL = 36; // pixels that one picture claims

function paintMap(canvas, view, {count, labels, right, known, state, thumbnails, neighbors}) {
  if (view.width < 1) return;
  const ratio = canvas.width / view.width;
  const ink = canvas.getContext("2d");
  ink.setTransform(ratio, 0, 0, ratio, 0, 0);
  ink.clearRect(0, 0, view.width, view.height);
  const size = Math.min(9, Math.min(4, Math.max(2.2, 150 / Math.sqrt(count))) * view.times ** 0.4);
  const inSight = (place) => {
    const h = view.h(place),
      v = view.v(place);
    return h > -CELL && v > -CELL && h < view.width + CELL && v < view.height + CELL;
  };

  // one path per look: thousands of dots in a few strokes
  const groups = new Map();
  const put = (place, key) => {
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(place);
  };
  const marked = state.marked;
  for (let place = 0; place < count; place++) {
    if (!inSight(place)) continue;
    const rank = marked.indexOf(labels[place]);
    if (rank >= 0) put(place, rank ? "marked wrong diamond" : "marked right disc");
    else if (marked.length) put(place, "dim faint disc");
    else if (state.by === "neighbor" && known) put(place, right(place) ? "plain right disc" : "plain wrong diamond");
    else {
      const label = labels[place];
      put(place, `plain s${label % COLOURS} ${SHAPES[Math.floor(label / COLOURS) % SHAPES.length]}`);
    }
  }
  const order = (key) => ["dim", "plain", "marked"].indexOf(key.split(" ")[0]) + (key.includes("wrong") ? 0.5 : 0);
  for (const key of [...groups.keys()].sort((a, b) => order(a) - order(b))) {
    const [layer, name, shape] = key.split(" ");
    ink.globalAlpha = layer === "plain" ? 0.78 : layer === "dim" ? 0.5 : 1;
    ink.fillStyle = colour(name);
    ink.beginPath();
    for (const place of groups.get(key))
      outline(ink, shape, view.h(place), view.v(place), layer === "marked" ? size * 1.3 : size);
    if (layer === "marked") {
      ink.strokeStyle = colour("paper");
      ink.lineWidth = 3;
      ink.stroke();
    }
    ink.fill();
  }
  ink.globalAlpha = 1;
  if (state.pictures && state.sheet)
    paintPictures(ink, view, {count, labels, right, known, state, thumbnails, neighbors, inSight});
  if (state.selected !== null) paintChosen(ink, view, state.selected, neighbors, size, state.pictures);
  if (state.hovered !== null && state.hovered !== state.selected)
    ring(ink, view, state.hovered, size + 3.5, "ink", 1.5);
}

function outline(ink, shape, h, v, size) {
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

// Pictures that do not overlap, the chosen item and its neighbours first, then marked classes. Which ones does not
// depend on what is in sight, so panning changes none of them; zoom brings more.
function paintPictures(ink, view, {count, labels, right, known, state, thumbnails, neighbors, inSight}) {
  const side = CELL - 6;
  const first = state.selected === null ? [] : [state.selected, ...neighbors.map((other) => other.place)];
  const rank = (place) =>
    place === state.selected ? -1 : first.includes(place) ? 0 : state.marked.includes(labels[place]) ? 1 : 2;
  const order = Array.from({length: count}, (_, place) => place).filter((place) => state.sheet.has(thumbnails[place]));
  if (state.marked.length) order.sort((a, b) => rank(a) - rank(b) || a - b);
  const taken = new Map(); // cell of a grid -> where its picture stands
  ink.imageSmoothingQuality = "high";
  for (const place of order) {
    const h = view.h(place) - view.left,
      v = view.v(place) - view.upper;
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
    if (!inSight(place)) continue;
    const wrong = known && state.by === "neighbor" && !right(place);
    const piece = state.sheet.get(thumbnails[place]);
    const [left, upper] = [view.h(place) - side / 2, view.v(place) - side / 2];
    ink.globalAlpha = !state.marked.length || rank(place) < 2 ? 1 : 0.3;
    ink.drawImage(piece.image, piece.left, piece.upper, piece.tile, piece.tile, left, upper, side, side);
    ink.strokeStyle = colour(!known || state.by === "class" ? "rule" : wrong ? "wrong" : "right");
    ink.lineWidth = 1.5;
    ink.setLineDash(wrong ? [4, 3] : []);
    ink.strokeRect(left, upper, side, side);
  }
  ink.setLineDash([]);
  ink.globalAlpha = 1;
}

function ring(ink, view, place, size, name, width) {
  ink.beginPath();
  ink.arc(view.h(place), view.v(place), size, 0, 2 * Math.PI);
  ink.strokeStyle = colour(name);
  ink.lineWidth = width;
  ink.stroke();
}

function paintChosen(ink, view, chosen, neighbors, size, pictures) {
  const around = pictures ? CELL / 2 + 2 : size + 2; // rings leave pictures in sight
  for (const other of neighbors) {
    if (other.place === null) continue;
    ink.setLineDash(other.mark === "wrong" ? [5, 4] : []);
    ink.strokeStyle = colour(other.mark);
    ink.lineWidth = other.mark === "right" ? 2 : 1.6;
    ink.beginPath();
    ink.moveTo(view.h(chosen), view.v(chosen));
    ink.lineTo(view.h(other.place), view.v(other.place));
    ink.stroke();
    ring(ink, view, other.place, around, other.mark, 2);
  }
  ink.setLineDash([]);
  if (!pictures) {
    ink.beginPath();
    ink.arc(view.h(chosen), view.v(chosen), size * 1.5, 0, 2 * Math.PI);
    ink.fillStyle = colour("ink");
    ink.fill();
  }
  ring(ink, view, chosen, around + 4, "ink", 2.5);
}
