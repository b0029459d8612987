// In the head, so that a dark page never flashes white: the choice of the reader, or what the system prefers.
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("kinfold-theme");
  } catch {
    /* no storage: the choice is not kept */
  }
  const show = (theme) => {
    document.documentElement.dataset.theme = theme;
    window.dispatchEvent(new Event("theme"));
  };
  const current = () => (chosen === "dark" || chosen === "light" ? chosen : dark.matches ? "dark" : "light");
  window.switchTheme = () => {
    chosen = current() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("kinfold-theme", chosen);
    } catch {
      /* as above */
    }
    show(chosen);
  };
  dark.addEventListener("change", () => show(current()));
  // print is always light
  window.addEventListener("beforeprint", () => show("light"));
  window.addEventListener("afterprint", () => show(current()));
  show(current());
})();
