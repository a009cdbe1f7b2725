// Shows the Markdown of an answer. marked reads it into tokens; this file makes elements of them and never parses text
// as HTML, so nothing that a model writes becomes markup, a script, or a request: pictures of other hosts are links, and
// links lead to http, https and mailto only.
"use strict";

const MARKDOWN_LIMIT = 200000;  // characters; longer texts are shown as they are
const PARAGRAPH_LIMIT = 5000;  // likewise of a paragraph: reading emphasis takes the square of its length
const TABLE_LIMIT = 20000;  // cells; marked fills short rows, so that a text has many more cells than characters
const EMPHASIS_LIMIT = 8e6;  // marks of emphasis times length, of the paragraphs of a text
const PAGE_LIMIT = 2000;  // milliseconds for the texts of a page; the rest is shown as it is
const OPEN_BLOCKS = 2;  // of a streamed text that may still change
const SAFE_LINK = /^(https?:\/\/|mailto:)/i;
const SAFE_PICTURE = /^data:image\/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/=]+$/;

// Shows a table with too many cells as it is written.
class BoundedTokenizer extends marked.Tokenizer {
  table(src) {
    const found = this.rules.block.table.exec(src);
    if (!found) return undefined;
    const [raw, , align, rows = ""] = found;
    if (align.split("|").length * rows.split("\n").length <= TABLE_LIMIT) return super.table(src);
    return {type: "code", raw, text: raw.trimEnd(), lang: ""};
  }
}

// Return the blocks of a text as tokens of marked.
function readMarkdown(text) {
  const lexer = new marked.Lexer({gfm: true, tokenizer: new BoundedTokenizer()});
  lexer.blockTokens(text, lexer.tokens);
  let emphasis = 0;
  for (const {src, tokens} of lexer.inlineQueue) {
    emphasis += (src.match(/[*_~]+/g)?.length ?? 0) * src.length;
    if (src.length <= PARAGRAPH_LIMIT && emphasis <= EMPHASIS_LIMIT) lexer.inlineTokens(src, tokens);
    else tokens.push({type: "text", raw: src, text: src});
  }
  return lexer.tokens;
}

const markdownElements = {
  make(tag, children = [], name = "") {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...[children].flat());
    return element;
  },

  inline(tokens) {
    return (tokens || []).map((token) => this.inlineOf(token));
  },

  inlineOf(token) {
    const tags = {strong: "strong", em: "em", del: "del"};
    if (tags[token.type]) return this.make(tags[token.type], this.inline(token.tokens));
    if (token.type === "codespan") return this.make("code", token.text);
    if (token.type === "br") return this.make("br");
    if (token.type === "link") return this.link(token.href, this.inline(token.tokens));
    if (token.type === "image") return this.picture(token);
    if (token.type === "checkbox") return this.box(token.checked);
    if (token.tokens && token.type === "text") return this.make("span", this.inline(token.tokens));
    return document.createTextNode(token.type === "html" ? token.raw : token.text ?? token.raw);
  },

  link(href, content) {
    if (!SAFE_LINK.test(href)) return this.make("span", content);
    const link = this.make("a", content);
    link.href = href;
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
    link.title = href;
    return link;
  },

  picture(token) {
    if (!SAFE_PICTURE.test(token.href)) return this.link(token.href, [`[image: ${token.text || token.href}]`]);
    const image = this.make("img");
    image.src = token.href;
    image.alt = token.text || "Picture in the answer";
    return image;
  },

  box(checked) {
    return document.createTextNode(checked ? "☑ " : "☐ ");
  },

  code(token) {
    const frame = this.make("div", [], "copied code-block");
    const code = this.make("pre", this.make("code", token.text));
    code.tabIndex = 0;
    const button = this.make("button", "Copy", "small");
    button.type = "button";
    button.dataset.copyCode = "";
    frame.append(code, button);
    if (token.lang) frame.prepend(this.make("p", token.lang.split(/\s/)[0].slice(0, 40), "language"));
    return frame;
  },

  list(token) {
    const list = this.make(token.ordered ? "ol" : "ul");
    if (token.ordered && Number(token.start) > 1) list.start = Number(token.start);
    for (const item of token.items) {
      const content = this.blocks(item.tokens, !item.loose);
      if (item.task && !item.tokens.some((one) => one.type === "checkbox")) content.unshift(this.box(item.checked));
      list.append(this.make("li", content));
    }
    return list;
  },

  table(token) {
    const row = (cells, tag) => this.make("tr", cells.map((cell, index) => {
      const align = token.align[index];
      return this.make(tag, this.inline(cell.tokens), align && align !== "left" ? `to-${align}` : "");
    }));
    const head = this.make("thead", row(token.header, "th"));
    for (const cell of head.querySelectorAll("th")) cell.scope = "col";
    const table = this.make("table", [head, this.make("tbody", token.rows.map((cells) => row(cells, "td")))], "short");
    const frame = this.make("div", table, "table");
    frame.tabIndex = 0;
    return frame;
  },

  blocks(tokens, tight = false) {
    return tokens.map((token) => this.block(token, tight)).filter(Boolean);
  },

  block(token, tight = false) {
    switch (token.type) {
      case "space":
      case "def":
        return null;
      case "heading":  // below the headings of the page
        return this.make(`h${Math.min(6, token.depth + 2)}`, this.inline(token.tokens));
      case "paragraph":
        return this.make("p", this.inline(token.tokens));
      case "text":
        return this.make(tight ? "span" : "p", token.tokens ? this.inline(token.tokens) : token.text);
      case "code":
        return this.code(token);
      case "blockquote":
        return this.make("blockquote", this.blocks(token.tokens));
      case "list":
        return this.list(token);
      case "table":
        return this.table(token);
      case "hr":
        return this.make("hr");
      case "html":
        return this.make("p", token.raw.trim());
      default:
        return this.make("p", token.tokens ? this.inline(token.tokens) : token.raw);
    }
  },
};

// A text that grows. Blocks that are complete keep their elements, so nothing flickers and a selection in them stays.
class MarkdownView {
  constructor(element) {
    this.element = element;
    this.text = "";
    this.settled = 0;  // characters whose blocks are complete
    this.open = [];  // the blocks after them: their tokens and elements
    this.waiting = false;
    this.cost = 0;  // milliseconds of the last rendering
    element.classList.add("markdown");
  }

  add(text) {
    this.text += text.replace(/\r\n?/g, "\n");
    if (this.waiting) return;
    this.waiting = true;
    const render = () => { if (this.waiting) this.render(false); };
    if (this.cost > 16) setTimeout(render, Math.min(2000, 4 * this.cost));
    else requestAnimationFrame(render);
  }

  finish() {
    this.render(true);
  }

  render(whole) {
    this.waiting = false;
    const began = performance.now();
    if (this.text.length > MARKDOWN_LIMIT) return this.showPlain();
    let blocks;
    try {
      blocks = readMarkdown(this.text.slice(this.settled));
      this.replace(blocks);
    } catch {  // nested too deeply
      return this.showPlain();
    }
    this.cost = performance.now() - began;
    if (whole) return;
    while (this.open.length > OPEN_BLOCKS && this.open[1].token.raw) {
      this.settled += this.open.shift().token.raw.length;
    }
  }

  replace(tokens) {
    let same = 0;
    while (same < this.open.length && same < tokens.length && this.open[same].token.raw === tokens[same].raw
      && this.open[same].token.type === tokens[same].type) same += 1;
    const [old, fresh] = [this.open[same], tokens[same]];
    if (old && fresh && old.token.type === "code" && fresh.type === "code" && old.token.lang === fresh.lang) {
      old.node.querySelector("code").textContent = fresh.text;
      old.token = fresh;
      same += 1;
    }
    for (const block of this.open.splice(same)) block.node?.remove();
    for (const token of tokens.slice(same)) {
      const node = markdownElements.block(token);
      if (node) this.element.append(node);
      this.open.push({token, node});
    }
  }

  showPlain() {
    this.element.classList.remove("markdown");
    this.element.classList.add("plain");
    this.element.textContent = this.text;
  }
}

function showMarkdown(element, text) {
  element.replaceChildren();
  const view = new MarkdownView(element);
  view.text = text.replace(/\r\n?/g, "\n");
  view.finish();
  return view;
}

// Texts of pages that the server wrote, where a page asks for it.
function showMarkdownParts() {
  const began = performance.now();
  for (const place of document.querySelectorAll("[data-markdown] .answer .said:not(.markdown, .plain)")) {
    if (performance.now() - began > PAGE_LIMIT) return;
    showMarkdown(place, place.textContent);
  }
}
showMarkdownParts();
document.addEventListener("htmx:afterSettle", showMarkdownParts);

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy-code]");
  if (!button) return;
  copyText(button.parentElement.querySelector("code")).then(() => {
    button.textContent = document.getElementById("live").textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; document.getElementById("live").textContent = ""; }, 1500);
  });
});
