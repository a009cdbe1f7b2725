// What the guides add to their text: a button that copies a block of code, and the place of the reader in the contents.
"use strict";

const live = document.getElementById("live");

for (const code of document.querySelectorAll("main pre")) {
  const frame = document.createElement("div");
  frame.className = "copied";
  code.replaceWith(frame);
  code.tabIndex = 0;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "small";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await copyText(code);
    button.textContent = live.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; live.textContent = ""; }, 1500);
  });
  frame.append(code, button);
}

// On a narrow page the contents stand above the text, so they begin closed.
const contents = document.querySelector(".contents details");
if (contents && innerWidth < 1100) contents.open = false;

const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
function mark() {
  let current = null;
  for (const [anchor, link] of links) {
    const heading = document.getElementById(anchor);
    if (!current || (heading && heading.getBoundingClientRect().top < 120)) current = link;
    link.removeAttribute("aria-current");
  }
  if (current) current.setAttribute("aria-current", "location");
}
if (links.size) {
  addEventListener("scroll", () => requestAnimationFrame(mark), {passive: true});
  mark();
}
