// The playground: calls /v1 with a token of the chosen key, and shows the answers of one to four models. Conversations are
// kept in the browser (playground_store.js), presets on the server.
"use strict";

(() => {
  const root = document.getElementById("playground");
  if (!root) return;
  const {make, button, textOf} = playgroundAnswers;
  const {Column} = playgroundColumns;
  const find = (selector, within = root) => within.querySelector(selector);
  const data = root.dataset;
  const MOST_COLUMNS = 4;
  const MAX_FILE_BYTES = 15e6;
  const CURRENT = `playground current ${data.user}`;
  const KEEPING = `playground keeps ${data.user}`;
  const HINTS = {
    chat: "Answers appear here.", image: "Describe a picture.", speech: "Write what is to be said.",
    transcription: "Attach a sound.", video: "Describe a video. It takes some minutes.",
  };
  const REPLAYED = ["temperature", "top_p", "max_tokens", "reasoning_effort"];

  const mode = () => find("[name=mode]:checked").value;
  const choice = () => find("#choice").value;
  const project = () => find("#choice").selectedOptions[0]?.dataset.project ?? "";
  const say = (text) => {
    document.getElementById("live").textContent = text;
    setTimeout(() => { document.getElementById("live").textContent = ""; }, 1500);
  };
  const report = (text) => {
    find("#mistake").textContent = text;
    find("#mistake").hidden = !text;
  };

  // ---- Calls ----

  const makeSource = () => makeKeySource(data.keys, data.csrf, project, () => (choice() === project() ? "" : choice()));
  let getToken = makeSource();

  // Send a body of JSON or a form; without a body it is a GET.
  async function call(path, body, signal) {
    const headers = {"Authorization": `Bearer ${await getToken()}`};
    const isForm = body instanceof FormData;
    if (body && !isForm) headers["Content-Type"] = "application/json";
    const sent = body ? {method: "POST", body: isForm ? body : JSON.stringify(body)} : {};
    const answer = await fetch(data.api + path, {...sent, credentials: "omit", headers, signal});
    if (answer.ok) return answer;
    const failure = await answer.json().catch(() => null);
    throw new Error(`${answer.status}: ${failure?.error?.message || "The request failed."}`);
  }

  function readJson(selector, what) {
    const field = find(selector);
    field.removeAttribute("aria-invalid");
    if (!field.value.trim()) return undefined;
    try {
      return JSON.parse(field.value);
    } catch (error) {
      field.setAttribute("aria-invalid", "true");
      for (let box = field.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
      field.focus();
      throw new Error(`${what} is not JSON: ${error.message}`);
    }
  }

  // ---- What is sent ----

  function readFormat() {
    const kind = find("#answer-kind").value;
    if (kind !== "json_schema") return kind === "text" ? undefined : {type: kind};
    const schema = readJson("#schema", "The schema of the answer");
    if (!schema) throw new Error("The answer needs a schema. Edit it, or choose another format.");
    return {type: "json_schema", json_schema: {name: find("#schema-name").value.trim() || "answer", strict: true, schema}};
  }

  function buildBody(column, messages) {
    const model = column.model;
    const params = column.readParams();
    const shared = readJson("#extra", "The list of further parameters") ?? {};
    const prompt = textOf(messages.findLast((message) => message.role === "user")?.content ?? "");
    switch (mode()) {
      case "image":
        return {model, prompt, response_format: "b64_json", ...shared, ...params};
      case "speech":
        return {model, input: prompt, ...shared, ...params};
      case "video":
        return {model, prompt, ...shared, ...params};
      case "transcription":
        return {model, file: sound ?? "", ...(prompt && {prompt}), ...shared, ...params};
    }
    const system = find("#system").value.trim();
    const tools = readJson("#tools", "The list of tools");
    const format = readFormat();
    const body = {
      model, messages: [...(system ? [{role: "system", content: system}] : []), ...messages],
      ...(tools?.length && {tools}), ...(format && {response_format: format}), ...shared, ...params,
    };
    if (find("#stream").checked) Object.assign(body, {stream: true, stream_options: {include_usage: true}});
    return body;
  }

  // ---- Columns ----

  const page = {
    mode, buildBody, call, say, logs: data.logs,
    hint: () => HINTS[mode()],
    picker: new ModelPicker(data.models, choice),
    pick: (column) => page.picker.open(mode(), column.model, (id) => {
      column.choose(id);
      column.chooser.focus();
      changed();
    }),
    removeColumn(column) {
      if (columns.length < 2) return;
      column.controller?.abort();
      columns.splice(columns.indexOf(column), 1);
      column.element.remove();
      arrange();
      changed();
      find("#add-column").focus();
    },
    changed: () => changed(),
    run: (chosen) => run(chosen),
    work: (task) => perform(task),
  };
  let columns = [];

  function addColumn(model, params) {
    const column = new Column(page, document.getElementById("column"), model, params);
    columns.push(column);
    find(".panes").append(column.element);
    arrange();
    return column;
  }

  function resetColumns(wanted) {
    for (const column of columns) column.controller?.abort();
    columns = [];
    find(".panes").replaceChildren();
    for (const one of wanted) {
      const column = addColumn(one.model, one.params);
      column.messages = one.messages ?? [];
      column.draw();
    }
  }

  function arrange() {
    root.dataset.mode = mode();
    for (const part of root.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(mode());
    find(".panes").dataset.count = columns.length;
    find("#add-column").disabled = columns.length >= MOST_COLUMNS;
    columns.forEach((column, index) => {
      column.element.setAttribute("aria-label", columns.length > 1 ? `Model ${index + 1}` : "Model");
      column.find(".remove").hidden = columns.length < 2;
      column.chooser.id = `model-${index}`;
    });
    find("#files").accept = mode() === "transcription" ? "audio/*,video/*" : "image/*,audio/*,application/pdf";
    find("#prompt").placeholder = mode() === "transcription" ? "Words that may occur (optional)" : "Write a message";
    writeCode();
  }

  // ---- Attachments ----

  let attached = [];  // {part, url, name}
  let sound = null;  // the file of a transcription
  const names = new Map();  // data of an attachment → the name of its file

  function readFile(file) {
    return new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    });
  }

  async function attach(files) {
    report("");
    for (const file of files) {
      if (file.size > MAX_FILE_BYTES) {
        report(`${file.name} is larger than ${MAX_FILE_BYTES / 1e6} MB.`);
        continue;
      }
      if (mode() === "transcription") {
        sound = file;
        attached = [{name: file.name}];
        continue;
      }
      const url = await readFile(file);
      const name = file.name || `pasted.${file.type.split("/")[1] ?? "bin"}`;
      const part = partOf(file.type, url, name);
      if (!part) report(`${name} is neither a picture, a sound (WAV or MP3) nor a PDF.`);
      else attached.push({part, url, name});
    }
    showAttached();
  }

  function partOf(type, url, name) {
    if (type.startsWith("image/")) {
      names.set(url, name);
      return {type: "image_url", image_url: {url}};
    }
    const format = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav"}[type];
    if (format) {
      const content = url.slice(url.indexOf(",") + 1);
      names.set(content, name);
      return {type: "input_audio", input_audio: {data: content, format}};
    }
    if (type !== "application/pdf") return null;
    names.set(url, name);
    return {type: "file", file: {filename: name, file_data: url}};
  }

  function showAttached() {
    find("#attached").replaceChildren(...attached.map((one) => {
      const chip = make("li", "", "chip");
      if (one.part?.type === "image_url") {
        const image = make("img");
        image.src = one.url;
        image.alt = "";
        chip.append(image);
      }
      const remove = button("×", () => {
        attached = attached.filter((other) => other !== one);
        if (mode() === "transcription") sound = null;
        showAttached();
      }, `Remove ${one.name}`);
      chip.append(make("span", one.name), remove);
      return chip;
    }));
    find("#files").value = "";
    writeCode();
  }

  function typedMessage() {
    const text = find("#prompt").value;
    const parts = attached.map((one) => one.part).filter(Boolean);
    if (!parts.length || mode() !== "chat") return {role: "user", content: text};
    return {role: "user", content: [...(text ? [{type: "text", text}] : []), ...parts]};
  }

  // ---- Sending ----

  async function run(chosen) {
    await perform(() => Promise.all(chosen.map((column) => column.answer())));
  }

  async function perform(task) {
    arrangeSending(true);
    try {
      await task();
    } catch (error) {
      report(error.message);
    } finally {
      arrangeSending(columns.some((column) => column.controller));
      changed();
    }
  }

  function arrangeSending(busy) {
    find("#stop").hidden = !busy;
    find("#send").disabled = busy;
  }

  find("#composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const field = find("#prompt");
    if (find("#send").disabled) return;
    const waiting = mode() === "chat" && columns.find((column) => column.messages.at(-1)?.tool_calls?.length);
    if (waiting) {
      report(`${waiting.model} waits for the results of its tools. Return them, or delete its answer.`);
      return;
    }
    const missing = columns.find((column) => !column.model);
    if (missing) { page.pick(missing); return; }
    const isEmpty = !field.value.trim() && !attached.length;
    // A conversation of the log often ends with the results of tools: it is sent as it is.
    if (mode() === "chat" && isEmpty && columns.every((column) => ["user", "tool"].includes(column.messages.at(-1)?.role))) {
      report("");
      run([...columns]);
      return;
    }
    if (mode() === "transcription" ? !sound : isEmpty) {
      report(mode() === "transcription" ? "Attach a sound first." : "");
      field.focus();
      return;
    }
    try {
      columns.forEach((column) => buildBody(column, column.wire()));
    } catch (error) {
      report(error.message);
      return;
    }
    report("");
    const message = typedMessage();
    if (mode() === "transcription") message.content ||= sound.name;
    for (const column of columns) {
      if (mode() !== "chat") { column.messages = []; column.draw(); }
      column.add(structuredClone(message)).draw();
    }
    if (mode() === "chat") { field.value = ""; attached = []; }
    showAttached();
    changed();
    run([...columns]);
    field.focus();
  });

  // ---- The same request as code ----

  function writeCode() {
    const place = document.getElementById("code");
    if (!columns.length || !document.getElementById("code-dialog").open) return;
    let body;
    try {
      const typed = find("#prompt").value || attached.length ? [typedMessage()] : [];
      const messages = [...columns[0].wire(), ...typed];
      body = buildBody(columns[0], messages.length ? messages : [{role: "user", content: "Hello!"}]);
    } catch (error) {
      place.textContent = error.message;
      return;
    }
    if (mode() === "transcription") body.file = new playgroundCode.FileValue(sound?.name ?? "speech.mp3", "");
    const language = document.querySelector("[name=language]:checked").value;
    place.textContent = playgroundCode.write(language, data.url, mode(), body, names);
  }

  // ---- Settings and presets ----

  const SETTINGS = {system: "#system", tools: "#tools", extra: "#extra", kind: "#answer-kind", schema: "#schema", name: "#schema-name"};

  function readSettings() {
    const values = Object.entries(SETTINGS).map(([name, selector]) => [name, find(selector).value]);
    return {...Object.fromEntries(values.filter(([, value]) => value)), stream: find("#stream").checked};
  }

  function showSettings(settings) {
    for (const [name, selector] of Object.entries(SETTINGS)) {
      const value = typeof settings[name] === "string" ? settings[name] : {kind: "text", name: "answer"}[name] ?? "";
      find(selector).value = value;
    }
    find("#stream").checked = settings.stream ?? true;
    toolForm.show();
    answerForm.arrange();
  }

  let presets = [];

  async function loadPresets(given) {
    const answer = given ?? await fetch(`${data.presets}?project=${encodeURIComponent(project())}`);
    const read = await answer.json().catch(() => ({message: "The presets could not be read."}));
    if (!answer.ok) throw new Error(read.message);
    presets = read.presets;
    const select = find("#preset");
    const chosen = select.value;
    select.replaceChildren(new Option(presets.length ? "Choose a preset" : "No presets yet", ""));
    for (const one of presets) select.add(new Option(one.shared ? `${one.name} (project)` : one.name, one.id));
    select.value = presets.some((one) => one.id === chosen) ? chosen : "";
    arrangePresets();
  }

  const chosenPreset = () => presets.find((one) => one.id === find("#preset").value);

  function arrangePresets() {
    find("#preset-remove").hidden = !chosenPreset()?.removable;
  }

  async function changePresets(fields) {
    const body = new URLSearchParams({csrf: data.csrf, project: project(), ...fields});
    await loadPresets(await fetch(data.presets, {method: "POST", body}));
  }

  function usePreset() {
    arrangePresets();
    const preset = chosenPreset();
    if (!preset) return;
    const {settings, columns: kept} = preset.content ?? {};
    showSettings(settings ?? {});
    const wanted = (Array.isArray(kept) ? kept : []).filter(Boolean).slice(0, MOST_COLUMNS);
    if (wanted.length) resetColumns(wanted.map((one, index) => ({...one, messages: columns[index]?.messages ?? []})));
    changed();
  }

  const presetDialog = document.getElementById("preset-dialog");
  find("#preset").addEventListener("change", usePreset);
  find("#preset-save").addEventListener("click", () => {
    find("#preset-name", presetDialog).value = chosenPreset()?.own ? chosenPreset().name : "";
    find("#preset-shared", presetDialog).checked = Boolean(chosenPreset()?.own && chosenPreset().shared);
    find("#preset-problem", presetDialog).hidden = true;
    openDialog(presetDialog);
  });
  find("form", presetDialog).addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = find("#preset-name", presetDialog).value.trim();
    const content = {settings: readSettings(), columns: columns.map((column) => ({model: column.model, params: column.params()}))};
    const shared = String(find("#preset-shared", presetDialog).checked);
    try {
      await changePresets({action: "save", name, shared, content: JSON.stringify(content)});
      find("#preset").value = presets.find((one) => one.own && one.name === name.replace(/\s+/g, " "))?.id ?? "";
      arrangePresets();
      presetDialog.close();
      say("The preset is saved.");
    } catch (error) {
      find("#preset-problem", presetDialog).textContent = error.message;
      find("#preset-problem", presetDialog).hidden = false;
    }
  });
  find("#preset-remove").addEventListener("click", () => {
    changePresets({action: "remove", preset: find("#preset").value}).catch((error) => report(error.message));
  });

  // ---- History ----

  const store = new ConversationStore(data.user);
  const keep = document.getElementById("keep");
  let current = {id: crypto.randomUUID()};
  let saving = Promise.resolve();
  let unsaved = 0;
  keep.checked = (localStorage.getItem(KEEPING) ?? data.stores) === "true";

  function changed() {
    writeCode();
    if (!keep.checked || !columns.some((column) => column.messages.length)) return saving;
    const first = columns.flatMap((column) => column.messages).find((message) => message.role === "user");
    const conversation = {
      id: current.id, at: Date.now(), mode: mode(), choice: choice(), title: textOf(first?.content ?? "").slice(0, 120),
      settings: readSettings(),
      columns: columns.map((column) => ({model: column.model, params: column.params(), messages: column.messages})),
    };
    sessionStorage.setItem(CURRENT, current.id);
    const copy = structuredClone(conversation);
    root.dataset.unsaved = unsaved += 1;
    saving = saving.then(() => store.save(copy)).catch((error) => report(`The conversation could not be kept: ${error.message}`))
      .then(() => { root.dataset.unsaved = unsaved -= 1; });
    return saving;
  }

  function showConversation(conversation) {
    current = {id: conversation.id};
    sessionStorage.setItem(CURRENT, current.id);
    find(`[name=mode][value="${conversation.mode}"]`).checked = true;
    showSettings(conversation.settings ?? {});
    attached = [];
    sound = null;
    resetColumns(conversation.columns);
    showAttached();
  }

  function startNew() {
    current = {id: crypto.randomUUID()};
    sessionStorage.removeItem(CURRENT);
    attached = [];
    sound = null;
    report("");
    resetColumns(columns.map((column) => ({model: column.model, params: column.params()})));
    showAttached();
    find("#prompt").focus();
  }

  const historyDialog = document.getElementById("history");

  async function showHistory() {
    const list = find("#history-list", historyDialog);
    const all = await store.list().catch(() => []);
    find("#history-none", historyDialog).hidden = all.length > 0;
    find("#history-clear", historyDialog).hidden = all.length === 0;
    list.replaceChildren(...all.map((one) => {
      const item = make("li", "", "row");
      const open = button(one.title || "Without text", () => { historyDialog.close(); showConversation(one); });
      open.className = "link";
      const about = `${one.columns.map((column) => column.model).join(", ")} · ${WHEN.format(new Date(one.at))}`;
      const text = make("div");
      text.append(open, make("div", about, "note"));
      const remove = button("Delete", async () => {
        await store.remove(one.id);
        if (one.id === current.id) startNew();
        showHistory();
      }, `Delete ${one.title}`);
      item.append(text, remove);
      return item;
    }));
  }

  find("#open-history").addEventListener("click", async () => {
    await showHistory();
    historyDialog.showModal();
    historyDialog.querySelector("#history-list button")?.focus();
  });
  find("#history-clear", historyDialog).addEventListener("click", async () => {
    await store.clear();
    startNew();
    showHistory();
  });
  keep.addEventListener("change", () => {
    localStorage.setItem(KEEPING, String(keep.checked));
    if (keep.checked) changed();
    else store.remove(current.id);
  });

  // ---- The page ----

  function changeMode() {
    attached = [];
    sound = null;
    current = {id: crypto.randomUUID()};
    const first = page.picker.models?.[mode()]?.filter((model) => !["auto", "smart"].includes(model.id))[0];
    resetColumns(columns.map(() => ({model: first?.id ?? ""})));
    showAttached();
  }

  // Requests of the log have parameters that the page has fields for, and others.
  function replay(body) {
    const {model, messages, stream, stream_options, tools, response_format, ...others} = body;
    const format = response_format?.type;
    const params = Object.fromEntries(REPLAYED.filter((name) => others[name] !== undefined && others[name] !== null).map((name) => [name, String(others[name])]));
    const extra = Object.fromEntries(Object.entries(others).filter(([name]) => !(name in params)));
    if (format && format !== "json_schema" && format !== "json_object" && format !== "text") extra.response_format = response_format;
    const known = Array.isArray(messages) ? structuredClone(messages) : [];
    const system = known[0]?.role === "system" && typeof known[0].content === "string" ? known.shift().content : "";
    showSettings({
      system, stream: Boolean(stream), tools: tools ? JSON.stringify(tools, null, 2) : "",
      extra: Object.keys(extra).length ? JSON.stringify(extra, null, 2) : "",
      kind: ["json_object", "json_schema"].includes(format) ? format : "text",
      schema: format === "json_schema" ? JSON.stringify(response_format.json_schema?.schema, null, 2) : "",
      name: response_format?.json_schema?.name,
    });
    const last = known.at(-1);
    if (last?.role === "user" && typeof last.content === "string") find("#prompt").value = known.pop().content;
    resetColumns([{model: typeof model === "string" ? model : "", params, messages: known}]);
    // From here on it is a conversation of this page: a reload continues it, and does not begin with the request again.
    if (!keep.checked || !known.length) return;
    changed();
    const url = new URL(location.href);
    url.searchParams.delete("request");
    history.replaceState(history.state, "", url);
  }

  function changeChoice() {
    const url = new URL(location.href);
    url.searchParams.set("for", choice());
    history.replaceState(history.state, "", url);
    getToken = makeSource();
    page.picker.forget();
    loadModels();
    loadPresets().catch((error) => report(error.message));
  }

  function loadModels() {
    page.picker.load().then(() => {
      for (const column of columns) column.choose(column.model);
      writeCode();
    }).catch((error) => report(error.message));
  }

  const toolForm = new ToolForm(root, find("#tools"), () => changed());
  const answerForm = new AnswerForm(root, () => changed());
  for (const field of root.querySelectorAll("[name=mode]")) field.addEventListener("change", changeMode);
  root.addEventListener("input", writeCode);
  find("#choice").addEventListener("change", changeChoice);
  find("#add-column").addEventListener("click", () => {
    const column = addColumn(columns.length === 1 && data.second ? data.second : columns.at(-1)?.model ?? "");
    page.pick(column);
    changed();
  });
  find("#open-code").addEventListener("click", () => {
    document.getElementById("code-dialog").showModal();
    writeCode();
  });
  document.getElementById("code-dialog").addEventListener("change", writeCode);
  find("#files").addEventListener("change", (event) => attach([...event.target.files]));
  find("#prompt").addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files];
    if (!files.length) return;
    event.preventDefault();
    attach(files);
  });
  root.addEventListener("dragover", (event) => { if (event.dataTransfer.types.includes("Files")) event.preventDefault(); });
  root.addEventListener("drop", (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    attach([...event.dataTransfer.files]);
  });
  find("#stop").addEventListener("click", () => columns.forEach((column) => column.controller?.abort()));
  find("#clear").addEventListener("click", startNew);
  find("#prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) {
      event.preventDefault();
      find("#composer").requestSubmit();
    }
  });
  find("#settings").open = matchMedia("(min-width: 75rem)").matches;

  async function start() {
    const seed = find("#seed").value;
    if (seed) replay(JSON.parse(seed));
    else addColumn(data.model);
    const kept = sessionStorage.getItem(CURRENT);
    if (!seed && !new URLSearchParams(location.search).has("model") && kept && keep.checked) {
      const conversation = await store.find(kept).catch(() => null);
      if (conversation) showConversation(conversation);
    }
    root.dataset.ready = "true";
    loadModels();
    loadPresets().catch((error) => report(error.message));
  }

  start();
})();
