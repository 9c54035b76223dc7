import type { FieldError, Problem } from './generated/schema.js';

/** A call that failed. */
export class ShortlinkError extends Error {
  override name = 'ShortlinkError';
}

/** The service did not answer, or its answer broke off. A change may have been made. */
export class ConnectionFailed extends ShortlinkError {
  override name = 'ConnectionFailed';
}

/**
 * The service refused a request, with a problem (RFC 9457).
 *
 * Let programs depend on `type` only, such as `urn:shortlink:problem:taken`: the texts are for people. `type` is
 * `about:blank` if the answer came from nginx or a proxy, which have no problems.
 */
export class ProblemError extends ShortlinkError {
  override name = 'ProblemError';
  /** Identifier of the problem. */
  readonly type: string;
  /** Title of all problems of this type. */
  readonly title: string;
  /** Description of this one. */
  readonly detail: string;
  /** All faults of the body: each has the `pointer` to a member, and a `detail` with the allowed values. */
  readonly errors: FieldError[];
  /** Identifier of the request in the logs of the service. */
  readonly requestId: string | undefined;
  /** Seconds after which the request can be repeated, if the service named them. */
  readonly retryAfter: number | undefined;

  constructor(
    /** Status of HTTP. */
    readonly status: number,
    /** The problem as the service sent it. */
    readonly problem: Partial<Problem>,
    headers: Headers,
  ) {
    const { type = 'about:blank', title = `HTTP status ${status}`, detail = '', errors = [] } = problem;
    const faults = errors.map((it) => `${it.pointer || 'body'} ${it.detail}`).join('; ');
    super([`${status} ${title}`, faults || detail].filter(Boolean).join(': '));
    this.type = type;
    this.title = title;
    this.detail = detail;
    this.errors = errors;
    this.requestId = headers.get('X-Request-Id') ?? undefined;
    this.retryAfter = secondsOf(headers.get('Retry-After'));
  }
}

/** A message that no webhook of the service has signed, or one that is too old. Answer it with 400. */
export class WebhookError extends Error {
  override name = 'WebhookError';
}

/** The seconds of `Retry-After`, which is a number or a time. */
function secondsOf(text: string | null): number | undefined {
  if (text === null) return undefined;
  const seconds = /^\d+$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
}
