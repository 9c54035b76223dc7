// A file that is sent, from when it was chosen until it is done, whichever page is shown meanwhile.

import { Failure } from '../api.js';
import * as kept from './kept.js';

/** The upload that is under way, if any: leaving its page does not end it. */
let current = null;

/** The upload to a place that is under way or has ended while nobody looked. */
export const under = (place) => (current?.place === place ? current : null);

/** Whether anything is under way. */
export const isBusy = () => current?.state === 'sending' || current?.state === 'going';

addEventListener('beforeunload', (event) => {
  if (isBusy()) event.preventDefault();
});

const worker = () => new Worker(new URL('worker.js', import.meta.url), { type: 'module' });

/** Reads through a file: how many rows it has, and a name for all that is in it. Null when it can't be read. */
export function look(file, delimiter, told) {
  const reader = worker();
  const done = new Promise((resolve) => {
    reader.addEventListener('message', ({ data }) => {
      if (data.kind === 'looking') {
        told(data.read / file.size);
        return;
      }
      reader.terminate();
      resolve(data);
    });
    reader.addEventListener('error', () => resolve({ kind: 'unreadable', isText: false }));
    reader.postMessage({ kind: 'look', file, delimiter });
  });
  return { done, leave: () => reader.terminate() };
}

/** A file on its way to the service. */
export class Upload {
  state = 'sending';
  made = 0;
  failed = 0;
  shown = [];
  results = null;
  errors = null;
  failure = null;
  /** Called when something has changed. */
  changed = () => {};
  #worker;

  /** `place` is the address of the page; `query` says how rows are read; `file` names the file's content. */
  constructor({ place, file, content, name, rows, delimiter, query, key, at }) {
    Object.assign(this, { place, file, content, name, rows, delimiter, query, key, at });
  }

  /** Sends it; again under the same name, so that no row is made into a link twice. */
  begin() {
    current = this;
    Object.assign(this, { state: 'sending', made: 0, failed: 0, shown: [], results: null, errors: null });
    this.failure = null;
    // The service counts from the first time.
    this.at ??= new Date().toISOString();
    this.#worker = worker();
    this.#worker.addEventListener('message', ({ data }) => this.#hear(data));
    this.#worker.addEventListener('error', () => this.#hear({ kind: 'ended', how: 'broken' }));
    this.#worker.postMessage({
      kind: 'send', file: this.content, delimiter: this.delimiter, address: `/console/batch?${this.query}`,
      headers: {
        'X-Shortlink-Console': '1', Accept: 'application/x-ndjson', 'Content-Type': 'text/csv',
        'Idempotency-Key': this.key,
      },
    });
    this.#remember();
    this.changed();
  }

  /** Sends no more rows; links that were made stay. */
  stop() {
    this.#worker.postMessage({ kind: 'stop' });
  }

  #hear({ kind, how, made = this.made, failed = this.failed, shown = this.shown, ...data }) {
    Object.assign(this, { made, failed, shown });
    if (kind === 'going') this.state = 'going';
    else {
      this.#worker.terminate();
      this.state = how ?? 'broken';
      Object.assign(this, { results: data.results ?? null, errors: data.errors ?? null });
      if (kind === 'refused') {
        this.state = 'refused';
        this.failure = new Failure(data.status, data.problem, data.retryAfter);
      }
      this.#remember();
    }
    this.changed();
  }

  #remember() {
    const { place, file, name, rows, key, made, failed, state, at } = this;
    if (state !== 'refused') kept.keep({ place, file, name, rows, key, made, failed, state, at });
  }
}
