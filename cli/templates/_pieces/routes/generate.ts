// POST {"prompt": "…"} → {"image": "data:image/png;base64,…"}: an image that a model makes.
// A function from Request to Response, as Next.js, Hono, Deno and others take it.
export async function POST(request: Request): Promise<Response> {
  const { prompt } = (await request.json()) as { prompt?: unknown };
  if (typeof prompt !== "string") return Response.json({ error: "The body needs a `prompt`." }, { status: 400 });
  const answer = await fetch(`${process.env.LLMGATEWAY_URL}/v1/images/generations`, {
    method: "POST",
    headers: { Authorization: `Bearer ${process.env.LLMGATEWAY_API_KEY}`, "Content-Type": "application/json" },
    body: JSON.stringify({
      model: process.env.IMAGE_MODEL ?? "sandbox-image",
      prompt,
      response_format: "b64_json",
    }),
  });
  if (!answer.ok) return new Response(answer.body, { status: answer.status });
  const { data } = (await answer.json()) as { data: { b64_json: string }[] };
  return Response.json({ image: `data:image/png;base64,${data[0]?.b64_json}` });
}
