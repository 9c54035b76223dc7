// Sends a file beside the page, so that the page stays free: reads through it first, and then, while the service
// answers row by row, writes the files that are kept of it.

import { Rows, values, written } from './csv.js';

/** How often the page is told, in milliseconds. */
const TELL_EVERY = 150;

/** How many rows that failed the page is shown. */
const SHOWN = 100;

/** From how many characters on what was written is given to the browser, which may put it on a disk. */
const PART = 1 << 18;

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
    // A Blob of its own: texts that wait to become one are held in memory.
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
  #decoder = new TextDecoder('utf-8', { fatal: true });
  #rows;
  #isEnd = false;
  /** Called with each part of the file. */
  #seen;

  constructor(file, delimiter, seen = () => {}) {
    this.#parts = file.stream().getReader();
    this.#rows = new Rows(delimiter);
    this.#seen = seen;
  }

  /** A row that is here already. */
  here() {
    return this.#rows.next(this.#isEnd);
  }

  /** Whether there is more to read, once that was read. */
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

/** Counts a file's rows, and makes a name of all that is in it. */
async function look({ file, delimiter }) {
  // Two sums of 32 bits: what is only like another file is refused by the API, which compares rows.
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
  const reader = new Reader(file, delimiter, seen);
  await reader.next();
  let rows = 0;
  do {
    while (reader.here()) rows += 1;
  } while (await reader.more());
  const hex = (sum) => ((sum ^ (sum >>> 15)) >>> 0).toString(16).padStart(8, '0');
  postMessage({ kind: 'looked', rows, digest: `${hex(one)}${hex(other)}-${file.size}` });
}

let told = 0;

/** Tells the page, but not more often than it can show. */
function tell(message, always = false) {
  const now = Date.now();
  if (!always && now - told < TELL_EVERY) return;
  told = now;
  postMessage(message);
}

/** Sends a file, and keeps what became of its rows. */
async function send({ file, delimiter, address, headers }) {
  let answer;
  try {
    answer = await fetch(address, { method: 'POST', headers, body: file, signal: stop.signal });
  } catch {
    postMessage({ kind: 'ended', how: stop.signal.aborted ? 'stopped' : 'broken', made: 0, failed: 0 });
    return;
  }
  if (!answer.ok || !answer.body) {
    let problem = null;
    try {
      problem = await answer.json();
    } catch { /* Not from the API then. */ }
    postMessage({
      kind: 'refused', status: answer.status, problem, retryAfter: answer.headers.get('Retry-After'),
    });
    return;
  }
  await new Results(file, delimiter).read(answer.body);
}

/** What became of the rows of a file. */
class Results {
  #reader;
  #delimiter;
  #results = new Written();
  #errors = new Written();
  #shown = [];
  #next = 0;
  #made = 0;
  #failed = 0;

  constructor(file, delimiter) {
    this.#reader = new Reader(file, delimiter);
    this.#delimiter = delimiter;
  }

  async read(body) {
    const header = (await this.#reader.next())?.text ?? '';
    this.#results.add(`${this.#line(header, ['shortUrl', 'shortCode', 'status', 'reason'])}`);
    this.#errors.add(`${this.#line(header, ['line', 'status', 'reason'])}`);
    let how = 'done';
    let rest = '';
    try {
      const parts = body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await parts.read();
        if (done) break;
        const lines = (rest + value).split('\n');
        rest = lines.pop();
        for (const line of lines) {
          if (line) await this.#take(JSON.parse(line));
        }
        tell(this.#so('going'));
      }
    } catch {
      how = stop.signal.aborted ? 'stopped' : 'broken';
    }
    const left = how === 'done' && Boolean(await this.#reader.next());
    postMessage({
      ...this.#so('ended'), how: left || rest ? 'broken' : how, results: this.#results.blob(),
      errors: this.#failed > 0 ? this.#errors.blob() : null,
    });
  }

  /** Takes what became of the next row, or of a later one when the service has lost some. */
  async #take(result) {
    const index = result.index ?? this.#next;
    while (this.#next < index) await this.#keep({ status: 500, problem: { title: 'No answer' } });
    await this.#keep(result);
  }

  async #keep({ status, link, problem }) {
    const row = this.#reader.here() ?? await this.#reader.next();
    this.#next += 1;
    if (link) {
      this.#made += 1;
      this.#results.add(this.#line(row?.text ?? '', [link.shortUrl ?? '', link.shortCode, status, '']));
      return;
    }
    this.#failed += 1;
    const reason = said(problem);
    const text = row?.text ?? '';
    this.#results.add(this.#line(text, ['', '', status, reason]));
    this.#errors.add(this.#line(text, [row?.line ?? '', status, reason]));
    if (this.#shown.length < SHOWN) {
      const first = values(text, this.#delimiter).filter(Boolean).slice(0, 3).join(' · ');
      this.#shown.push({ line: row?.line ?? null, text: first.slice(0, 120), reason });
    }
  }

  /** A row with more values behind it. */
  #line(text, more) {
    return `${[text, ...more.map((value) => written(value, this.#delimiter))].join(this.#delimiter)}\r\n`;
  }

  #so(kind) {
    return { kind, made: this.#made, failed: this.#failed, shown: this.#shown };
  }
}

/** A problem in a line. */
function said(problem) {
  const errors = (problem?.errors ?? []).map(({ pointer, detail }) => {
    const name = pointer.split('/').slice(1).join('.');
    return name ? `${name} ${detail}` : detail;
  });
  return errors.length > 0 ? errors.join('; ') : problem?.detail ?? problem?.title ?? '';
}

addEventListener('message', async ({ data }) => {
  try {
    if (data.kind === 'look') await look(data);
    else if (data.kind === 'send') await send(data);
    else stop.abort();
  } catch (failure) {
    // What is not UTF-8 can't be read, nor what was changed or taken away since it was chosen.
    postMessage({ kind: 'unreadable', isText: failure instanceof TypeError });
  }
});
