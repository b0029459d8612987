// The outline of a page: sections with an entry in the table of contents.

// a section that cannot be drawn says so and leaves the others alone
function fill(container, create) {
  try {
    container.replaceChildren(
      ...create()
        .flat(Infinity)
        .filter((part) => part !== null && part !== undefined),
    );
  } catch (error) {
    container.replaceChildren(element("p", {class: "notice"}, `This section could not be drawn: ${error.message}`));
    console.error(error);
  }
}

function addSection(id, title) {
  const body = element("div", {class: "body"});
  document
    .getElementById("main")
    .append(
      element("section", {id, "aria-labelledby": `${id}-title`}, element("h2", {id: `${id}-title`}, title), body),
    );
  document.getElementById("contents").append(element("a", {href: `#${id}`}, title));
  return body;
}
