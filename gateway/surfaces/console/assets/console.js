// What the pages of the console add to htmx: local times, questions before actions, dialogs, copying, and the keyboard.
"use strict";

const WHEN = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "short"});
const SECONDS = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "medium"});
const CLOCK = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit"});
const SHORT = new Intl.DateTimeFormat(undefined, {month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit"});
const DAY = new Intl.DateTimeFormat(undefined, {dateStyle: "medium"});
const MINUTE = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit"});
const FORMATS = {minute: MINUTE, when: WHEN, seconds: SECONDS, short: SHORT, clock: CLOCK, day: DAY};

// The server writes UTC; the reader's time zone is shown, with UTC when pointing at it.
function showLocalTimes(root) {
  for (const time of root.querySelectorAll("time[data-format]")) {
    const format = FORMATS[time.dataset.format];
    if (!format || time.title) continue;
    time.title = time.textContent.trim();
    time.textContent = format.format(new Date(time.dateTime));
  }
  for (const title of root.querySelectorAll("title[data-at]")) {
    const local = WHEN.format(new Date(title.dataset.at));
    title.textContent = title.textContent.replace(/^.* UTC/, (utc) => `${local} (${utc})`);
    delete title.dataset.at;
  }
  for (const field of root.querySelectorAll("input[type=datetime-local]:not([data-local])")) {
    field.dataset.local = "";
    const label = field.labels[0];
    label.textContent = label.textContent.replace("(UTC)", "(your time zone)");
    if (!field.value) continue;
    const at = new Date(`${field.value}Z`);
    const local = new Date(at.getTime() - at.getTimezoneOffset() * 60000);
    field.value = local.toISOString().slice(0, field.value.length);
  }
}

// Forms send UTC.
document.addEventListener("htmx:configRequest", (event) => {
  for (const field of event.detail.elt.querySelectorAll("input[data-local]")) {
    if (field.value) event.detail.parameters[field.name] = new Date(field.value).toISOString().slice(0, 19);
  }
});

// A message of the new content is read out by screen readers when it comes into a region that was there before.
function announce() {
  const message = document.querySelector("main .message, main .problem");
  document.getElementById("live").textContent = message ? message.textContent : "";
}

function openDialog(dialog) {
  dialog.showModal();
  const first = dialog.querySelector("input:not([type=hidden]), select, textarea, button.main");
  if (first) first.focus();
}

// A dialog that shows what came of its form is opened again.
function reopen() {
  const dialog = document.querySelector("dialog[data-again]");
  if (dialog) openDialog(dialog);
}

// The page of a request leads to its neighbours in the list from which it was opened.
const OPENED = "opened rows";
const rowLinks = () => [...document.querySelectorAll("table.rows tbody tr a.open")];

function showNeighbours() {
  const place = document.querySelector("[data-neighbours]");
  if (!place) return;
  const rows = JSON.parse(sessionStorage.getItem(OPENED) || "[]");
  const at = rows.indexOf(location.href);
  if (at < 0) return;
  for (const link of place.querySelectorAll("[data-step]")) {
    const href = rows[at + Number(link.dataset.step)];
    if (href) link.href = href;
    link.hidden = !href;
  }
}

document.addEventListener("click", (event) => {
  const links = rowLinks();
  if (links.includes(event.target.closest("a"))) sessionStorage.setItem(OPENED, JSON.stringify(links.map((one) => one.href)));
  const opener = event.target.closest("[data-dialog]");
  if (opener) openDialog(document.getElementById(opener.dataset.dialog));
  const closer = event.target.closest("[data-close]");
  if (closer) closer.closest("dialog").close();
  const copier = event.target.closest("[data-copy]");
  if (copier) {
    const label = copier.textContent;
    copyText(document.getElementById(copier.dataset.copy)).then(() => {
      copier.textContent = "Copied";
      document.getElementById("live").textContent = "Copied";
      setTimeout(() => { copier.textContent = label; }, 1500);
    });
  }
});

// A question before an action that cannot be undone.
document.addEventListener("htmx:confirm", (event) => {
  const button = event.detail.triggeringEvent && event.detail.triggeringEvent.submitter;
  const question = (button && button.dataset.question) || event.detail.elt.dataset.question;
  if (!question) return;
  event.preventDefault();
  const dialog = document.getElementById("question");
  dialog.querySelector("p").textContent = question;
  const confirm = dialog.querySelector("button.main");
  confirm.textContent = button ? button.textContent : "Continue";
  confirm.onclick = () => { dialog.close(); event.detail.issueRequest(true); };
  openDialog(dialog);
});

// Ctrl+K finds pages, keys, people and requests; the arrows move through what was found, and Enter opens it.
const finder = () => document.getElementById("finder");

function openFinder() {
  const dialog = finder();
  if (!dialog || dialog.open) return;
  dialog.showModal();
  const field = dialog.querySelector("input");
  field.select();
  htmx.trigger(field, "input");
}

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k" && finder()) {
    event.preventDefault();
    openFinder();
    return;
  }
  if (!finder() || !finder().open) return;
  const links = [...finder().querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (step && links.length) {
    event.preventDefault();
    if (at + step < 0) finder().querySelector("input").focus();
    else links[Math.min(at + step, links.length - 1)].focus();
  } else if (event.key === "Escape") {  // which only clears a search field
    event.preventDefault();
    finder().close();
  } else if (event.key === "Enter" && at < 0 && event.target.matches("input")) {
    event.preventDefault();
    if (links.length) links[0].click();
  }
});

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-find]") || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  document.getElementById("places").hidePopover?.();
  openFinder();
});

// Rows with a link are chosen with j and k (or the arrow keys) and opened with Enter; "/" goes to the search field.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const inField = event.target.closest("input, select, textarea, [contenteditable]");
  if (event.key === "/" && !inField) {
    const search = document.querySelector("main [type=search]");
    if (search) { search.focus(); search.select(); event.preventDefault(); }
    return;
  }
  if (event.key === "?" && !inField && document.getElementById("help")) {
    openDialog(document.getElementById("help"));
    event.preventDefault();
    return;
  }
  if (event.key === "Escape" && inField) { event.target.blur(); return; }
  if (inField) return;
  const step = {j: 1, ArrowDown: 1, k: -1, ArrowUp: -1}[event.key];
  const links = rowLinks();
  const neighbour = document.querySelector(`[data-step="${step}"]:not([hidden])`);
  if (neighbour && "jk".includes(event.key)) neighbour.click();
  if (!step || !links.length) return;
  const at = links.indexOf(document.activeElement);
  if (at < 0 && event.key.startsWith("Arrow")) return;
  links[Math.min(Math.max(at + step, 0), links.length - 1)].focus();
  event.preventDefault();
});

// Parts that ask again by themselves rest while nobody looks, the live view also while the reader points at a row or has
// chosen one.
document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.detail.elt;
  if (!part.matches("[hx-trigger^='every']")) return;
  const isHeld = part.querySelector("tbody tr:hover") || part.contains(document.activeElement);
  if (document.hidden || (part.matches("[data-live]") && isHeld)) event.preventDefault();
});

// Scripts that a part of a page needs, which may arrive without the head of its page.
function loadScripts() {
  for (const place of document.querySelectorAll("[data-scripts]")) {
    for (const source of place.dataset.scripts.split(" ")) {
      if (document.querySelector(`script[src="${source}"]`)) continue;
      const script = document.createElement("script");
      script.src = source;
      script.async = false;  // in this order
      document.head.append(script);
    }
  }
}
loadScripts();
document.addEventListener("htmx:afterSettle", loadScripts);

document.addEventListener("htmx:afterSettle", (event) => {
  showLocalTimes(document);
  showNeighbours();
  if (event.detail.elt.id !== "content") return;
  announce();
  reopen();
});
document.addEventListener("htmx:sendError", () => {
  document.getElementById("live").textContent = "The gateway cannot be reached. Try again.";
});
showLocalTimes(document);
showNeighbours();
