// The playground: calls /v1 with a short-lived key and shows the answers of one or two models. Whatever a model writes
// is shown as text and never as markup; images and sound come from data and blob URLs only.
"use strict";

(() => {
  const root = document.getElementById("playground");
  if (!root) return;
  const find = (selector, within = root) => within.querySelector(selector);
  const api = root.dataset.api;
  const IMAGE_URL = /^data:image\/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/=]+$/;
  const SHORTEST_CUT = 200;  // characters of a data URL that the code samples show whole
  let controllers = [];

  const getToken = makeKeySource(root.dataset.keys, root.dataset.csrf, () => find("[name=project]").value);

  async function call(path, body, signal) {
    const headers = {"Authorization": `Bearer ${await getToken()}`, "Content-Type": "application/json"};
    const answer = await fetch(api + path, {method: "POST", credentials: "omit", headers, signal, body: JSON.stringify(body)});
    if (answer.ok) return answer;
    const failure = await answer.json().catch(() => null);
    const error = failure && failure.error;
    throw new Error(`${answer.status}: ${(error && error.message) || "The request failed."}`);
  }

  function make(tag, text, name) {
    const element = document.createElement(tag);
    if (text) element.textContent = text;
    if (name) element.className = name;
    return element;
  }

  function readJson(selector, what) {
    const field = find(selector);
    field.removeAttribute("aria-invalid");
    if (!field.value.trim()) return undefined;
    try {
      return JSON.parse(field.value);
    } catch (error) {
      field.setAttribute("aria-invalid", "true");
      field.closest("details").open = true;
      field.focus();
      throw new Error(`${what} is not JSON: ${error.message}`);
    }
  }

  const mode = () => find("[name=mode]:checked").value;
  const shown = (pane) => !pane.element.hidden;

  // ---- What is sent ----

  function readSettings() {
    const body = {};
    const number = (name, field) => {
      const text = find(`#${name}`).value.trim();
      if (text && Number.isFinite(Number(text))) body[field] = Number(text);
    };
    number("temperature", "temperature");
    number("max_tokens", "max_tokens");
    const tools = readJson("#tools", "The list of tools");
    if (tools) body.tools = tools;
    return body;
  }

  function buildBody(pane, messages) {
    const model = pane.model.value.trim();
    const extra = readJson("#extra", "The list of further parameters") || {};
    if (mode() === "image") {
      return {model, prompt: lastText(messages), response_format: "b64_json", ...extra};
    }
    if (mode() === "speech") {
      const voice = find("#voice").value.trim();
      return {model, input: lastText(messages), ...(voice && {voice}), ...extra};
    }
    const system = find("#system").value.trim();
    const start = system ? [{role: "system", content: system}] : [];
    const body = {model, messages: [...start, ...messages], ...readSettings(), ...extra};
    if (find("#stream").checked) Object.assign(body, {stream: true, stream_options: {include_usage: true}});
    return body;
  }

  const PATHS = {chat: "/chat/completions", image: "/images/generations", speech: "/audio/speech"};

  function lastText(messages) {
    const last = messages.findLast((message) => message.role === "user");
    return last ? textOf(last.content) : "";
  }

  function textOf(content) {
    if (typeof content === "string") return content;
    if (!Array.isArray(content)) return "";
    return content.filter((part) => part.type === "text").map((part) => part.text).join("\n");
  }

  // ---- What is shown ----

  class Pane {
    constructor(element) {
      this.element = element;
      this.model = find("input", element);
      this.log = find(".transcript", element);
      this.messages = [];
      this.calls = [];
    }

    clear() {
      this.messages = [];
      this.calls = [];
      this.log.replaceChildren(make("p", "Answers appear here.", "note"));
    }

    add(role, name) {
      find(".note:only-child", this.log)?.remove();
      const turn = make("div", "", `turn ${role}`);
      turn.append(make("p", name, "who"));
      this.log.append(turn);
      return turn;
    }

    show(message) {
      const turn = this.add(message.role, message.role === "user" ? "You" : message.role);
      const text = textOf(message.content);
      if (text) turn.append(make("div", text, "text"));
      for (const part of Array.isArray(message.content) ? message.content : []) {
        if (part.type === "image_url") showImage(turn, part.image_url && part.image_url.url);
      }
      for (const one of message.tool_calls || []) {
        turn.append(make("pre", `${one.function && one.function.name}(${one.function && one.function.arguments})`));
      }
    }

    scroll() {
      this.log.scrollTop = this.log.scrollHeight;
    }
  }

  function showImage(turn, url) {
    if (IMAGE_URL.test(url || "")) {
      const image = make("img");
      image.src = url;
      image.alt = "Image of the conversation";
      turn.append(image);
    } else if (/^https?:/.test(url || "")) {
      turn.append(make("p", `Image at ${url}`, "note"));
    }
  }

  const panes = [...root.querySelectorAll(".pane")].map((element) => new Pane(element));

  // Cents, and below a dollar as many decimals as three significant digits need, like the amounts of other pages.
  function roundUsd(value) {
    const decimals = value > 0 && value < 1 ? 2 - Math.floor(Math.log10(value)) : 2;
    return `$${value.toFixed(Math.min(9, Math.max(2, decimals))).replace(/(\.\d{2,}?)0+$/, "$1")}`;
  }

  function writeCost(cost) {
    if (cost === undefined || cost === null || cost === "") return null;
    const value = Number(cost);
    const span = make("span", roundUsd(value));
    span.title = `$${value.toFixed(9).replace(/0+$/, "").replace(/\.$/, "")}`;
    return span;
  }

  function showFigures(turn, figures) {
    const line = make("p", "", "figures");
    const parts = [];
    if (figures.first) parts.push(`first token ${Math.round(figures.first)} ms`);
    parts.push(`${(figures.total / 1000).toFixed(2)} s`);
    if (figures.usage && figures.usage.total_tokens) {
      parts.push(`${figures.usage.prompt_tokens} + ${figures.usage.completion_tokens || 0} tokens`);
    }
    if (figures.served) parts.push(figures.served);
    line.append(make("span", parts.join(" · ")));
    const cost = writeCost(figures.cost);
    if (cost) line.append(" · ", cost);
    if (figures.log) {
      const link = make("a", "Request");
      link.href = `${root.dataset.logs}/${encodeURIComponent(figures.log)}`;
      line.append(" · ", link);
    }
    turn.append(line);
  }

  // ---- Chat ----

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

  class Reply {
    constructor(pane, name) {
      this.turn = pane.add("assistant", name);
      this.pane = pane;
      this.text = make("div", "", "text");
      this.turn.append(this.text);
      this.content = "";
      this.calls = [];
      this.figures = {};
    }

    take(chunk) {
      if (chunk.error) throw new Error(chunk.error.message || "The answer failed.");
      if (chunk.usage) Object.assign(this.figures, {usage: chunk.usage, cost: chunk.usage.cost});
      if (chunk.metadata) {
        this.figures.log = chunk.metadata.log_id;
        this.figures.served = `${chunk.metadata.used_provider}/${chunk.metadata.used_model}`;
      }
      const choice = chunk.choices && chunk.choices[0];
      const delta = choice && (choice.delta || choice.message);
      if (!delta) return;
      const reasoning = delta.reasoning || delta.reasoning_content;
      if (typeof reasoning === "string" && reasoning) this.think(reasoning);
      if (delta.content) this.write(delta.content);
      if (delta.refusal) this.write(delta.refusal);
      for (const image of delta.images || []) showImage(this.turn, image.image_url && image.image_url.url);
      for (const one of delta.tool_calls || []) this.takeCall(one);
    }

    write(text) {
      this.content += text;
      this.text.append(text);
      this.pane.scroll();
    }

    think(text) {
      if (!this.thoughts) {
        const box = make("details");
        this.thoughts = make("div", "", "text");
        box.append(make("summary", "Reasoning"), this.thoughts);
        this.text.before(box);
      }
      this.thoughts.append(text);
    }

    takeCall(one) {
      const index = one.index ?? this.calls.length;
      const known = this.calls[index] ??= {id: "", type: "function", function: {name: "", arguments: ""}};
      if (one.id) known.id = one.id;
      if (one.function && one.function.name) known.function.name += one.function.name;
      if (one.function && one.function.arguments) known.function.arguments += one.function.arguments;
    }

    finish() {
      const message = {role: "assistant", content: this.content || null};
      const calls = this.calls.filter(Boolean);
      if (calls.length) {
        message.tool_calls = calls;
        showCalls(this.pane, this.turn, calls);
      }
      this.pane.messages.push(message);
    }
  }

  function showCalls(pane, turn, calls) {
    pane.calls = calls.map((one) => ({id: one.id, result: null}));
    calls.forEach((one, index) => {
      const box = make("form", "", "tool");
      box.setAttribute("hx-boost", "false");
      const label = make("label", `Result of ${one.function.name}`);
      const field = make("textarea");
      field.rows = 2;
      field.id = `result-${crypto.randomUUID()}`;
      label.htmlFor = field.id;
      const button = make("button", "Return the result", "small");
      button.type = "submit";
      box.append(make("pre", `${one.function.name}(${one.function.arguments})`), label, field, button);
      box.addEventListener("submit", (event) => {
        event.preventDefault();
        if (pane.calls.length !== calls.length) return;
        pane.calls[index].result = field.value;
        field.readOnly = true;
        button.disabled = true;
        if (pane.calls.some((known) => known.result === null)) return;
        for (const known of pane.calls) pane.messages.push({role: "tool", tool_call_id: known.id, content: known.result});
        pane.calls = [];
        run([pane]);
      });
      turn.append(box);
    });
  }

  async function chat(pane, signal) {
    const body = buildBody(pane, pane.messages);
    const reply = new Reply(pane, body.model);
    const began = performance.now();
    try {
      const answer = await call(PATHS.chat, body, signal);
      if (body.stream) {
        for await (const chunk of readEvents(answer)) {
          const known = reply.content.length;
          reply.take(chunk);
          if (!reply.figures.first && reply.content.length > known) reply.figures.first = performance.now() - began;
        }
      } else {
        reply.take(await answer.json());
      }
      reply.finish();
    } finally {
      reply.figures.total = performance.now() - began;
      showFigures(reply.turn, reply.figures);
      pane.scroll();
    }
  }

  // ---- Images and speech ----

  async function draw(pane, signal) {
    const body = buildBody(pane, pane.messages);
    const began = performance.now();
    const answer = await (await call(PATHS.image, body, signal)).json();
    const turn = pane.add("assistant", body.model);
    for (const one of answer.data || []) {
      showImage(turn, one.b64_json ? `data:image/${kindOf(one.b64_json)};base64,${one.b64_json}` : one.url);
    }
    const usage = answer.usage || {};
    const meta = answer.metadata || {};
    showFigures(turn, {total: performance.now() - began, usage, cost: usage.cost, log: meta.log_id});
  }

  function kindOf(encoded) {
    if (encoded.startsWith("/9j/")) return "jpeg";
    return encoded.startsWith("UklGR") ? "webp" : "png";
  }

  async function speak(pane, signal) {
    const body = buildBody(pane, pane.messages);
    const began = performance.now();
    const answer = await call(PATHS.speech, body, signal);
    const sound = await answer.blob();
    const turn = pane.add("assistant", body.model);
    const player = make("audio");
    player.controls = true;
    player.src = URL.createObjectURL(sound);
    turn.append(player);
    const cost = answer.headers.get("x-llmgateway-cost") || answer.headers.get("x-llmgateway-estimated-cost");
    showFigures(turn, {total: performance.now() - began, cost, log: answer.headers.get("x-request-id")});
  }

  const WORK = {chat, image: draw, speech: speak};

  // ---- Sending ----

  async function run(chosen) {
    const stop = find("#stop");
    const send = find("#send");
    stop.hidden = false;
    send.disabled = true;
    controllers = chosen.map(() => new AbortController());
    await Promise.all(chosen.map(async (pane, index) => {
      try {
        await WORK[mode()](pane, controllers[index].signal);
      } catch (error) {
        const text = error.name === "AbortError" ? "Stopped." : error.message;
        const line = make("p", text, "problem");
        line.setAttribute("role", "alert");
        pane.log.append(line);
        pane.scroll();
      }
    }));
    stop.hidden = true;
    send.disabled = false;
    writeCode();
  }

  let attached = [];

  async function attach(files) {
    attached = await Promise.all([...files].map((file) => new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    })));
    find("#attached").textContent = attached.length ? `${attached.length} attached` : "";
    writeCode();
  }

  function typedMessage() {
    const text = find("#prompt").value;
    if (!attached.length || mode() !== "chat") return {role: "user", content: text};
    const images = attached.map((url) => ({type: "image_url", image_url: {url}}));
    return {role: "user", content: [{type: "text", text}, ...images]};
  }

  find("#composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const field = find("#prompt");
    const chosen = panes.filter(shown);
    try {
      chosen.forEach((pane) => buildBody(pane, pane.messages));
    } catch (error) {
      report(error.message);
      return;
    }
    report("");
    const missing = chosen.find((pane) => !pane.model.value.trim());
    if (missing) { missing.model.focus(); return; }
    if (!field.value.trim() && !attached.length) { field.focus(); return; }
    const message = typedMessage();
    for (const pane of chosen) {
      if (mode() !== "chat") pane.messages = [];
      pane.messages.push(message);
      pane.show(message);
    }
    field.value = "";
    find("#files").value = "";
    attach([]);
    run(chosen);
    field.focus();
  });

  function report(text) {
    find("#mistake").textContent = text;
    find("#mistake").hidden = !text;
  }

  // ---- The same request as code ----

  function shorten(value) {
    if (typeof value === "string" && value.startsWith("data:") && value.length > SHORTEST_CUT) {
      return `${value.slice(0, 40)}…`;
    }
    if (Array.isArray(value)) return value.map(shorten);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, shorten(one)]));
    }
    return value;
  }

  function toPython(value, indent) {
    const inner = `${indent}    `;
    if (value === null || value === undefined) return "None";
    if (value === true) return "True";
    if (value === false) return "False";
    if (Array.isArray(value)) {
      if (!value.length) return "[]";
      return `[\n${value.map((one) => inner + toPython(one, inner)).join(",\n")},\n${indent}]`;
    }
    if (typeof value === "object") {
      const lines = Object.entries(value).map(([name, one]) => `${inner}${JSON.stringify(name)}: ${toPython(one, inner)}`);
      return lines.length ? `{\n${lines.join(",\n")},\n${indent}}` : "{}";
    }
    return JSON.stringify(value);
  }

  const METHODS = {chat: "chat.completions.create", image: "images.generate", speech: "audio.speech.create"};
  const RESULTS = {
    chat: ["print(response.choices[0].message.content)", "console.log(response.choices[0].message.content);"],
    image: ["print(response.data[0].b64_json[:60])", "console.log(response.data[0].b64_json.slice(0, 60));"],
    speech: ['response.write_to_file("speech.mp3")', 'await Bun.write("speech.mp3", response);'],
    stream: [
      'for chunk in response:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="")',
      'for await (const chunk of response) {\n  process.stdout.write(chunk.choices[0]?.delta.content ?? "");\n}',
    ],
  };
  RESULTS.speech[1] = 'await writeFile("speech.mp3", Buffer.from(await response.arrayBuffer()));';
  const KNOWN = new Set(["model", "messages", "stream", "stream_options", "temperature", "max_tokens", "tools", "tool_choice",
    "prompt", "response_format", "input", "voice", "top_p", "n", "size", "quality", "seed", "stop"]);

  const WRITERS = {
    curl(url, body) {
      const text = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
      const output = mode() === "speech" ? " \\\n  --output speech.mp3" : "";
      return `curl ${url}${PATHS[mode()]} \\\n  -H "Authorization: Bearer $LLMGATEWAY_API_KEY" \\\n`
        + `  -H "Content-Type: application/json" \\\n  -d '${text}'${output}`;
    },
    python(url, body) {
      const own = Object.entries(body).filter(([name]) => KNOWN.has(name));
      const extra = Object.fromEntries(Object.entries(body).filter(([name]) => !KNOWN.has(name)));
      if (Object.keys(extra).length) own.push(["extra_body", extra]);
      const given = own.map(([name, value]) => `    ${name}=${toPython(value, "    ")},`).join("\n");
      const kind = body.stream ? "stream" : mode();
      return "import os\n\nfrom openai import OpenAI\n\n"
        + `client = OpenAI(base_url=${JSON.stringify(url)}, api_key=os.environ["LLMGATEWAY_API_KEY"])\n`
        + `response = client.${METHODS[mode()]}(\n${given}\n)\n${RESULTS[kind][0]}\n`;
    },
    typescript(url, body) {
      const kind = body.stream ? "stream" : mode();
      const files = mode() === "speech" ? 'import { writeFile } from "node:fs/promises";\n' : "";
      return `${files}import OpenAI from "openai";\n\n`
        + `const client = new OpenAI({ baseURL: ${JSON.stringify(url)}, apiKey: process.env.LLMGATEWAY_API_KEY });\n`
        + `const response = await client.${METHODS[mode()]}(${JSON.stringify(body, null, 2)});\n${RESULTS[kind][1]}\n`;
    },
  };

  function writeCode() {
    let body;
    try {
      const pane = panes[0];
      const typed = find("#prompt").value || attached.length ? [typedMessage()] : [];
      const messages = [...pane.messages, ...typed];
      body = buildBody(pane, messages.length ? messages : [{role: "user", content: "Hello!"}]);
    } catch {
      return;
    }
    const language = find("[name=language]:checked").value;
    find("#code").textContent = WRITERS[language](root.dataset.url, shorten(body));
  }

  // ---- The page ----

  function arrange() {
    root.dataset.mode = mode();
    for (const part of root.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(mode());
    const both = find("#both").checked;
    panes[1].element.hidden = !both;
    find(".panes").classList.toggle("double", both);
    for (const pane of panes) pane.model.setAttribute("list", `models-${mode()}`);
    writeCode();
  }

  function changeMode() {
    panes.forEach((pane, index) => {
      pane.clear();
      const first = find(`#models-${mode()} option:nth-child(${index + 1})`);
      pane.model.value = first ? first.value : "";
    });
    arrange();
  }

  function replay(body) {
    const {model, messages, stream, stream_options, temperature, max_tokens, tools, ...extra} = body;
    if (typeof model === "string") panes[0].model.value = model;
    find("#stream").checked = Boolean(stream);
    if (temperature !== undefined) find("#temperature").value = temperature;
    if (max_tokens !== undefined) find("#max_tokens").value = max_tokens;
    if (tools) find("#tools").value = JSON.stringify(tools, null, 2);
    if (Object.keys(extra).length) find("#extra").value = JSON.stringify(extra, null, 2);
    const known = Array.isArray(messages) ? [...messages] : [];
    if (known.length && known[0].role === "system" && typeof known[0].content === "string") {
      find("#system").value = known.shift().content;
    }
    const last = known.at(-1);
    if (last && last.role === "user" && typeof last.content === "string") {
      find("#prompt").value = known.pop().content;
    }
    for (const pane of panes) {
      pane.messages = structuredClone(known);
      known.forEach((message) => pane.show(message));
    }
  }

  for (const field of root.querySelectorAll("[name=mode]")) field.addEventListener("change", changeMode);
  find("#both").addEventListener("change", arrange);
  root.addEventListener("input", writeCode);
  find("#files").addEventListener("change", (event) => attach(event.target.files));
  find("#stop").addEventListener("click", () => controllers.forEach((one) => one.abort()));
  find("#clear").addEventListener("click", () => {
    controllers.forEach((one) => one.abort());
    panes.forEach((pane) => pane.clear());
    writeCode();
  });
  find("#prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) find("#composer").requestSubmit();
  });
  find("#project").addEventListener("change", (event) => event.target.form.submit());
  panes.forEach((pane) => pane.clear());
  const seed = find("#seed").value;
  if (seed) replay(JSON.parse(seed));
  arrange();
})();
