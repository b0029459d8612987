// Search for a class by a part of its name.

const MATCHES = 40;

// a search box with a list of matching classes; Enter chooses the first, or the one that the arrow keys selected
function createClassSearch(classes, choose) {
  const plain = (text) => text.normalize("NFKC").toLowerCase();
  const folded = classes.map(({name}) => plain(name));
  const list = element("ul", {class: "matches", role: "listbox", id: "matches", hidden: true, "aria-label": "classes"});
  const box = element("input", {
    type: "search",
    placeholder: "find a class",
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    dir: "auto",
    "aria-label": "find a class by name",
    "aria-expanded": "false",
    "aria-controls": "matches",
    "aria-autocomplete": "list",
  });
  let matches = [],
    active = -1;
  const close = () => {
    list.hidden = true;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  };
  const take = (index) => {
    box.value = classes[matches[index]].name;
    close();
    choose(box.value);
  };
  const point = () => {
    [...list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === active)));
    if (active >= 0) {
      box.setAttribute("aria-activedescendant", `match-${active}`);
      list.children[active].scrollIntoView({block: "nearest"});
    }
  };
  const search = () => {
    const query = plain(box.value.trim());
    const all = folded.map((_, index) => index).filter((index) => folded[index].includes(query));
    // names that start with the query first
    all.sort((a, b) => folded[b].startsWith(query) - folded[a].startsWith(query));
    matches = all.slice(0, MATCHES);
    active = -1;
    list.replaceChildren(
      ...matches.map((index, rank) =>
        element(
          "li",
          {
            role: "option",
            id: `match-${rank}`,
            "aria-selected": "false",
            onpointerdown: (event) => {
              event.preventDefault();
              take(rank);
            },
          },
          createName(classes[index].name),
          element("span", {class: "soft number"}, String(classes[index].size)),
        ),
      ),
    );
    if (!matches.length) list.append(element("li", {class: "soft"}, "no class has this name"));
    if (all.length > matches.length)
      list.append(element("li", {class: "soft"}, `and ${all.length - matches.length} more`));
    list.hidden = false;
    box.setAttribute("aria-expanded", "true");
  };
  box.addEventListener("input", search);
  box.addEventListener("focus", () => {
    if (box.value) search();
  });
  box.addEventListener("blur", close);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return close();
    if (event.key === "Enter") {
      if (list.hidden) search();
      if (matches.length) take(Math.max(active, 0));
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) search();
      if (!matches.length) return;
      active = (active + (event.key === "ArrowDown" ? 1 : active < 0 ? 0 : -1) + matches.length) % matches.length;
      point();
    }
  });
  return element("div", {class: "search"}, box, list);
}
