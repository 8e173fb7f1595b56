// The API documentation: loads /openapi.json, lists the routes by tag, and keeps the address and the open route in sync.

import { h, inline, paragraphs } from "./dom.js";
import { entry, schemaContent } from "./schema.js";
import { credentials, tryForm } from "./try.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const $ = (id) => document.getElementById(id);

async function start() {
  setUpTheme();
  setUpMenu();
  setUpCredentials();
  try {
    const response = await fetch(new URL("../openapi.json", import.meta.url));
    if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
    renderPage(await response.json());
  } catch (error) {
    $("state").textContent = `The OpenAPI document could not be loaded: ${error.message}`;
    $("state").classList.add("failed");
    return;
  }
  setUpSearch();
  window.addEventListener("hashchange", openTarget);
  openTarget();
}

function renderPage(doc) {
  $("version").textContent = doc.info.version;
  const groups = groupByTag(doc);
  $("nav").replaceChildren(
    ...groups.map(({ tag, operations }) => navGroup(tag.name, operations.map(navLink))),
    navGroup("reference", [referenceLink("problems", "Errors"), referenceLink("types", "Types")]),
  );
  $("content").replaceChildren(
    h("div", { class: "intro" }, h("h1", {}, doc.info.title), paragraphs(doc.info.description ?? ""), overview(doc)),
    ...groups.map((group) => tagSection(group, doc)),
    errorCodes(doc),
    types(doc),
  );
}

function groupByTag(doc) {
  const groups = new Map(doc.tags.map((tag) => [tag.name, { tag, operations: [] }]));
  for (const [path, methods] of Object.entries(doc.paths)) {
    for (const method of METHODS.filter((name) => methods[name])) {
      const operation = methods[method];
      groups.get(operation.tags[0])?.operations.push({ method, path, operation });
    }
  }
  return [...groups.values()].filter((group) => group.operations.length);
}

const methodBadge = (method) => h("span", { class: `method ${method}` }, method.toUpperCase());

// A path may wrap after a slash, never inside a name.
const pathText = (path) => path.split(/(?<=\/)/).flatMap((part) => [part, h("wbr")]);

function navGroup(name, links) {
  return h("section", {}, h("h2", {}, name), h("ul", {}, links.map((link) => h("li", {}, link))));
}

function navLink({ method, path, operation }) {
  return h("a", { href: `#${operation.operationId}`, "data-search": searchText(method, path, operation) }, methodBadge(method), h("span", {}, pathText(path)));
}

function referenceLink(id, text) {
  return h("a", { href: `#${id}` }, h("span", {}, text));
}

const searchText = (method, path, operation) => `${method} ${path} ${operation.summary ?? ""}`.toLowerCase();

// A security scheme as the header that carries the credentials.
function schemeHeader(scheme) {
  if (scheme.type === "http") return h("code", {}, "Authorization: Bearer …");
  return h("code", {}, scheme.in === "cookie" ? `Cookie: ${scheme.name}=…` : `${scheme.name}: …`);
}

const joinedByOr = (elements) => elements.flatMap((element, i) => (i ? [" or ", element] : [element]));

function overview(doc) {
  const schemes = Object.values(doc.components.securitySchemes).map(schemeHeader);
  return h(
    "dl",
    { class: "overview" },
    h("div", {}, h("dt", {}, "Credentials"), h("dd", {}, joinedByOr(schemes))),
    h("div", {}, h("dt", {}, "Errors"), h("dd", {}, h("code", {}, "application/problem+json"), ", see ", h("a", { href: "#problems" }, "error codes"))),
    h("div", {}, h("dt", {}, "OpenAPI"), h("dd", {}, h("a", { href: new URL("../openapi.json", import.meta.url) }, "/openapi.json"), ` (version ${doc.openapi})`)),
  );
}

function tagSection({ tag, operations }, doc) {
  return h(
    "section",
    { class: "tag", id: `tag-${tag.name}` },
    h("h2", {}, tag.name),
    tag.description ? h("p", { class: "about" }, inline(tag.description)) : null,
    operations.map((operation) => operationDetails(operation, doc)),
  );
}

function operationDetails({ method, path, operation }, doc) {
  const details = h(
    "details",
    { class: "operation", id: operation.operationId, "data-search": searchText(method, path, operation) },
    h("summary", {}, methodBadge(method), h("code", { class: "path" }, pathText(path)), h("span", { class: "summary" }, inline(operation.summary ?? ""))),
  );
  // The content is built when the route is opened: a hundred forms at once would make the page slow.
  details.addEventListener("toggle", () => details.append(operationContent(method, path, operation, doc)), { once: true });
  details.addEventListener("toggle", () => details.open && history.replaceState(null, "", `#${details.id}`));
  return details;
}

function operationContent(method, path, operation, doc) {
  const body = operation.requestBody?.content;
  return h(
    "div",
    { class: "inside" },
    h(
      "div",
      { class: "reference" },
      operation.description ? paragraphs(operation.description) : null,
      h("p", { class: "access" }, accessText(operation)),
      titled("Parameters", operation.parameters?.length ? parameterList(operation.parameters, doc) : null),
      titled("Body", body ? Object.entries(body).map(([type, content]) => media(type, content, doc)) : null),
      titled("Responses", responseList(operation.responses, doc)),
    ),
    h("div", { class: "trying" }, h("h3", {}, "Try it"), tryForm(method, path, operation, doc)),
  );
}

const titled = (title, content) => (content ? [h("h3", {}, title), content] : null);

// The credentials that an operation accepts, as a sentence.
function accessText(operation) {
  const requirements = operation.security ?? [{}];
  const accepts = (scheme) => requirements.some((requirement) => scheme in requirement);
  const isAdminOnly = requirements.some((requirement) => Object.values(requirement).flat().includes("admin"));
  const accepted = [
    accepts("accessToken") ? (isAdminOnly ? "an admin's token" : "a user token") : null,
    accepts("apiKey") ? "the API key" : null,
    accepts("sessionCookie") ? "the session cookie" : null,
  ].filter(Boolean).join(" or ");
  const isOpen = requirements.some((requirement) => Object.keys(requirement).length === 0);
  if (!isOpen) return `Requires ${accepted}.`;
  return accepted ? `Open to everyone. Accepts ${accepted}.` : "Open to everyone.";
}

function parameterList(parameters, doc) {
  return h("ul", { class: "entries" }, parameters.map((p) => entry({ ...p, location: p.in }, doc)));
}

function media(type, content, doc, isRequest = true) {
  return [h("p", { class: "media" }, h("code", {}, type)), content.schema ? schemaContent(content.schema, doc, isRequest) : null];
}

function responseList(responses, doc) {
  const successes = [];
  const errors = [];
  for (const [status, response] of Object.entries(responses)) {
    if (response.$ref) errors.push(h("li", {}, h("a", { href: `#status-${status}`, class: `status s${status[0]}` }, status)));
    else successes.push(successResponse(status, response, doc));
  }
  return [...successes, errors.length ? h("div", { class: "errors" }, h("span", {}, "Errors"), h("ul", {}, errors)) : null];
}

function successResponse(status, response, doc) {
  return h(
    "div",
    { class: "success" },
    h("p", {}, h("span", { class: `status s${status[0]}` }, status), " ", response.description),
    Object.entries(response.content ?? {}).map(([type, content]) => media(type, content, doc, false)),
  );
}

function errorCodes(doc) {
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
    h("h2", {}, "Errors"),
    h("p", { class: "about" }, "Every error response has a ", h("code", {}, "code"), ". If a field is invalid, ", h("code", {}, "field"), " names it."),
    h("ul", { class: "problems" }, rows),
  );
}

function types(doc) {
  const sections = Object.entries(doc.components.schemas).map(([name, schema]) => {
    const details = h("details", { class: "operation type-details", id: `type-${name}` }, h("summary", {}, h("code", { class: "path" }, name), h("span", { class: "summary" }, inline(schema.description ?? ""))));
    details.addEventListener("toggle", () => details.append(h("div", { class: "inside" }, h("div", { class: "reference" }, schemaContent(schema, doc)))), { once: true });
    return details;
  });
  return h("section", { class: "tag", id: "types" }, h("h2", {}, "Types"), sections);
}

// Opens the route that the address names, and marks it in the navigation.
function openTarget() {
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

function setUpSearch() {
  const field = $("search");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const item of document.querySelectorAll("[data-search]")) {
      const matches = words.every((word) => item.dataset.search.includes(word));
      (item.closest("nav li") ?? item).hidden = !matches;
    }
    for (const section of document.querySelectorAll("nav section, section.tag")) {
      const items = [...section.querySelectorAll("[data-search]")];
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

function setUpTheme() {
  const root = document.documentElement;
  const stored = localStorage.getItem("theme");
  if (stored) root.dataset.theme = stored;
  $("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  });
}

function setUpMenu() {
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

function setUpCredentials() {
  const dialog = $("credentials");
  const showState = () => {
    const stored = credentials.get();
    $("credentials-label").textContent = stored ? (stored.kind === "key" ? "API key" : "Token") : "Sign in";
    $("credentials-indicator").classList.toggle("on", Boolean(stored));
  };
  $("credentials-button").addEventListener("click", () => {
    const stored = credentials.get();
    $("credential-kind").value = stored?.kind ?? "bearer";
    $("credential").value = stored?.value ?? "";
    dialog.returnValue = "";
    dialog.showModal();
  });
  // Enter would press the first button of the form, "Remove". Here it saves.
  $("credential").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    dialog.close("save");
  });
  dialog.addEventListener("close", () => {
    const value = $("credential").value.trim().replace(/^bearer\s+/i, "");
    if (dialog.returnValue === "save") credentials.set(value && { kind: $("credential-kind").value, value });
    if (dialog.returnValue === "remove") credentials.set(null);
    showState();
  });
  showState();
}

start();
