// One look for each method over all figures: a colour, and a dash, so that grey print and any eyes can tell them apart.

const DASHES = ["", "8 3", "2 3", "9 3 2 3"];
const COLOURS = 8;
const looks = new Map();

// "margin, seed 0" looks like "margin"
function look(name) {
  const key = String(name).replace(/, (seed|fold) .*$/u, "");
  if (!looks.has(key)) looks.set(key, looks.size);
  const place = looks.get(key);
  return {colour: place % COLOURS, dash: DASHES[(place + Math.floor(place / COLOURS)) % DASHES.length]};
}

const KIN = {name: "kin", colour: "right", dash: "", width: 2};
const OTHERS = {name: "others", colour: "wrong", dash: "6 3", width: 2};
