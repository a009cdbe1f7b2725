// POST {"message": "…"} → {"answer": "…"}: the answer of a model to one message.
// A function from Request to Response, as Next.js, Hono, Deno and others take it.
export async function POST(request: Request): Promise<Response> {
  const { message } = (await request.json()) as { message?: unknown };
  if (typeof message !== "string") return Response.json({ error: "The body needs a `message`." }, { status: 400 });
  const answer = await fetch(`${process.env.LLMGATEWAY_URL}/v1/chat/completions`, {
    method: "POST",
    headers: { Authorization: `Bearer ${process.env.LLMGATEWAY_API_KEY}`, "Content-Type": "application/json" },
    body: JSON.stringify({
      model: process.env.CHAT_MODEL ?? "sandbox-echo",
      messages: [{ role: "user", content: message }],
    }),
  });
  if (!answer.ok) return new Response(answer.body, { status: answer.status });
  const { choices } = (await answer.json()) as { choices: { message: { content: string } }[] };
  return Response.json({ answer: choices[0]?.message.content });
}
