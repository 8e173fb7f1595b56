// JSON Schema, for people: what a value is, in a line; what it holds, in a list; and an example of it.

import { h, inline } from "./dom.js";

export function resolve(schema, doc) {
  let at = schema ?? {};
  for (let hops = 0; at.$ref && hops < 20; hops += 1) {
    at = at.$ref.slice(2).split("/").reduce((node, key) => node[key.replaceAll("~1", "/")], doc);
  }
  return at;
}

const refName = (schema) => schema.$ref?.split("/").pop();

export function typeName(schema) {
  if (!schema || Object.keys(schema).length === 0) return "anything";
  if (schema.$ref) return refName(schema);
  if (schema.contentSchema) return `events of ${typeName(schema.contentSchema)}`;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return choices.map(typeName).join(" | ");
  if (schema.type === "array") {
    const inner = schema.items ? typeName(schema.items) : "anything";
    return inner.includes(" | ") ? `list of (${inner})` : `list of ${inner}`;
  }
  if (schema.type === "object" && typeof schema.additionalProperties === "object" && !schema.properties) {
    return `object of ${typeName(schema.additionalProperties)}`;
  }
  const type = Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type ?? "anything";
  return schema.format ? `${type} (${schema.format})` : type;
}

// "1 to 100", "at most 20 characters", "like ^[a-z]+$": the bounds of a value.
export function bounds(schema) {
  const said = [];
  const range = (low, high, unit) => {
    if (low != null && high != null) said.push(low === high ? `${low}${unit}` : `${low} to ${high}${unit}`);
    else if (low != null) said.push(`at least ${low}${unit}`);
    else if (high != null) said.push(`at most ${high}${unit}`);
  };
  const parts = [schema, ...(schema.anyOf ?? [])];
  for (const part of parts) {
    range(part.minimum, part.maximum, "");
    if (part.exclusiveMinimum != null) said.push(`more than ${part.exclusiveMinimum}`);
    if (part.exclusiveMaximum != null) said.push(`less than ${part.exclusiveMaximum}`);
    range(part.minLength, part.maxLength, " characters");
    range(part.minItems, part.maxItems, " items");
    if (part.pattern) said.push(`like ${part.pattern}`);
  }
  if (schema.default !== undefined && schema.default !== null && JSON.stringify(schema.default) !== "[]") {
    said.push(`default ${JSON.stringify(schema.default)}`);
  }
  return said.join(", ");
}

// One line of a list: name, type, what it must be, what it means.
export function entry({ name, schema, required, place, description }, doc, sent = true) {
  const said = bounds(schema);
  const held = holder(schema, doc);
  const text = description ?? schema.description;
  return h(
    "li",
    { class: "entry" },
    h(
      "div",
      { class: "entry-head" },
      h("code", { class: "name" }, name),
      required && sent ? h("span", { class: "must" }, "required") : null,
      place ? h("span", { class: "place" }, place) : null,
      h("span", { class: "type" }, typeName(schema)),
    ),
    text ? h("p", {}, inline(text)) : null,
    said ? h("p", { class: "bounds" }, said) : null,
    held ? h("details", { class: "inner" }, h("summary", {}, typeName(held)), fields(held, doc, sent)) : null,
  );
}

// The object inside a schema, through lists and choices; null where there is none to open.
function holder(schema, doc) {
  if (!schema) return null;
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return choices.map((choice) => holder(choice, doc)).find(Boolean) ?? null;
  if (schema.type === "array") return holder(schema.items, doc);
  if (typeof schema.additionalProperties === "object") return holder(schema.additionalProperties, doc);
  return resolve(schema, doc).properties ? schema : null;
}

// The fields of an object. Built when opened, so that types may refer to themselves. `sent`: by the client, for whom
// it matters which ones are required.
export function fields(schema, doc, sent) {
  const list = h("ul", { class: "entries" });
  const object = resolve(schema, doc);
  const fill = () => {
    if (list.childElementCount) return;
    const required = new Set(object.required ?? []);
    for (const [name, inner] of Object.entries(object.properties ?? {})) {
      list.append(entry({ name, schema: inner, required: required.has(name) }, doc, sent));
    }
  };
  queueMicrotask(() => {
    const fold = list.closest("details.inner");
    if (fold) fold.addEventListener("toggle", fill, { once: true });
    else fill();
  });
  return list;
}

export function shape(schema, doc, sent = true) {
  const object = holder(schema.contentSchema ?? schema, doc);
  const name = h("p", { class: "type" }, typeName(schema));
  return object ? [name, fields(object, doc, sent)] : [name];
}

export function example(schema, doc, depth = 0) {
  const at = resolve(schema, doc);
  if (at.default !== undefined && at.default !== null) return at.default;
  if (at.const !== undefined) return at.const;
  if (at.enum) return at.enum.find((value) => value !== null) ?? null;
  const choices = at.anyOf ?? at.oneOf;
  if (choices) return example(choices.find((choice) => choice.type !== "null") ?? choices[0], doc, depth);
  if (at.type === "array") return depth > 3 || !at.items ? [] : [example(at.items, doc, depth + 1)];
  if (at.properties) {
    const required = new Set(at.required ?? []);
    const shown = Object.entries(at.properties).filter(([name]) => depth < 2 || required.has(name));
    return Object.fromEntries(shown.map(([name, inner]) => [name, example(inner, doc, depth + 1)]));
  }
  if (at.type === "object") return {};
  if (at.type === "integer" || at.type === "number") return at.minimum ?? 1;
  if (at.type === "boolean") return true;
  if (at.type === "null") return null;
  return "text".padEnd(at.minLength ?? 0, "x").slice(0, at.maxLength ?? undefined);
}
