// Suggestions below the search box: users and tags that begin with what was typed. The box is a combobox: arrow keys choose,
// Enter opens the choice or searches, Escape closes the list.

import { root } from "./root.js";

const WAIT_MS = 120;

export function start(input) {
  const list = Object.assign(document.createElement("ul"), { id: "search-suggestions", className: "suggestions", hidden: true });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  input.after(list);
  for (const [name, value] of [["role", "combobox"], ["aria-controls", list.id], ["aria-expanded", "false"], ["aria-autocomplete", "list"]]) {
    input.setAttribute(name, value);
  }
  let timer = 0, latest = 0, selected = -1;

  const options = () => [...list.children];

  function select(index) {
    selected = index;
    options().forEach((option, i) => option.setAttribute("aria-selected", String(i === index)));
    const chosen = options()[index];
    if (chosen) input.setAttribute("aria-activedescendant", chosen.id);
    else input.removeAttribute("aria-activedescendant");
  }

  // A choice survives a response that was on its way when the user made it.
  function show(html) {
    const chosen = options()[selected]?.querySelector("a").href;
    list.innerHTML = html; // safe: our template escapes user text
    list.hidden = !list.children.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    select(options().findIndex((option) => option.querySelector("a").href === chosen));
  }

  async function load() {
    const number = ++latest, text = input.value.trim();
    if (!text) return show("");
    const response = await fetch(`${root}/app/search/suggest?q=${encodeURIComponent(text)}`).catch(() => null);
    const html = response?.ok ? await response.text() : "";
    if (number === latest && document.activeElement === input) show(html);
  }

  input.addEventListener("input", () => { select(-1); clearTimeout(timer); timer = setTimeout(load, WAIT_MS); });
  input.addEventListener("blur", () => setTimeout(() => show(""), 150)); // a click on a suggestion comes first
  input.addEventListener("keydown", (event) => {
    const count = list.hidden ? 0 : list.children.length;
    if (event.key === "Escape" && count) { event.preventDefault(); clearTimeout(timer); latest++; show(""); }
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && count) {
      event.preventDefault();
      select((selected + (event.key === "ArrowDown" ? 1 : -1) + count + (selected < 0 && event.key === "ArrowUp" ? 1 : 0)) % count);
    }
    if (event.key === "Enter" && selected >= 0) {
      event.preventDefault();
      location.assign(options()[selected].querySelector("a").href);
    }
  });
  if (input.value) load();
}
