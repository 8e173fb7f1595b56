// The page: reads /openapi.json, lists the routes by tag, and keeps the address bar and what is open in step.

import { h, inline, prose } from "./dom.js";
import { entry, shape } from "./schema.js";
import { credentials, tryForm } from "./try.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const $ = (id) => document.getElementById(id);

async function start() {
  theme();
  menu();
  signIn();
  try {
    const answer = await fetch("/openapi.json");
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    page(await answer.json());
  } catch (error) {
    $("state").textContent = `The document could not be read: ${error.message}`;
    $("state").classList.add("failed");
    return;
  }
  find();
  window.addEventListener("hashchange", reveal);
  reveal();
}

function page(doc) {
  $("version").textContent = doc.info.version;
  const groups = byTag(doc);
  $("nav").replaceChildren(
    ...groups.map(({ tag, operations }) => navGroup(tag.name, operations.map(navLink))),
    navGroup("reference", [refLink("problems", "Problems"), refLink("types", "Types")]),
  );
  $("content").replaceChildren(
    h("div", { class: "intro" }, h("h1", {}, doc.info.title), prose(doc.info.description ?? ""), basics(doc)),
    ...groups.map((group) => tagSection(group, doc)),
    problems(doc),
    types(doc),
  );
}

function byTag(doc) {
  const found = new Map(doc.tags.map((tag) => [tag.name, { tag, operations: [] }]));
  for (const [path, methods] of Object.entries(doc.paths)) {
    for (const method of METHODS.filter((name) => methods[name])) {
      const operation = methods[method];
      found.get(operation.tags[0])?.operations.push({ method, path, operation });
    }
  }
  return [...found.values()].filter((group) => group.operations.length);
}

const badge = (method) => h("span", { class: `method ${method}` }, method.toUpperCase());

// A path may break behind a slash, never inside a name.
const pathText = (path) => path.split(/(?<=\/)/).flatMap((part) => [part, h("wbr")]);

function navGroup(name, links) {
  return h("section", {}, h("h2", {}, name), h("ul", {}, links.map((link) => h("li", {}, link))));
}

function navLink({ method, path, operation }) {
  return h("a", { href: `#${operation.operationId}`, "data-find": haystack(method, path, operation) }, badge(method), h("span", {}, pathText(path)));
}

function refLink(id, text) {
  return h("a", { href: `#${id}` }, h("span", {}, text));
}

const haystack = (method, path, operation) => `${method} ${path} ${operation.summary ?? ""}`.toLowerCase();

function basics(doc) {
  const schemes = Object.values(doc.components.securitySchemes).map((scheme) =>
    h("code", {}, scheme.type === "http" ? "Authorization: Bearer …" : `${scheme.name}: …`),
  );
  return h(
    "dl",
    { class: "basics" },
    h("div", {}, h("dt", {}, "Credentials"), h("dd", {}, schemes.flatMap((scheme, i) => (i ? [" or ", scheme] : [scheme])))),
    h("div", {}, h("dt", {}, "Errors"), h("dd", {}, h("code", {}, "application/problem+json"), ", by ", h("a", { href: "#problems" }, "code"))),
    h("div", {}, h("dt", {}, "Document"), h("dd", {}, h("a", { href: "/openapi.json" }, "/openapi.json"), ` (OpenAPI ${doc.openapi})`)),
  );
}

function tagSection({ tag, operations }, doc) {
  return h(
    "section",
    { class: "tag", id: `tag-${tag.name}` },
    h("h2", {}, tag.name),
    tag.description ? h("p", { class: "about" }, inline(tag.description)) : null,
    operations.map((one) => operationFold(one, doc)),
  );
}

function operationFold({ method, path, operation }, doc) {
  const fold = h(
    "details",
    { class: "operation", id: operation.operationId, "data-find": haystack(method, path, operation) },
    h("summary", {}, badge(method), h("code", { class: "path" }, pathText(path)), h("span", { class: "said" }, inline(operation.summary ?? ""))),
  );
  // What is inside is made when someone looks: a hundred forms at once would make the page slow.
  fold.addEventListener("toggle", () => fold.append(inside(method, path, operation, doc)), { once: true });
  fold.addEventListener("toggle", () => fold.open && history.replaceState(null, "", `#${fold.id}`));
  return fold;
}

function inside(method, path, operation, doc) {
  const body = operation.requestBody?.content;
  return h(
    "div",
    { class: "inside" },
    h(
      "div",
      { class: "reference" },
      operation.description ? prose(operation.description) : null,
      h("p", { class: "who" }, who(operation)),
      part("Parameters", operation.parameters?.length ? parameterList(operation.parameters, doc) : null),
      part("Body", body ? Object.entries(body).map(([type, content]) => media(type, content, doc)) : null),
      part("Answers", answers(operation.responses, doc)),
    ),
    h("div", { class: "trying" }, h("h3", {}, "Try it"), tryForm(method, path, operation, doc)),
  );
}

const part = (title, content) => (content ? [h("h3", {}, title), content] : null);

function who(operation) {
  if (!operation.security) return "Open to all.";
  const open = operation.security.some((need) => Object.keys(need).length === 0);
  return open ? "Open to all; with credentials it may tell more." : "Needs credentials.";
}

function parameterList(parameters, doc) {
  return h("ul", { class: "entries" }, parameters.map((p) => entry({ ...p, place: p.in }, doc)));
}

function media(type, content, doc, sent = true) {
  return [h("p", { class: "media" }, h("code", {}, type)), content.schema ? shape(content.schema, doc, sent) : null];
}

function answers(responses, doc) {
  const good = [];
  const bad = [];
  for (const [status, response] of Object.entries(responses)) {
    if (response.$ref) bad.push(h("li", {}, h("a", { href: `#status-${status}`, class: `status s${status[0]}` }, status)));
    else good.push(goodAnswer(status, response, doc));
  }
  return [...good, bad.length ? h("div", { class: "errors" }, h("span", {}, "Problems"), h("ul", {}, bad)) : null];
}

function goodAnswer(status, response, doc) {
  return h(
    "div",
    { class: "good" },
    h("p", {}, h("span", { class: `status s${status[0]}` }, status), " ", response.description),
    Object.entries(response.content ?? {}).map(([type, content]) => media(type, content, doc, false)),
  );
}

function problems(doc) {
  const seen = new Set();
  const rows = doc["x-problems"].map(({ code, status, title }) => {
    const first = !seen.has(status);
    seen.add(status);
    return h(
      "li",
      { id: `problem-${code}` },
      h("span", { class: `status s${String(status)[0]}`, id: first ? `status-${status}` : null }, String(status)),
      h("code", {}, code),
      h("span", {}, title),
    );
  });
  return h(
    "section",
    { class: "tag", id: "problems" },
    h("h2", {}, "Problems"),
    h("p", { class: "about" }, "Every answer that is not a success says a ", h("code", {}, "code"), "; a wrong field is named in ", h("code", {}, "field"), "."),
    h("ul", { class: "problems" }, rows),
  );
}

function types(doc) {
  const folds = Object.entries(doc.components.schemas).map(([name, schema]) => {
    const fold = h("details", { class: "operation type-fold", id: `type-${name}` }, h("summary", {}, h("code", { class: "path" }, name), h("span", { class: "said" }, inline(schema.description ?? ""))));
    fold.addEventListener("toggle", () => fold.append(h("div", { class: "inside" }, h("div", { class: "reference" }, shape(schema, doc)))), { once: true });
    return fold;
  });
  return h("section", { class: "tag", id: "types" }, h("h2", {}, "Types"), folds);
}

function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target instanceof HTMLDetailsElement) target.open = true;
  document.querySelectorAll(".target").forEach((old) => old.classList.remove("target"));
  (target.closest("li") ?? target).classList.add("target");
  target.scrollIntoView({ block: "start" });
  for (const link of $("nav").querySelectorAll("a")) {
    if (link.hash === location.hash) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  closeMenu();
}

function find() {
  const field = $("find");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const item of document.querySelectorAll("[data-find]")) {
      const hit = words.every((word) => item.dataset.find.includes(word));
      (item.closest("nav li") ?? item).hidden = !hit;
    }
    for (const section of document.querySelectorAll("nav section, section.tag")) {
      const items = [...section.querySelectorAll("[data-find]")];
      section.hidden = words.length > 0 && items.every((item) => (item.closest("nav li") ?? item).hidden);
    }
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, dialog");
    if (event.key === "/" && !typing) {
      event.preventDefault();
      field.focus();
    }
  });
}

function theme() {
  const root = document.documentElement;
  const kept = localStorage.getItem("theme");
  if (kept) root.dataset.theme = kept;
  $("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  });
}

function menu() {
  $("menu").addEventListener("click", () => {
    const open = document.body.classList.toggle("menu-open");
    $("menu").setAttribute("aria-expanded", String(open));
  });
  $("nav").addEventListener("click", (event) => event.target.closest("a") && closeMenu());
}

function closeMenu() {
  document.body.classList.remove("menu-open");
  $("menu").setAttribute("aria-expanded", "false");
}

function signIn() {
  const dialog = $("credentials");
  const show = () => {
    const held = credentials.get();
    $("key-text").textContent = held ? (held.kind === "key" ? "API key" : "Token") : "Sign in";
    $("key-light").classList.toggle("on", Boolean(held));
  };
  $("key").addEventListener("click", () => {
    const held = credentials.get();
    $("credential-kind").value = held?.kind ?? "bearer";
    $("credential").value = held?.value ?? "";
    dialog.returnValue = "";
    dialog.showModal();
  });
  // Enter means the first button of a form; here it should mean "use it".
  $("credential").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    dialog.close("keep");
  });
  dialog.addEventListener("close", () => {
    const value = $("credential").value.trim().replace(/^bearer\s+/i, "");
    if (dialog.returnValue === "keep") credentials.set(value && { kind: $("credential-kind").value, value });
    if (dialog.returnValue === "forget") credentials.set(null);
    show();
  });
  show();
}

start();
