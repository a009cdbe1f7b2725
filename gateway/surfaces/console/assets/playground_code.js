// The request of the playground as curl, Python and TypeScript, as it works when it is copied. Attached files are read
// from the disk by the name that they had.
"use strict";

const playgroundCode = (() => {
  const PATHS = {
    chat: "/chat/completions", image: "/images/generations", speech: "/audio/speech",
    transcription: "/audio/transcriptions", video: "/videos",
  };
  const METHODS = {
    chat: "chat.completions.create", image: "images.generate", speech: "audio.speech.create",
    transcription: "audio.transcriptions.create", video: "videos.create",
  };
  const KNOWN = new Set(["model", "messages", "stream", "stream_options", "temperature", "max_tokens", "tools", "tool_choice",
    "prompt", "response_format", "input", "voice", "top_p", "n", "size", "quality", "seed", "stop", "reasoning_effort",
    "seconds", "language", "file"]);
  const PYTHON_ENDS = {
    chat: "print(response.choices[0].message.content)",
    stream: 'for chunk in response:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="")',
    image: 'import base64\n\nwith open("image.png", "wb") as file:\n    file.write(base64.b64decode(response.data[0].b64_json))',
    speech: 'response.write_to_file("speech.mp3")',
    transcription: "print(response.text)",
    video: 'video = client.videos.poll(response.id)\nclient.videos.download_content(video.id).write_to_file("video.mp4")',
  };
  const SCRIPT_ENDS = {
    chat: "console.log(response.choices[0].message.content);",
    stream: 'for await (const chunk of response) {\n  process.stdout.write(chunk.choices[0]?.delta.content ?? "");\n}',
    image: 'writeFileSync("image.png", Buffer.from(response.data![0].b64_json!, "base64"));',
    speech: 'writeFileSync("speech.mp3", Buffer.from(await response.arrayBuffer()));',
    transcription: "console.log(response.text);",
    video: 'let video = response;\nwhile (video.status === "queued" || video.status === "in_progress") {\n'
      + "  await new Promise((resolve) => setTimeout(resolve, 2000));\n  video = await client.videos.retrieve(video.id);\n}\n"
      + "const content = await client.videos.downloadContent(video.id);\n"
      + 'writeFileSync("video.mp4", Buffer.from(await content.arrayBuffer()));',
  };

  // A value that is read from a file where the code runs.
  class FileValue {
    constructor(name, prefix) {
      this.name = name;
      this.prefix = prefix;  // of a data URL, "" for base64 alone
    }
  }

  // Replace the data of attached files by the files, by their names.
  function withFiles(value, names) {
    if (typeof value === "string" && value.length > 200) {
      const known = names.get(value);
      if (known) return new FileValue(known, /^data:[^,]*,/.exec(value)?.[0] ?? "");
    }
    if (Array.isArray(value)) return value.map((one) => withFiles(one, names));
    if (value && typeof value === "object" && !(value instanceof FileValue)) {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, withFiles(one, names)]));
    }
    return value;
  }

  const hasFile = (value) => value instanceof FileValue
    || (value !== null && typeof value === "object" && Object.values(value).some(hasFile));

  // ---- curl: a here-document, in which only \, $ and ` are special ----

  function toShell(value, indent, plain) {
    const inner = `${indent}  `;
    if (value instanceof FileValue) {
      return `"${value.prefix}$(base64 < ${shellWord(value.name)} | tr -d '\\n')"`;
    }
    if (Array.isArray(value)) {
      return value.length ? `[\n${value.map((one) => inner + toShell(one, inner, plain)).join(",\n")}\n${indent}]` : "[]";
    }
    if (value && typeof value === "object") {
      const lines = Object.entries(value).map(([name, one]) => `${inner}${quoted(name, plain)}: ${toShell(one, inner, plain)}`);
      return lines.length ? `{\n${lines.join(",\n")}\n${indent}}` : "{}";
    }
    return quoted(value, plain);
  }

  function quoted(value, plain) {
    const text = JSON.stringify(value ?? null);
    return plain ? text : text.replace(/[\\$`]/g, "\\$&");
  }

  const shellWord = (text) => `'${text.replaceAll("'", "'\\''")}'`;

  function curl(url, mode, body) {
    const head = `curl ${url}${PATHS[mode]} \\\n  -H "Authorization: Bearer $LLMGATEWAY_API_KEY"`;
    const output = {speech: " \\\n  --output speech.mp3"}[mode] || "";
    if (mode === "transcription") {
      const fields = Object.entries(body).map(([name, value]) => value instanceof FileValue
        ? `  -F ${shellWord(`${name}=@${value.name}`)}` : `  -F ${shellWord(`${name}=${value}`)}`);
      return `${head} \\\n${fields.join(" \\\n")}\n`;
    }
    const buffered = body.stream ? " --no-buffer" : "";
    const plain = !hasFile(body);
    const sent = `${head.replace("curl ", `curl${buffered} `)} \\\n  -H "Content-Type: application/json"${output} \\\n`;
    const after = mode === "video" ? `# The answer has the id of the job: get ${url}/videos/<id>, and then ${url}/videos/<id>/content.\n` : "";
    return `${sent}  -d @- <<${plain ? "'END'" : "END"}\n${toShell(body, "", plain)}\nEND\n${after}`;
  }

  // ---- Python ----

  function toPython(value, indent) {
    const inner = `${indent}    `;
    if (value === null || value === undefined) return "None";
    if (value === true) return "True";
    if (value === false) return "False";
    if (value instanceof FileValue) {
      const content = `base64.b64encode(open(${pythonText(value.name)}, "rb").read()).decode()`;
      return value.prefix ? `${pythonText(value.prefix)} + ${content}` : content;
    }
    if (Array.isArray(value)) {
      return value.length ? `[\n${value.map((one) => inner + toPython(one, inner)).join(",\n")},\n${indent}]` : "[]";
    }
    if (typeof value === "object") {
      const lines = Object.entries(value).map(([name, one]) => `${inner}${pythonText(name)}: ${toPython(one, inner)}`);
      return lines.length ? `{\n${lines.join(",\n")},\n${indent}}` : "{}";
    }
    return typeof value === "string" ? pythonText(value) : String(value);
  }

  // JSON and Python have the same escapes, except that JSON's \/ does not occur and half of a pair stays as it is.
  const pythonText = (text) => JSON.stringify(text);

  function python(url, mode, body) {
    const own = Object.entries(body).filter(([name]) => KNOWN.has(name));
    const extra = Object.fromEntries(Object.entries(body).filter(([name]) => !KNOWN.has(name)));
    if (Object.keys(extra).length) own.push(["extra_body", extra]);
    const written = ([name, value]) => mode === "transcription" && value instanceof FileValue
      ? `    ${name}=open(${pythonText(value.name)}, "rb"),` : `    ${name}=${toPython(value, "    ")},`;
    const imports = hasFile(body) && mode !== "transcription" ? "import base64\nimport os\n" : "import os\n";
    return `${imports}\nfrom openai import OpenAI\n\n`
      + `client = OpenAI(base_url=${JSON.stringify(url)}, api_key=os.environ["LLMGATEWAY_API_KEY"])\n`
      + `response = client.${METHODS[mode]}(\n${own.map(written).join("\n")}\n)\n${PYTHON_ENDS[body.stream ? "stream" : mode]}\n`;
  }

  // ---- TypeScript ----

  function toScript(value, indent) {
    const inner = `${indent}  `;
    if (value instanceof FileValue) {
      const content = `readFileSync(${JSON.stringify(value.name)}).toString("base64")`;
      return value.prefix ? `${JSON.stringify(value.prefix)} + ${content}` : content;
    }
    if (Array.isArray(value)) {
      return value.length ? `[\n${value.map((one) => inner + toScript(one, inner)).join(",\n")},\n${indent}]` : "[]";
    }
    if (value && typeof value === "object") {
      const name = (text) => /^[A-Za-z_]\w*$/.test(text) ? text : JSON.stringify(text);
      const lines = Object.entries(value).map(([key, one]) => `${inner}${name(key)}: ${toScript(one, inner)}`);
      return lines.length ? `{\n${lines.join(",\n")},\n${indent}}` : "{}";
    }
    return JSON.stringify(value ?? null);
  }

  function typescript(url, mode, body) {
    const own = Object.fromEntries(Object.entries(body).filter(([name]) => KNOWN.has(name)));
    const extra = Object.fromEntries(Object.entries(body).filter(([name]) => !KNOWN.has(name)));
    let given = toScript(own, "");
    if (mode === "transcription" && own.file) {
      given = given.replace(/file: readFileSync\((.*)\)\.toString\("base64"\)/, "file: createReadStream($1)");
    }
    if (Object.keys(extra).length) given = given.replace(/\n}$/, `\n  ...(${toScript(extra, "  ")} as object),\n}`);
    const end = SCRIPT_ENDS[body.stream ? "stream" : mode];
    const used = ["createReadStream", "readFileSync", "writeFileSync"].filter((name) => `${given}${end}`.includes(`${name}(`));
    const files = used.length ? `import { ${used.join(", ")} } from "node:fs";\n` : "";
    return `${files}import OpenAI from "openai";\n\n`
      + `const client = new OpenAI({ baseURL: ${JSON.stringify(url)}, apiKey: process.env.LLMGATEWAY_API_KEY });\n`
      + `const response = await client.${METHODS[mode]}(${given});\n${end}\n`;
  }

  const WRITERS = {curl, python, typescript};

  // `names` has the name of each attached file by its data.
  function write(language, url, mode, body, names) {
    // The SDKs require a voice.
    const given = mode === "speech" && language !== "curl" ? {voice: "alloy", ...body} : body;
    return WRITERS[language](url, mode, withFiles(given, names));
  }
  return {PATHS, FileValue, write};
})();
