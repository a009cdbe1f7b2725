// The official TypeScript client: lists all tools and calls those that it is given, over the transport of its choice.
// Arguments: the folder of its packages, the transport ("http" or "sse"), the address, the key, calls as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const [folder, transport, address, key, calls] = process.argv.slice(2);
const find = createRequire(pathToFileURL(`${folder}/package.json`));
const load = async (name) => import(pathToFileURL(find.resolve(`@modelcontextprotocol/sdk/client/${name}`)));
const { Client } = await load("index.js");
const { StreamableHTTPClientTransport } = await load("streamableHttp.js");
const { SSEClientTransport } = await load("sse.js");
const kinds = { http: StreamableHTTPClientTransport, sse: SSEClientTransport };
const client = new Client({ name: "test", version: "1" });
const headers = { Authorization: `Bearer ${key}` };
await client.connect(new kinds[transport](new URL(address), { requestInit: { headers } }));
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const results = [];
for (const [name, args] of JSON.parse(calls)) results.push(await client.callTool({ name, arguments: args }));
console.log(JSON.stringify({ server: client.getServerVersion().name, tools, results }));
await client.close();
