// The page of an audit: findings with their pictures, a choice for each, and the CSV text with these choices.

const DROP = content.columns.indexOf("drop");

function addHeader() {
  const kicker = element("p", {class: "kicker"}, "kinfold · Audit");
  const theme = element("button", {type: "button", class: "quiet theme", onclick: () => window.switchTheme()}, "light / dark");
  const list = (sentences) => sentences.map((sentence) => element("li", {}, createName(sentence)));
  document.getElementById("head").append(
    element("div", {class: "top"}, kicker, theme),
    element("h1", {}, createName(content.title)),
    element(
      "p",
      {class: "lead"},
      "Look at each finding and untick what should stay. Then copy the CSV text into a file: ",
      element("code", {}, "kinfold train RECIPE --drop FILE.csv"),
      " trains without the ticked items. Nothing is changed by this page.",
    ),
    element("ul", {class: "sentences"}, list(content.summary)),
  );
  if (content.missing.length)
    document
      .getElementById("head")
      .append(element("div", {class: "notice", role: "note"}, element("ul", {}, list(content.missing))));
}

function quote(cell) {
  return /[",\n\r]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}

function writeCsv() {
  return [content.columns, ...content.csv].map((row) => row.map(quote).join(",") + "\n").join("");
}

function createItem(item, mark, what) {
  const name = `row ${item.row}`;
  return createTile({
    thumbnail: item.thumbnail,
    name,
    text: `${what}, ${item.class}`,
    mark,
    size: 96,
    below: [name, createName(item.class), item.split],
  });
}

function createFinding(finding, number) {
  const box = element("input", {type: "checkbox"});
  box.checked = content.csv[number][DROP] === "yes";
  box.addEventListener("change", () => {
    content.csv[number][DROP] = box.checked ? "yes" : "no";
    updateCount();
  });
  return element(
    "div",
    {class: "finding"},
    element(
      "div",
      {class: "tiles"},
      createItem(finding.item, "query", "the item"),
      finding.other ? createItem(finding.other, "unknown", "compared with") : null,
    ),
    element("p", {}, createName(finding.reason)),
    element("label", {class: "choice"}, box, element("span", {}, `leave row ${finding.item.row} out`)),
  );
}

const count = element("p", {class: "lead", role: "status"});
function updateCount() {
  const rows = new Set(content.csv.filter((row) => row[DROP] === "yes").map((row) => row[0]));
  count.textContent = `${formatCount(rows.size, "item")} will be left out.`;
}

function createCsvSection() {
  const button = element("button", {type: "button", class: "quiet copy"}, "copy the CSV text");
  const area = element("textarea", {readonly: true, rows: 8, class: "csv", "aria-label": "CSV text"});
  area.value = writeCsv();
  button.addEventListener("click", async () => {
    area.value = writeCsv();
    area.select();
    try {
      await navigator.clipboard.writeText(area.value);
      button.textContent = "copied";
    } catch {
      button.textContent = document.execCommand("copy") ? "copied" : "select and copy manually";
    }
    setTimeout(() => {
      button.textContent = "copy the CSV text";
    }, 1600);
  });
  updateCount();
  return [count, button, area];
}

function createShares(rows, caption, other) {
  return createTable({
    caption,
    rows,
    columns: [
      {title: "class", value: (row) => row.class, cell: (row) => createName(row.class)},
      ...(other ? [{title: "taken for", value: (row) => row.other, cell: (row) => createName(row.other)}] : []),
      {title: "share of its items", numeric: true, value: (row) => row.share, cell: (row) => formatRounded(row.share)},
    ],
  });
}

addHeader();
const numbered = content.findings.map((finding, number) => ({finding, number}));
for (const [kind, meaning] of Object.entries(content.kinds)) {
  const some = numbered.filter(({finding}) => finding.kind === kind);
  if (!some.length) continue;
  fill(addSection(kind, `${kind} (${some.length.toLocaleString("en")})`), () => [
    element("p", {class: "lead"}, `${meaning[0].toUpperCase()}${meaning.slice(1)}.`),
    element(
      "div",
      {class: "findings"},
      some.map(({finding, number}) => createFinding(finding, number)),
    ),
  ]);
}
fill(addSection("csv", "CSV"), createCsvSection);
if (content.hard.length)
  fill(addSection("hard", "Hard classes"), () => [
    element("p", {class: "lead"}, "Share of the items of a class that a classifier of the others names right, lowest first."),
    createShares(content.hard, "hard classes", false),
  ]);
if (content.confused.length)
  fill(addSection("confused", "Confused classes"), () => [createShares(content.confused, "confused classes", true)]);
document.getElementById("foot").append(`Written by kinfold ${content.about.kinfold}. One file, no server, no network.`);
document.documentElement.dataset.ready = "yes";
