// Sends requests to the API, and explains failures.

import { h } from './dom.js';
import { detailOf, has, t } from './i18n.js';

/** A failed request: a problem of the API, or no answer at all (status 0). */
export class Failure extends Error {
  constructor(status, problem, retryAfter) {
    super(problem?.detail ?? `HTTP ${status}`);
    this.status = status;
    this.problem = problem ?? {};
    this.retryAfter = retryAfter;
  }

  /** The faults by member: names, with a dot before inner ones, and texts. */
  get fields() {
    return (this.problem.errors ?? []).map(({ pointer, detail }) =>
      [pointer.split('/').slice(1).join('.'), detailOf(detail)]);
  }
}

/** Called when the session has ended. */
let ended = () => {};
export const onEnded = (call) => { ended = call; };

/** Sends a request; returns the JSON of the answer, if any, or the file that `headers` accept, and its ETag. */
export async function ask(method, path, body, headers = {}) {
  const options = { method, headers: { 'X-Shortlink-Console': '1', Accept: 'application/json', ...headers } };
  if (body !== undefined) {
    options.headers['Content-Type'] = 'application/json';
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Failure(0);
  }
  const type = answer.headers.get('Content-Type') ?? '';
  let data = null;
  try {
    if (/json/.test(type)) data = await answer.json();
    else if (headers.Accept && type.startsWith(headers.Accept)) data = await answer.blob();
  } catch {
    throw new Failure(0);
  }
  if (!answer.ok) {
    const failure = new Failure(answer.status, data, answer.headers.get('Retry-After'));
    if (answer.status === 401 && !path.startsWith('/console/')) ended();
    throw failure;
  }
  return { data, etag: answer.headers.get('ETag') };
}

/** Reads a file of a media type as a Blob. An answer that breaks off is a failure. */
export const file = async (path, type) => (await ask('GET', path, undefined, { Accept: type })).data;

/** Reads a resource. */
export const get = async (path) => (await ask('GET', path)).data;

/** The result, or the failure in its place, so that one failed part does not affect the others. */
export async function part(call) {
  try {
    return await call();
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
    return { failure };
  }
}

/** The text that something needs a scope, with its meaning. */
export const needs = (scope) => t('error.scope', { scope, what: has(`scope.${scope}`) ? t(`scope.${scope}`) : scope });

/** The notice on a page whose scope a user lacks. */
export const lacking = (scope) => h('div', { class: 'notice warn' }, needs(scope));

/** The text of a failure: the cause, and the next step. */
export function inWords(failure) {
  if (!(failure instanceof Failure)) throw failure;
  const { status, problem } = failure;
  const scope = /^The scope (\S+) is needed\.$/.exec(problem.detail ?? '')?.[1];
  if (status === 403 && scope) return [t('error.403'), needs(scope)];
  if (status === 429) return [t('error.429'), t('error.retry', { seconds: failure.retryAfter ?? '1' })];
  if (status === 0) return [t('error.0'), t('error.offline')];
  const title = has(`error.${status}`) ? t(`error.${status}`) : problem.title ?? t('error.other', { status });
  return [title, problem.detail ?? ''];
}

/** A failure as a notice, with a retry button where that may help. */
export function notice(failure, again) {
  const [title, text] = inWords(failure);
  const fields = failure.fields.filter(([, detail]) => detail);
  return h('div', { class: 'notice bad', role: 'alert', 'data-status': failure.status },
    h('strong', {}, title),
    text && h('p', {}, text),
    fields.length > 0 && h('ul', {}, fields.map(([name, detail]) =>
      h('li', {}, name ? `${name}: ${detail}` : detail))),
    again && h('p', {}, h('button', { type: 'button', click: again }, t('again'))));
}
