// The official TypeScript client: lists all tools and calls those that it is given, over the transport of its choice.
// Arguments: the folder of its packages, the transport ("http" or "sse"), the address, the key, calls as JSON, and the
// client's options as JSON.
import { load } from "./sdk.mjs";
const [folder, transport, address, key, calls, options] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport, SSEClientTransport } = await load(folder);
const kinds = { http: StreamableHTTPClientTransport, sse: SSEClientTransport };
const client = new Client({ name: "test", version: "1" }, JSON.parse(options));
const headers = { Authorization: `Bearer ${key}` };
await client.connect(new kinds[transport](new URL(address), { requestInit: { headers } }));
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const results = [];
for (const [name, args] of JSON.parse(calls)) results.push(await client.callTool({ name, arguments: args }));
const version = client.getNegotiatedProtocolVersion?.();
console.log(JSON.stringify({ server: client.getServerVersion().name, version, tools, results }));
await client.close();
