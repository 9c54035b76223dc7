import { WebhookError } from './errors.js';

/** An event of a webhook. */
export interface Event {
  /** Its type, such as `link.clicked`; `webhook.test` in a test. */
  type: string;
  /** Identifies the event: ignore those that you have had. */
  id: string;
  /** Its time. */
  timestamp: string;
  /** Its members. */
  data: Record<string, unknown>;
}

export interface VerifyOptions {
  /** Seconds by which the time of a message may differ from the clock. Default: 300. */
  tolerance?: number;
  /** The time of the clock in seconds since 1970. */
  now?: number;
}

/**
 * Returns the events of a message that one of `secrets` has signed, and throws a `WebhookError` otherwise.
 *
 * `body` is the body as it arrived: a parsed one has lost the bytes that were signed. `headers` are those of `fetch` or
 * of Node.js. Pass the old and the new secret while you rotate them. The comparison takes the same time for all
 * signatures.
 */
export async function verifyWebhook(
  body: Uint8Array<ArrayBuffer> | string,
  headers: Headers | Record<string, string | string[] | undefined>,
  secrets: string | readonly string[],
  { tolerance = 300, now = Date.now() / 1000 }: VerifyOptions = {},
): Promise<Event[]> {
  const bytes = typeof body === 'string' ? new TextEncoder().encode(body) : body;
  if (!(bytes instanceof Uint8Array)) throw new TypeError('the body must be the bytes or the text that arrived');
  const [id, timestamp, signatures] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) => {
    const value = headers instanceof Headers ? headers.get(name) : named(headers, name);
    if (typeof value !== 'string') throw new WebhookError(`the header ${name} is missing`);
    return value;
  }) as [string, string, string];
  if (!/^\d{1,15}$/.test(timestamp)) {
    throw new WebhookError(
      `the header webhook-timestamp is ${JSON.stringify(timestamp)}; it must be a number of seconds`,
    );
  }
  const difference = Number(timestamp) - now;
  if (Math.abs(difference) > tolerance) {
    const seconds = Math.round(difference);
    throw new WebhookError(`the time of the message differs by ${seconds} s; allowed are ${tolerance} s`);
  }
  const signed = joined(new TextEncoder().encode(`${id}.${timestamp}.`), bytes);
  const listed = typeof secrets === 'string' ? [secrets] : secrets;
  if (listed.length === 0) throw new TypeError('the list of secrets is empty; at least one is needed');
  const keys = await Promise.all(listed.map(keyOf));
  const given = signatures.split(' ').flatMap((it) => (it.startsWith('v1,') ? (decoded(it.slice(3)) ?? []) : []));
  const checks = keys.flatMap((key) => given.map((it) => crypto.subtle.verify('HMAC', key, it, signed)));
  if (!(await Promise.all(checks)).includes(true)) {
    throw new WebhookError('no signature in the header webhook-signature is of one of the secrets');
  }
  const content = JSON.parse(new TextDecoder().decode(bytes)) as Event;
  return content.type === 'batch' ? (content.data as unknown as Event[]) : [content];
}

function named(headers: Record<string, string | string[] | undefined>, name: string): string | string[] | undefined {
  return Object.entries(headers).find(([it]) => it.toLowerCase() === name)?.[1];
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(first.length + second.length);
  bytes.set(first);
  bytes.set(second, first.length);
  return bytes;
}

/** The bytes of base64, or nothing. */
function decoded(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(text), (it) => it.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function keyOf(secret: string): Promise<CryptoKey> {
  const bytes = decoded(secret.replace(/^whsec_/, ''));
  if (!bytes?.length) throw new TypeError('the secret of the webhook is not valid: it must be whsec_ and base64');
  return crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']);
}
