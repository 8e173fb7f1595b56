// Makes and uses passkeys. A form with `data-passkey` is shown only where they work: in a browser that knows them, at the
// address that they belong to. Its hidden field gets what the browser made, then the form is sent as any other.

import { root } from "./root.js";

const CANCELLED = "NotAllowedError"; // the user closed the dialog, or there is no passkey

function supported(origin) {
  return location.origin === origin && "PublicKeyCredential" in window
    && "parseCreationOptionsFromJSON" in PublicKeyCredential && "parseRequestOptionsFromJSON" in PublicKeyCredential;
}

async function optionsFor(form) {
  const isNew = form.dataset.passkey === "create";
  const request = isNew
    ? { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { accept: "application/json", "x-fragment": "1" } }
    : { method: "POST" };
  const response = await fetch(root + (isNew ? "/app/security/passkeys/options" : "/auth/passkeys/challenge"), request);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.detail);
  return isNew
    ? navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(answer.options) })
    : navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(answer.options) });
}

function showProblem(form, text) {
  const problem = form.querySelector("[data-passkey-problem]");
  problem.textContent = text;
  problem.hidden = !text;
}

async function submit(event) {
  const form = event.target;
  event.preventDefault();
  if (form.dataset.busy) return;
  form.dataset.busy = "1";
  showProblem(form, "");
  try {
    const credential = await optionsFor(form);
    form.elements.credential.value = JSON.stringify(credential.toJSON());
    form.submit();
  } catch (error) {
    const known = { [CANCELLED]: "The passkey was not used. Try again.", InvalidStateError: "This device has a passkey for your account already." };
    showProblem(form, known[error.name] || error.message || "The passkey did not work. Try again.");
  } finally {
    delete form.dataset.busy;
  }
}

export function start(element) {
  if (!supported(element.dataset.origin)) return;
  for (const note of element.querySelectorAll("[data-passkey-unsupported]")) note.hidden = true;
  for (const form of element.querySelectorAll("form[data-passkey]")) {
    form.hidden = false;
    form.addEventListener("submit", submit);
  }
}
