// "Older" adds the next page of a list to this one. On Back the list is as long as before, at the same place.
//
// Browsers do not store pages of a signed-in user, so Back loads the first page. What was added is loaded again then.

import { randomId } from "./root.js";

const MAX_RESTORED_PAGES = 10;

const more = () => document.querySelector("main .more:has(> a[rel=next])");

// The element that selects the list on the next page too.
const selector = (list) => list.id ? `#${list.id}` : `main ${list.localName}.${list.classList[0]}`;

// The rows of a list; those of a table are in its body.
const rowsOf = (list) => list?.querySelector(":scope > table > tbody") ?? list;

async function loadNext() {
  const link = more().firstElementChild, list = more().previousElementSibling;
  const response = await fetch(link.href, { headers: { accept: "text/html" } });
  if (!response.ok) throw new Error(response.statusText);
  const page = new DOMParser().parseFromString(await response.text(), "text/html"); // scripts in it do not run
  // What moved from the next page to this one in the meantime is shown once.
  const rows = [...(rowsOf(page.querySelector(selector(list)))?.children ?? [])];
  const added = rows.filter((row) => !(row.id && document.getElementById(row.id)) && !row.classList.contains("empty"));
  rowsOf(list).append(...added);
  const next = page.querySelector("main .more:has(> a[rel=next])");
  if (next) more().replaceWith(next);
  else more().remove();
  return added[0];
}

// Called with a link "Older" that was clicked.
export async function addOlder(link) {
  if (link.ariaBusy) return;
  if (!more()?.previousElementSibling) return location.assign(link.href);
  link.ariaBusy = "true";
  try {
    const first = await loadNext();
    history.scrollRestoration = "manual";
    history.replaceState({ pages: (history.state?.pages ?? 0) + 1, list: history.state?.list ?? randomId() }, "");
    first?.querySelector("a, button")?.focus({ preventScroll: true });
  } catch {
    location.assign(link.href);
  }
}

addEventListener("pagehide", () => {
  if (history.state?.list) sessionStorage.setItem(`place ${history.state.list}`, String(scrollY));
});

async function restore({ pages, list }) {
  history.scrollRestoration = "manual";
  for (let page = 0; page < Math.min(pages, MAX_RESTORED_PAGES) && more(); page += 1) await loadNext();
  scrollTo(0, Number(sessionStorage.getItem(`place ${list}`)));
}

if (history.state?.pages) restore(history.state).catch(() => {});
