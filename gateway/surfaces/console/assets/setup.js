// The test buttons of the set-up page: each calls the API of its client with the chosen model.
"use strict";

(() => {
  const root = document.getElementById("setup");
  if (!root) return;
  const {keys, csrf, project, model, logs} = root.dataset;
  const getToken = makeKeySource(keys, csrf, () => project);
  const HELLO = "Answer with one word: hello.";
  const MESSAGES = [{role: "user", content: HELLO}];
  const MOST_TOKENS = 256;
  const API_CALLS = {
    chat: () => ["/v1/chat/completions", {model, messages: MESSAGES, max_tokens: MOST_TOKENS}],
    responses: () => ["/v1/responses", {model, input: HELLO, store: false}],
    messages: () => ["/v1/messages", {model, messages: MESSAGES, max_tokens: MOST_TOKENS}],
    gemini: () => [`/v1beta/models/${model}:generateContent`, {contents: [{role: "user", parts: [{text: HELLO}]}]}],
    aisdk: () => ["/v4/ai/language-model", {prompt: [{role: "user", content: [{type: "text", text: HELLO}]}]}],
    mcp: () => ["/mcp", {jsonrpc: "2.0", id: 1, method: "tools/list"}],
  };

  async function send(name) {
    const [path, body] = API_CALLS[name]();
    const headers = {
      "Authorization": `Bearer ${await getToken()}`,
      "Content-Type": "application/json",
      "Accept": "application/json, text/event-stream",
    };
    if (name === "aisdk") headers["ai-language-model-id"] = model;
    const options = {method: "POST", credentials: "omit", headers, body: JSON.stringify(body)};
    const answer = await fetch(root.dataset.root + path, options);
    const read = await answer.json().catch(() => ({}));
    const error = read.error;
    if (!answer.ok || error) throw new Error(`${answer.status}: ${(error && error.message) || "The request failed."}`);
    return {answer, read};
  }

  function describe(name, {answer, read}, began) {
    const ms = `${Math.round(performance.now() - began).toLocaleString()} ms`;
    if (name === "mcp") return `Works: ${read.result.tools.length} ${read.result.tools.length === 1 ? "tool" : "tools"} in ${ms}.`;
    return `Works: ${answer.headers.get("x-llmgateway-provider") || model} answered in ${ms}.`;
  }

  async function test(button) {
    const status = button.nextElementSibling;
    const name = button.dataset.test;
    const began = performance.now();
    button.disabled = true;
    status.className = "note";
    status.textContent = "Testing…";
    try {
      const result = await send(name);
      status.textContent = describe(name, result, began);
      status.className = "good";
      const request = result.answer.headers.get("x-request-id");
      if (request && name !== "mcp") {
        const link = document.createElement("a");
        link.href = `${logs}/${encodeURIComponent(request)}`;
        link.textContent = "Open the request";
        status.append(" ", link);
      }
    } catch (error) {
      status.textContent = error.message;
      status.className = "bad";
    } finally {
      button.disabled = false;
    }
  }

  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-test]");
    if (button) test(button);
  });
  const form = document.querySelector("form.fields");
  form.addEventListener("change", () => form.submit());
})();
