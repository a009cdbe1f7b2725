// Batches, message batches and background responses for models of several providers with the official clients of Node.
//
// node drive_provider_jobs.mjs <folder with node_modules> <address of the gateway> <key> <models as JSON>. Prints what
// came back: the models that answered each batch, and the events of each response.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, address, apiKey, list] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: OpenAI, toFile } = await load("openai");
const { default: Anthropic } = await load("@anthropic-ai/sdk");
const openai = new OpenAI({ baseURL: `${address}/v1`, apiKey, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: address, apiKey, maxRetries: 0 });
const models = JSON.parse(list);

const read = async (stream) => {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
};
const until = async (show, isDone) => {
  for (;;) {
    const shown = await show();
    if (isDone(shown)) return shown;
    await new Promise((go) => setTimeout(go, 200));
  }
};
const chat = (model) => ({ model, max_tokens: 50, messages: [{ role: "user", content: "Hello!" }] });

const lines = models.map((model) => JSON.stringify({ custom_id: model, method: "POST", url: "/v1/chat/completions", body: chat(model) }));
const file = await openai.files.create({ file: await toFile(Buffer.from(lines.join("\n")), "lines.jsonl"), purpose: "batch" });
const begun = await openai.batches.create({ input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" });
const sent = await anthropic.messages.batches.create({ requests: models.map((model, number) => ({ custom_id: `m${number}`, params: chat(model) })) });

const responses = {};
for (const model of models) {
  const response = await openai.responses.create({ model, input: "Hello!", background: true });
  const events = await read(await openai.responses.retrieve(response.id, { stream: true }));
  const again = await read(await openai.responses.retrieve(response.id, { stream: true, starting_after: 2 }));
  const { output_text: text } = await openai.responses.retrieve(response.id);
  await openai.responses.delete(response.id);
  let gone = 0;
  try {
    await openai.responses.retrieve(response.id);
  } catch (error) {
    gone = error.status;
  }
  responses[model] = { text, gone, numbers: events.map((one) => one.sequence_number), again: again.map((one) => one.sequence_number) };
}

const batch = await until(() => openai.batches.retrieve(begun.id), (one) => ["completed", "failed", "expired", "cancelled"].includes(one.status));
const output = batch.output_file_id ? await (await openai.files.content(batch.output_file_id)).text() : "";
const errors = batch.error_file_id ? await (await openai.files.content(batch.error_file_id)).text() : "";
await until(() => anthropic.messages.batches.retrieve(sent.id), (one) => one.processing_status === "ended");
const results = await read(await anthropic.messages.batches.results(sent.id));
const place = (id) => fetch(`${address}/v1/batches/${id}`, { headers: { Authorization: `Bearer ${apiKey}` } }).then((answer) => answer.json());
const providers = async (id) => ((await place(id)).provider_batches ?? []).map((part) => part.provider);

console.log(
  JSON.stringify({
    chat: {
      answered: output.split("\n").filter(Boolean).map((line) => JSON.parse(line).custom_id),
      providers: await providers(batch.id),
      errors,
    },
    messages: {
      answered: results.filter((one) => one.result.type === "succeeded").map((one) => models[Number(one.custom_id.slice(1))]),
      providers: await providers(sent.id),
      errors: results.filter((one) => one.result.type !== "succeeded"),
    },
    responses,
  }),
);
