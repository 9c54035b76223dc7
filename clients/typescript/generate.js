// Writes src/generated/ and the version of the package from openapi.json: that of the repository, or a copy beside this
// file. openapi-typescript writes the types. The method of each operation follows from its row in the description.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const description = [at('../../sidecar/openapi.json'), at('openapi.json')].find(existsSync);
const api = JSON.parse(readFileSync(description, 'utf8'));

const ROWS = 'application/x-ndjson';
// They change nothing a second time, although they are POST.
const REPEATABLE = /\/(pause|resume|block|unblock)$/;
const HEADERS = { 'Idempotency-Key': 'idempotencyKey', 'If-Match': 'ifMatch' };

/** The type of a schema. */
function hint(schema) {
  if (schema.$ref) return `S.${schema.$ref.split('/').pop()}`;
  if (schema.anyOf) return schema.anyOf.map(hint).join(' | ');
  if (schema.enum) return schema.enum.map((it) => JSON.stringify(it)).join(' | ');
  if (schema.type === 'array') return `(${hint(schema.items)})[]`;
  return { string: 'string', integer: 'number', boolean: 'boolean' }[schema.type];
}

/** The type of one of the rows that a body or an answer consists of, without the summary. */
function item(content) {
  const schema = content['x-itemSchema'];
  return hint(schema.anyOf?.[0] ?? schema);
}

/** The signatures of an operation, and the rows of the table that describe it at run time. */
function* methodsOf(path, method, row) {
  const parameters = (row.parameters ?? []).map((it) => api.components.parameters[it.$ref.split('/').pop()]);
  const has = (name) => parameters.some((it) => it.name === name);
  const body = row.requestBody?.content ?? {};
  const successes = Object.entries(row.responses).filter(([status]) => status.startsWith('2'));
  const results = successes.map(([, answer]) => answer.content ?? {});
  const verb = method.toUpperCase();
  const summary = row.summary.replace(/\.$/, '');

  const write = (name, kind, result, argument, leftOut, more, text) => {
    const path_ = parameters.filter((it) => it.in === 'path').map((it) => `${it.name}: ${hint(it.schema)}`);
    const options = parameters
      .filter((it) => it.in !== 'path' && !leftOut.includes(it.name))
      .map((it) => `${HEADERS[it.name] ?? it.name}?: ${hint(it.schema)} | undefined`);
    const listed = [
      ...path_,
      ...argument,
      `options?: { ${[...options, 'signal?: AbortSignal | undefined'].join('; ')} }`,
    ];
    return {
      signature: `  /** ${text}. */\n  ${name}(${listed.join(', ')}): ${result};\n`,
      row: `  ${name}: ${JSON.stringify({ method: verb, path, kind, ...more })},\n`,
    };
  };

  if (ROWS in body) {
    const rows = item(body[ROWS]);
    const more = { body: true, repeatable: true, keyed: has('Idempotency-Key'), upload: has('uploadId') };
    const text = `${summary}, any number of rows; returns their results in the order of the rows`;
    const argument = [`rows: Iterable<${rows}> | AsyncIterable<${rows}>`];
    const leftOut = ['columns', 'delimiter', 'summary'];
    yield write(
      row.operationId,
      'rows',
      `AsyncGenerator<${item(results[0][ROWS])}, void>`,
      argument,
      leftOut,
      more,
      text,
    );
    return;
  }
  const streamed = results.find((it) => ROWS in it);
  const json = results.map((it) => it['application/json']?.schema).filter(Boolean);
  if (json.length || !streamed) {
    const result = json.length ? [...new Set(json.map(hint))].join(' | ') : 'string';
    const argument = 'application/json' in body ? [`body: ${hint(body['application/json'].schema)}`] : [];
    const keyed = has('Idempotency-Key');
    const repeatable = verb !== 'POST' || keyed || REPEATABLE.test(path);
    const more = { body: argument.length > 0, repeatable, keyed };
    yield write(row.operationId, json.length ? 'json' : 'text', `Promise<${result}>`, argument, [], more, summary);
  }
  if (streamed) {
    const name = row.operationId.replace(/^list/, 'export');
    const leftOut = ['limit', 'cursor', 'after', 'wait'];
    const more = { body: false, repeatable: true };
    yield write(
      name,
      'lines',
      `AsyncGenerator<${item(streamed[ROWS])}, void>`,
      [],
      leftOut,
      more,
      `${summary}, all of them`,
    );
  }
}

let signatures = '';
let rows = '';
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, row] of Object.entries(methods)) {
    const contents = Object.values(row.responses).flatMap((it) => Object.keys(it.content ?? {}));
    // Neither is for callers of the internal server: an endless stream of events, and the fallback of nginx.
    if (contents.includes('text/event-stream') || path.startsWith('/resolve/')) continue;
    for (const it of methodsOf(path, method, row)) {
      signatures += it.signature;
      rows += it.row;
    }
  }
}

mkdirSync(at('src/generated'), { recursive: true });
writeFileSync(
  at('src/generated/operations.ts'),
  `// The operations of the API, generated from openapi.json.
import type * as S from './schema.js';

/** A method for each operation of the API. */
export interface Operations {
${signatures}}

export const OPERATIONS = {
${rows}} as const;
`,
);
const generator = at('node_modules/openapi-typescript/bin/cli.js');
const types = ['--output', at('src/generated/schema.ts'), '--root-types', '--root-types-no-schema-prefix'];
execFileSync(process.execPath, [generator, description, ...types], { stdio: ['ignore', 'ignore', 'inherit'] });
execFileSync('npm', ['version', '--no-git-tag-version', '--allow-same-version', api.info.version], {
  cwd: at('.'),
  stdio: ['ignore', 'ignore', 'inherit'],
});
