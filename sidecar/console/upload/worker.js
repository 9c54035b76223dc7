// Sends a file in a worker, so that the page stays responsive. Reads all of it first, and then, while the service
// answers row by row, writes the files with the results.

import { Rows, values, written } from './csv.js';
import { reasonOf } from './reason.js';
import { asCsv } from './xlsx.js';

/** The interval between messages to the page, in milliseconds. */
const TELL_EVERY = 150;

/** The most failed rows that the page shows. */
const SHOWN = 100;

/** The number of characters after which text becomes a Blob, which the browser may store on disk. */
const PART = 1 << 18;

/** The number of characters of a request's rows: their results arrive together. */
const TOGETHER = 1 << 17;

const stop = new AbortController();

/** A file that is written in parts. */
class Written {
  #parts = ['\ufeff'];
  #text = [];
  #length = 0;

  add(text) {
    this.#text.push(text);
    this.#length += text.length;
    if (this.#length >= PART) this.#flush();
  }

  #flush() {
    // A separate Blob for each part: text is held in memory until it becomes one.
    this.#parts.push(new Blob([this.#text.join('')]));
    this.#text = [];
    this.#length = 0;
  }

  blob() {
    this.#flush();
    return new Blob(this.#parts, { type: 'text/csv' });
  }
}

/** Reads a file's rows, one after the other. */
class Reader {
  #parts;
  #decoder;
  #rows;
  #isEnd = false;
  /** A row that was read and is for the next request. */
  waiting = null;
  /** Called with every part of the file. */
  #seen;

  constructor({ file, encoding, delimiter }, seen = () => {}) {
    this.#decoder = new TextDecoder(encoding, { fatal: true });
    this.#parts = file.stream().getReader();
    this.#rows = new Rows(delimiter);
    this.#seen = seen;
  }

  /** The next row of the text that is read already, if it is complete. */
  here() {
    return this.#rows.next(this.#isEnd);
  }

  /** Reads a further part; returns false at the end of the file. */
  async more() {
    if (this.#isEnd) return false;
    const { value, done } = await this.#parts.read();
    this.#isEnd = done;
    if (!done) this.#seen(value);
    this.#rows.push(done ? this.#decoder.decode() : this.#decoder.decode(value, { stream: true }));
    return true;
  }

  async next() {
    for (;;) {
      const row = this.here();
      if (row || !(await this.more())) return row;
    }
  }
}

/** Counts a file's rows, and computes a digest of its content. */
async function look(content) {
  // Two sums of 32 bits: the API compares rows, so it refuses a different file with the same digest.
  let [one, other] = [0xdeadbeef, 0x41c6ce57];
  let read = 0;
  const seen = (bytes) => {
    for (const byte of bytes) {
      one = Math.imul(one ^ byte, 2654435761);
      other = Math.imul(other ^ byte, 1597334677);
    }
    read += bytes.length;
    tell({ kind: 'looking', read });
  };
  const reader = new Reader(content, seen);
  await reader.next();
  let rows = 0;
  do {
    while (reader.here()) rows += 1;
  } while (await reader.more());
  const hex = (sum) => ((sum ^ (sum >>> 15)) >>> 0).toString(16).padStart(8, '0');
  postMessage({ kind: 'looked', rows, digest: `${hex(one)}${hex(other)}-${content.file.size}` });
}

let told = 0;

/** Sends a message to the page, but not more often than it can show. */
function tell(message, always = false) {
  const now = Date.now();
  if (!always && now - told < TELL_EVERY) return;
  told = now;
  postMessage(message);
}

/**
 * Sends a file, some rows per request, and stores the results. Only the file determines the rows of a request, so that
 * the same file results in the same requests.
 */
async function send({ content, address, headers, columns }) {
  const { delimiter } = content;
  const reader = new Reader(content);
  const header = (await reader.next())?.text ?? '';
  const results = new Results(header, delimiter, columns);
  let how = 'done';
  let refused = {};
  let uploadId = null;
  try {
    for (let number = 0; how === 'done'; number += 1) {
      const rows = await together(reader);
      if (rows.length === 0) break;
      const [first, ...others] = rows.filter(({ reason }) => !reason);
      if (!first) {
        results.skip(rows, 0);
        continue;
      }
      // Empty lines stand for those between rows, so that the service can count lines of the file.
      let { behind } = first;
      const lines = [header, first.text];
      for (const row of others) {
        lines.push('\n'.repeat(row.line - behind) + row.text);
        behind = row.behind;
      }
      const request = {
        method: 'POST', signal: stop.signal, body: `${lines.join('\n')}\n`,
        headers: {
          ...headers, 'Idempotency-Key': `${headers['Idempotency-Key']} ${number}`,
          'X-Shortlink-First-Line': String(first.line),
        },
      };
      // All requests of a file are one upload: the first one names it.
      const answer = await ask(uploadId ? `${address}&uploadId=${uploadId}` : address, request);
      if (answer.ok) {
        uploadId ??= answer.headers.get('Upload-Id');
        results.uploadId = uploadId;
        if (!(await results.read(answer.body, rows))) how = 'broken';
      } else if (answer.status >= 500) {
        // The service has processed an unknown part of it, or none: a retry with the same key is safe.
        how = 'broken';
      } else {
        how = 'refused';
        const problem = await answer.json().catch(() => null);
        refused = { status: answer.status, problem, retryAfter: answer.headers.get('Retry-After') };
      }
    }
  } catch {
    how = stop.signal.aborted ? 'stopped' : 'broken';
  }
  postMessage({ ...results.all(), ...refused, kind: how === 'refused' ? how : 'ended', how });
}

/** The rows of the next request. Lines that are not sent count, too: a line feed stands for each of them. */
async function together(reader) {
  const rows = [];
  let length = 0;
  while (length < TOGETHER) {
    const row = reader.waiting ?? reader.here() ?? await reader.next();
    reader.waiting = null;
    if (!row) break;
    const emptyLines = rows.length === 0 ? 0 : row.line - rows.at(-1).behind;
    if (emptyLines > TOGETHER) {
      reader.waiting = row;
      break;
    }
    rows.push(row);
    length += emptyLines + row.behind - row.line + row.text.length;
  }
  return rows;
}

/** Sends a request, and waits while the API key is rate-limited. */
async function ask(address, request) {
  for (;;) {
    const answer = await fetch(address, request);
    if (answer.status !== 429) return answer;
    const seconds = Number(answer.headers.get('Retry-After')) || 1;
    await new Promise((resolve, reject) => {
      setTimeout(resolve, seconds * 1000);
      stop.signal.addEventListener('abort', reject);
    });
  }
}

/** The results of a file's rows. */
class Results {
  /** The id of the upload, once the service has named it. */
  uploadId = null;
  #delimiter;
  /** The name of the file's column for each member. */
  #columns;
  #results = new Written();
  #errors = new Written();
  #shown = [];
  #made = 0;
  #failed = 0;

  constructor(header, delimiter, columns) {
    this.#delimiter = delimiter;
    this.#columns = new Map(columns);
    this.#results.add(this.#line(header, ['shortUrl', 'shortCode', 'status', 'reason']));
    this.#errors.add(this.#line(header, ['line', 'status', 'reason']));
  }

  /** Refuses the rows that are not sent, from a place up to the next row that is; returns the place of that. */
  skip(rows, place) {
    for (; rows[place]?.reason; place += 1) {
      const { reason } = rows[place];
      this.#keep({ status: 422, problem: { errors: [{ pointer: '', detail: reason }] } }, rows[place]);
    }
    return place;
  }

  /** Reads the results of some rows; returns true if there is one for each that was sent. */
  async read(body, rows) {
    const parts = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    let sent = 0;
    let next = this.skip(rows, 0);
    for (;;) {
      const { value, done } = await parts.read();
      if (done) return next === rows.length && !rest;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines.filter(Boolean)) {
        const result = JSON.parse(line);
        // A result without an index is about all remaining rows, which were not read or, after an error, perhaps were.
        if (result.index === undefined && result.status < 500) {
          while (next < rows.length) {
            this.#keep(result, rows[next]);
            next = this.skip(rows, next + 1);
          }
          continue;
        }
        if (result.index !== sent || next >= rows.length) return false;
        this.#keep(result, rows[next]);
        sent += 1;
        next = this.skip(rows, next + 1);
      }
      tell({ ...this.#so(), kind: 'going' });
    }
  }

  #keep({ status, link, problem }, { text, line }) {
    if (link) {
      this.#made += 1;
      this.#results.add(this.#line(text, [link.shortUrl ?? '', link.shortCode, status, '']));
      return;
    }
    this.#failed += 1;
    const reason = reasonOf(problem, this.#columns);
    this.#results.add(this.#line(text, ['', '', status, reason]));
    this.#errors.add(this.#line(text, [line, status, reason]));
    if (this.#shown.length < SHOWN) {
      const first = values(text, this.#delimiter).filter(Boolean).slice(0, 3).join(' · ');
      this.#shown.push({ line, text: first.slice(0, 120), reason });
    }
  }

  /** A row with further values at its end. */
  #line(text, more) {
    return `${[text, ...more.map((value) => written(value, this.#delimiter))].join(this.#delimiter)}\r\n`;
  }

  #so() {
    return { made: this.#made, failed: this.#failed, shown: this.#shown, uploadId: this.uploadId };
  }

  /** All results, with the files. */
  all() {
    const isAny = this.#made + this.#failed > 0;
    const results = isAny ? this.#results.blob() : null;
    return { ...this.#so(), results, errors: this.#failed > 0 ? this.#errors.blob() : null };
  }
}

addEventListener('message', async ({ data }) => {
  try {
    if (data.kind === 'convert') postMessage({ kind: 'converted', file: await asCsv(data.file) });
    else if (data.kind === 'look') await look(data.content);
    else if (data.kind === 'send') await send(data);
    else stop.abort();
  } catch (failure) {
    // The file has another encoding, or was changed or removed since it was chosen.
    postMessage({ kind: 'unreadable', isText: failure instanceof TypeError });
  }
});
