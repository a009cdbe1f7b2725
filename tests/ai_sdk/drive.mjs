// One AI SDK major as its users call it, driven line by line: a JSON command in, a JSON answer out.
//
// node drive.mjs <folder with node_modules>. A command is {op, baseURL, apiKey, model, ...options}; the answer is what
// the SDK gave, or {error}. Values {"$bytes": base64} and {"$url": text} in prompts become Uint8Array and URL.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(process.argv[2] + "/package.json");
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const ai = await load("ai");
const { createGateway } = await load("@ai-sdk/gateway");
const vendors = {
  openai: (await load("@ai-sdk/openai")).openai,
  anthropic: (await load("@ai-sdk/anthropic")).anthropic,
  google: (await load("@ai-sdk/google")).google,
};
const stepsAtMost = ai.stepCountIs ?? ai.isStepCount;
globalThis.AI_SDK_LOG_WARNINGS = false;

// What could not be sent is found out by the caller: nothing here may end the process.
process.on("unhandledRejection", () => {});

function revive(value) {
  if (Array.isArray(value)) return value.map(revive);
  if (value === null || typeof value !== "object") return value;
  if (typeof value.$bytes === "string") return new Uint8Array(Buffer.from(value.$bytes, "base64"));
  if (typeof value.$url === "string") return new URL(value.$url);
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, revive(inner)]));
}

// Tools: {schema, result?} of the caller's own, {vendor: "openai.webSearch", args} of a vendor's.
function makeTools(given) {
  const made = {};
  for (const [name, one] of Object.entries(given ?? {})) {
    if (one.vendor) {
      const [vendor, tool] = one.vendor.split(".");
      made[name] = vendors[vendor].tools[tool](one.args ?? {});
      continue;
    }
    made[name] = ai.tool({
      description: one.description,
      inputSchema: ai.jsonSchema(one.schema),
      ...(one.extras ?? {}),
      ...(one.result === undefined ? {} : { execute: async () => one.result }),
      ...(one.content === undefined ? {} : { toModelOutput: () => ({ type: "content", value: revive(one.content) }) }),
    });
  }
  return Object.keys(made).length ? made : undefined;
}

function makeOptions(command, gateway) {
  const { op, baseURL, apiKey, model, tools, steps, schema, name, afterMs, ...options } = command;
  const made = { maxRetries: 0, ...revive(options), model: gateway(model) };
  if (tools) made.tools = makeTools(tools);
  if (steps) made.stopWhen = stepsAtMost(steps);
  if (schema) made.schema = ai.jsonSchema(schema);
  return made;
}

const plain = (value) =>
  JSON.parse(JSON.stringify(value ?? null, (key, inner) => (inner instanceof Uint8Array ? "bytes" : inner)));

function explain(error, depth = 0) {
  if (error === null || typeof error !== "object") return { text: String(error) };
  const told = { name: error.name, text: error.message ?? JSON.stringify(error) };
  for (const key of ["type", "statusCode", "isRetryable", "modelId", "generationId", "code"])
    if (error[key] !== undefined) told[key] = error[key];
  if (error.cause && depth < 3) told.cause = explain(error.cause, depth + 1);
  if (error.lastError && depth < 3) told.cause = explain(error.lastError, depth + 1);
  return told;
}

function show(result) {
  return plain({
    text: result.text,
    reasoningText: result.reasoningText,
    reasoning: result.reasoning,
    toolCalls: result.toolCalls,
    toolResults: result.toolResults,
    content: result.content,
    sources: result.sources,
    files: result.files,
    finishReason: result.finishReason,
    usage: result.usage,
    warnings: result.warnings,
    providerMetadata: result.providerMetadata,
    response: { id: result.response?.id, modelId: result.response?.modelId },
    messages: result.responseMessages ?? result.response?.messages,  // major 7 has those of all steps apart
    steps: result.steps?.map((step) => ({
      finishReason: step.finishReason,
      toolCalls: step.toolCalls,
      text: step.text,
      warnings: step.warnings,
    })),
  });
}

async function stream(options) {
  const errors = [];
  const result = ai.streamText({ ...options, onError: ({ error }) => void errors.push(explain(error)) });
  const parts = [];
  for await (const part of result.fullStream) parts.push(part.type);
  const told = { parts, errors };
  const names = ["text", "reasoningText", "reasoning", "toolCalls", "toolResults", "content", "sources", "files"];
  names.push("finishReason", "usage", "warnings", "providerMetadata", "response", "steps");
  const whole = {};
  for (const name of names) {
    try {
      whole[name] = await result[name];
    } catch (error) {
      told.failed = explain(error);
    }
  }
  return { ...show(whole), ...plain(told) };
}

async function abort(options, command, streamed) {
  const controller = new AbortController();
  const timer = streamed ? undefined : setTimeout(() => controller.abort(), command.afterMs);
  let began = 0;
  try {
    if (!streamed) {
      await ai.generateText({ ...options, abortSignal: controller.signal });
      return { whole: true };
    }
    const result = ai.streamText({ ...options, abortSignal: controller.signal, onError: () => {} });
    for await (const part of result.fullStream)
      if (part.type === "text-delta" && began++ === 0) controller.abort();
    return { began };
  } catch (error) {
    return { began, error: explain(error) };
  } finally {
    clearTimeout(timer);
  }
}

async function streamObject(options) {
  const errors = [];
  const result = ai.streamObject({ ...options, onError: ({ error }) => void errors.push(explain(error)) });
  let partials = 0;
  for await (const _ of result.partialObjectStream) partials++;
  return { partials, errors, object: plain(await result.object), finishReason: await result.finishReason };
}

const operations = {
  models: async (_, gateway) => plain(await gateway.getAvailableModels()),
  credits: async (_, gateway) => plain(await gateway.getCredits()),
  text: async (command, gateway) => show(await ai.generateText(makeOptions(command, gateway))),
  stream: async (command, gateway) => stream(makeOptions(command, gateway)),
  object: async (command, gateway) => {
    const result = await ai.generateObject(makeOptions(command, gateway));
    return plain({ object: result.object, finishReason: result.finishReason });
  },
  streamObject: async (command, gateway) => streamObject(makeOptions(command, gateway)),
  abort: async (command, gateway) => abort(makeOptions(command, gateway), command, false),
  abortStream: async (command, gateway) => abort(makeOptions(command, gateway), command, true),
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const gateway = createGateway({ baseURL: command.baseURL, apiKey: command.apiKey });
  let answer;
  try {
    answer = await operations[command.op](command, gateway);
  } catch (error) {
    answer = { error: explain(error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
