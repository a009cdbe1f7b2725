// Prepare the API reference before its component starts: the colours of the console, and this server's address.
"use strict";
const reference = document.querySelector("rapi-doc");
const dark = matchMedia("(prefers-color-scheme: dark)");

function paint() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const attributes = {
    theme: dark.matches ? "dark" : "light",
    "bg-color": colour("page"),
    "text-color": colour("ink"),
    "primary-color": colour("accent"),
    "nav-bg-color": colour("card"),
    "nav-text-color": colour("soft"),
    "nav-hover-bg-color": colour("raised"),
    "nav-hover-text-color": colour("ink"),
    "nav-accent-color": colour("accent"),
  };
  for (const [name, value] of Object.entries(attributes)) reference.setAttribute(name, value);
}

paint();
dark.addEventListener("change", paint);
// Without room for its navigation, the component lists all operations in one column.
if (innerWidth < 768) reference.setAttribute("render-style", "view");
reference.setAttribute("server-url", location.origin + reference.dataset.path);

// In a narrow window the component lays the badges of authentication over the text; here they follow it.
const narrow = new CSSStyleSheet();
narrow.replaceSync(`@media (max-width: 48rem) {
  .summary > div:has(> div > .tooltip) { position: static !important; }
  .summary > div > div:has(> .tooltip) { min-width: 0 !important; flex-wrap: wrap; justify-content: start !important; }
}`);
customElements.whenDefined("rapi-doc").then(() => reference.shadowRoot.adoptedStyleSheets.push(narrow));

// Links to the policy on versions (Link headers of deprecated operations) lead to its place in the overview.
if (location.hash === "#versions") location.replace("#overview--versions");
