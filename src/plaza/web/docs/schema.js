// Shows JSON Schema: the type of a value in one line, its fields as a list, and an example.

import { h, inline } from "./dom.js";

export function resolve(schema, doc) {
  let target = schema ?? {};
  for (let hops = 0; target.$ref && hops < 20; hops += 1) {
    target = target.$ref.slice(2).split("/").reduce((node, key) => node[key.replaceAll("~1", "/")], doc);
  }
  return target;
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

// "1 to 100", "at most 20 characters", "pattern ^[a-z]+$": the bounds of a value.
export function bounds(schema) {
  const texts = [];
  const range = (low, high, unit) => {
    if (low != null && high != null) texts.push(low === high ? `${low}${unit}` : `${low} to ${high}${unit}`);
    else if (low != null) texts.push(`at least ${low}${unit}`);
    else if (high != null) texts.push(`at most ${high}${unit}`);
  };
  const parts = [schema, ...(schema.anyOf ?? [])];
  for (const part of parts) {
    range(part.minimum, part.maximum, "");
    if (part.exclusiveMinimum != null) texts.push(`more than ${part.exclusiveMinimum}`);
    if (part.exclusiveMaximum != null) texts.push(`less than ${part.exclusiveMaximum}`);
    range(part.minLength, part.maxLength, " characters");
    range(part.minItems, part.maxItems, " items");
    if (part.pattern) texts.push(`pattern ${part.pattern}`);
  }
  if (schema.default !== undefined && schema.default !== null && JSON.stringify(schema.default) !== "[]") {
    texts.push(`default ${JSON.stringify(schema.default)}`);
  }
  return texts.join(", ");
}

// An entry of a list: name, type, bounds and description.
export function entry({ name, schema, required, location, description }, doc, isRequest = true) {
  const limits = bounds(schema);
  const object = innerObject(schema, doc);
  const text = description ?? schema.description;
  return h(
    "li",
    { class: "entry" },
    h(
      "div",
      { class: "entry-head" },
      h("code", { class: "name" }, name),
      required && isRequest ? h("span", { class: "required" }, "required") : null,
      location ? h("span", { class: "location" }, location) : null,
      h("span", { class: "type" }, typeName(schema)),
    ),
    text ? h("p", {}, inline(text)) : null,
    limits ? h("p", { class: "bounds" }, limits) : null,
    object ? h("details", { class: "inner" }, h("summary", {}, typeName(object)), fields(object, doc, isRequest)) : null,
  );
}

// The object inside a schema, also inside lists and alternatives; null if there is none.
function innerObject(schema, doc) {
  if (!schema) return null;
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return choices.map((choice) => innerObject(choice, doc)).find(Boolean) ?? null;
  if (schema.type === "array") return innerObject(schema.items, doc);
  if (typeof schema.additionalProperties === "object") return innerObject(schema.additionalProperties, doc);
  return resolve(schema, doc).properties ? schema : null;
}

// The fields of an object. They are built when opened, because types may refer to themselves. Only requests show which
// fields are required.
export function fields(schema, doc, isRequest) {
  const list = h("ul", { class: "entries" });
  const object = resolve(schema, doc);
  const fill = () => {
    if (list.childElementCount) return;
    const required = new Set(object.required ?? []);
    for (const [name, inner] of Object.entries(object.properties ?? {})) {
      list.append(entry({ name, schema: inner, required: required.has(name) }, doc, isRequest));
    }
  };
  queueMicrotask(() => {
    const details = list.closest("details.inner");
    if (details) details.addEventListener("toggle", fill, { once: true });
    else fill();
  });
  return list;
}

export function schemaContent(schema, doc, isRequest = true) {
  const object = innerObject(schema.contentSchema ?? schema, doc);
  const name = h("p", { class: "type" }, typeName(schema));
  return object ? [name, fields(object, doc, isRequest)] : [name];
}

export function example(schema, doc, depth = 0) {
  const target = resolve(schema, doc);
  if (target.default !== undefined && target.default !== null) return target.default;
  if (target.const !== undefined) return target.const;
  if (target.enum) return target.enum.find((value) => value !== null) ?? null;
  const choices = target.anyOf ?? target.oneOf;
  if (choices) return example(choices.find((choice) => choice.type !== "null") ?? choices[0], doc, depth);
  if (target.type === "array") return depth > 3 || !target.items ? [] : [example(target.items, doc, depth + 1)];
  if (target.properties) {
    const required = new Set(target.required ?? []);
    const included = Object.entries(target.properties).filter(([name]) => depth < 2 || required.has(name));
    return Object.fromEntries(included.map(([name, inner]) => [name, example(inner, doc, depth + 1)]));
  }
  if (target.type === "object") return {};
  if (target.type === "integer" || target.type === "number") return target.minimum ?? 1;
  if (target.type === "boolean") return true;
  if (target.type === "null") return null;
  return "text".padEnd(target.minLength ?? 0, "x").slice(0, target.maxLength ?? undefined);
}
