// Runs @ai-sdk/google and @google/genai against the gateway and prints one JSON line for each step.
import { createGoogleGenerativeAI } from '@ai-sdk/google'
import { GoogleGenAI } from '@google/genai'
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai'

const { BASE, KEY, MODELS } = process.env
const google = createGoogleGenerativeAI({ baseURL: `${BASE}/v1beta`, apiKey: KEY })
const genai = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: BASE } })
const inputSchema = jsonSchema({ type: 'object', properties: { city: { type: 'string' } } })
const weather = tool({ description: 'The weather.', inputSchema, execute: async () => 'Rain.' })

async function run(model, step, work) {
  let result
  try {
    result = await work()
  } catch (error) {
    result = `failed: ${error.message}`
  }
  console.log(JSON.stringify({ model, step, result }))
}

async function joined(pieces) {
  let text = ''
  for await (const piece of pieces) text += piece.text ?? (typeof piece === 'string' ? piece : '')
  return text
}

for (const model of MODELS.split(',')) {
  const asked = { model: google(model), prompt: 'Hello', maxRetries: 0 }
  const contents = { model, contents: 'Hello' }
  await run(model, 'ai', async () => (await generateText(asked)).text)
  await run(model, 'ai stream', async () => joined(streamText(asked).textStream))
  await run(model, 'genai', async () => (await genai.models.generateContent(contents)).text)
  await run(model, 'genai stream', async () => joined(await genai.models.generateContentStream(contents)))
}
const loop = { model: google('sandbox-tools'), prompt: 'weather please', tools: { weather }, stopWhen: stepCountIs(2) }
await run('sandbox-tools', 'ai tools', async () => String((await generateText({ ...loop, maxRetries: 0 })).steps.length))
