// Where the points of a map are on its canvas: zoom by wheel, pinch, keys and buttons; pan by drag and keys.

const EDGE = 16; // pixels around the points
const NEAREST = 60; // times

function createMapView(canvas, at, count, redraw) {
  const view = {width: 0, height: 0, times: 1, left: 0, upper: 0};
  let waiting = false,
    scrolled = -Infinity;
  const later = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      redraw();
    });
  };
  const side = () => Math.max(40, Math.min(view.width, view.height) - 2 * EDGE);
  view.side = () => side() * view.times;
  view.h = (item) => view.left + at.x[item] * view.side();
  view.v = (item) => view.upper + at.y[item] * view.side();

  function fit() {
    view.times = 1;
    view.left = (view.width - side()) / 2;
    view.upper = (view.height - side()) / 2;
  }
  view.reset = () => {
    fit();
    settle();
  };
  function settle() {
    // part of the map always stays in view
    const whole = view.side();
    view.left = Math.min(Math.max(view.left, view.width / 2 - whole), view.width / 2);
    view.upper = Math.min(Math.max(view.upper, view.height / 2 - whole), view.height / 2);
    // one finger scrolls the page unless the map is zoomed
    canvas.style.touchAction = view.times > 1.01 ? "none" : "pan-y";
    later();
  }
  view.zoom = (by, h = view.width / 2, v = view.height / 2) => {
    const times = Math.min(Math.max(view.times * by, 1), NEAREST);
    const real = times / view.times;
    view.left = h - (h - view.left) * real;
    view.upper = v - (v - view.upper) * real;
    view.times = times;
    if (times === 1) view.reset();
    else settle();
  };
  // show everything if one of these items is out of view
  view.reveal = (items) => {
    const out = items.some(
      (item) => view.h(item) < 0 || view.v(item) < 0 || view.h(item) > view.width || view.v(item) > view.height,
    );
    if (out) view.reset();
  };
  view.under = (h, v, reach) => {
    let best = null,
      distance = reach * reach;
    for (let item = 0; item < count; item++) {
      const a = view.h(item) - h,
        b = view.v(item) - v;
      const apart = a * a + b * b;
      if (apart <= distance) [best, distance] = [item, apart];
    }
    return best;
  };
  // for programs that drive the page: position of an item, in pixels of the canvas
  canvas.whereIs = (item) => ({x: view.h(item), y: view.v(item)});

  new ResizeObserver(([{contentRect}]) => {
    const ratio = window.devicePixelRatio || 1;
    view.width = contentRect.width;
    view.height = contentRect.height;
    canvas.width = Math.round(view.width * ratio);
    canvas.height = Math.round(view.height * ratio);
    fit();
    canvas.style.touchAction = "pan-y";
    redraw(); // now: a canvas of another size is empty
  }).observe(canvas);
  window.addEventListener(
    "scroll",
    () => {
      scrolled = performance.now();
    },
    {passive: true},
  );

  view.listen = ({hover, select, clear}) => {
    const fingers = new Map();
    let moved = 0;
    const local = (event) => {
      const box = canvas.getBoundingClientRect();
      return {h: event.clientX - box.left, v: event.clientY - box.top};
    };
    canvas.addEventListener(
      "wheel",
      (event) => {
        // a page that is being scrolled goes on scrolling, also when the map cannot shrink
        if (!event.ctrlKey && performance.now() - scrolled < 250) return;
        if (event.deltaY > 0 && view.times === 1) return;
        event.preventDefault();
        const {h, v} = local(event);
        view.zoom(Math.exp(-Math.max(-200, Math.min(200, event.deltaY)) * (event.ctrlKey ? 0.01 : 0.002)), h, v);
      },
      {passive: false},
    );
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      if (!fingers.size) moved = 0;
      fingers.set(event.pointerId, local(event));
      try {
        canvas.setPointerCapture(event.pointerId);
      } catch {
        /* the pointer is no longer there */
      }
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = local(event),
        before = fingers.get(event.pointerId);
      if (!before) {
        if (event.pointerType !== "touch") hover(view.under(now.h, now.v, 12), now.h, now.v);
        return;
      }
      const gap = () => {
        const [one, two] = [...fingers.values()];
        return {far: Math.hypot(one.h - two.h, one.v - two.v) || 1, h: (one.h + two.h) / 2, v: (one.v + two.v) / 2};
      };
      const apart = fingers.size === 2 ? gap() : null;
      fingers.set(event.pointerId, now);
      moved += Math.hypot(now.h - before.h, now.v - before.v);
      if (moved < 5) return;
      hover(null);
      if (apart) {
        const after = gap();
        view.left += after.h - apart.h;
        view.upper += after.v - apart.v;
        view.zoom(after.far / apart.far, after.h, after.v);
      } else if (fingers.size === 1 && view.times > 1) {
        view.left += now.h - before.h;
        view.upper += now.v - before.v;
        settle();
      }
    });
    const lift = (event) => {
      const start = fingers.get(event.pointerId);
      fingers.delete(event.pointerId);
      if (!start || event.type === "pointercancel" || moved >= 5 || fingers.size) return;
      const {h, v} = local(event);
      select(view.under(h, v, event.pointerType === "touch" ? 24 : 12));
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("pointerleave", () => hover(null));
    canvas.addEventListener("keydown", (event) => {
      const step = {ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]}[event.key];
      if (step && view.times > 1) {
        view.left += step[0];
        view.upper += step[1];
        settle();
      } else if (event.key === "+" || event.key === "=") view.zoom(1.5);
      else if (event.key === "-") view.zoom(1 / 1.5);
      else if (event.key === "0") view.reset();
      else if (event.key === "Escape") clear();
      else return;
      event.preventDefault();
    });
  };
  return view;
}
