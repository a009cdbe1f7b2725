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

// Links to the policy on versions (Link headers of deprecated operations) lead to its place in the overview.
if (location.hash === "#versions") location.replace("#overview--versions");
