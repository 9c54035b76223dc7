// Uses the service through a client of openapi-fetch, whose types openapi-typescript generates: creates links, lists
// them page by page, handles errors, and streams a batch. Arguments: the address of the internal server, and an API key.

import assert from 'node:assert/strict';
import createClient from 'openapi-fetch';
import type { components, paths } from './schema.js';

type Result = components['schemas']['BatchResult'];
type Summary = components['schemas']['BatchSummary'];

const ROWS = 3000;

const [baseUrl, key] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { 'X-Api-Key': key } });

/** Creates links, and finds all of them page by page. */
async function createAndList(): Promise<void> {
  const made: string[] = [];
  for (let row = 0; row < 5; row += 1) {
    const { data, response } = await client.POST('/v1/links', {
      body: { longUrl: `https://example.com/typescript/${row}`, tags: ['typescript'] },
    });
    assert.equal(response.status, 201);
    assert.ok(data);
    made.push(data.shortCode);
  }
  const listed: string[] = [];
  let cursor: string | undefined;
  let pages = 0;
  do {
    const { data } = await client.GET('/v1/links', { params: { query: { tag: 'typescript', limit: 2, cursor } } });
    assert.ok(data);
    listed.push(...data.links.map((link) => link.shortCode));
    cursor = data.nextCursor ?? undefined;
    pages += 1;
  } while (cursor);
  assert.equal(pages, 3);
  assert.deepEqual(listed.sort(), made.sort());
}

/** Every error is a problem with a type that is known when the program is compiled. */
async function handleErrors(): Promise<void> {
  const wrong = await client.POST('/v1/links', { body: { longUrl: 'nonsense', maxVisits: 0 } });
  assert.equal(wrong.response.status, 422);
  assert.ok(wrong.error);
  assert.deepEqual(wrong.error.errors?.map(({ pointer }) => pointer).sort(), ['/longUrl', '/maxVisits']);
  const unknown = await client.GET('/v1/links/{code}', { params: { path: { code: 'nosuchcode' } } });
  assert.equal(unknown.response.status, 404);
  assert.equal(unknown.error?.status, 404);
  const stranger = createClient<paths>({ baseUrl, headers: { 'X-Api-Key': 'slk_wrong' } });
  const refused = await stranger.GET('/v1/links');
  assert.equal(refused.response.status, 401);
  assert.ok(refused.error?.title);
}

async function* rows(): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  for (let row = 0; row < ROWS; row += 1) {
    const longUrl = row === 7 ? 'nonsense' : `https://example.com/batch/${row}`;
    yield encoder.encode(`${JSON.stringify({ longUrl, externalId: `r-${row}` })}\n`);
  }
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  let rest = '';
  const decoder = new TextDecoder();
  for await (const part of stream as unknown as AsyncIterable<Uint8Array>) {
    const lines = (rest + decoder.decode(part, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
  assert.equal(rest, '');
}

/** Sends rows while it reads results. */
async function streamBatch(): Promise<void> {
  const { data, response } = await client.POST('/v1/links/batch', {
    params: { query: { summary: true } },
    headers: { 'Content-Type': 'application/x-ndjson' },
    body: rows() as unknown as string,
    bodySerializer: (body) => body,
    duplex: 'half',
    parseAs: 'stream',
  });
  assert.equal(response.status, 200);
  assert.ok(data);
  const codes = new Set<string>();
  let failed = 0;
  let summary: Summary['summary'] | undefined;
  for await (const line of linesOf(data as ReadableStream<Uint8Array>)) {
    const result = JSON.parse(line) as Result | Summary;
    if ('summary' in result) {
      summary = result.summary;
    } else if (result.link) {
      codes.add(result.link.shortCode);
    } else {
      failed += 1;
      assert.equal(result.index, 7);
      assert.equal(result.externalId, 'r-7');
      assert.equal(result.problem?.errors?.[0]?.pointer, '/longUrl');
    }
  }
  assert.equal(codes.size, ROWS - 1);
  assert.equal(failed, 1);
  assert.equal(summary?.rows, ROWS);
}

await createAndList();
await handleErrors();
await streamBatch();
