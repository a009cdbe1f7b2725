// The realtime clients of Node as their users open them: each says one sentence and reads the answer.
//
// node drive.mjs <folder with node_modules> <http address> <https address> <key>. Prints one JSON object: what each
// client got, or {error}.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, address, secure, apiKey] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: OpenAI } = await load("openai");
const { OpenAIRealtimeWS } = await load("openai/realtime/ws");
const { OpenAIRealtimeWebSocket } = await load("openai/realtime/websocket");
const { RealtimeAgent, RealtimeSession, OpenAIRealtimeWebSocket: Transport, tool } = await load("@openai/agents-realtime");
const { default: WS } = await load("ws");
const { z } = await load("zod");
const { createOpenAI } = await load("@ai-sdk/openai");

const openai = new OpenAI({ baseURL: `${secure}/v1`, apiKey });
const model = "gpt-realtime";
const say = { type: "conversation.item.create", item: { type: "message", role: "user", content: [{ type: "input_text", text: "Hello" }] } };
const within = (promise, what) =>
  Promise.race([promise, new Promise((_, no) => setTimeout(() => no(new Error(`${what}: no answer`)), 15000))]);

// What a client of OpenAI's package heard, from its first event to the end of a response.
const listen = (client) =>
  within(
    new Promise((yes, no) => {
      const kinds = [];
      client.on("event", (event) => kinds.push(event.type));
      client.on("error", no);
      client.on("session.created", () => {
        client.send(say);
        client.send({ type: "response.create" });
      });
      client.on("response.done", (event) => {
        client.close();
        yes({ kinds, usage: event.response.usage, text: event.response.id });
      });
    }),
    "openai",
  );

// The same of a bare WebSocket.
const bare = (socket) =>
  within(
    new Promise((yes, no) => {
      const kinds = [];
      socket.addEventListener("error", (event) => no(event.error ?? new Error(event.message)));
      socket.addEventListener("message", ({ data }) => {
        const event = JSON.parse(data);
        kinds.push(event.type);
        if (event.type === "session.created") {
          socket.send(JSON.stringify(say));
          socket.send(JSON.stringify({ type: "response.create" }));
        }
        if (event.type === "response.done") socket.close(1000);
      });
      socket.addEventListener("close", (event) => yes({ kinds, code: event.code, protocol: socket.protocol }));
    }),
    "WebSocket",
  );

const secret = async () => (await openai.realtime.clientSecrets.create({ session: { type: "realtime", model } })).value;

const agent = async (options, key) => {
  const weather = tool({
    name: "weather",
    description: "The weather of a place.",
    parameters: z.object({ place: z.string() }),
    execute: async () => "sunny",
  });
  const greeter = new RealtimeAgent({ name: "Greeter", instructions: "Be brief.", tools: [weather] });
  const session = new RealtimeSession(greeter, { transport: new Transport({ url: `${address.replace("http", "ws")}/v1/realtime?model=${options.model ?? "gpt-realtime-2.1"}` }), ...options });
  const errors = [], kinds = [];
  session.on("error", ({ error }) => errors.push(error?.error ?? String(error)));
  session.on("transport_event", (event) => kinds.push(event.type));
  await within(session.connect({ apiKey: key }), "connect");
  const done = within(new Promise((yes) => session.on("agent_end", (_, __, text) => yes(text))), "agent");
  session.sendMessage("Hello");
  const text = await done;
  session.sendAudio(new ArrayBuffer(4800), { commit: true });
  await new Promise((yes) => setTimeout(yes, 300));
  session.interrupt();
  const usage = session.usage;
  session.close();
  return { text, kinds, errors, tokens: usage.totalTokens };
};

const calls = {
  openai_ws: () => listen(new OpenAIRealtimeWS({ model }, openai)),
  openai_websocket: () => listen(new OpenAIRealtimeWebSocket({ model }, openai)),
  openai_websocket_secret: async () =>
    listen(new OpenAIRealtimeWebSocket({ model }, new OpenAI({ baseURL: `${secure}/v1`, apiKey: await secret() }))),
  openai_ws_transcripts: () =>
    within(
      new Promise((yes, no) => {
        const client = new OpenAIRealtimeWS({ intent: "transcription" }, openai);
        client.on("error", no);
        client.on("session.created", () => {
          const transcription = { model: "gpt-4o-transcribe" };
          client.send({ type: "session.update", session: { type: "transcription", audio: { input: { transcription } } } });
          client.send({ type: "input_audio_buffer.append", audio: Buffer.alloc(4800).toString("base64") });
          client.send({ type: "input_audio_buffer.commit" });
        });
        client.on("conversation.item.input_audio_transcription.completed", (event) => {
          client.close();
          yes(event);
        });
      }),
      "transcripts",
    ),
  ws: () => bare(new WS(`${address.replace("http", "ws")}/v1/realtime?model=${model}`, { headers: { Authorization: `Bearer ${apiKey}` } })),
  websocket: async () =>
    bare(new WebSocket(`${address.replace("http", "ws")}/v1/realtime?model=${model}`, ["realtime", `openai-insecure-api-key.${await secret()}`])),
  agents: () => agent({}, apiKey),
  agents_secret: async () => agent({ model }, await secret()),
  ai_sdk: async () => {
    const provider = createOpenAI({ baseURL: `${secure}/v1`, apiKey });
    const realtime = provider.experimental_realtime;
    const made = await realtime.getToken({ model });
    const config = realtime(model).getWebSocketConfig({ token: made.token, url: made.url });
    return { ...(await bare(new WebSocket(config.url, config.protocols))), url: config.url };
  },
};

const given = {};
for (const [name, call] of Object.entries(calls)) {
  try {
    given[name] = await call();
  } catch (error) {
    given[name] = { error: { name: error?.constructor?.name, message: String(error?.message ?? error), stack: String(error?.stack).slice(0, 600) } };
  }
}
console.log(JSON.stringify(given));
process.exit(0);
