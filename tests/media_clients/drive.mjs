// The official clients of Node as their users call them, each operation once.
//
// node drive.mjs <folder with node_modules> <address of the gateway> <key> <picture> <sound>. Prints one JSON object:
// what each call gave by its name, or {error}.

import { createReadStream, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, address, apiKey, picture, sound] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: OpenAI, toFile } = await load("openai");
const { CohereClient } = require("cohere-ai");

const openai = new OpenAI({ baseURL: `${address}/v1`, apiKey });
const cohere = new CohereClient({ environment: address, token: apiKey });
const read = async (stream) => {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
};
const bytes = async (response) => Buffer.from(await response.arrayBuffer()).toString("base64");
const image = "openai/gpt-image-1";
const film = "sandbox/sandbox-film";
const png = () => toFile(readFileSync(picture), "a.png", { type: "image/png" });
const wav = () => createReadStream(sound);

const calls = {
  embeddings: () => openai.embeddings.create({ model: "openai/text-embedding-3-small", input: ["one", "three"] }),
  embeddings_float: () =>
    openai.embeddings.create({ model: "openai/text-embedding-3-small", input: "one", encoding_format: "float", dimensions: 4 }),
  images: () => openai.images.generate({ model: image, prompt: "A fox", n: 2, size: "1024x1024", quality: "high" }),
  images_stream: async () =>
    read(await openai.images.generate({ model: image, prompt: "A fox", stream: true, partial_images: 2 })),
  edits: async () => openai.images.edit({ model: image, prompt: "Blue", image: await png(), mask: await png() }),
  edits_of_two: async () => openai.images.edit({ model: image, prompt: "Join", image: [await png(), await png()] }),
  edits_stream: async () =>
    read(await openai.images.edit({ model: image, prompt: "Blue", image: await png(), stream: true, partial_images: 1 })),
  speech: async () => bytes(await openai.audio.speech.create({ model: "openai/tts-1", voice: "alloy", input: "Hello" })),
  speech_sandbox: async () =>
    bytes(
      await openai.audio.speech.create({
        model: "sandbox/sandbox-speak",
        voice: "calm",
        input: "Hello from Node",
        response_format: "flac",
      }),
    ),
  transcriptions: () => openai.audio.transcriptions.create({ model: "openai/gpt-4o-transcribe", file: wav() }),
  transcriptions_verbose: () =>
    openai.audio.transcriptions.create({
      model: "openai/whisper-1",
      file: wav(),
      response_format: "verbose_json",
      timestamp_granularities: ["word", "segment"],
    }),
  transcriptions_srt: () =>
    openai.audio.transcriptions.create({ model: "openai/whisper-1", file: wav(), response_format: "srt" }),
  transcriptions_stream: async () =>
    read(await openai.audio.transcriptions.create({ model: "openai/gpt-4o-transcribe", file: wav(), stream: true })),
  translations: () => openai.audio.translations.create({ model: "openai/whisper-1", file: wav() }),
  moderations: () =>
    openai.moderations.create({ model: "omni-moderation-latest", input: [{ type: "text", text: "I kill you" }] }),
  rerank: () =>
    cohere.rerank({ model: "cohere/rerank-v3.5", query: "q", documents: ["short", "a longer one"], topN: 1 }),
  video: () => openai.videos.create({ model: film, prompt: "A kettle boils.", seconds: "4", size: "1280x720" }),
  video_of_an_image: async () =>
    openai.videos.create({ model: film, prompt: "A kettle boils.", input_reference: await png() }),
  video_polled: async () => {
    for (;;) {
      const { data, response } = await openai.videos.retrieve(given.video.id).withResponse();
      if (!["queued", "in_progress"].includes(data.status)) return data;
      await new Promise((go) => setTimeout(go, Number(response.headers.get("openai-poll-after-ms"))));
    }
  },
  video_bytes: async () => bytes(await openai.videos.downloadContent(given.video.id)),
  videos: async () => (await read(await openai.videos.list({ limit: 1, order: "asc" }))).map((one) => one.id),
  video_edit: async () => openai.videos.edit({ prompt: "Blue", video: await png() }),
  video_remix: async () => openai.videos.remix(given.video.id, { prompt: "Blue" }),
  video_deleted: () => openai.videos.delete(given.video.id),
  video_afterwards: () => openai.videos.retrieve(given.video.id),
  refused: () => openai.images.generate({ model: image, prompt: "x", n: 99 }),
};

const given = {};
for (const [name, call] of Object.entries(calls)) {
  try {
    given[name] = await call();
  } catch (error) {
    given[name] = { error: { name: error.constructor.name, status: error.status, code: error.code, param: error.param, message: String(error.message) } };
  }
}
console.log(JSON.stringify(given));
