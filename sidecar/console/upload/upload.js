// An upload from the choice of the file to its end, whichever page is shown meanwhile.

import { Failure } from '../api.js';
import * as kept from './kept.js';

/** The upload in progress, if any: leaving its page does not end it. */
let current = null;

/** The upload to a place that is in progress, or has ended while its page was not shown. */
export const under = (place) => (current?.place === place ? current : null);

/** True if an upload is in progress. */
export const isBusy = () => current?.state === 'sending' || current?.state === 'going';

addEventListener('beforeunload', (event) => {
  if (isBusy()) event.preventDefault();
});

const worker = () => new Worker(new URL('worker.js', import.meta.url), { type: 'module' });

/** The first sheet of a workbook as a file of CSV; null for a file that is none. */
export function converted(file) {
  const reader = worker();
  return new Promise((resolve) => {
    const end = (made) => {
      reader.terminate();
      resolve(made);
    };
    reader.addEventListener('message', ({ data }) => end(data.file ?? null));
    reader.addEventListener('error', () => end(null));
    reader.postMessage({ kind: 'convert', file });
  });
}

/** Reads a file with its encoding and delimiter: its number of rows, and a digest of its bytes. */
export function look(content, told) {
  const reader = worker();
  const done = new Promise((resolve) => {
    reader.addEventListener('message', ({ data }) => {
      if (data.kind === 'looking') {
        told(data.read / content.file.size);
        return;
      }
      reader.terminate();
      resolve(data);
    });
    reader.addEventListener('error', () => resolve({ kind: 'unreadable', isText: false }));
    reader.postMessage({ kind: 'look', content });
  });
  return { done, leave: () => reader.terminate() };
}

/** A file that is sent to the service. */
export class Upload {
  state = 'sending';
  made = 0;
  failed = 0;
  shown = [];
  results = null;
  errors = null;
  failure = null;
  /** The id that the service has given to it. */
  uploadId = null;
  /** Called after every change. */
  changed = () => {};
  #worker;

  /**
   * `place` is the page's address; `query` has the options for rows; `file` identifies content, place and options;
   * `content` is a file with its encoding and delimiter; `digest` and `chosen` are those of its bytes and columns, whose
   * `names` are those in the file.
   */
  constructor({ place, file, content, name, rows, query, key, at, digest, chosen, names }) {
    Object.assign(this, { place, file, content, name, rows, query, key, at, digest, chosen, names });
  }

  /** Sends it; a repetition uses the same key, so that no row creates a duplicate. */
  begin() {
    current = this;
    Object.assign(this, { state: 'sending', made: this.made ?? 0, failed: 0, shown: [], results: null, errors: null });
    Object.assign(this, { failure: null, uploadId: this.uploadId ?? null });
    // The service counts from the first time.
    this.at ??= new Date().toISOString();
    this.#worker = worker();
    this.#worker.addEventListener('message', ({ data }) => this.#hear(data));
    this.#worker.addEventListener('error', () => this.#hear({ kind: 'ended', how: 'broken' }));
    this.#worker.postMessage({
      kind: 'send', content: this.content,
      columns: this.chosen.map((member, place) => [member, this.names[place]]).filter(([member]) => member), address: `/console/batch?${this.query}`,
      headers: {
        'X-Shortlink-Console': '1', Accept: 'application/x-ndjson', 'Content-Type': 'text/csv',
        'Idempotency-Key': this.key,
      },
    });
    this.#remember();
    this.changed();
  }

  /** Sends no more rows; links that were created stay. */
  stop() {
    this.#worker.postMessage({ kind: 'stop' });
  }

  #hear({ kind, how, made = this.made, failed = this.failed, shown = this.shown, ...data }) {
    const isFirst = !this.uploadId && data.uploadId;
    Object.assign(this, { made, failed, shown, uploadId: data.uploadId ?? this.uploadId });
    if (kind === 'going') {
      this.state = 'going';
      // Its links can be revoked even if this page is closed before the end.
      if (isFirst) this.#remember();
    } else {
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
    const { place, file, name, rows, key, made, failed, state, at, digest, chosen, uploadId } = this;
    if (state === 'refused' && !uploadId) return;
    kept.keep({ place, file, name, rows, key, made, failed, state, at, digest, chosen, uploadId });
  }
}
