// Suggestions in text areas: users after `@`, hashtags after `#`. Arrow keys choose, Enter or Tab inserts, Escape closes.

import { root } from "./root.js";

const WAIT_MS = 120, WORD = /(?:^|[^\w/.@#-])([@#][\w.-]{1,30})$/u;

export function start(area) {
  const list = Object.assign(document.createElement("ul"), { id: `${area.id}-suggestions`, className: "suggestions mentions", hidden: true });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  area.after(list);
  for (const [name, value] of [["aria-controls", list.id], ["aria-autocomplete", "list"], ["autocomplete", "off"]]) area.setAttribute(name, value);
  let timer = 0, latest = 0, selected = 0;

  const typed = () => area.value.slice(0, area.selectionStart).match(WORD)?.[1] || "";

  function close() {
    latest++;
    list.hidden = true;
    list.replaceChildren();
    area.removeAttribute("aria-activedescendant");
  }

  function select(index) {
    selected = index;
    [...list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === index)));
    area.setAttribute("aria-activedescendant", list.children[index].id);
  }

  function insert(text) {
    const end = area.selectionStart, word = typed();
    area.setRangeText(`${text} `, end - word.length, end, "end");
    close();
    area.focus();
  }

  function show(texts) {
    if (!texts.length) return close();
    list.replaceChildren(...texts.map((text, i) => {
      const option = Object.assign(document.createElement("li"), { id: `${list.id}-${i}`, textContent: text });
      option.setAttribute("role", "option");
      option.addEventListener("mousedown", (event) => { event.preventDefault(); insert(text); });
      return option;
    }));
    list.hidden = false;
    select(0);
  }

  async function load() {
    const number = ++latest, word = typed();
    if (!word) return close();
    const response = await fetch(`${root}/search/suggest?q=${encodeURIComponent(word)}`).catch(() => null);
    const found = response?.ok ? await response.json() : { users: [], tags: [] };
    if (number !== latest || document.activeElement !== area) return;
    show(word[0] === "@" ? found.users.map((user) => `@${user.id}`) : found.tags.map((tag) => `#${tag.id}`));
  }

  area.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(load, WAIT_MS); });
  area.addEventListener("blur", close);
  area.addEventListener("keydown", (event) => {
    const count = list.children.length;
    if (!count || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") close();
    else if (event.key === "Enter" || event.key === "Tab") insert(list.children[selected].textContent);
    else if (event.key === "ArrowDown") select((selected + 1) % count);
    else if (event.key === "ArrowUp") select((selected - 1 + count) % count);
    else return;
    event.preventDefault();
  });
}
