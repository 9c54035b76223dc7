"use strict";
// Renders openapi.json. Everything is made of text nodes: nothing in the description is taken for HTML.

const METHODS = ["get", "post", "put", "patch", "delete"];

/** Makes an element with attributes and children; texts become text nodes. */
function make(name, attributes, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
    return element;
}

/** A text with `code` in backticks, and paragraphs. */
function prose(text) {
    return (text || "").split("\n\n").filter(Boolean).map((part) => make("p", {}, inline(part)));
}

function inline(text) {
    return (text || "").split("`").map((part, place) => (place % 2 ? make("code", {}, part) : part));
}

function json(value) {
    return make("pre", {}, JSON.stringify(value, null, 2));
}

/** Follows references within the document. */
function resolve(document_, value) {
    let seen = 0;
    while (value && value.$ref && seen++ < 20) {
        value = value.$ref.slice(2).split("/").reduce((at, step) => at && at[step], document_);
    }
    return value || {};
}

function nameOf(schema) {
    return schema && schema.$ref ? schema.$ref.split("/").pop() : "";
}

/** The kind of a schema, in a few words. */
function kindOf(document_, schema) {
    if (!schema) return "anything";
    if (schema.$ref) {
        const target = resolve(document_, schema);
        return target.enum ? kindOf(document_, target) : nameOf(schema);
    }
    if (schema.enum) return schema.enum.map((word) => JSON.stringify(word)).join(" | ");
    if (schema.const !== undefined) return JSON.stringify(schema.const);
    const some = schema.anyOf || schema.oneOf;
    if (some) return some.map((one) => kindOf(document_, one)).join(" | ");
    if (schema.allOf) return schema.allOf.map((one) => kindOf(document_, one)).filter(Boolean).join(" & ");
    const types = [].concat(schema.type || (schema.properties ? "object" : "anything"));
    const named = types.map((type) => {
        if (type === "array") return "list of " + kindOf(document_, schema.items);
        return schema.format && type !== "null" ? type + " (" + schema.format + ")" : type;
    });
    return named.join(" | ");
}

/** The bounds of a schema. */
function boundsOf(schema) {
    const told = [];
    if (schema.minimum !== undefined || schema.maximum !== undefined) {
        told.push((schema.minimum ?? "") + "…" + (schema.maximum ?? ""));
    }
    if (schema.minLength) told.push("at least " + schema.minLength + " characters");
    if (schema.maxLength) told.push("at most " + schema.maxLength + " characters");
    if (schema.pattern) told.push(schema.pattern);
    if (schema.default !== undefined) told.push("default " + JSON.stringify(schema.default));
    return told.join(", ");
}

/** The members of an object, and what is below them. Schemas that contain themselves end at `above`. */
function members(document_, schema, above) {
    const name = nameOf(schema);
    const found = resolve(document_, schema);
    if (name && above.includes(name)) return null;
    const below = name ? [...above, name] : above;
    const parts = [];
    if (found.properties) {
        const required = found.required || [];
        parts.push(make("ul", { class: "members" }, Object.entries(found.properties).map(([key, member]) => {
            const target = resolve(document_, member);
            const bounds = boundsOf(target);
            return make("li", {},
                make("code", {}, key), required.includes(key) ? " (always) " : " ",
                make("span", { class: "quiet" }, kindOf(document_, member), bounds ? ", " + bounds : ""), " ",
                inline(member.description || target.description),
                members(document_, member, below));
        })));
    }
    const inner = [...(found.anyOf || []), ...(found.oneOf || []), ...(found.allOf || [])];
    if (found.items) inner.push(found.items);
    if (typeof found.additionalProperties === "object") inner.push(found.additionalProperties);
    for (const one of inner) {
        const shown = members(document_, one, below);
        if (shown) parts.push(shown);
    }
    return parts.length ? make("div", {}, parts) : null;
}

function contents(document_, content) {
    return Object.entries(content || {}).map(([media, what]) => {
        const row = what["x-itemSchema"];
        const schema = row || what.schema;
        const examples = Object.entries(what.examples || {})
            .map(([name, example]) => [name, resolve(document_, example)]);
        return make("div", {},
            make("p", {}, make("code", {}, media), " ",
                make("span", { class: "quiet" }, (row ? "each: " : "") + kindOf(document_, schema))),
            make("details", {}, make("summary", {}, "Members"), members(document_, schema, []) || "none"),
            examples.map(([name, example]) => make("details", {},
                make("summary", {}, "Example: " + (example.summary || name)), json(example.value))));
    });
}

function parameters(document_, list) {
    const rows = (list || []).map((reference) => {
        const parameter = resolve(document_, reference);
        const schema = resolve(document_, parameter.schema);
        return make("tr", {},
            make("td", {}, make("code", {}, parameter.name), make("br"),
                make("span", { class: "quiet" }, parameter.in + (parameter.required ? ", always" : ""))),
            make("td", {}, inline(parameter.description), " ",
                make("span", { class: "quiet" }, kindOf(document_, parameter.schema), " ", boundsOf(schema))));
    });
    return rows.length ? [make("h3", {}, "Parameters"), make("table", {}, make("tbody", {}, rows))] : [];
}

function responses(document_, all) {
    return Object.entries(all).map(([status, reference]) => {
        const response = resolve(document_, reference);
        const headers = Object.entries(response.headers || {}).map(([name, header]) => make("li", {},
            make("code", {}, name), " ", inline(resolve(document_, header).description)));
        return make("details", {},
            make("summary", {}, make("strong", {}, status), " ", inline(response.description)),
            headers.length ? make("ul", { class: "members" }, headers) : null,
            contents(document_, response.content));
    });
}

function operation(document_, path, method, what) {
    const scopes = (what.security || []).flatMap((way) => Object.values(way).flat());
    const scope = scopes.length ? scopes[0] : "";
    const element = make("details", { class: "operation", id: what.operationId },
        make("summary", {},
            make("span", { class: "method " + method }, method), " ",
            make("span", { class: "path" }, path), " – ", what.summary, " ",
            scope ? make("span", { class: "quiet" }, scope) : null),
        make("div", {},
            prose(what.description),
            make("p", { class: "quiet" }, scope ? "Needs a key with " : "Needs no key.",
                scope ? make("code", {}, scope) : null),
            parameters(document_, what.parameters),
            what.requestBody ? [make("h3", {}, "Body"), contents(document_, what.requestBody.content)] : [],
            make("h3", {}, "Answers"),
            responses(document_, what.responses)));
    element.dataset.text = [method, path, what.summary, what.operationId, scope].join(" ").toLowerCase();
    return element;
}

function render(document_) {
    const main = document.getElementById("main");
    const nav = document.getElementById("contents");
    main.replaceChildren(
        make("p", { class: "quiet" }, "Version " + document_.info.version + ", ",
            make("a", { href: "openapi.json" }, "openapi.json")),
        ...prose(document_.info.description));
    for (const tag of document_.tags || []) {
        main.append(make("h2", {}, tag.name), make("p", {}, inline(tag.description)));
        nav.append(make("h3", {}, tag.name));
        for (const [path, methods] of Object.entries(document_.paths)) {
            for (const method of METHODS) {
                const what = methods[method];
                if (!what || !what.tags.includes(tag.name)) continue;
                main.append(operation(document_, path, method, what));
                const link = make("a", { href: "#" + what.operationId },
                    make("span", { class: "method " + method }, method), " ", what.summary);
                link.dataset.of = what.operationId;
                nav.append(link);
            }
        }
    }
    document.getElementById("filter").addEventListener("input", filter);
    addEventListener("hashchange", open);
    open();
}

function filter(event) {
    const wanted = event.target.value.trim().toLowerCase();
    for (const element of document.querySelectorAll("details.operation")) {
        const fits = element.dataset.text.includes(wanted);
        element.hidden = !fits;
        document.querySelector('[data-of="' + element.id + '"]').hidden = !fits;
    }
}

/** Opens the operation that the address names. */
function open() {
    const element = document.getElementById(location.hash.slice(1));
    if (element && element.tagName === "DETAILS") {
        element.open = true;
        element.scrollIntoView();
    }
}

fetch("openapi.json")
    .then((answer) => {
        if (!answer.ok) throw new Error("The service answered " + answer.status + ".");
        return answer.json();
    })
    .then(render)
    .catch((error) => {
        document.getElementById("main").replaceChildren(make("p", {}, "openapi.json can't be read: " + error.message));
    });
