// The API reference around its component: the colours of the console, this server's address, a list of operations where
// the window has no room for the component's navigation, and a key for the reader's requests.
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
const address = location.origin + reference.dataset.path;
reference.setAttribute("server-url", address);

// The examples of the description name the address of this page.
async function load() {
  const description = await (await fetch(reference.dataset.description)).json();
  const info = description.info;
  info.description = info.description.replaceAll("http://127.0.0.1:4001", address);
  info.description = info.description.replaceAll("](console", `](${address}/console`).replaceAll("](docs", `](${address}/docs`);
  await customElements.whenDefined("rapi-doc");
  reference.loadSpec(description);
}
load();

// Colours with enough contrast on a light page, and the layout of a narrow window: badges of authentication follow the
// text, fields of a form stand one below the other, and a code sample begins below its button.
const sheet = new CSSStyleSheet();
sheet.replaceSync(`.m-markdown pre, .m-markdown pre code { white-space: pre-wrap; overflow-wrap: anywhere; }
@media (prefers-color-scheme: light) {
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

// The operations in the order of the navigation; a narrow window shows this list instead.
const chosen = document.getElementById("operation");
reference.addEventListener("spec-loaded", (event) => {
  for (const tag of event.detail.tags) {
    const group = document.createElement("optgroup");
    group.label = tag.name;
    for (const path of tag.paths) {
      group.append(new Option(`${path.summary || path.path} (${path.method.toUpperCase()})`, path.elementId));
    }
    chosen.append(group);
  }
  chosen.parentElement.hidden = false;
  showPlace();
});
function showPlace() {
  chosen.value = location.hash.slice(1);
  if (chosen.selectedIndex < 0) chosen.value = "overview";
}
chosen.addEventListener("change", () => {
  location.hash = chosen.value;
  chosen.focus();
});
addEventListener("hashchange", showPlace);

// A signed-in reader gets a key when they ask for it; without one, requests of the model API are refused.
const form = document.getElementById("key");
if (form) {
  const project = form.elements.project;
  const [button, state] = [form.querySelector("button"), form.querySelector("[role=status]")];
  let getToken = null;
  project.addEventListener("change", () => {
    getToken = null;
    reference.removeAllSecurityKeys();
    button.hidden = false;
    state.textContent = "";
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    getToken = getToken || makeKeySource(form.dataset.keys, form.dataset.csrf, () => project.value);
    button.disabled = true;
    try {
      const token = await getToken();
      if (!reference.setApiKey("bearerKey", token)) throw new Error("The reference is still loading. Try again.");
      const end = new Date(Date.now() + 3600000).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit"});
      state.textContent = `Requests use a key until ${end}`;
      button.hidden = true;
      setTimeout(() => { button.hidden = false; state.textContent = ""; }, 3500000);
    } catch (error) {
      state.textContent = error.message;
    }
    button.disabled = false;
  });
}

// Links to the policy on versions (Link headers of deprecated operations) lead to its place in the overview.
if (location.hash === "#versions") location.replace("#overview--versions");
