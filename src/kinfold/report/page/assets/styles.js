// How series look: color and dash, so that they differ in grayscale and for any eyes too.

const DASHES = ["", "8 3", "2 3", "9 3 2 3"];
const COLORS = 8;
const PAIR_STYLES = {positive: {color: "right", dash: ""}, negative: {color: "wrong", dash: "6 3"}};

// style: the number of a method, the same in all charts, or "positive" or "negative" for pairs
function getStyle(style) {
  if (typeof style !== "number") return PAIR_STYLES[style] ?? PAIR_STYLES.positive;
  return {color: style % COLORS, dash: DASHES[(style + Math.floor(style / COLORS)) % DASHES.length]};
}
