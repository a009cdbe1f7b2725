// A key of the visitor for the calls of one page, which can only call models and expires after an hour; or a token of one
// of the visitor's keys, which expires after 15 minutes. It is in the page's memory only: never in a URL, a cookie or the
// storage of the browser.
"use strict";

// Return a function that resolves to the token; simultaneous calls share a promise. `getProject` returns a project's id,
// `getKey` that of an existing key, "" for a new one.
function makeKeySource(url, csrf, getProject, getKey = () => "") {
  const RENEWAL_MS = 60000;  // a key is replaced this long before it expires
  let token = null;
  let expires = 0;

  async function renew() {
    const body = new URLSearchParams({csrf, project: getProject(), key: getKey()});
    const answer = await fetch(url, {method: "POST", body});
    const made = await answer.json().catch(() => ({message: "Your session has ended. Sign in again."}));
    if (!answer.ok) throw new Error(made.message);
    expires = Date.parse(made.expiresAt);
    return made.token;
  }

  return () => {
    if (!token || Date.now() > expires - RENEWAL_MS) {
      expires = Infinity;
      token = renew().catch((error) => {
        token = null;
        throw error;
      });
    }
    return token;
  };
}
