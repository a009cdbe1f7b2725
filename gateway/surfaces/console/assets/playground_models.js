// The picker of models: what the chosen key may call, with prices, context and abilities.
"use strict";

class ModelPicker {
  static SHOWN = 80;  // models of the list at a time; the search finds the others

  constructor(url, getChoice) {
    this.url = url;
    this.getChoice = getChoice;
    this.dialog = document.getElementById("picker");
    this.search = this.dialog.querySelector("#picker-search");
    this.list = this.dialog.querySelector("#picker-list");
    this.note = this.dialog.querySelector("#picker-note");
    this.search.addEventListener("input", () => this.show());
    this.search.addEventListener("keydown", (event) => this.move(event));
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.choose(option.dataset.id);
    });
    this.forget();
  }

  // Read the list again, for another key.
  forget() {
    this.loaded = null;
    this.models = null;
  }

  load() {
    this.loaded ??= (async () => {
      const answer = await fetch(`${this.url}?for=${encodeURIComponent(this.getChoice())}`);
      const read = await answer.json().catch(() => ({message: "The list of models could not be read."}));
      if (!answer.ok) throw new Error(read.message);
      this.models = read;
      return read;
    })().catch((error) => {
      this.loaded = null;
      throw error;
    });
    return this.loaded;
  }

  find(mode, id) {
    return this.models?.[mode]?.find((model) => model.id === id);
  }

  async open(mode, current, chosen) {
    Object.assign(this, {mode, current, chosen});
    this.search.value = "";
    this.list.replaceChildren();
    this.note.textContent = "Reading the models…";
    this.dialog.showModal();
    this.search.focus();
    try {
      await this.load();
      this.show();
    } catch (error) {
      this.note.textContent = error.message;
    }
  }

  found() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (model) => `${model.id} ${model.name} ${model.by ?? ""} ${model.does.join(" ")}`.toLowerCase();
    return (this.models?.[this.mode] ?? []).filter((model) => words.every((word) => text(model).includes(word)));
  }

  show() {
    const found = this.found();
    const typed = this.search.value.trim();
    const rows = found.slice(0, ModelPicker.SHOWN).map((model) => this.row(model));
    // Names with a provider or a suffix are not in the list.
    if (typed && !/\s/.test(typed) && !found.some((model) => model.id === typed)) {
      rows.push(this.row({id: typed, name: `Use “${typed}”`, does: []}));
    }
    this.list.replaceChildren(...rows);
    const all = this.models?.[this.mode]?.length ?? 0;
    this.note.textContent = !all ? "Your key can call no model of this kind."
      : found.length > ModelPicker.SHOWN ? `${found.length} models. Type to find others.` : `${found.length} of ${all} ${all === 1 ? "model" : "models"}`;
    const current = rows.find((row) => row.dataset.id === this.current) ?? rows[0];
    this.mark(typed ? rows[0] : current);
  }

  row(model) {
    const part = (tag, text, name) => Object.assign(document.createElement(tag), {textContent: text, className: name ?? ""});
    const row = part("li", "", "choice");
    row.id = `model-${this.list.id}-${model.id}`;
    row.dataset.id = model.id;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(model.id === this.current));
    const head = part("div", "", "choice-head");
    const prices = model.free ? "free" : model.in ? `${model.in} in · ${model.out ?? "–"} out` : model.other ?? "";
    head.append(part("strong", model.name), part("span", prices, "price"));
    const about = [model.id !== model.name ? model.id : "", model.about, model.by, shortCount(model.context)].filter(Boolean);
    const does = part("div", "", "badges");
    for (const ability of model.does) does.append(part("span", ability, "badge"));
    row.append(head, part("div", about.join(" · "), "note"), does);
    return row;
  }

  mark(row) {
    this.list.querySelector(".marked")?.classList.remove("marked");
    row?.classList.add("marked");
    row?.scrollIntoView({block: "nearest"});
    if (row) this.search.setAttribute("aria-activedescendant", row.id);
    else this.search.removeAttribute("aria-activedescendant");
  }

  move(event) {
    const rows = [...this.list.children];
    const at = rows.findIndex((row) => row.classList.contains("marked"));
    if (event.key === "ArrowDown") this.mark(rows[Math.min(at + 1, rows.length - 1)]);
    else if (event.key === "ArrowUp") this.mark(rows[Math.max(at - 1, 0)]);
    else if (event.key === "Enter") { if (rows[at]) this.choose(rows[at].dataset.id); }
    else if (event.key === "Escape") this.dialog.close();  // a search field would only be cleared
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  choose(id) {
    this.dialog.close();
    this.chosen(id);
  }
}

function shortCount(tokens) {
  if (!tokens) return "";
  return tokens >= 1e6 ? `${Number((tokens / 1e6).toFixed(1))}M context` : `${Math.round(tokens / 1000)}k context`;
}
