// Retries and batches, with a service that fails on demand.
import assert from 'node:assert/strict';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, test } from 'node:test';
import { Client, type ClientOptions, ConnectionFailed, type NewLink, ProblemError } from 'ngx-shortlink';

type Answer = [status: number, headers: Record<string, string>, content: unknown] | undefined;
type Received = { line: string; headers: IncomingHttpHeaders; body: string }[];

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

/** Starts a service that gives these answers, one for each request; for `undefined` it closes the connection. */
async function serve(
  answers: Answer[] | ((body: string) => Answer),
  options: ClientOptions = {},
): Promise<[Client, Received]> {
  const received: Received = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    received.push({ line: `${request.method} ${request.url}`, headers: request.headers, body });
    const answer = typeof answers === 'function' ? answers(body) : answers.shift();
    if (!answer) return void request.socket.destroy();
    const [status, headers, content] = answer;
    const type = status < 300 ? 'application/json' : 'application/problem+json';
    response.writeHead(status, { 'Content-Type': type, ...headers });
    response.end(typeof content === 'string' ? content : JSON.stringify(content));
    if ('Content-Length' in headers) request.socket.end();
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return [new Client(`http://127.0.0.1:${port}/`, 'slk_test', options), received];
}

const LINK = { shortCode: 'Bq7xT2dk', shortUrl: null, published: true };
const AWAY = { type: 'urn:shortlink:problem:unavailable', title: 'Not available', status: 503, detail: 'Later.' };

function* rows(count: number): Generator<NewLink> {
  for (let number = 0; number < count; number += 1) yield { longUrl: `https://example.com/${number}` };
}

function results(body: string, status = 201): string {
  const count = body.split('\n').length - 1;
  return Array.from({ length: count }, (_, index) => `{"index":${index},"status":${status}}\n`).join('');
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const it of items) found.push(it);
  return found;
}

test('a retried creation waits and keeps its key', async () => {
  const [client, received] = await serve([[503, { 'Retry-After': '1' }, AWAY], undefined, [201, {}, LINK]]);
  const begin = performance.now();
  assert.deepEqual(await client.createLink({ longUrl: 'https://example.com/' }), LINK);
  assert.ok(performance.now() - begin > 1500);
  const keys = new Set(received.map((it) => it.headers['idempotency-key']));
  assert.equal(received.length, 3);
  assert.ok(keys.size === 1 && !keys.has(undefined));
  assert.equal(received[0]?.headers['x-api-key'], 'slk_test');
});

for (const answer of [[503, {}, AWAY], undefined] satisfies Answer[]) {
  test(`an unsafe request is not repeated after ${answer?.[0] ?? 'a lost connection'}`, async () => {
    const kind = answer ? ProblemError : ConnectionFailed;
    const [client, received] = await serve([answer as Answer, answer as Answer]);
    await assert.rejects(client.createCampaign({ name: 'Spring', longUrl: 'https://example.com/' }), kind);
    await assert.rejects(client.changeLink('a', { note: 'b' }, { ifMatch: '"1"' }), kind);
    assert.equal(received.length, 2);
  });
}

test('a refused request had no effect and is repeated', async () => {
  const limited = { type: 'urn:shortlink:problem:rate-limited', title: 'Too many', status: 429, detail: '' };
  const [client, received] = await serve([
    [429, { 'Retry-After': '0' }, limited],
    [201, {}, { id: '1', published: true }],
  ]);
  assert.equal((await client.createCampaign({ name: 'Spring', longUrl: 'https://example.com/' })).id, '1');
  assert.equal(received.length, 2);
});

test('dedupe takes no key', async () => {
  const [client, received] = await serve([undefined, [200, {}, LINK]]);
  await client.createLink({ longUrl: 'https://example.com/', dedupe: true });
  assert.equal(received.length, 2);
  assert.equal(received[1]?.headers['idempotency-key'], undefined);
});

test('problems are typed', async () => {
  const fault = { pointer: '/longUrl', detail: 'must begin with http:// or https://' };
  const problem = { type: 'urn:shortlink:problem:validation', title: 'Not valid', status: 422, errors: [fault] };
  const answers: Answer[] = [
    [422, { 'X-Request-Id': 'f00' }, problem],
    [502, { 'Content-Type': 'text/html' }, '<h1>'],
  ];
  const [client] = await serve(answers, { retries: 0 });
  await assert.rejects(client.createLink({ longUrl: 'ftp://' }), {
    name: 'ProblemError',
    message: '422 Not valid: /longUrl must begin with http:// or https://',
    status: 422,
    errors: [fault],
    requestId: 'f00',
  });
  await assert.rejects(client.getLink('a/b?'), { type: 'about:blank', status: 502 });
});

test('the path and the query are encoded', async () => {
  const [client, received] = await serve([
    [200, {}, LINK],
    [200, {}, { links: [], nextCursor: null }],
  ]);
  await client.getLink('a/b?ü');
  await client.listLinks({ tag: 'a&b', clicked: true, cursor: undefined });
  const lines = received.map((it) => it.line);
  assert.deepEqual(lines, ['GET /v1/links/a%2Fb%3F%C3%BC', 'GET /v1/links?tag=a%26b&clicked=true']);
});

test('another server is recognised', async () => {
  const [client] = await serve([[200, { 'Content-Type': 'text/html' }, '<h1>']]);
  await assert.rejects(client.getLink('a'), /instead of JSON/);
});

test('every row has one result, whatever breaks off', async () => {
  const failures = ['cut', 'away', '', 'short', ''];
  const [client, received] = await serve((body) => {
    const failure = failures.shift();
    if (failure === 'cut') return undefined;
    const lines = results(body, failure === 'away' ? 503 : 201);
    return [200, {}, failure === 'short' ? lines.slice(0, 99) : lines];
  });
  const found = await all(client.createLinks(rows(12_345), { idempotencyKey: 'key' }));
  assert.deepEqual(
    found,
    Array.from({ length: 12_345 }, (_, index) => ({ index, status: 201 })),
  );
  const sent = new Set(received.map((it) => `${it.headers['idempotency-key']} ${it.body.length}`));
  assert.deepEqual([...sent].map((it) => it.split(' ')[0]).sort(), ['key.0', 'key.10000', 'key.5000']);
  assert.equal(new Set(received.map((it) => it.line)).size, 1, 'one upload');
});

test('rows that cannot be served are reported at last', async () => {
  const [client, received] = await serve((body) => [200, {}, results(body, 503)], { retries: 1 });
  assert.deepEqual(
    (await all(client.createLinks(rows(2)))).map((it) => it.status),
    [503, 503],
  );
  assert.equal(received.length, 2);
});

test('rows are drawn only when they are needed', async () => {
  let drawn = 0;
  function* counted() {
    for (const row of rows(1_000_000)) {
      drawn += 1;
      yield row;
    }
  }
  const [client] = await serve((body) => [200, {}, results(body)]);
  for await (const result of client.createLinks(counted())) if (result.index === 0) break;
  assert.ok(drawn <= 20_000, String(drawn));
});

test('results do not wait for slow rows, and an error of the rows comes behind them', async () => {
  const [client] = await serve((body) => [200, {}, results(body)]);
  let isSeen: (() => void) | undefined;
  const seen = new Promise<void>((resolve) => {
    isSeen = resolve;
  });
  async function* broken() {
    yield* rows(5001);
    await seen;
    throw new RangeError('no more rows');
  }
  let count = 0;
  await assert.rejects(async () => {
    for await (const _ of client.createLinks(broken())) {
      count += 1;
      isSeen?.();
    }
  }, RangeError);
  assert.equal(count, 5000);
});

test('rows with dedupe have requests of their own', async () => {
  const [client, received] = await serve((body) => [200, {}, results(body)]);
  const mixed = [{ longUrl: 'https://example.com/' }, { longUrl: 'https://example.com/', dedupe: true }];
  assert.equal((await all(client.createLinks([...mixed, ...mixed]))).length, 4);
  assert.equal(received.length, 4);
  assert.equal(received.filter((it) => it.headers['idempotency-key']).length, 2);
});

test('an export that breaks off is an error', async () => {
  const [client] = await serve([
    [200, { 'Content-Type': 'application/x-ndjson', 'Content-Length': '99' }, '{"at":"1"}\n'],
  ]);
  const found = client.exportVisits();
  assert.equal((await found.next()).value?.at, '1');
  await assert.rejects(found.next(), ConnectionFailed);
});

test('a silent service is an error, and a signal ends a call', async () => {
  const silent = createServer(() => {});
  servers.push(silent);
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
  const client = new Client(url, 'slk_test', { retries: 0, timeout: 0.05 });
  await assert.rejects(client.getLink('a'), ConnectionFailed);
  const patient = new Client(url, 'slk_test');
  await assert.rejects(patient.getLink('a', { signal: AbortSignal.timeout(50) }), { name: 'TimeoutError' });
});

test('pages and the feed continue behind the last one', async () => {
  const [client, received] = await serve(['a', null].map((it) => [200, {}, { links: [], nextCursor: it }]));
  assert.equal((await all(client.pages(client.listLinks, { tag: 't' }))).length, 2);
  assert.equal(received[1]?.line, 'GET /v1/links?tag=t&cursor=a');
  const [other, seen] = await serve(['b', 'c'].map((it) => [200, {}, { visits: [], nextCursor: it }]));
  const feed = other.followVisits('a');
  await feed.next();
  assert.equal((await feed.next()).value?.nextCursor, 'c');
  assert.equal(seen[1]?.line, 'GET /v1/visits?limit=1000&after=b&wait=30');
});

test('wrong arguments are refused', () => {
  for (const [url, key] of [
    ['127.0.0.1:8081', 'k'],
    ['http://127.0.0.1', ''],
    ['http://127.0.0.1', 'a\nb'],
  ] as const) {
    assert.throws(() => new Client(url, key), TypeError);
  }
});
