// The tool `weather`: the weather of today at a place, from https://open-meteo.com, which needs no key.
export const definition = {
  type: "function",
  function: {
    name: "weather",
    description: "Return the current weather at a place.",
    parameters: {
      type: "object",
      properties: { place: { type: "string", description: "A town, for example Paris." } },
      required: ["place"],
    },
  },
} as const;

type Place = { name: string; latitude: number; longitude: number };
type Weather = { current: { temperature_2m: number; wind_speed_10m: number } };

export async function run({ place }: { place: string }): Promise<string> {
  const places = await get<{ results?: Place[] }>("https://geocoding-api.open-meteo.com/v1/search", {
    name: place,
    count: "1",
  });
  const found = places.results?.[0];
  if (!found) return `${place} was not found.`;
  const { current } = await get<Weather>("https://api.open-meteo.com/v1/forecast", {
    latitude: String(found.latitude),
    longitude: String(found.longitude),
    current: "temperature_2m,wind_speed_10m",
  });
  return `${found.name}: ${current.temperature_2m} °C, wind ${current.wind_speed_10m} km/h.`;
}

async function get<T>(address: string, query: Record<string, string>): Promise<T> {
  const answer = await fetch(`${address}?${new URLSearchParams(query)}`, { signal: AbortSignal.timeout(10_000) });
  if (!answer.ok) throw new Error(`${address} answered ${answer.status}.`);
  return (await answer.json()) as T;
}
