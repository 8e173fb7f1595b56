// The form to try a request: its parameters, the request as curl, and the response as it arrives.

import { copyButton, h } from "./dom.js";
import { example, resolve } from "./schema.js";

// The path under which Plaza is mounted, empty at the root of the host: this file is at `<root>/docs/`.
const root = new URL("..", import.meta.url).pathname.slice(0, -1);
const MAX_SHOWN_CHARACTERS = 200_000;

export const credentials = {
  get() {
    return JSON.parse(sessionStorage.getItem("credentials") ?? "null");
  },
  set(value) {
    if (value) sessionStorage.setItem("credentials", JSON.stringify(value));
    else sessionStorage.removeItem("credentials");
  },
  headers() {
    const stored = this.get();
    if (!stored) return {};
    return stored.kind === "key" ? { "X-API-Key": stored.value } : { Authorization: `Bearer ${stored.value}` };
  },
};

export function tryForm(method, path, operation, doc) {
  const parameters = operation.parameters ?? [];
  const inputs = parameters.map((parameter) => [parameter, input(parameter, doc)]);
  const content = operation.requestBody?.content ?? {};
  const [bodyType, bodyContent] = Object.entries(content)[0] ?? [];
  const body = bodyType ? bodyField(bodyType, bodyContent, doc) : null;
  const output = h("div", { class: "response", "aria-live": "polite" });
  const curl = h("pre", { class: "curl" });
  const request = () => collect(method, path, inputs, body, bodyType);
  const refresh = () => (curl.textContent = asCurl(request()));
  const form = h(
    "form",
    { class: "try", novalidate: true },
    h("div", { class: "inputs" }, inputs.map(([parameter, field]) => labelledInput(parameter, field))),
    body ? h("label", { class: "wide" }, h("span", {}, "Body"), body) : null,
    h(
      "div",
      { class: "row" },
      h("button", { class: "primary", type: "submit" }, "Send"),
      operation.security && !credentials.get() ? h("span", { class: "pending" }, "You have not entered credentials.") : null,
    ),
    output,
    h(
      "details",
      { class: "as-curl" },
      h("summary", {}, "curl command"),
      h("div", { class: "curl-box" }, curl, copyButton(() => curl.textContent)),
    ),
  );
  form.addEventListener("input", refresh);
  form.addEventListener("toggle", refresh, true);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    refresh();
    send(request(), output, form);
  });
  refresh();
  return form;
}

function labelledInput(parameter, field) {
  const name = h("span", {}, parameter.name, parameter.required ? h("i", { class: "required" }, " required") : null);
  return h("label", {}, name, field);
}

function input(parameter, doc) {
  const schema = resolve(parameter.schema, doc);
  const choices = schema.enum ?? schema.anyOf?.find((choice) => choice.enum)?.enum;
  const options = schema.type === "boolean" ? [true, false] : choices?.filter((choice) => choice !== null);
  if (options) {
    return h(
      "select",
      { name: parameter.name },
      parameter.required ? null : h("option", { value: "" }, "—"),
      options.map((value) => h("option", { value: String(value) }, String(value))),
    );
  }
  const hint = parameter.example ?? schema.default ?? (parameter.in === "path" ? example(schema, doc) : "");
  const kind = schema.type === "integer" || schema.type === "number" ? "numeric" : "text";
  const shown = Array.isArray(hint) ? "comma-separated values" : String(hint ?? "");
  return h("input", { name: parameter.name, inputmode: kind, placeholder: shown, autocomplete: "off", spellcheck: "false" });
}

function bodyField(type, content, doc) {
  const field = h("textarea", { name: "body", spellcheck: "false", "aria-label": "Body" });
  const shown = content.example ?? (content.schema ? example(content.schema, doc) : undefined);
  if (type.includes("json") && shown !== undefined) field.value = JSON.stringify(shown, null, 2);
  field.rows = Math.min(14, Math.max(3, field.value.split("\n").length));
  return field;
}

function collect(method, path, inputs, body, bodyType) {
  let target = path;
  const query = new URLSearchParams();
  const headers = { ...credentials.headers() };
  for (const [parameter, field] of inputs) {
    const value = field.value.trim();
    if (parameter.in === "path") {
      const segment = encodeURIComponent(value || field.placeholder || "-");
      // Browsers resolve `.` and `..` segments.
      target = target.replace(`{${parameter.name}}`, segment.replace(/^~*\.{1,2}$/, "~$&"));
    } else if (value !== "" && parameter.in === "query") {
      const isList = parameter.schema.type === "array";
      for (const item of isList ? value.split(",") : [value]) query.append(parameter.name, item.trim());
    } else if (value !== "" && parameter.in === "header") {
      headers[parameter.name] = value;
    }
  }
  const text = body?.value.trim() ? body.value : undefined;
  if (text !== undefined) headers["Content-Type"] = bodyType;
  const search = query.size ? `?${query}` : "";
  return { method: method.toUpperCase(), url: root + target + search, headers, body: text };
}

function asCurl({ method, url, headers, body }) {
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const lines = [`curl${method === "GET" ? "" : ` -X ${method}`} ${quote(location.origin + url)}`];
  for (const [name, value] of Object.entries(headers)) {
    const shown = name === "Authorization" ? "Bearer $TOKEN" : name === "X-API-Key" ? "$API_KEY" : value;
    // Double quotes, so that the shell inserts the variable. The secret itself is never shown.
    lines.push(shown === value ? `  -H ${quote(`${name}: ${value}`)}` : `  -H "${name}: ${shown}"`);
  }
  if (body !== undefined) lines.push(`  -d ${quote(body)}`);
  return lines.join(" \\\n");
}

async function send({ method, url, headers, body }, output, form) {
  const button = form.querySelector("button.primary");
  const control = new AbortController();
  const stop = h("button", { type: "button", class: "plain small", onclick: () => control.abort() }, "Stop");
  output.replaceChildren(h("p", { class: "pending" }, "Waiting… ", stop));
  button.disabled = true;
  const started = performance.now();
  try {
    const response = await fetch(url, { method, headers, body, signal: control.signal });
    const elapsedMs = Math.round(performance.now() - started);
    const text = h("pre", { class: "body", tabindex: "0" });
    output.replaceChildren(responseHead(response, elapsedMs), headerList(response), text);
    if (/text\/event-stream/.test(response.headers.get("content-type") ?? "")) {
      output.append(stop);
      await showStream(response, text);
      stop.remove();
    } else {
      await showBody(response, text);
    }
  } catch (error) {
    if (error.name === "AbortError") output.append(h("p", { class: "pending" }, "Stopped."));
    else output.replaceChildren(h("p", { class: "failed" }, `No response: ${error.message}`));
  } finally {
    button.disabled = false;
  }
}

function responseHead(response, elapsedMs) {
  const kind = `s${Math.floor(response.status / 100)}`;
  return h(
    "div",
    { class: "response-head" },
    h("strong", { class: `status ${kind}` }, `${response.status} ${response.statusText}`),
    h("span", {}, `${elapsedMs} ms`),
    h("span", { class: "timing" }, timing(response.headers.get("server-timing") ?? "")),
  );
}

// Server-Timing as a sentence: `valkey;desc="2 round trips";dur=0.4, total;dur=1.2`.
function timing(text) {
  const found = /valkey;desc="(\d+ round trips?)";dur=([\d.]+), total;dur=([\d.]+)/.exec(text);
  if (!found) return text;
  const [, trips, valkey, total] = found;
  return `${total} ms on the server, ${trips} to Valkey (${valkey} ms)`;
}

function headerList(response) {
  const rows = [...response.headers].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  return h("details", { class: "headers" }, h("summary", {}, `${rows.length} headers`), h("dl", {}, rows));
}

async function showBody(response, output) {
  const text = await response.text();
  const isJson = /json/.test(response.headers.get("content-type") ?? "");
  const formatted = isJson && text ? JSON.stringify(JSON.parse(text), null, 2) : text;
  const isCut = formatted.length > MAX_SHOWN_CHARACTERS;
  output.textContent = isCut ? `${formatted.slice(0, MAX_SHOWN_CHARACTERS)}\n… (${formatted.length} characters)` : formatted;
  if (formatted) output.before(h("div", { class: "copy-bar" }, copyButton(formatted)));
  else output.replaceWith(h("p", { class: "pending" }, "Empty body."));
}

async function showStream(response, output) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    output.textContent = (output.textContent + chunk.value).slice(-MAX_SHOWN_CHARACTERS);
    output.scrollTop = output.scrollHeight;
  }
}
