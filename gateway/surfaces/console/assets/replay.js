// Sends a logged request to another model with a short-lived key of the visitor, and opens the comparison of both.
"use strict";

(() => {
  const root = document.getElementById("replay");
  if (!root) return;
  const {keys, csrf, project, key, body, model, api, comparison, original} = root.dataset;
  const getToken = makeKeySource(keys, csrf, () => project, () => key);
  const button = root.querySelector("button");
  const status = root.querySelector("[role=status]");

  async function readBody() {
    const answer = await fetch(body, {method: "POST", body: new URLSearchParams({csrf, model})});
    const made = await answer.json().catch(() => ({message: "Your session has ended. Sign in again."}));
    if (!answer.ok) throw new Error(made.message);
    return made;
  }

  async function send() {
    const token = await getToken();
    const made = await readBody();
    const headers = {...made.headers, "Authorization": `Bearer ${token}`, "Content-Type": "application/json"};
    const options = {method: "POST", credentials: "omit", headers, body: JSON.stringify(made.body)};
    const answer = await fetch(api + made.path, options);
    const isJson = (answer.headers.get("content-type") ?? "").includes("json");
    const read = isJson ? await answer.json().catch(() => ({})) : await answer.blob().then(() => ({}));  // speech
    const error = read && read.error;
    if (!answer.ok || error) throw new Error(`${answer.status}: ${(error && error.message) || "The request failed."}`);
    return answer.headers.get("x-request-id");
  }

  button.addEventListener("click", async () => {
    button.disabled = true;
    status.className = "note";
    status.textContent = "Sending…";
    try {
      const query = new URLSearchParams([["request", original], ["request", await send()]]);
      location.assign(`${comparison}?${query}`);
    } catch (error) {
      status.className = "bad";
      status.textContent = error.message;
      button.disabled = false;
    }
  });
})();
