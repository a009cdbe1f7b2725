// A column of the playground: a model with its parameters and its own conversation.
"use strict";

const playgroundColumns = (() => {
  const {make, textOf, Turn, readEvents} = playgroundAnswers;
  const SHOWN = 80;  // newest messages that are drawn at once
  const NEAR = 60;  // pixels from the end of a transcript, within which it follows the answer
  const NUMBERS = {temperature: Number, top_p: Number, max_tokens: Number, n: Number};
  const POLL_MS = 2000;
  const SENT = ["role", "content", "tool_calls", "tool_call_id", "reasoning_details", "images", "name"];

  // A message as it is sent; null for a failed answer without content.
  function toWire(message) {
    const sent = Object.fromEntries(SENT.filter((name) => message[name] !== undefined).map((name) => [name, message[name]]));
    if (message.role !== "assistant") return sent;
    if (!sent.content) sent.content = null;
    if (sent.tool_calls?.length === 0) delete sent.tool_calls;
    return sent.content || sent.tool_calls || sent.images ? sent : null;
  }

  class Column {
    // `page` is the playground: its settings, its calls and what happens after a change.
    constructor(page, template, model = "", params = null) {
      this.page = page;
      this.element = template.content.firstElementChild.cloneNode(true);
      this.find = (selector) => this.element.querySelector(selector);
      this.chooser = this.find(".model");
      this.log = this.find(".transcript");
      this.messages = [];
      this.turns = [];
      this.whole = false;  // whether all messages are drawn
      this.controller = null;
      for (const field of this.element.querySelectorAll("[data-param]")) {
        const name = field.dataset.param;
        field.id = `${name}-${crypto.randomUUID()}`;
        field.closest("div").querySelector("label").htmlFor = field.id;
        if (params?.[name] !== undefined) field.value = params[name];
      }
      this.choose(String(model ?? ""));
      this.chooser.addEventListener("click", () => page.pick(this));
      this.find(".remove").addEventListener("click", () => page.removeColumn(this));
      this.draw();
    }

    choose(model) {
      this.model = model;
      const known = this.page.picker.find(this.page.mode(), model);
      this.chooser.replaceChildren(make("strong", known?.name ?? (model || "Choose a model")));
      const price = known?.in ? `${known.in} / ${known.out ?? "–"}` : known?.other ?? "";
      if (price) this.chooser.append(make("span", price, "price"));
      this.chooser.dataset.model = model;
      this.chooser.title = model;
    }

    // The parameters as they were typed.
    params() {
      const fields = [...this.element.querySelectorAll("[data-param]")].filter((field) => field.value.trim());
      return Object.fromEntries(fields.map((field) => [field.dataset.param, field.value.trim()]));
    }

    // The parameters of the mode as they are sent. Raises an error that names the wrong one.
    readParams() {
      const sent = {};
      for (const field of this.element.querySelectorAll("[data-param]")) {
        const name = field.dataset.param;
        const text = field.value.trim();
        field.removeAttribute("aria-invalid");
        if (!text || field.closest("[hidden]") || name === "more") continue;
        sent[name] = NUMBERS[name] ? NUMBERS[name](text) : text;
        if (Number.isNaN(sent[name])) this.refuse(field, `${name} must be a number.`);
      }
      const more = this.find("[data-param=more]");
      if (!more.value.trim()) return sent;
      try {
        return {...sent, ...JSON.parse(more.value)};
      } catch (error) {
        return this.refuse(more, `The parameters of ${this.model} are not JSON: ${error.message}`);
      }
    }

    refuse(field, text) {
      field.setAttribute("aria-invalid", "true");
      field.closest("details").open = true;
      field.focus();
      throw new Error(text);
    }

    wire() {
      return this.messages.map(toWire).filter(Boolean);
    }

    // ---- What is shown ----

    draw() {
      const hidden = this.whole ? 0 : Math.max(0, this.messages.length - SHOWN);
      this.turns = this.messages.slice(hidden).map((message) => this.makeTurn(message).draw());
      this.log.replaceChildren(...this.turns.map((turn) => turn.element));
      if (hidden) this.log.prepend(this.offerEarlier(hidden));
      if (!this.turns.length) this.log.append(make("p", this.page.hint(), "note empty-log"));
      const last = this.turns.at(-1);
      if (last?.message.role === "assistant" && last.message.tool_calls?.length) this.askResults(last);
      this.scroll(true);
    }

    // A long conversation of the log begins with its newest messages.
    offerEarlier(count) {
      const show = make("button", `Show ${count} earlier ${count === 1 ? "message" : "messages"}`, "small earlier-turns");
      show.type = "button";
      show.addEventListener("click", () => {
        const height = this.log.scrollHeight;
        this.whole = true;
        this.draw();
        this.log.scrollTop = this.log.scrollHeight - height;
        this.log.focus();
      });
      return show;
    }

    makeTurn(message) {
      const chat = this.page.mode() === "chat";
      const actions = {
        copy: (turn) => this.copy(turn),
        edit: chat ? (turn) => this.edit(turn) : null,
        again: (turn) => this.again(turn),
        remove: (turn) => this.remove(turn),
        resume: (turn) => this.resume(turn),
      };
      return new Turn(message, actions, this.page.logs);
    }

    add(message) {
      this.log.querySelector(".empty-log")?.remove();
      this.messages.push(message);
      const turn = this.makeTurn(message);
      this.turns.push(turn);
      this.log.append(turn.element);
      return turn;
    }

    isAtEnd() {
      return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < NEAR;
    }

    scroll(always = false) {
      if (always || this.isAtEnd()) this.log.scrollTop = this.log.scrollHeight;
    }

    // ---- Messages are copied, edited, deleted and answered again ----

    copy(turn) {
      copyText(make("div", textOf(turn.message.content))).then(() => this.page.say("Copied"));
    }

    cut(from) {
      this.controller?.abort();
      this.messages.splice(from);
    }

    edit(turn) {
      if (this.controller) return;
      const at = this.messages.indexOf(turn.message);
      const isPrompt = turn.message.role === "user";
      const form = make("form", "", "edit");
      const field = make("textarea");
      field.value = textOf(turn.message.content);
      field.rows = Math.min(12, field.value.split("\n").length + 1);
      field.setAttribute("aria-label", "Message");
      const save = make("button", isPrompt ? "Save and send" : "Save", "small");
      save.type = "submit";
      const cancel = make("button", "Cancel", "small");
      cancel.type = "button";
      const leave = () => {
        this.draw();
        this.focusAction(turn.message, "Edit");
      };
      cancel.addEventListener("click", leave);
      form.addEventListener("keydown", (event) => {
        if (event.key === "Escape") {
          event.preventDefault();
          event.stopPropagation();
          leave();
        } else if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) {
          event.preventDefault();
          form.requestSubmit();
        }
      });
      const line = make("div", "", "actions");
      line.append(save, cancel);
      form.append(field, line);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const content = turn.message.content;
        const others = Array.isArray(content) ? content.filter((part) => part.type !== "text") : [];
        turn.message.content = others.length ? [{type: "text", text: field.value}, ...others] : field.value;
        if (isPrompt) this.cut(at + 1);
        else delete turn.message.reasoning_details;  // signatures are of the text that the model wrote
        this.draw();
        this.page.changed();
        if (isPrompt) {
          this.log.focus();
          this.page.run([this]);
        } else this.focusAction(turn.message, "Edit");
      });
      turn.text.hidden = true;
      turn.text.after(form);
      field.focus();
    }

    // Focus a button of a message again, for those who use the keyboard.
    focusAction(message, text) {
      const turn = this.turns.find((one) => one.message === message);
      const buttons = turn ? [...turn.element.querySelectorAll(".turn-actions button")] : [];
      (buttons.find((one) => one.textContent === text) ?? this.log).focus();
    }

    again(turn) {
      if (this.controller) return;
      this.cut(this.messages.indexOf(turn.message));
      this.draw();
      this.log.focus();
      this.page.run([this]);
    }

    // Delete a message; with calls of tools also their results, which mean nothing without them.
    remove(turn) {
      if (this.controller) return;
      const calls = new Set((turn.message.tool_calls ?? []).map((call) => call.id));
      const gone = new Set([turn.message, ...this.messages.filter((one) => calls.has(one.tool_call_id))]);
      if (turn.message.role === "tool") {
        const caller = this.messages.find((one) => one.tool_calls?.some((call) => call.id === turn.message.tool_call_id));
        const others = new Set((caller?.tool_calls ?? []).map((call) => call.id));
        for (const one of this.messages) if (one === caller || others.has(one.tool_call_id)) gone.add(one);
      }
      this.messages = this.messages.filter((message) => !gone.has(message));
      this.draw();
      this.page.changed();
      this.log.focus();
    }

    // Ask for the results of the tools that the last answer calls, and go on when all are there.
    askResults(turn) {
      const calls = turn.message.tool_calls.filter(Boolean);
      const results = new Map();
      for (const call of calls) {
        const box = make("form", "", "tool");
        const label = make("label", `Result of ${call.function?.name ?? "the tool"}`);
        const field = make("textarea");
        field.rows = 2;
        field.id = `result-${crypto.randomUUID()}`;
        label.htmlFor = field.id;
        const send = make("button", "Return the result", "small");
        send.type = "submit";
        box.append(label, field, send);
        box.addEventListener("submit", (event) => {
          event.preventDefault();
          if (this.messages.at(-1) !== turn.message) return;
          results.set(call.id, field.value);
          field.readOnly = true;
          send.disabled = true;
          if (results.size < calls.length) return;
          for (const one of calls) {
            this.messages.push({role: "tool", tool_call_id: one.id, content: results.get(one.id)});
          }
          this.draw();
          this.page.run([this]);
        });
        turn.element.append(box);
      }
    }

    // ---- Calls ----

    // Get an answer to the messages; what goes wrong is shown below what came.
    async answer() {
      const mode = this.page.mode();
      const body = this.page.buildBody(this, this.wire());
      const turn = this.add({role: "assistant", content: "", model: this.model, figures: {}}).begin();
      this.scroll(true);
      const began = performance.now();
      await this.guarded(turn, began, (signal) => this[mode](turn, body, signal, began));
    }

    async guarded(turn, began, work) {
      const message = turn.message;
      this.controller = new AbortController();
      this.element.setAttribute("aria-busy", "true");
      try {
        await work(this.controller.signal);
      } catch (error) {
        message.problem = error.name === "AbortError" ? "Stopped." : error.message;
      } finally {
        if (message.tool_calls) message.tool_calls = message.tool_calls.filter(Boolean);
        message.figures.total ??= performance.now() - began;
        this.controller = null;
        this.element.removeAttribute("aria-busy");
        const follows = this.isAtEnd();
        turn.finish();
        if (message.tool_calls?.length && !message.problem) this.askResults(turn);
        if (follows) this.scroll(true);
      }
    }

    async chat(turn, body, signal, began) {
      const answer = await this.page.call(playgroundCode.PATHS.chat, body, signal);
      const figures = turn.message.figures;
      if (!body.stream) {
        turn.take(await answer.json());
        return;
      }
      for await (const chunk of readEvents(answer)) {
        const follows = this.isAtEnd();
        if (turn.take(chunk)) figures.first ??= performance.now() - began;
        if (follows) requestAnimationFrame(() => this.scroll(true));
      }
      figures.total = performance.now() - began;
    }

    async image(turn, body, signal) {
      const answer = await (await this.page.call(playgroundCode.PATHS.image, body, signal)).json();
      const kindOf = (data) => data.startsWith("/9j/") ? "jpeg" : data.startsWith("UklGR") ? "webp" : "png";
      turn.message.images = (answer.data ?? []).map((one) => (
        {image_url: {url: one.b64_json ? `data:image/${kindOf(one.b64_json)};base64,${one.b64_json}` : one.url}}
      ));
      Object.assign(turn.message.figures, {usage: answer.usage, cost: answer.usage?.cost, log: answer.metadata?.log_id});
    }

    async speech(turn, body, signal) {
      const answer = await this.page.call(playgroundCode.PATHS.speech, body, signal);
      const blob = await answer.blob();
      turn.message.media = {kind: "audio", blob, name: `speech.${/audio\/(\w+)/.exec(blob.type)?.[1] ?? "mp3"}`};
      this.noteHeaders(turn, answer);
    }

    async transcription(turn, body, signal) {
      const form = new FormData();
      for (const [name, value] of Object.entries(body)) form.append(name, value);
      const answer = await this.page.call(playgroundCode.PATHS.transcription, form, signal);
      const text = await answer.text();
      let read = null;
      try {
        read = JSON.parse(text);
      } catch { /* subtitles and plain text are shown as they are */ }
      turn.message.content = read?.text ?? text;
      turn.view.add(turn.message.content);
      this.noteHeaders(turn, answer);
      if (read?.usage?.cost !== undefined) turn.message.figures.cost = read.usage.cost;
    }

    noteHeaders(turn, answer) {
      const cost = answer.headers.get("x-llmgateway-cost") || answer.headers.get("x-llmgateway-estimated-cost");
      Object.assign(turn.message.figures, {cost, log: answer.headers.get("x-request-id")});
    }

    async video(turn, body, signal) {
      const begun = await this.page.call(playgroundCode.PATHS.video, body, signal);
      const job = await begun.json();
      turn.message.job = job.id;
      this.page.changed();  // the job goes on when the page is left
      await this.follow(turn, job, signal);
    }

    // Wait for a video and show it.
    async follow(turn, job, signal) {
      const path = `${playgroundCode.PATHS.video}/${encodeURIComponent(turn.message.job)}`;
      const bar = make("progress");
      bar.max = 100;
      bar.setAttribute("aria-label", "Progress of the video");
      const state = make("p", "", "note");
      turn.after.replaceChildren(bar, state);
      while (!job || ["queued", "in_progress"].includes(job.status)) {
        if (job) {
          if (job.progress) bar.value = job.progress;
          const share = job.progress ? `, ${job.progress} %` : "";
          state.textContent = `${job.status === "queued" ? "Queued" : "In progress"}${share}. The job goes on when you stop waiting.`;
          await pause(POLL_MS, signal);
        }
        job = await (await this.page.call(path, null, signal)).json();
      }
      if (job.status !== "completed") throw new Error(job.error?.message || `The video is ${job.status}.`);
      const content = await this.page.call(`${path}/content`, null, signal);
      turn.message.media = {kind: "video", blob: await content.blob(), name: "video.mp4"};
      turn.message.figures.cost = job.usage?.cost;
    }

    // Wait again for a video whose page was left or whose waiting was stopped.
    async resume(turn) {
      if (this.controller) return;
      await this.page.work(async () => {
        delete turn.message.problem;
        await this.guarded(turn, performance.now(), (signal) => this.follow(turn, null, signal));
      });
    }
  }

  function pause(ms, signal) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, ms);
      signal.addEventListener("abort", () => {
        clearTimeout(timer);
        reject(new DOMException("Stopped", "AbortError"));
      }, {once: true});
    });
  }

  return {Column};
})();
