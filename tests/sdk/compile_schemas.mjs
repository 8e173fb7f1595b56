// Compiles every schema of an OpenAPI document as JSON Schema 2020-12, and tries every pattern on some texts.
//   node compile_schemas.mjs openapi.json texts.json
// Prints {"schemas": how many, "matches": {pattern: for each text, whether it matches}}. A schema that ajv refuses ends the
// program with the schema's place.
import { readFile } from "node:fs/promises";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const ajv = new Ajv2020({ strict: true, strictTypes: false, formats: { binary: true } });
addFormats.default(ajv);

const [file, textsFile] = process.argv.slice(2);
const document = JSON.parse((await readFile(file, "utf8")).replaceAll("#/components/schemas/", "plaza#/$defs/"));
const texts = JSON.parse(await readFile(textsFile, "utf8"));
ajv.addSchema({ $id: "plaza", $defs: document.components.schemas });

const schemas = Object.keys(document.components.schemas).map((name) => [name, { $ref: `plaza#/$defs/${name}` }]);
const patterns = new Set();
const collect = (node, place) => {
  if (node === null || typeof node !== "object") return;
  for (const [key, value] of Object.entries(node)) {
    if (key === "schema" || key === "contentSchema") schemas.push([`${place}/${key}`, value]);
    if (key === "pattern") patterns.add(value);
    collect(value, `${place}/${key}`);
  }
};
collect(document, "");

for (const [place, schema] of schemas) {
  try {
    ajv.compile(schema);
  } catch (error) {
    console.error(`${place}: ${error.message}`);
    process.exit(1);
  }
}

const matches = {};
for (const pattern of patterns) {
  const expression = new RegExp(pattern, "u");
  matches[pattern] = texts.map((text) => expression.test(text));
}
console.log(JSON.stringify({ schemas: schemas.length, matches }));
