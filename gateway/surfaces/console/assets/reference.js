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

// Colours with enough contrast on a light page, and the layout of a narrow window: badges of authentication follow the
// text, fields of a form stand one below the other, and a code sample begins below its button.
const sheet = new CSSStyleSheet();
sheet.replaceSync(`@media (prefers-color-scheme: light) {
  :host(rapi-doc) {
    --green: #3d6b00; --blue: #05629b; --red: #b4182f; --orange: #8a4b00; --pink: #a3247d;
    --nav-post-color: #3d6b00; --nav-get-color: #05629b; --nav-delete-color: #b4182f; --nav-put-color: #8a4b00;
  }
}
@media (max-width: 48rem) {
  .summary > div:has(> div > .tooltip) { position: static !important; }
  .summary > div > div:has(> .tooltip) { min-width: 0 !important; flex-wrap: wrap; justify-content: start !important; }
  .request-body-container .m-table :is(tr, td) { display: block; width: auto !important; text-align: left; }
  .request-body-container .m-table td:not(:first-child) { border-top: 0 !important; }
  .request-body-container .m-table td:empty { display: none; }
  .request-body-container .m-table .param-name { text-align: left; }
  .request-body-container .m-table .param-type { text-align: left; }
  .tab-content > .toolbar-btn + pre { padding-top: 3rem; }
}`);

// The component gives its fields no names for screen readers, and its code samples cannot be scrolled with the keyboard.
function describe(root) {
  for (const field of root.querySelectorAll("[data-pname]:not([aria-label])")) field.ariaLabel = field.dataset.pname;
  for (const code of root.querySelectorAll("pre:not([tabindex])")) code.tabIndex = 0;
  for (const navigation of root.querySelectorAll("nav.nav-bar:not([aria-label])")) navigation.ariaLabel = "Reference";
}

// Its parts are components themselves, each with a document of its own.
const known = new WeakSet();
function follow(root) {
  describe(root);
  for (const element of root.querySelectorAll("*")) {
    const inner = element.shadowRoot;
    if (!inner || known.has(inner)) continue;
    known.add(inner);
    inner.adoptedStyleSheets.push(sheet);
    new MutationObserver(() => follow(inner)).observe(inner, {childList: true, subtree: true});
    follow(inner);
  }
}
customElements.whenDefined("rapi-doc").then(() => follow(document));

// Links to the policy on versions (Link headers of deprecated operations) lead to its place in the overview.
if (location.hash === "#versions") location.replace("#overview--versions");
