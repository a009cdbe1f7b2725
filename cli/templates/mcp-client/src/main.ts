// List the gateway's tools and ask a model: npm run dev -- "What is MCP?"
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ask, connect, listTools } from "./gateway.js";

const key = process.env.LLMGATEWAY_API_KEY;
const address = process.env.LLMGATEWAY_URL;
if (!key || !address) {
  console.error("Set LLMGATEWAY_URL and LLMGATEWAY_API_KEY in .env.local. `llmgateway keys create` makes a key.");
  process.exit(1);
}
const transport = new StreamableHTTPClientTransport(new URL(`${address}/mcp`), {
  requestInit: { headers: { Authorization: `Bearer ${key}` } },
});
const client = await connect(transport);
console.log((await listTools(client)).join("\n"));
const question = process.argv.slice(2).join(" ") || "Say hello.";
console.log(await ask(client, process.env.CHAT_MODEL ?? "auto", question));
await client.close();
