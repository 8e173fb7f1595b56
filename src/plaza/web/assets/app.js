// What makes forms happen in place. Without this script they load the page again, and do the same.
//
// A form or button with `data-swap` is sent by fetch; the answer is the piece of the page that has changed. Every element
// in it that has an id takes the place of the one with that id; one with `data-into` is added there.

const said = document.getElementById("said");

function say(text, failed = false) {
  said.textContent = text;
  said.classList.toggle("failed", failed);
  clearTimeout(say.timer);
  if (text) say.timer = setTimeout(() => { said.textContent = ""; }, failed ? 8000 : 3000);
}

// Where the focus was inside what is replaced: on the same control of the new piece it stays, or else on the first.
function focusIn(element) {
  const active = document.activeElement;
  if (!element.contains(active)) return null;
  const name = ["formaction", "id", "name", "href"].find((each) => active.hasAttribute(each));
  return name ? `[${name}="${CSS.escape(active.getAttribute(name))}"]` : "textarea, input:not([type=hidden]), button, a";
}

function put(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html; // our own templates, which escape; scripts in it would not run
  for (const element of [...holder.content.children]) {
    if (element.dataset.into) {
      document.querySelector(element.dataset.into)?.[element.dataset.how || "append"](...element.childNodes);
      continue;
    }
    const old = element.id && document.getElementById(element.id);
    if (!old) continue;
    const focus = focusIn(old);
    old.replaceWith(element);
    if (focus) element.querySelector(focus)?.focus();
  }
  return holder.content;
}

// What somebody was writing when their session ended is there again, in this tab, once they are back.
const draft = (area) => `draft ${document.querySelector(".who")?.getAttribute("href")} ${location.pathname} ${area.id}`;

function keep(form) {
  for (const area of form.querySelectorAll("textarea")) sessionStorage.setItem(draft(area), area.value);
}

for (const area of document.querySelectorAll("textarea")) {
  area.value = sessionStorage.getItem(draft(area)) || area.value;
  sessionStorage.removeItem(draft(area));
}

async function send(form, button) {
  const data = new URLSearchParams(new FormData(form, button));
  const action = button?.getAttribute("formaction") || form.getAttribute("action");
  const answer = await fetch(action, { method: "POST", body: data, headers: { "x-fragment": "1", accept: "text/html" } });
  const next = answer.headers.get("x-next");
  if (answer.ok && next) {
    location.assign(next);
  } else if (answer.ok) {
    const text = await answer.text();
    put(text);
    say(decodeURIComponent(answer.headers.get("x-said") || ""));
  } else if (answer.status === 401) {
    keep(form);
    location.assign(`/app/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
  } else {
    const problem = await answer.json().catch(() => ({}));
    if (problem.code === "stale_form") keep(form);
    say(problem.detail || "That did not work. Try again in a moment.", true);
  }
}

document.addEventListener("submit", async (event) => {
  const form = event.target, button = event.submitter;
  if (!(button?.hasAttribute("data-swap") || form.hasAttribute("data-swap"))) return;
  event.preventDefault();
  // Pressed again before the answer is there, it is one press. Buttons that share a form do not wait for each other.
  const pressed = button?.hasAttribute("formaction") ? button : form;
  if (pressed.dataset.busy) return;
  pressed.dataset.busy = "1";
  try {
    await send(form, button);
  } catch {
    say("Plaza does not answer. Try again in a moment.", true);
  } finally {
    delete pressed.dataset.busy;
  }
});

// What is changed in a cart counts at once: nothing can be ordered that the page does not show yet.
document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-send]")) return;
  document.querySelector("[formaction='/app/shop/checkout']").disabled = true;
  target.form.requestSubmit();
});

// A composer grows with its text where the style alone cannot make it; Ctrl or Cmd with Enter sends it.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea")) {
    event.target.form.requestSubmit();
  }
});

for (const element of document.querySelectorAll("[data-module]")) {
  import(`./${element.dataset.module}.js`).then((module) => module.start(element, { put, say }));
}
