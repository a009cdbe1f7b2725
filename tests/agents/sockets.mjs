// The OpenAI SDK of Node holds a conversation over WebSockets of the Responses API.
//
// node sockets.mjs <folder with node_modules> <http address> <key> <model> <turns> <store>. Prints one JSON object:
// the text of each turn, the reconnects of the socket, and the texts of two streams of a session.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, address, apiKey, model, turns, stored] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: OpenAI } = await load("openai");
const { ResponsesWS } = await load("openai/resources/responses/ws");
const { ResponsesWebSocketSession } = await load("openai/lib/responses/responses-websocket-session");

const client = new OpenAI({ baseURL: `${address}/v1`, apiKey });
const store = stored === "true";
const reconnect = { onReconnecting() {}, maxRetries: 20, initialDelay: 100, maxDelay: 500 };
const socket = new ResponsesWS(client, { reconnect });
const message = (role, content) => ({ type: "message", role, content });
const said = [];
const texts = [];
let reconnects = 0;
let connected = true; // the first message waits for the first connection by itself
let previous = null;
let current = null;

const send = () => {
  const question = message("user", current.question);
  const body = { model, store, input: previous ? [question] : [...said, question] };
  socket.send({ type: "response.create", ...body, ...(previous ? { previous_response_id: previous } : {}) });
};
const turn = (question) =>
  new Promise((yes, no) => {
    current = { question, yes, no };
    if (connected) send();
  });

socket.on("event", (event) => {
  if (event.type === "response.completed") current.yes(event.response);
  if (event.type === "response.failed" || event.type === "response.incomplete") current.no(new Error(JSON.stringify(event)));
});
// Without this listener the SDK ends the process. `error` is the event that the gateway sent, if it sent one.
socket.on("error", ({ error, message: text }) => {
  if (!error) return; // the connection's own: "reconnected" or "close" follows
  if (error.error.code === "previous_response_not_found") {
    previous = null;
    send();
  } else current.no(new Error(text));
});
socket.on("reconnecting", () => (connected = false));
socket.on("reconnected", () => {
  connected = true;
  reconnects += 1;
  send();
});
socket.on("close", (code, reason) => current.no(new Error(`closed: ${code} ${reason}`)));

for (let number = 0; number < Number(turns); number += 1) {
  const question = `Question ${number}`;
  const response = await turn(question);
  const text = response.output.flatMap((item) => item.content ?? []).map((part) => part.text).join("");
  said.push(message("user", question), message("assistant", text));
  texts.push(text);
  previous = response.id;
}

const session = new ResponsesWebSocketSession(socket, { maxLanes: 4, maxBufferedEvents: 99, maxBufferedBytes: 1 << 20 });
const lanes = [session.lane("a"), session.lane("b")];
for (const lane of lanes) lane.create({ model, input: "Hello", store: false });
const streams = (await Promise.all(lanes.map((lane) => lane.finalResponse()))).map((response) => response.output_text);
session.close();
socket.close();
console.log(JSON.stringify({ texts, reconnects, streams }));
process.exit(0);
