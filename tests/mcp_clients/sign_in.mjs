// The official TypeScript client gets a token by OAuth: it prints the address that a person opens, hears the answer at a
// small server of its own, then lists all tools and calls those that it is given.
// Arguments: the folder of its packages, the address of the MCP server, calls as JSON, the client's options as JSON.
import { createServer } from "node:http";
import { load } from "./sdk.mjs";
const [folder, address, calls, options] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = await load(folder);
const make = () => new Client({ name: "test", version: "1" }, JSON.parse(options));
let hear;
const heard = new Promise((resolve) => (hear = resolve));
const server = createServer((request, response) => {
  const told = new URL(request.url, "http://localhost");
  response.end("You may close this page.");
  if (told.pathname === "/callback") hear(told.searchParams);
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const back = `http://127.0.0.1:${server.address().port}/callback`;
const kept = {};
const provider = {
  redirectUrl: back,
  clientMetadata: { client_name: "The TypeScript client", redirect_uris: [back], token_endpoint_auth_method: "none" },
  state: () => "a state",
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  redirectToAuthorization: (url) => console.log(`OPEN ${url}`),
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
};
const open = () => new StreamableHTTPClientTransport(new URL(address), { authProvider: provider });
const first = open();
try {
  await make().connect(first);
  throw new Error("let in without a token");
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
}
const answer = await heard;
await first.finishAuth(answer.get("code"), answer.get("iss"));
const client = make();
await client.connect(open());
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const results = [];
for (const [name, args] of JSON.parse(calls)) results.push(await client.callTool({ name, arguments: args }));
const told = { server: client.getServerVersion().name, tools, results, state: answer.get("state"), iss: answer.get("iss") };
console.log(`DONE ${JSON.stringify(told)}`);
await client.close();
server.close();
process.exit(0);
