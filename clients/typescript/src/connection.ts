import { ConnectionFailed, ProblemError } from './errors.js';

/** Options of a client. */
export interface ClientOptions {
  /** Attempts after the first one, of requests that are safe to repeat. Default: 6. */
  retries?: number;
  /** The longest silence of the service in seconds, except in batches. Default: 60. */
  timeout?: number;
  /** Replaces the `fetch` of the platform. */
  fetch?: typeof fetch;
}

/** A request that can be made several times. */
export interface Request {
  method: string;
  url: string;
  headers: Record<string, string>;
  body?: Uint8Array<ArrayBuffer> | undefined;
  /** The longest silence, in seconds. */
  silence: number;
  isRepeatable: boolean;
  signal?: AbortSignal | undefined;
}

/** An answer with a status of 2xx. */
export interface Answer {
  status: number;
  headers: Headers;
  /** The lines of the body while they arrive, without empty ones. */
  lines(): AsyncGenerator<string, void>;
  text(): Promise<string>;
}

// The shortest and the longest pause before a retry, in seconds, and the longest one that the service can ask for.
const [FIRST_PAUSE, LONGEST_PAUSE, LONGEST_RETRY_AFTER] = [0.5, 15, 300];
/** Statuses after which a change may have been made. */
export const UNCERTAIN: ReadonlySet<number> = new Set([500, 502, 503, 504]);
// Errors of Node.js before a request is sent.
const NOT_SENT: ReadonlySet<unknown> = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT']);

/** The way to the service: single attempts, and retries. */
export class Connection {
  readonly url: string;
  readonly timeout: number;
  readonly #retries: number;
  readonly #fetch: typeof fetch;

  constructor(url: string, { retries = 6, timeout = 60, fetch = globalThis.fetch }: ClientOptions) {
    if (!/^https?:\/\//.test(url)) throw new TypeError(`the URL "${url}" must begin with http:// or https://`);
    if (!(Number.isInteger(retries) && retries >= 0))
      throw new TypeError(`the number of retries is ${retries}; it must be an integer from 0 on`);
    this.url = url.replace(/\/+$/, '');
    this.timeout = timeout;
    this.#retries = retries;
    this.#fetch = fetch.bind(globalThis);
  }

  /** Makes attempts until one succeeds, reading the answer with `read`, which learns whether it is the last one. */
  async send<T>(request: Request, read: (answer: Answer, isLast: boolean) => Promise<T> | T): Promise<T> {
    for (let number = 0; ; number += 1) {
      const isLast = number >= this.#retries;
      let retryAfter = 0;
      try {
        return await read(await this.#open(request), isLast);
      } catch (error) {
        if (error instanceof ProblemError) {
          const isSafe = error.status === 429 || (UNCERTAIN.has(error.status) && request.isRepeatable);
          retryAfter = error.retryAfter ?? 0;
          if (isLast || !isSafe || retryAfter > LONGEST_RETRY_AFTER) throw error;
        } else if (error instanceof ConnectionFailed) {
          const cause = error.cause as { cause?: { code?: unknown } } | undefined;
          if (isLast || !(request.isRepeatable || NOT_SENT.has(cause?.cause?.code))) throw error;
        } else throw error;
      }
      // The random part keeps clients from coming back together.
      const backoff = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** number);
      await pause(retryAfter + backoff * (0.5 + Math.random() / 2), request.signal);
    }
  }

  async #open(request: Request): Promise<Answer> {
    const { method, url, headers, body, silence, signal } = request;
    const silent = new AbortController();
    const signals = signal ? [signal, silent.signal] : [silent.signal];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const guarded = async <T>(step: Promise<T>): Promise<T> => {
      timer = setTimeout(() => silent.abort(new Error(`no answer for ${silence} s`)), silence * 1000);
      try {
        return await step;
      } catch (error) {
        signal?.throwIfAborted();
        throw new ConnectionFailed(`${method} ${url}: ${error}`, { cause: error });
      } finally {
        clearTimeout(timer);
      }
    };
    const init = { method, headers, body: body ?? null, redirect: 'manual', signal: AbortSignal.any(signals) } as const;
    const response = await guarded(this.#fetch(url, init));

    async function* parts(): AsyncGenerator<string, void> {
      const reader = response.body?.getReader();
      if (!reader) return;
      const decoder = new TextDecoder();
      try {
        for (let part = await guarded(reader.read()); !part.done; part = await guarded(reader.read())) {
          yield decoder.decode(part.value, { stream: true });
        }
      } finally {
        // A reader that ends early ends the request.
        await reader.cancel().catch(() => {});
      }
    }

    async function* lines(): AsyncGenerator<string, void> {
      let rest = '';
      for await (const part of parts()) {
        const complete = (rest + part).split('\n');
        rest = complete.pop() ?? '';
        yield* complete.filter(Boolean);
      }
      if (rest) throw new ConnectionFailed(`${method} ${url}: the answer ends within a line`);
    }

    async function text(): Promise<string> {
      let all = '';
      for await (const part of parts()) all += part;
      return all;
    }

    if (response.ok) return { status: response.status, headers: response.headers, lines, text };
    const isProblem = response.headers.get('Content-Type')?.startsWith('application/problem+json');
    const content = await text();
    throw new ProblemError(response.status, isProblem ? JSON.parse(content) : {}, response.headers);
  }
}

function pause(seconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, seconds * 1000);
    if (signal?.aborted) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });
}
