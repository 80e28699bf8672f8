// Shows openapi.json: operations by tag, their parameters, bodies and answers. Text is only ever set as text.
"use strict";

const make = (name, text = "", kind = "") => {
  const element = document.createElement(name);
  element.textContent = text;
  if (kind) element.className = kind;
  return element;
};

const typeOf = (schema, api, seen = []) => {
  if (!schema) return "any";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  const options = schema.anyOf || schema.oneOf;
  if (options) return options.map((one) => typeOf(one, api, seen)).join(" | ");
  if (schema.type === "array") return `${typeOf(schema.items, api, seen)}[]`;
  if (schema.type === "object" && schema.additionalProperties)
    return `{string: ${typeOf(schema.additionalProperties, api, seen)}}`;
  return [schema.format || schema.type || "any"].flat().join(" | ");
};

const limitsOf = (schema) =>
  ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "default"]
    .filter((name) => schema && schema[name] !== undefined)
    .map((name) => `${name} ${JSON.stringify(schema[name])}`)
    .join(", ");

const referred = (schema, names = new Set()) => {
  if (schema && typeof schema === "object")
    for (const [key, value] of Object.entries(schema))
      if (key === "$ref") names.add(value.split("/").pop());
      else referred(value, names);
  return names;
};

const showSchema = (place, schema, api, done = new Set()) => {
  const target = schema.$ref ? api.components.schemas[schema.$ref.split("/").pop()] : schema;
  if (schema.$ref) done.add(schema.$ref.split("/").pop());
  if (!target.properties) {
    place.append(make("pre", typeOf(target, api)));
  } else {
    const table = place.appendChild(make("table"));
    for (const [name, field] of Object.entries(target.properties)) {
      const row = table.appendChild(make("tr"));
      const required = (target.required || []).includes(name) ? " *" : "";
      row.append(make("td", name + required, "path"), make("td", typeOf(field, api), "path"));
      row.append(make("td", [field.description, limitsOf(field)].filter(Boolean).join(" · "), "none"));
    }
  }
  for (const name of referred(target.properties || target)) {
    if (done.has(name)) continue;
    done.add(name);
    place.append(make("h3", name));
    showSchema(place, api.components.schemas[name], api, done);
  }
};

const showContent = (place, title, content, api) => {
  place.append(make("h3", title));
  for (const [kind, entry] of Object.entries(content || {})) {
    place.append(make("p", kind, "takes"));
    if (kind.endsWith("json")) showSchema(place, entry.schema, api);
  }
};

const showOperation = (path, method, operation, api) => {
  const details = make("details");
  details.id = operation.operationId;
  const summary = details.appendChild(make("summary"));
  summary.append(make("span", method.toUpperCase(), `method ${method}`), make("span", path, "path"));
  summary.append(make("span", (operation.description || "").split("\n")[0], "does"));
  details.append(make("p", operation.description || ""));
  const takes = operation["x-permission"] ? `Permission ${operation["x-permission"]}` : "Needs no key";
  details.append(make("p", takes, "takes"));
  if (operation.parameters && operation.parameters.length) {
    details.append(make("h3", "Parameters"));
    const table = details.appendChild(make("table"));
    for (const one of operation.parameters) {
      const row = table.appendChild(make("tr"));
      row.append(make("td", one.name + (one.required ? " *" : ""), "path"), make("td", one.in, "none"));
      row.append(make("td", typeOf(one.schema, api), "path"));
      row.append(make("td", [one.description, limitsOf(one.schema)].filter(Boolean).join(" · "), "none"));
    }
  }
  if (operation.requestBody) showContent(details, "Body", operation.requestBody.content, api);
  for (const [status, answer] of Object.entries(operation.responses))
    if (status !== "default") showContent(details, `${status} ${answer.description || ""}`, answer.content, api);
  details.dataset.text = `${method} ${path} ${JSON.stringify(operation)}`.toLowerCase();
  return details;
};

const show = (api) => {
  const about = document.getElementById("about");
  about.textContent = `${api.info.description} Version ${api.info.version}. The document: `;
  const link = about.appendChild(make("a", "openapi.json"));
  link.href = "/openapi.json";
  const tags = new Map();
  for (const [path, item] of Object.entries(api.paths))
    for (const [method, operation] of Object.entries(item)) {
      const tag = (operation.tags || ["other"])[0];
      if (!tags.has(tag)) tags.set(tag, []);
      tags.get(tag).push(showOperation(path, method, operation, api));
    }
  const place = document.getElementById("operations");
  for (const [tag, operations] of tags) {
    const section = place.appendChild(make("section"));
    section.append(make("h2", tag), ...operations);
  }
  const problems = document.getElementById("problems");
  problems.hidden = false;
  showSchema(problems, { $ref: "#/components/schemas/Problem" }, api);
  document.getElementById("find").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const one of place.querySelectorAll("details")) one.hidden = !one.dataset.text.includes(wanted);
    for (const one of place.querySelectorAll("section")) one.hidden = !one.querySelector("details:not([hidden])");
  });
  const asked = document.getElementById(location.hash.slice(1));
  if (asked && asked.tagName === "DETAILS") asked.open = true;
  if (location.hash.startsWith("#problem-")) problems.scrollIntoView();
};

fetch("/openapi.json")
  .then((answer) => answer.json())
  .then(show)
  .catch((error) => {
    document.getElementById("about").textContent = `The document cannot be read: ${error}`;
  });
