import assert from "node:assert/strict";
import { test } from "node:test";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { z } from "zod";
import { ask, connect, listTools } from "../src/gateway.js";

async function client(answer: (model: string) => string) {
  const server = new McpServer({ name: "fake", version: "1.0.0" });
  const inputSchema = { model: z.string(), messages: z.array(z.object({ role: z.string(), content: z.string() })) };
  server.registerTool("chat", { description: "Talk to a model.", inputSchema }, async ({ model }) => ({
    content: [{ type: "text", text: answer(model) }],
  }));
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await server.connect(theirs);
  return connect(ours);
}

test("the tools are listed", async () => {
  assert.deepEqual(await listTools(await client(() => "")), ["chat: Talk to a model."]);
});

test("the answer is the text of the result", async () => {
  assert.equal(await ask(await client((model) => `I am ${model}.`), "some-model", "Who are you?"), "I am some-model.");
});

test("an error of the tool is thrown", async () => {
  const failing = await client(() => {
    throw new Error("No credits are left.");
  });
  await assert.rejects(ask(failing, "some-model", "Hello"), /No credits are left/);
});
