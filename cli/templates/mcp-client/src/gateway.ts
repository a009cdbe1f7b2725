// The gateway's tools over the Model Context Protocol.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";

/** Connect to a server of tools. */
export async function connect(transport: Transport): Promise<Client> {
  const client = new Client({ name: "{{name}}", version: "0.1.0" });
  await client.connect(transport);
  return client;
}

/** Return name and description of each tool. */
export async function listTools(client: Client): Promise<string[]> {
  const { tools } = await client.listTools();
  return tools.map((tool) => `${tool.name}: ${tool.description ?? ""}`);
}

/** Return the model's answer to a question, through the tool `chat`. */
export async function ask(client: Client, model: string, question: string): Promise<string> {
  const result = await client.callTool({
    name: "chat",
    arguments: { model, messages: [{ role: "user", content: question }] },
  });
  const content = result.content as { type: string; text?: string }[];
  const text = content.map((part) => part.text ?? "").join("");
  if (result.isError) throw new Error(text);
  return text;
}
