// The tool `calculator`: the value of an arithmetic expression.
export const definition = {
  type: "function",
  function: {
    name: "calculator",
    description: "Return the value of an arithmetic expression with + - * / % and parentheses.",
    parameters: {
      type: "object",
      properties: { expression: { type: "string", description: "For example (2 + 3) * 4." } },
      required: ["expression"],
    },
  },
} as const;

const LONGEST = 200;

export async function run({ expression }: { expression: string }): Promise<string> {
  if (expression.length > LONGEST) throw new Error(`the expression is longer than ${LONGEST} characters`);
  const tokens = expression.match(/\d+(?:\.\d+)?|[-+*/%()]|\S/g) ?? [];
  const value = sum(tokens);
  if (tokens.length > 0) throw new Error(`unexpected ${tokens[0]}`);
  return String(value);
}

function sum(tokens: string[]): number {
  let value = product(tokens);
  while (tokens[0] === "+" || tokens[0] === "-") {
    const sign = tokens.shift() === "+" ? 1 : -1;
    value += sign * product(tokens);
  }
  return value;
}

function product(tokens: string[]): number {
  let value = factor(tokens);
  for (;;) {
    if (tokens[0] === "*") value *= (tokens.shift(), factor(tokens));
    else if (tokens[0] === "/") value /= (tokens.shift(), factor(tokens));
    else if (tokens[0] === "%") value %= (tokens.shift(), factor(tokens));
    else return value;
  }
}

function factor(tokens: string[]): number {
  const token = tokens.shift();
  if (token === "-") return -factor(tokens);
  if (token === "+") return factor(tokens);
  if (token === "(") {
    const value = sum(tokens);
    if (tokens.shift() !== ")") throw new Error("a parenthesis is not closed");
    return value;
  }
  if (token === undefined || !/^\d/.test(token)) throw new Error(`unexpected ${token ?? "end"}`);
  return Number(token);
}
