import { type Answer, type ClientOptions, Connection, type Request } from './connection.js';
import { ProblemError } from './errors.js';
import { OPERATIONS, type Operations } from './generated/operations.js';
import type { FeedPage } from './generated/schema.js';
import { inTurn, partsOf, resultsOf } from './rows.js';

const ROWS = 'application/x-ndjson';
// The longest silence of a batch, in seconds: nginx ends it then, too.
const SILENCE_OF_ROWS = 300;

interface Operation {
  method: string;
  path: string;
  kind: 'json' | 'text' | 'lines' | 'rows';
  body: boolean;
  repeatable: boolean;
  keyed?: boolean;
  upload?: boolean;
}

type Options = Record<string, unknown> & { idempotencyKey?: string; ifMatch?: string; signal?: AbortSignal };

/** The filters of `followVisits`. */
export type FollowOptions = Pick<
  NonNullable<Parameters<Operations['listVisits']>[0]>,
  'limit' | 'class' | 'code' | 'campaignId' | 'signal'
>;

/**
 * A client of the service.
 *
 * Each operation of the API is a method with the name of its `operationId`: `createLink`, `listLinks` and so on. A
 * method takes the value in the path, then the body, then an object with the parameters of the query by their names.
 */
export class Client {
  readonly #connection: Connection;
  readonly #key: string;

  /** Connects to the internal server at `url`, with the API key `key`. */
  constructor(url: string, key: string, options: ClientOptions = {}) {
    this.#connection = new Connection(url, options);
    if (!/^[!-~]+$/.test(key)) throw new TypeError('the API key must consist of visible ASCII characters');
    this.#key = key;
  }

  /** All pages of a list: `client.pages(client.listLinks, { tag: 'spring' })`. */
  async *pages<A extends unknown[], P extends { nextCursor: string | null }>(
    operation: (...args: A) => Promise<P>,
    ...args: A
  ): AsyncGenerator<P, void> {
    const hasOptions = typeof args.at(-1) === 'object';
    const before = hasOptions ? args.slice(0, -1) : args;
    const options = hasOptions ? (args.at(-1) as Options) : {};
    for (let cursor: string | null | undefined = options.cursor as string | undefined; cursor !== null; ) {
      const page: P = await operation.apply(this, [...before, { ...options, cursor }] as unknown as A);
      yield page;
      cursor = page.nextCursor;
    }
  }

  /**
   * Visits in the order in which they are stored, page by page, without end; waits for those to come.
   *
   * `after` is the `nextCursor` of the last page that you have processed: store it together with your results, and pass
   * it after a restart. Without it, the pages begin with the oldest visit; `now` begins with those to come. Pages
   * without visits come at least every 30 seconds.
   */
  async *followVisits(after = '', options: FollowOptions = {}): AsyncGenerator<FeedPage, void> {
    const wait = Math.min(30, Math.floor(this.#connection.timeout / 2));
    for (let position = after; ; ) {
      const page = (await this.listVisits({ limit: 1000, ...options, after: position, wait })) as FeedPage;
      yield page;
      position = page.nextCursor;
    }
  }

  /** Carries out an operation with the arguments of its method. */
  #carryOut(operation: Operation, args: unknown[]): unknown {
    const path = operation.path.replace(/\{\w+\}/, () => encodeURIComponent(String(args.shift())));
    const body = operation.body ? args.shift() : undefined;
    const { idempotencyKey, ifMatch, signal, ...query } = (args.shift() ?? {}) as Options;
    if (operation.kind === 'rows') {
      const rows = body as Iterable<unknown> | AsyncIterable<unknown>;
      return this.#sendRows(operation, path, rows, query, idempotencyKey, signal);
    }
    const request = this.#request(operation, path, query, { signal });
    if (operation.kind === 'lines') return this.#readRows(request);
    // A link with `dedupe` can be requested again, and takes no idempotency key.
    if (operation.keyed && !(body as { dedupe?: unknown }).dedupe) {
      request.headers['Idempotency-Key'] = idempotencyKey ?? crypto.randomUUID();
    }
    if (ifMatch !== undefined) {
      // Repeated after a lost answer, a conditional change would meet its own revision.
      request.headers['If-Match'] = ifMatch;
      request.isRepeatable = false;
    }
    if (body !== undefined) {
      request.headers['Content-Type'] = 'application/json';
      request.body = new TextEncoder().encode(JSON.stringify(body));
    }
    return this.#connection.send(request, (answer) =>
      operation.kind === 'text' ? answer.text() : json(request, answer),
    );
  }

  #request(operation: Operation, path: string, query: Record<string, unknown>, more: Partial<Request>): Request {
    const parameters = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const text = new URLSearchParams(parameters.map(([name, value]) => [name, String(value)])).toString();
    const accept = { json: 'application/json', text: '*/*', lines: ROWS, rows: ROWS }[operation.kind];
    return {
      method: operation.method,
      url: this.#connection.url + path + (text && `?${text}`),
      headers: { 'X-Api-Key': this.#key, Accept: accept },
      silence: this.#connection.timeout,
      isRepeatable: operation.repeatable,
      ...more,
    };
  }

  /** The rows of an answer while they arrive. One that breaks off is an error. */
  async *#readRows(request: Request): AsyncGenerator<unknown, void> {
    const answer = await this.#connection.send(request, (it) => it);
    for await (const line of answer.lines()) yield JSON.parse(line);
  }

  /**
   * The results of rows, in their order.
   *
   * Each request has a part of the rows and an idempotency key of its own, so that a part whose answer is lost is
   * repeated, and a repetition of all rows with the same key creates nothing a second time.
   */
  async *#sendRows(
    operation: Operation,
    path: string,
    rows: Iterable<unknown> | AsyncIterable<unknown>,
    query: Record<string, unknown>,
    key: string = crypto.randomUUID(),
    signal?: AbortSignal,
  ): AsyncGenerator<unknown, void> {
    // The links of all parts have one upload.
    const uploadId = operation.upload ? (query.uploadId ?? (await uploadOf(key))) : undefined;
    yield* inTurn(partsOf(rows, operation.keyed ?? false), (part, stopped) => {
      const signals = AbortSignal.any(signal ? [signal, stopped] : [stopped]);
      const request = this.#request(
        operation,
        path,
        { ...query, uploadId },
        { signal: signals, silence: SILENCE_OF_ROWS },
      );
      request.headers['Content-Type'] = ROWS;
      if (operation.keyed && !part.hasDedupe) request.headers['Idempotency-Key'] = `${key}.${part.first}`;
      request.body = new TextEncoder().encode(part.lines.join(''));
      return this.#connection.send(request, (answer, isLast) => resultsOf(answer, part, isLast));
    });
  }

  static {
    for (const [name, operation] of Object.entries(OPERATIONS)) {
      Object.defineProperty(Client.prototype, name, {
        value(this: Client, ...args: unknown[]) {
          return this.#carryOut(operation, args);
        },
      });
    }
  }
}

// The operations, which the static block defines.
export interface Client extends Operations {}

async function json(request: Request, answer: Answer): Promise<unknown> {
  const text = await answer.text();
  const type = answer.headers.get('Content-Type') ?? 'no type';
  if (type.startsWith('application/json')) return JSON.parse(text);
  const title = `${request.url} answers with ${type} instead of JSON`;
  throw new ProblemError(answer.status, { title }, answer.headers);
}

/** The number of the upload with an idempotency key: 63 bits as hexadecimal digits. */
async function uploadOf(key: string): Promise<string> {
  const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(`upload ${key}`));
  return (new DataView(hash).getBigUint64(0) >> 1n).toString(16).padStart(16, '0');
}
