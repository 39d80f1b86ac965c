// Set the theme before the first paint; "auto" follows the system, also when it changes later.
(() => {
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const chosen = root.dataset.theme;
    root.dataset.bsTheme = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
  };
  apply();
  dark.addEventListener("change", apply);
})();
