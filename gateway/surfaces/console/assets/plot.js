// What scripts add to the plots of Explore: a list of all values at a bar, a legend that hides and isolates, a selected
// part of the time, and the requests behind one part of a bar.
"use strict";

const HEIGHT = 240;
const DRAG = 6;  // pixels after which a press is a selection
const HOURS_WITHIN = 2;  // days of a selection that is shown by hour
const NUMBERS = {
  usd: new Intl.NumberFormat("en-US", {style: "currency", currency: "USD", notation: "compact", maximumSignificantDigits: 3}),
  count: new Intl.NumberFormat("en-US", {notation: "compact", maximumSignificantDigits: 3}),
};

const svgElement = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
const classOf = (shape) => shape.getAttribute("class");

// An axis ends at a round number.
function roundUp(maximum) {
  if (maximum <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(maximum));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((end) => end >= maximum * 0.999999);
}

class LivePlot {
  constructor(area) {
    this.area = area;
    this.svg = area.querySelector("svg");
    this.bars = [...this.svg.querySelectorAll("g")];
    this.legend = area.parentElement.querySelector(".legend");
    this.hidden = new Set();
    this.top = Number(area.dataset.top);
    this.names = new Map();
    this.heights = new Map([...this.svg.querySelectorAll("g rect:not(.back)")].map((rect) => [rect, Number(rect.getAttribute("height"))]));
    this.scale = [...area.querySelectorAll(".scale span")].map((span) => span.textContent);
    for (const bar of this.bars) {
      const title = bar.querySelector("title");
      bar.dataset.text = title.textContent;
      title.remove();
    }
    this.tip = document.createElement("p");
    this.tip.className = "tip";
    this.tip.hidden = true;
    area.append(this.tip);
    if (this.legend) this.makeLegend();
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerup", (event) => this.release(event));
    this.svg.addEventListener("pointercancel", () => this.end());
    this.svg.addEventListener("pointerleave", () => { if (!this.from) this.tip.hidden = true; });
    this.svg.addEventListener("dragstart", (event) => event.preventDefault());
    this.svg.addEventListener("click", (event) => this.click(event), true);
  }

  makeLegend() {
    const items = [...this.legend.querySelectorAll("li")].filter((item) => item.querySelector(".dot rect"));
    for (const item of items) {
      const shape = classOf(item.querySelector(".dot rect"));
      this.names.set(shape, {name: item.querySelector("span").textContent, query: item.dataset.query || "", dot: item.querySelector(".dot")});
      const toggle = document.createElement("button");
      toggle.type = "button";
      toggle.setAttribute("aria-pressed", "true");
      toggle.dataset.shape = shape;
      toggle.append(...item.childNodes);
      toggle.addEventListener("click", () => {
        if (!this.hidden.delete(shape)) this.hidden.add(shape);
        this.draw();
      });
      const only = document.createElement("button");
      only.type = "button";
      only.className = "only";
      only.textContent = "only";
      only.setAttribute("aria-label", `Only ${this.names.get(shape).name}`);
      only.addEventListener("click", () => {
        const others = [...this.names.keys()].filter((one) => one !== shape);
        const alone = !this.hidden.has(shape) && others.every((one) => this.hidden.has(one));
        this.hidden = new Set(alone ? [] : others);
        this.draw();
      });
      item.replaceChildren(toggle, ...(items.length > 1 ? [only] : []));
    }
  }

  // The shown parts are stacked anew, on an axis that ends above the largest of their sums.
  draw() {
    for (const toggle of this.legend.querySelectorAll("[aria-pressed]")) {
      toggle.setAttribute("aria-pressed", String(!this.hidden.has(toggle.dataset.shape)));
    }
    for (const line of this.svg.querySelectorAll("path")) line.toggleAttribute("hidden", this.hidden.has(classOf(line)));
    const before = this.svg.querySelector(".before");
    if (before) before.toggleAttribute("hidden", this.hidden.size > 0);
    const sums = this.bars.map((bar) => this.shownParts(bar).reduce((sum, rect) => sum + this.heights.get(rect), 0));
    const all = !this.hidden.size;
    const end = all || !this.heights.size ? this.top : roundUp(Math.max(...sums) / HEIGHT * this.top);
    const factor = this.top / end;
    for (const bar of this.bars) {
      let bottom = HEIGHT;
      for (const rect of bar.querySelectorAll("rect:not(.back)")) {
        const height = this.hidden.has(classOf(rect)) ? 0 : this.heights.get(rect) * factor;
        bottom -= height;
        rect.setAttribute("y", bottom);
        rect.setAttribute("height", height);
      }
    }
    this.label(all, end);
  }

  label(all, end) {
    const format = NUMBERS[this.area.dataset.unit];
    const size = this.area.dataset.unit === "usd" ? 1e9 : 1;
    [...this.area.querySelectorAll(".scale span")].forEach((span, place) => {
      if (all || !format || !this.heights.size) span.textContent = this.scale[place];
      else if (place < 2) span.textContent = format.format(end / size / (place + 1));
    });
  }

  shownParts(bar) {
    return [...bar.querySelectorAll("rect:not(.back)")].filter((rect) => !this.hidden.has(classOf(rect)));
  }

  barAt(event) {
    const box = this.svg.getBoundingClientRect();
    const place = Math.floor((event.clientX - box.left) / box.width * this.bars.length);
    return Math.min(Math.max(place, 0), this.bars.length - 1);
  }

  press(event) {
    if (event.button !== 0 || event.pointerType === "touch") return;
    this.from = {x: event.clientX, bar: this.barAt(event)};
  }

  move(event) {
    const at = this.barAt(event);
    this.showTip(at);
    if (!this.from || Math.abs(event.clientX - this.from.x) < DRAG) return;
    if (!this.selection) {
      this.selection = svgElement("rect");
      this.selection.setAttribute("class", "brush");
      this.selection.setAttribute("y", 0);
      this.selection.setAttribute("height", HEIGHT);
      this.svg.append(this.selection);
      this.svg.setPointerCapture(event.pointerId);
    }
    const place = 1000 / this.bars.length;
    const [first, last] = [Math.min(at, this.from.bar), Math.max(at, this.from.bar)];
    this.selection.setAttribute("x", first * place);
    this.selection.setAttribute("width", (last - first + 1) * place);
  }

  release(event) {
    if (this.selection) {
      const at = this.barAt(event);
      const [first, last] = [Math.min(at, this.from.bar), Math.max(at, this.from.bar)];
      this.zoom(this.bars[first].dataset.first, this.bars[last].dataset.last);
      this.dragged = true;
      setTimeout(() => { this.dragged = false; });
    }
    this.end();
  }

  end() {
    this.from = null;
    if (this.selection) this.selection.remove();
    this.selection = null;
  }

  zoom(first, last) {
    if (!first || !last) return;
    let [from, to] = [first, last];
    if (!from.includes("T") && (new Date(to) - new Date(from)) / 86400000 < HOURS_WITHIN) [from, to] = [`${from}T00`, `${to}T23`];
    visit(`${location.pathname}?${this.area.dataset.zoom}&timeRange=custom&from=${from}&to=${to}`);
  }

  // The requests of one part of a bar have the filters of its name too.
  click(event) {
    if (this.dragged) { event.preventDefault(); event.stopPropagation(); return; }
    const link = event.target.closest("a");
    const part = this.names.get(classOf(event.target));
    if (!link || !part || !part.query || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const address = new URL(link.getAttribute("href"), location.href);
    for (const [name, value] of new URLSearchParams(part.query)) address.searchParams.set(name, value);
    visit(address.pathname + address.search);
  }

  showTip(at) {
    const bar = this.bars[at];
    if (!bar) return;
    const lines = bar.dataset.text.split("\n");
    this.tip.replaceChildren(...lines.map((line) => this.writeLine(line)));
    this.tip.hidden = false;
    const box = this.svg.getBoundingClientRect();
    const outer = this.area.getBoundingClientRect();
    const middle = box.left - outer.left + (at + 0.5) / this.bars.length * box.width;
    const right = middle > outer.width / 2;
    this.tip.style.left = right ? "auto" : `${middle + 12}px`;
    this.tip.style.right = right ? `${outer.width - middle + 12}px` : "auto";
  }

  writeLine(line) {
    const row = document.createElement("span");
    for (const {name, dot} of this.names.values()) {
      if (line.startsWith(`${name}: `)) { row.append(dot.cloneNode(true)); break; }
    }
    row.append(line);
    return row;
  }
}

// Pages are exchanged as a click on a link would do it.
function visit(address) {
  const link = document.createElement("a");
  link.href = address;
  document.querySelector("#content").append(link);
  htmx.process(link);
  link.click();
}

function enlivenPlots() {
  for (const area of document.querySelectorAll(".area[data-zoom]:not([data-live])")) {
    area.dataset.live = "";
    new LivePlot(area);
  }
}

document.addEventListener("htmx:afterSettle", enlivenPlots);
enlivenPlots();
