// Keeps an open page current: new posts, counts, new comments, the bell. One event stream carries all of it.
//
// What is new is loaded as the page itself, so that the server decides what this user sees.

import { openStream } from "./event-stream.js";
import { root } from "./root.js";

const MAX_TOPICS = 100, MAX_INSERTED_POSTS = 20;

const feed = document.querySelector("#feed[data-watch]");
const comments = document.querySelector(".comments[data-watch]");
const bell = document.getElementById("bell-count");

const cards = () => [...document.querySelectorAll("article.post[id^=post-]")];

function topics() {
  const watched = [...document.querySelectorAll("[data-watch]")].map((element) => element.dataset.watch);
  const posts = cards().map((card) => card.id.replace("post-", "post:"));
  return [...new Set([...watched, ...posts])].slice(0, MAX_TOPICS);
}

// As the server writes numbers: 1,204 and 12.3k.
function compact(number) {
  if (number < 10_000) return number.toLocaleString("en");
  const [factor, suffix] = number < 1_000_000 ? [1_000, "k"] : [1_000_000, "m"];
  return (number / factor).toFixed(1).replace(/\.0$/, "") + suffix;
}

function setCount(control, count, label, suffix = "") {
  if (!control) return;
  control.querySelector("span").textContent = count ? compact(count) : "";
  control.setAttribute("aria-label", count ? `${label}, ${count}${suffix}` : label);
}

async function loadPage(path) {
  const response = await fetch(path, { headers: { accept: "text/html" } });
  if (!response.ok) throw new Error(response.statusText);
  return new DOMParser().parseFromString(await response.text(), "text/html"); // scripts in it do not run
}

// New posts: first their number. A click inserts them.
const waiting = new Set();

function showNumber() {
  const notice = document.getElementById("new-posts");
  for (const id of waiting) if (document.getElementById(`post-${id}`)) waiting.delete(id);
  if (!waiting.size) return notice.replaceChildren();
  const link = notice.querySelector("a") || notice.appendChild(document.createElement("a"));
  link.href = location.pathname;
  link.className = "button";
  link.textContent = `${waiting.size < 100 ? waiting.size : "100+"} new ${waiting.size === 1 ? "post" : "posts"}`;
}

async function insertPosts(path) {
  const found = (await loadPage(path)).querySelectorAll("#feed > article");
  const added = [...found].filter((card) => !document.getElementById(card.id));
  feed.prepend(...added);
  waiting.clear();
  showNumber();
  feed.querySelector("article .timestamp a")?.focus({ preventScroll: true });
}

document.getElementById("new-posts")?.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  const hasModifier = event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
  // More than a page of new posts would leave a gap.
  if (!link || hasModifier || waiting.size > MAX_INSERTED_POSTS) return;
  event.preventDefault();
  insertPosts(link.href).catch(() => location.assign(link.href));
});

// New comments of an open thread, and comments that changed.
let loadTimer = 0, shownComments = Number(comments?.dataset.count);

function showComments(count, spreadMs) {
  if (count === shownComments) return;
  shownComments = count;
  clearTimeout(loadTimer);
  loadTimer = setTimeout(() => mergeComments().catch(() => {}), Math.random() * spreadMs);
}

async function mergeComments() {
  const page = await loadPage(location.pathname + location.search);
  const list = document.getElementById("all-comments");
  // A hidden comment is being deleted, unless the user takes that back.
  for (const row of page.querySelectorAll("#all-comments > li")) {
    const old = document.getElementById(row.id);
    if (!old) list.append(row);
    else if (!old.hidden && !old.contains(document.activeElement) && old.outerHTML !== row.outerHTML) old.replaceWith(row);
  }
  const heading = page.getElementById("comments");
  if (heading) document.getElementById("comments").textContent = heading.textContent;
  const more = page.querySelector(".comments > .more");
  if (more && !comments.querySelector(":scope > .more")) list.after(more);
}

function updatePost({ topic, gone, likes, comments: count, spread_ms: spreadMs }) {
  const card = document.getElementById(topic.replace(":", "-"));
  if (gone) {
    // Admins still see a banned post.
    if (!document.getElementById("ban-button")) card?.replaceChildren(Object.assign(document.createElement("p"), { className: "soft", textContent: "This post was removed." }));
    return;
  }
  setCount(card?.querySelector(".actions > .like"), likes, "Like", " so far");
  setCount(card?.querySelector(".actions > a"), count, "Comments");
  if (comments?.dataset.watch === topic) showComments(count, spreadMs);
}

function updateArticle({ topic, gone, votes, comments: count, spread_ms: spreadMs }) {
  if (gone) return;
  const number = document.querySelector(`#${CSS.escape(topic.replace("article:", "votes-"))} .n`);
  if (number) number.lastChild.textContent = compact(votes);
  if (comments?.dataset.watch === topic) showComments(count, spreadMs);
}

function updateBell({ unread }) {
  bell.hidden = !unread;
  bell.firstElementChild.textContent = unread < 100 ? unread : "99+";
}

function update(message) {
  const kind = message.topic.split(":")[0];
  if (kind === "post") updatePost(message);
  else if (kind === "article") updateArticle(message);
  else if (kind === "notifications") updateBell(message);
  else {
    for (const id of message.posts) waiting.add(id);
    showNumber();
  }
}

let since = document.body.dataset.since;

const connectAgain = openStream(
  () => `${root}/app/stream?since=${since}&watch=${topics().join()}`,
  (message, id) => { since = id || since; update(message); },
  { pauseWhenHidden: true },
);

// A post that was added to the page is watched too.
if (feed) new MutationObserver(connectAgain).observe(feed, { childList: true });
