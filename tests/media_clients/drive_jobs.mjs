// Files, uploads, batches and background responses with the official clients of Node, each method as its users call it.
//
// node drive_jobs.mjs <folder with node_modules> <address of the gateway> <key>. Prints one JSON object: what each call
// gave by its name, or {refusal}.

import { createReadStream, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, address, apiKey] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: OpenAI, toFile } = await load("openai");
const { default: Anthropic, toFile: toAnthropicFile } = await load("@anthropic-ai/sdk");

const openai = new OpenAI({ baseURL: `${address}/v1`, apiKey, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: address, apiKey, maxRetries: 0 });

// Each method of these resources is called, so that one which a later version adds is missed here.
const resources = {
  files: openai.files,
  uploads: openai.uploads,
  parts: openai.uploads.parts,
  batches: openai.batches,
  responses: openai.responses,
  input_items: openai.responses.inputItems,
  message_batches: anthropic.messages.batches,
  beta_message_batches: anthropic.beta.messages.batches,
  beta_files: anthropic.beta.files,
};
// Neither a background response nor a file has these.
const elsewhere = { responses: ["compact", "parse"] };
const missed = {};
for (const [name, resource] of Object.entries(resources)) {
  const methods = Object.getOwnPropertyNames(Object.getPrototypeOf(resource)).filter(
    (method) => method !== "constructor" && !method.startsWith("_") && !(elsewhere[name] ?? []).includes(method),
  );
  missed[name] = new Set(methods);
  for (const method of methods) {
    const own = resource[method];
    resource[method] = (...given) => {
      missed[name].delete(method);
      return own.apply(resource, given);
    };
  }
}
const read = async (stream) => {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
};
const ids = async (pages) => (await read(pages)).map((one) => one.id);
const pause = () => new Promise((go) => setTimeout(go, 100));
const until = async (show, isDone) => {
  for (;;) {
    const shown = await show();
    if (isDone(shown)) return shown;
    await pause();
  }
};

const model = "sandbox-echo";
const slow = "[[sandbox: pace=50]] One two three four five six seven eight nine ten";
const endless = "[[sandbox: pace=1000 tokens=40]]";
const chat = (text) => ({ model, messages: [{ role: "user", content: text }], max_tokens: 50 });
const jsonLines = ["Tea", "Milk", "[[sandbox: status=400]] Salt"]
  .map((text) => JSON.stringify({ custom_id: text, method: "POST", url: "/v1/chat/completions", body: chat(text) }))
  .join("\n");
const requests = ["Tea", "Milk", "[[sandbox: status=400]] Salt"].map((text, number) => ({ custom_id: `m${number}`, params: chat(text) }));
const waiting = ["a", "b", "c"].map((name) => ({ custom_id: name, params: chat(slow) }));
const scratch = mkdtempSync(join(tmpdir(), "jobs-"));
const onDisk = join(scratch, "lines.jsonl");
writeFileSync(onDisk, jsonLines);
const batchEnded = (batch) => ["completed", "failed", "expired", "cancelled"].includes(batch.status);
const messagesEnded = (batch) => batch.processing_status === "ended";
const responseEnded = (response) => !["queued", "in_progress"].includes(response.status);
const texts = (events) => events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta);

const calls = {
  // Files of OpenAI's client, from each kind of source that it takes.
  file: () => openai.files.create({ file: createReadStream(onDisk), purpose: "batch" }),
  file_of_bytes: async () =>
    openai.files.create({
      file: await toFile(Buffer.from("The kettle is in the kitchen."), "note.txt", { type: "text/plain" }),
      purpose: "user_data",
      expires_after: { anchor: "created_at", seconds: 3600 },
    }),
  file_of_a_blob: () => openai.files.create({ file: new File(["Tëa"], "tëa ☕.txt"), purpose: "user_data" }),
  file_of_an_answer: async () =>
    openai.files.create({ file: await openai.files.content(given.file_of_bytes.id), purpose: "user_data" }),
  file_shown: () => openai.files.retrieve(given.file.id),
  file_processed: () => openai.files.waitForProcessing(given.file.id),
  files: () => ids(openai.files.list({ limit: 1, order: "asc" })),
  files_of_batches: () => ids(openai.files.list({ purpose: "batch" })),
  file_content: async () => (await openai.files.content(given.file.id)).text(),
  file_part: async () => (await openai.files.content(given.file_of_bytes.id, { headers: { Range: "bytes=4-9" } })).text(),
  file_asked: async () => {
    const content = [{ type: "text", text: "Where?" }, { type: "file", file: { file_id: given.file_of_bytes.id } }];
    return (await openai.chat.completions.create({ model, messages: [{ role: "user", content }] })).choices[0].message.content;
  },
  file_deleted: () => openai.files.delete(given.file_of_a_blob.id),
  file_afterwards: () => openai.files.retrieve(given.file_of_a_blob.id),

  // Uploads in parts.
  upload: () => openai.uploads.create({ bytes: 11, filename: "parts.txt", mime_type: "text/plain", purpose: "user_data" }),
  part_two: async () => openai.uploads.parts.create(given.upload.id, { data: await toFile(Buffer.from("kettle"), "b") }),
  part_one: async () => openai.uploads.parts.create(given.upload.id, { data: new Blob(["tea, "]) }),
  upload_completed: () =>
    openai.uploads.complete(given.upload.id, { part_ids: [given.part_one.id, given.part_two.id] }),
  upload_content: async () => (await openai.files.content(given.upload_completed.file.id)).text(),
  upload_left: () => openai.uploads.create({ bytes: 5, filename: "left.txt", mime_type: "text/plain", purpose: "user_data" }),
  upload_cancelled: () => openai.uploads.cancel(given.upload_left.id),
  upload_afterwards: () => openai.uploads.complete(given.upload_left.id, { part_ids: [] }),

  // Batches.
  batch: () =>
    openai.batches.create({
      input_file_id: given.file.id,
      endpoint: "/v1/chat/completions",
      completion_window: "24h",
      metadata: { team: "tea" },
    }),
  batch_ended: () => until(() => openai.batches.retrieve(given.batch.id), batchEnded),
  batch_output: async () => (await openai.files.content(given.batch_ended.output_file_id)).text(),
  batch_errors: async () => (await openai.files.content(given.batch_ended.error_file_id)).text(),
  batch_to_cancel: async () => {
    const line = { custom_id: "1", method: "POST", url: "/v1/chat/completions", body: chat(slow) };
    const file = await toFile(Buffer.from(JSON.stringify(line)), "slow.jsonl");
    const input = await openai.files.create({ file, purpose: "batch" });
    return openai.batches.create({ input_file_id: input.id, endpoint: "/v1/chat/completions", completion_window: "24h" });
  },
  batch_cancelled: () => openai.batches.cancel(given.batch_to_cancel.id),
  batch_cancelled_at_last: () => until(() => openai.batches.retrieve(given.batch_to_cancel.id), batchEnded),
  batches: () => ids(openai.batches.list({ limit: 1 })),
  batch_unknown: () => openai.batches.retrieve("batch_unknown"),

  // Background responses.
  response: () => openai.responses.create({ model, input: slow, background: true }),
  response_streamed: async () => {
    const [seen, again] = [[], { stream: true }];
    for (let ended = false; !ended; ) {
      let number = 0;
      ended = true;
      for await (const event of await openai.responses.retrieve(given.response.id, again)) {
        seen.push(event);
        again.starting_after = event.sequence_number;
        if (++number === 3) {
          ended = false;
          break;
        }
      }
    }
    return { numbers: seen.map((event) => event.sequence_number), text: texts(seen).join(""), last: seen.at(-1).type };
  },
  response_followed: async () => {
    const stream = openai.responses.stream({ response_id: given.response.id });
    return (await stream.finalResponse()).output_text;
  },
  response_from_four: async () => {
    const stream = openai.responses.stream({ response_id: given.response.id, starting_after: 4 });
    return (await read(stream)).map((event) => event.sequence_number);
  },
  response_shown: () => openai.responses.retrieve(given.response.id),
  response_items: () => read(openai.responses.inputItems.list(given.response.id)),
  response_streamed_at_once: async () =>
    (await read(await openai.responses.create({ model, input: "Hello", background: true, stream: true }))).map((event) => event.type),
  response_left: async () => {
    const seen = [];
    for await (const event of await openai.responses.create({ model, input: slow, background: true, stream: true })) {
      seen.push(event);
      if (event.type === "response.output_text.delta") break; // closes the connection
    }
    const { response } = seen[0];
    const rest = { stream: true, starting_after: seen.at(-1).sequence_number };
    seen.push(...(await read(await openai.responses.retrieve(response.id, rest))));
    return { numbers: seen.map((event) => event.sequence_number), text: texts(seen).join(""), last: seen.at(-1).type };
  },
  response_to_cancel: () => openai.responses.create({ model, input: endless, background: true }),
  response_cancelled: () => openai.responses.cancel(given.response_to_cancel.id),
  response_afterwards: () => until(() => openai.responses.retrieve(given.response_to_cancel.id), responseEnded),
  response_deleted: async () => (await openai.responses.delete(given.response.id)) ?? null,
  response_gone: () => openai.responses.retrieve(given.response.id),

  // Files of Anthropic's client.
  a_file: async () =>
    anthropic.beta.files.upload({ file: await toAnthropicFile(Buffer.from("The kettle."), "two.txt", { type: "text/plain" }) }),
  a_file_of_disk: () => anthropic.beta.files.upload({ file: createReadStream(onDisk) }),
  a_files: () => ids(anthropic.beta.files.list({ limit: 2 })),
  a_file_shown: () => anthropic.beta.files.retrieveMetadata(given.a_file.id),
  a_file_content: async () => (await anthropic.beta.files.download(given.a_file.id)).text(),
  a_file_asked: async () => {
    const content = [{ type: "document", source: { type: "file", file_id: given.a_file.id } }, { type: "text", text: "Where?" }];
    const betas = ["files-api-2025-04-14"];
    return anthropic.beta.messages.create({ model, max_tokens: 50, betas, messages: [{ role: "user", content }] });
  },
  a_file_deleted: () => anthropic.beta.files.delete(given.a_file.id),
  a_file_afterwards: () => anthropic.beta.files.retrieveMetadata(given.a_file.id),
};

// Both homes of message batches in Anthropic's client.
for (const [name, batches] of [["stable", anthropic.messages.batches], ["beta", anthropic.beta.messages.batches]]) {
  Object.assign(calls, {
    [`${name}_batch`]: () => batches.create({ requests }),
    [`${name}_ended`]: () => until(() => batches.retrieve(given[`${name}_batch`].id), messagesEnded),
    [`${name}_results`]: async () => read(await batches.results(given[`${name}_batch`].id)),
    [`${name}_to_cancel`]: () => batches.create({ requests: waiting }),
    [`${name}_early`]: async () => read(await batches.results(given[`${name}_to_cancel`].id)),
    [`${name}_cancelled`]: () => batches.cancel(given[`${name}_to_cancel`].id),
    [`${name}_cancelled_at_last`]: () => until(() => batches.retrieve(given[`${name}_to_cancel`].id), messagesEnded),
    [`${name}_cancelled_results`]: async () => read(await batches.results(given[`${name}_to_cancel`].id)),
    [`${name}_listed`]: async () => ids(batches.list({ limit: 1 })),
    [`${name}_deleted`]: () => batches.delete(given[`${name}_batch`].id),
    [`${name}_afterwards`]: () => batches.retrieve(given[`${name}_batch`].id),
  });
}

const given = {};
for (const [name, call] of Object.entries(calls)) {
  try {
    given[name] = await call();
  } catch (error) {
    given[name] = { refusal: { name: error.constructor.name, status: error.status, code: error.code, type: error.type, message: String(error.message) } };
  }
}
rmSync(scratch, { recursive: true });
given.missed = Object.fromEntries(Object.entries(missed).map(([name, methods]) => [name, [...methods]]).filter(([, methods]) => methods.length));
console.log(JSON.stringify(given));
