// Submits forms without reloading the page. Without this script, forms work by a normal page load.
//
// A form or button with `data-swap` is sent by fetch. The response is an HTML fragment: each element with an id replaces the
// element with the same id on the page; the children of an element with `data-into` are added to the element it names.

import { root } from "./root.js";

const MESSAGE_MS = 3000, LONG_MESSAGE_MS = 8000;
// A next page that takes longer than this is announced, for at most so long: the answer may be no page.
const SLOW_MS = 300, LOADING_MS = 20_000;

const statusMessage = document.getElementById("status-message");
let messageTimer = 0, slowTimer = 0, afterMessage = () => {};

// Shows a text for a while, with a button if there is one: then it also stays while the pointer or the focus is on it.
// `after` is called when the text has gone, also because of another one.
function showMessage(text, failed = false, button = null, after = () => {}) {
  const finish = afterMessage;
  afterMessage = after;
  statusMessage.replaceChildren(text, ...(button ? [button] : []));
  statusMessage.classList.toggle("failed", failed);
  clearTimeout(messageTimer);
  finish();
  if (!text) return;
  function end() {
    if (button && statusMessage.matches(":hover, :focus-within")) {
      messageTimer = setTimeout(end, MESSAGE_MS);
      return;
    }
    showMessage("");
  }
  messageTimer = setTimeout(end, failed || button ? LONG_MESSAGE_MS : MESSAGE_MS);
}

addEventListener("beforeunload", () => {
  clearTimeout(slowTimer);
  slowTimer = setTimeout(() => {
    showMessage("Loading…");
    clearTimeout(messageTimer);
    messageTimer = setTimeout(() => showMessage(""), LOADING_MS);
  }, SLOW_MS);
});
addEventListener("pageshow", ({ persisted }) => {
  clearTimeout(slowTimer);
  if (persisted) showMessage("");
});

function undoButton(attributes) {
  const button = Object.assign(document.createElement("button"), { textContent: "Undo", type: "button" });
  for (const [name, value] of Object.entries(attributes)) button.setAttribute(name, value);
  return button;
}

// A form that does the opposite of what was just done.
function undoForm(action) {
  const attributes = { type: "submit", form: "action-form", formaction: action, name: "on", value: "1", "data-swap": "" };
  return action ? undoButton(attributes) : null;
}

// A selector that finds the focused control again after `element` is replaced; null if the focus is elsewhere.
function focusSelector(element) {
  const active = document.activeElement;
  if (!element.contains(active)) return null;
  const name = ["formaction", "id", "name", "href"].find((each) => active.hasAttribute(each));
  return name ? `[${name}="${CSS.escape(active.getAttribute(name))}"]` : "textarea, input:not([type=hidden]), button, a";
}

function applyFragment(html) {
  const fragment = document.createElement("template");
  fragment.innerHTML = html; // safe: our templates escape user text, and scripts in a template element do not run
  for (const element of [...fragment.content.children]) {
    if (element.dataset.into) {
      // What an update has already shown is not added again.
      const added = [...element.childNodes].filter((node) => !(node.id && document.getElementById(node.id)));
      document.querySelector(element.dataset.into)?.[element.dataset.insert || "append"](...added);
      continue;
    }
    const old = element.id && document.getElementById(element.id);
    if (!old) continue;
    const focus = focusSelector(old);
    old.replaceWith(element);
    if (focus) element.querySelector(focus)?.focus();
  }
}

// If the session ended while the user was writing, the text is restored in this tab after the next sign-in.
const draftKey = (area) => `draft ${document.querySelector(".account-user")?.getAttribute("href")} ${location.pathname} ${area.id}`;

function saveDrafts(form) {
  for (const area of form.querySelectorAll("textarea")) sessionStorage.setItem(draftKey(area), area.value);
}

for (const area of document.querySelectorAll("textarea")) {
  area.value = sessionStorage.getItem(draftKey(area)) || area.value;
  sessionStorage.removeItem(draftKey(area));
}

// A browser does not load a page again of which only the fragment of the address differs.
function openPage(url) {
  const isThisPage = url.pathname + url.search === location.pathname + location.search;
  location.assign(url);
  if (isThisPage) location.reload();
}

async function send(form, button) {
  // Files are uploaded when they are chosen, and the form names them.
  const data = new URLSearchParams([...new FormData(form, button)].filter(([, value]) => typeof value === "string"));
  const action = button?.getAttribute("formaction") || form.getAttribute("action");
  const response = await fetch(action, { method: "POST", body: data, headers: { "x-fragment": "1", accept: "text/html" } });
  const next = response.headers.get("x-next");
  if (response.ok && next) {
    form.reset();
    openPage(new URL(next, location));
  } else if (response.ok) {
    applyFragment(await response.text());
    showMessage(decodeURIComponent(response.headers.get("x-message") || ""), false, undoForm(response.headers.get("x-undo")));
  } else if (response.status === 401) {
    saveDrafts(form);
    location.assign(`${root}/app/sign-in?next=${encodeURIComponent(location.pathname.slice(root.length) + location.search)}`);
  } else {
    const problem = await response.json().catch(() => ({}));
    if (problem.code === "stale_form") saveDrafts(form);
    showMessage(problem.detail || "Something went wrong. Try again in a moment.", true);
  }
}

// What cannot be taken back is sent only when the message with "Undo" has gone, or when the user leaves the page.
function sendLater(form, button) {
  const action = button.getAttribute("formaction"), part = document.getElementById(button.dataset.later);
  const body = new URLSearchParams(new FormData(form, button));
  const sendNow = () => {
    removeEventListener("pagehide", sendNow);
    fetch(action, { method: "POST", body, keepalive: true, headers: { "x-fragment": "1", accept: "text/html" } }).then(
      (response) => { if (!response.ok) keep("That did not work. Try again in a moment."); },
      () => keep("Plaza is not responding. Try again in a moment."),
    );
  };
  const keep = (problem) => {
    part.hidden = false;
    if (problem) showMessage(problem, true);
  };
  // The focus of the keyboard goes to "Undo", which is far from here, and back.
  const undo = undoButton({}), byKey = button.matches(":focus-visible");
  undo.addEventListener("click", () => {
    removeEventListener("pagehide", sendNow);
    afterMessage = () => {};
    showMessage("");
    keep();
    if (byKey) button.focus();
  });
  part.hidden = true;
  addEventListener("pagehide", sendNow);
  showMessage(button.dataset.message, false, undo, sendNow);
  if (byKey) undo.focus();
}

document.addEventListener("submit", async (event) => {
  const form = event.target, button = event.submitter;
  if (button?.dataset.later) {
    event.preventDefault();
    sendLater(form, button);
    return;
  }
  if (!(button?.hasAttribute("data-swap") || form.hasAttribute("data-swap"))) return;
  event.preventDefault();
  // A second click before the response is ignored. Buttons that share a form do not wait for each other.
  const source = button?.hasAttribute("formaction") ? button : form;
  if (source.dataset.busy) return;
  source.dataset.busy = "1";
  try {
    await send(form, button);
  } catch {
    showMessage("Plaza is not responding. Try again in a moment.", true);
  } finally {
    delete source.dataset.busy;
  }
});

// A changed quantity is saved at once.
document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-send]")) target.form.requestSubmit();
});

// A new reminder starts with the browser's time zone. `toggle` does not bubble.
document.addEventListener("toggle", ({ target }) => {
  const input = target.querySelector("[data-own-time-zone]");
  if (input && input.value === input.defaultValue) input.value = Intl.DateTimeFormat().resolvedOptions().timeZone || input.value;
}, true);

// Ctrl+Enter or Cmd+Enter in a text area submits its form.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea")) {
    event.target.form.requestSubmit();
  }
});

// Suggestions for `@` and `#` are loaded with the first focus of a text area, also of one that a fragment brought.
const suggesting = new WeakSet();

document.addEventListener("focusin", ({ target }) => {
  if (!target.matches("form[method=post] textarea[id]") || suggesting.has(target)) return;
  suggesting.add(target);
  import("./mentions.js").then((module) => module.start(target));
});

// "/" focuses the search box, unless the user is typing. Suggestions are loaded with the first focus.
const searchInput = document.getElementById("search-query");

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select, [contenteditable]")) return;
  event.preventDefault();
  searchInput?.focus();
});

searchInput?.addEventListener("focus", () => {
  import("./search-box.js").then((module) => module.start(searchInput));
}, { once: true });

function isPlainClick(event) {
  return event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
}

// A click on a picture shows it large. With a modifier key, the browser opens it in a new tab as usual.
document.addEventListener("click", async (event) => {
  const link = event.target.closest("[data-lightbox]");
  if (!link || !isPlainClick(event)) return;
  event.preventDefault();
  (await import("./lightbox.js")).open(link);
});

// "Older" adds to the list, also if it is clicked before the script for that is there.
document.addEventListener("click", (event) => {
  const link = event.target.closest("main .more > a[rel=next]");
  if (!link || !isPlainClick(event)) return;
  event.preventDefault();
  import("./lists.js").then((module) => module.addOlder(link), () => location.assign(link.href));
});

// A click anywhere on a post in a list opens it, unless it is on a control or selects text.
document.addEventListener("click", (event) => {
  const card = event.target.closest(".feed > .post");
  if (!card || event.defaultPrevented || event.button !== 0 || event.target.closest("a, button, input, label, summary")) return;
  if (String(getSelection())) return;
  const link = card.querySelector(".timestamp a");
  if (event.ctrlKey || event.metaKey) open(link.href, "_blank", "noopener");
  else link.click();
});

// Events show the reader's own time, in the format of the server's UTC.
const OWN_TIME = { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };

for (const time of document.querySelectorAll("time[data-event-time]")) {
  time.title = time.textContent;
  time.textContent = new Date(time.dateTime).toLocaleString("en-GB", OWN_TIME);
}

// A picture of another host that cannot be loaded is replaced by a text, in its place so that nothing moves.
function replaceMissing(image) {
  const link = image.closest?.(".media-image");
  link?.classList.add("missing");
  link?.replaceChildren(`${image.alt} is not available`);
}

document.addEventListener("error", ({ target }) => replaceMissing(target), true);
for (const image of document.querySelectorAll(".media-image img")) if (image.complete && !image.naturalWidth) replaceMissing(image);

if (document.querySelector("main .more > a[rel=next]") || history.state?.pages) import("./lists.js");

for (const element of document.querySelectorAll("[data-module]")) {
  import(`./${element.dataset.module}.js`).then((module) => module.start(element, { applyFragment, showMessage }));
}

// Error pages are not updated: they do not say since when.
if (document.body.dataset.since && document.querySelector("[data-watch], article.post")) {
  addEventListener("load", () => setTimeout(() => import("./updates.js")));
}
