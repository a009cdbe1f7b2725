// The tool `search`: the articles of Wikipedia that match some words.
export const definition = {
  type: "function",
  function: {
    name: "search",
    description: "Search Wikipedia and return titles and excerpts.",
    parameters: {
      type: "object",
      properties: { query: { type: "string", description: "The words to search for." } },
      required: ["query"],
    },
  },
} as const;

type Found = { query: { search: { title: string; snippet: string }[] } };

export async function run({ query }: { query: string }): Promise<string> {
  const wanted = new URLSearchParams({ action: "query", list: "search", srsearch: query, srlimit: "5", format: "json" });
  const answer = await fetch(`https://en.wikipedia.org/w/api.php?${wanted}`, {
    headers: { "User-Agent": "{{name}}/0.1" },
    signal: AbortSignal.timeout(10_000),
  });
  if (!answer.ok) throw new Error(`Wikipedia answered ${answer.status}.`);
  const { search } = ((await answer.json()) as Found).query;
  if (search.length === 0) return "Nothing was found.";
  return search.map((entry) => `${entry.title}: ${entry.snippet.replace(/<[^>]*>/g, "")}`).join("\n");
}
