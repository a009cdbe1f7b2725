// The messages of the playground as elements, and answers while they arrive. What a model writes is shown as Markdown
// that cannot become markup (markdown.js); pictures and sound come from data and blob URLs only.
"use strict";

const playgroundAnswers = (() => {
  const PICTURE = /^data:image\/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/=]+$/;
  const NAMES = {user: "You", system: "System", developer: "Developer", tool: "Tool result"};

  function make(tag, text, name) {
    const element = document.createElement(tag);
    if (text) element.textContent = text;
    if (name) element.className = name;
    return element;
  }

  function button(text, work, label) {
    const element = make("button", text, "small quiet");
    element.type = "button";
    if (label) element.setAttribute("aria-label", label);
    element.addEventListener("click", work);
    return element;
  }

  function textOf(content) {
    if (typeof content === "string") return content;
    if (!Array.isArray(content)) return "";
    return content.filter((part) => part.type === "text").map((part) => part.text).join("\n");
  }

  // ---- Figures ----

  // Cents, and below a dollar as many decimals as three significant digits need, like the amounts of other pages.
  function roundUsd(value) {
    const decimals = value > 0 && value < 1 ? 2 - Math.floor(Math.log10(value)) : 2;
    return `$${value.toFixed(Math.min(9, Math.max(2, decimals))).replace(/(\.\d{2,}?)0+$/, "$1")}`;
  }

  function writeCost(cost) {
    if (cost === undefined || cost === null || cost === "" || !Number.isFinite(Number(cost))) return null;
    const span = make("span", roundUsd(Number(cost)));
    span.title = `$${Number(cost).toFixed(9).replace(/0+$/, "").replace(/\.$/, "")}`;
    return span;
  }

  function writeFigures(figures, logs) {
    const line = make("p", "", "figures");
    const parts = [];
    if (figures.first) parts.push(`first token ${Math.round(figures.first)} ms`);
    if (figures.total) parts.push(`${(figures.total / 1000).toFixed(2)} s`);
    const usage = figures.usage ?? {};
    const streamed = figures.first && figures.total > figures.first ? figures.total - figures.first : 0;
    if (usage.completion_tokens > 1 && streamed > 50) {
      parts.push(`${Math.round(usage.completion_tokens / streamed * 1000)} tokens/s`);
    }
    if (usage.total_tokens) parts.push(`${usage.prompt_tokens ?? usage.input_tokens ?? 0} + ${usage.completion_tokens ?? usage.output_tokens ?? 0} tokens`);
    const cached = usage.prompt_tokens_details?.cached_tokens;
    if (cached) parts.push(`${cached} cached`);
    if (figures.served) parts.push(figures.served);
    const pieces = parts.map((text) => make("span", text));
    const cost = writeCost(figures.cost);
    if (cost) {
      cost.className = "cost";
      pieces.unshift(cost);
    }
    if (figures.log) {
      const link = make("a", "Request");
      link.href = `${logs}/${encodeURIComponent(figures.log)}`;
      pieces.push(link);
    }
    line.append(...pieces);
    return line;
  }

  // ---- Media ----

  const shown = new WeakMap();  // Blob → its URL, made once

  function urlOf(blob) {
    if (!shown.has(blob)) shown.set(blob, URL.createObjectURL(blob));
    return shown.get(blob);
  }

  function showPicture(url, name) {
    if (PICTURE.test(url || "")) {
      const image = make("img");
      image.src = url;
      image.alt = "Image of the conversation";
      const link = make("a", "Download", "note");
      link.href = url;
      link.download = `${name}.${/^data:image\/(\w+)/.exec(url)[1]}`;
      const figure = make("figure");
      figure.append(image, link);
      return figure;
    }
    return make("p", /^https?:/.test(url || "") ? `Image at ${url}` : "An image of an unknown form", "note");
  }

  function showMedia(media) {
    const player = make(media.kind);
    player.controls = true;
    player.src = urlOf(media.blob);
    if (media.kind === "video") player.playsInline = true;
    const link = make("a", "Download", "note");
    link.href = urlOf(media.blob);
    link.download = media.name;
    const figure = make("figure");
    figure.append(player, link);
    return figure;
  }

  function showPart(part) {
    if (part.type === "image_url") return showPicture(part.image_url?.url, "image");
    if (part.type === "input_audio") return make("p", `Sound (${part.input_audio?.format ?? ""})`, "chip");
    if (part.type === "file") return make("p", part.file?.filename || "File", "chip");
    return null;
  }

  function prettyArguments(text) {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text ?? "";
    }
  }

  // ---- Turns ----

  class Turn {
    // `actions` has what the buttons of a turn do; `logs` is the address of the request log.
    constructor(message, actions, logs) {
      this.message = message;
      this.actions = actions;
      this.logs = logs;
      this.element = make("article", "", `turn ${message.role}`);
      const name = message.role === "assistant" ? message.model || "Assistant" : NAMES[message.role] ?? message.role;
      this.element.setAttribute("aria-label", name);
      this.element.append(make("p", name, "who"));
      this.text = make("div", "", "text");
      this.element.append(this.text);
      this.after = make("div", "", "after");
      this.element.append(this.after);
    }

    // Show a message as it is.
    draw() {
      const message = this.message;
      if (message.reasoning) this.think(message.reasoning, true);
      const text = textOf(message.content);
      if (message.role === "assistant") showMarkdown(this.text, text);
      else {
        this.text.classList.add("plain");
        this.text.textContent = text;
      }
      this.finish();
      return this;
    }

    // Show what stands below the text.
    finish() {
      const message = this.message;
      this.view?.finish();
      this.thoughts?.finish();
      this.element.classList.remove("arriving");
      const parts = Array.isArray(message.content) ? message.content.map(showPart).filter(Boolean) : [];
      parts.push(...(message.images ?? []).map((image, index) => showPicture(image.image_url?.url, `image-${index + 1}`)));
      if (message.media) parts.push(showMedia(message.media));
      if (message.sources?.length) parts.push(this.showSources(message.sources));
      for (const call of message.tool_calls ?? []) {
        const box = make("details", "", "call");
        box.open = true;
        box.append(make("summary", `Calls ${call.function?.name ?? "a tool"}`), make("pre", prettyArguments(call.function?.arguments)));
        parts.push(box);
      }
      if (message.problem) {
        const line = make("p", message.problem, "problem");
        line.setAttribute("role", "alert");
        parts.push(line);
      }
      if (message.figures) parts.push(writeFigures(message.figures, this.logs));
      parts.push(this.showActions());
      this.after.replaceChildren(...parts);
    }

    showSources(sources) {
      const box = make("details");
      const list = make("ul");
      for (const source of sources) {
        const item = make("li");
        item.append(markdownElements.link(source.url ?? "", [source.title || source.url || "Source"]));
        list.append(item);
      }
      box.append(make("summary", `${sources.length} ${sources.length === 1 ? "source" : "sources"}`), list);
      return box;
    }

    showActions() {
      const line = make("div", "", "turn-actions");
      const {copy, edit, again, remove, resume} = this.actions;
      const name = this.message.role === "assistant" ? "answer" : "message";
      if (textOf(this.message.content)) line.append(button("Copy", () => copy(this), `Copy the ${name}`));
      if (edit && this.message.role !== "tool") line.append(button("Edit", () => edit(this), `Edit the ${name}`));
      if (again && this.message.role === "assistant") line.append(button("Regenerate", () => again(this), "Regenerate the answer"));
      if (this.message.job && !this.message.media) line.append(button("Look again", () => resume(this), "Look whether the video is ready"));
      if (remove) line.append(button("Delete", () => remove(this), `Delete the ${name}`));
      return line;
    }

    think(text, whole = false) {
      if (!this.thoughts) {
        const box = make("details", "", "reasoning");
        const place = make("div", "", "text");
        box.append(make("summary", "Reasoning"), place);
        this.text.before(box);
        this.thoughts = new MarkdownView(place);
      }
      this.thoughts.add(text);
      if (whole) this.thoughts.finish();
    }

    // ---- While the answer arrives ----

    begin() {
      this.view = new MarkdownView(this.text);
      this.element.classList.add("arriving");
      this.after.replaceChildren(make("p", "Waiting for the answer…", "note waiting"));
      return this;
    }

    // Add a chunk of chat completions; return whether it has the first of the answer.
    take(chunk) {
      const message = this.message;
      if (chunk.error) throw new Error(chunk.error.message || "The answer failed.");
      if (chunk.usage) Object.assign(message.figures, {usage: chunk.usage, cost: chunk.usage.cost});
      if (chunk.metadata) {
        message.figures.log = chunk.metadata.log_id;
        message.figures.served = `${chunk.metadata.used_provider}/${chunk.metadata.used_model}`;
      }
      const choice = chunk.choices?.[0];
      const delta = choice && (choice.delta ?? choice.message);
      if (!delta) return false;
      const reasoning = delta.reasoning || delta.reasoning_content;
      if (typeof reasoning === "string" && reasoning) {
        message.reasoning = (message.reasoning ?? "") + reasoning;
        this.think(reasoning);
      }
      const text = (delta.content || "") + (delta.refusal || "");
      if (text) {
        message.content += text;
        this.view.add(text);
      }
      for (const name of ["images", "reasoning_details"]) {
        if (delta[name]?.length) message[name] = [...(message[name] ?? []), ...delta[name]];
      }
      for (const one of delta.annotations ?? []) {
        if (one.url_citation) message.sources = [...(message.sources ?? []), one.url_citation];
      }
      for (const one of delta.tool_calls ?? []) this.takeCall(one);
      const any = Boolean(text || reasoning || delta.tool_calls?.length || delta.images?.length);
      if (any) this.after.querySelector(".waiting")?.remove();
      return any;
    }

    takeCall(one) {
      const calls = this.message.tool_calls ??= [];
      const index = one.index ?? calls.length;
      const known = calls[index] ??= {id: "", type: "function", function: {name: "", arguments: ""}};
      if (one.id) known.id = one.id;
      if (one.function?.name) known.function.name += one.function.name;
      if (one.function?.arguments) known.function.arguments += one.function.arguments;
    }
  }

  async function* readEvents(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const data = line.startsWith("data:") ? line.slice(5).trim() : "";
        if (data && data !== "[DONE]") yield JSON.parse(data);
      }
    }
  }

  return {make, button, textOf, roundUsd, Turn, readEvents};
})();
