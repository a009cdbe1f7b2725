// Copies the text of an element.
"use strict";

// Pages without TLS on another host have no clipboard: there the text is selected and copied as by the keyboard.
async function copyText(element) {
  if (navigator.clipboard) return navigator.clipboard.writeText(element.textContent);
  getSelection().selectAllChildren(element);
  document.execCommand("copy");
  getSelection().removeAllRanges();
}
