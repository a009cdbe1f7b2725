// The client of whichever generation of the official SDK lies in a folder of packages: one package a generation.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const FILES = ["client/index.js", "client/streamableHttp.js", "client/sse.js", "client/auth.js"];
export async function load(folder) {
  const find = createRequire(pathToFileURL(`${folder}/package.json`));
  const one = `${folder}/node_modules/@modelcontextprotocol/client/dist/index.mjs`;
  if (existsSync(one)) return import(pathToFileURL(one));
  const parts = FILES.map((file) => import(pathToFileURL(find.resolve(`@modelcontextprotocol/sdk/${file}`))));
  return Object.assign({}, ...(await Promise.all(parts)));
}
