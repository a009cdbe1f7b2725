// Passkeys (WebAuthn). A form with data-passkey ("create" or "get") first asks data-options for the options, then the
// browser for a credential, and is sent with that credential.
(() => {
  "use strict";
  const decode = (text) => {
    const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    return Uint8Array.from(plain, (letter) => letter.charCodeAt(0)).buffer;
  };
  const encode = (buffer) => {
    const letters = Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte)).join("");
    return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  };
  const known = (list) => (list || []).map((one) => ({ ...one, id: decode(one.id) }));

  const create = async (options) => {
    const made = await navigator.credentials.create({
      publicKey: {
        ...options,
        challenge: decode(options.challenge),
        user: { ...options.user, id: decode(options.user.id) },
        excludeCredentials: known(options.excludeCredentials),
      },
    });
    return describe(made, {
      attestationObject: encode(made.response.attestationObject),
      transports: made.response.getTransports ? made.response.getTransports() : [],
    });
  };

  const get = async (options) => {
    const found = await navigator.credentials.get({
      publicKey: {
        ...options,
        challenge: decode(options.challenge),
        allowCredentials: known(options.allowCredentials),
      },
    });
    return describe(found, {
      authenticatorData: encode(found.response.authenticatorData),
      signature: encode(found.response.signature),
      userHandle: found.response.userHandle ? encode(found.response.userHandle) : null,
    });
  };

  const describe = (credential, response) => ({
    id: credential.id,
    rawId: encode(credential.rawId),
    type: credential.type,
    clientExtensionResults: {},
    response: { clientDataJSON: encode(credential.response.clientDataJSON), ...response },
  });

  const run = async (form) => {
    if (!window.PublicKeyCredential) throw new Error("This browser does not support passkeys.");
    const body = new URLSearchParams(new FormData(form));
    const answer = await fetch(form.dataset.options, { method: "POST", body });
    const options = await answer.json();
    if (!answer.ok) throw new Error(options.message);
    return form.dataset.passkey === "create" ? create(options) : get(options);
  };

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || !form.dataset.passkey) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const problem = form.querySelector("[data-problem]");
    problem.hidden = true;
    try {
      form.elements.namedItem("credential").value = JSON.stringify(await run(form));
      form.submit();
    } catch (error) {
      const refused = error.name === "NotAllowedError" || error.name === "AbortError";
      problem.textContent = refused ? "No passkey was used. Try again, or use another way to sign in." : error.message;
      problem.hidden = false;
    }
  }, true);
})();
