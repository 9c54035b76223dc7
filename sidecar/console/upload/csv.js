// Reads CSV as the API does: the bounds of rows, and their values.

const QUOTE = 34;
const LF = 10;
const CR = 13;

/** The most lines that the service accepts in a row. */
const MAX_LINES = 16;

/** The most characters of a row that is sent: nginx takes 8 MB, and the service less. */
const MAX_LENGTH = 1 << 20;

/** The states of a reader within a row. */
const START = 0;
const FIELD = 1;
const PLAIN = 2;
const QUOTED = 3;
const QUOTE_ENDED = 4;

/** Finds rows in a text that arrives in parts. Empty lines are no rows. */
export class Rows {
  #held = '';
  #at = 0;
  #begin = 0;
  #state = START;
  #line = 1;
  #firstLine = 1;
  /** Line feeds within quotation marks of the row, and its text up to the last allowed line, if it has more. */
  #lineFeeds = 0;
  #kept = null;
  #afterCr = false;
  #delimiter;

  constructor(delimiter) {
    this.#delimiter = delimiter.charCodeAt(0);
  }

  /** Takes another part of the text. */
  push(text) {
    this.#held = this.#held.slice(this.#begin) + text;
    this.#at -= this.#begin;
    this.#begin = 0;
  }

  /**
   * The next row, unparsed, with its line number and that behind it; null when none is complete. A row of too many lines
   * or characters has a `reason`, and only the beginning of its text: there may be a whole file behind a quotation mark that is not closed.
   */
  next(isEnd = false) {
    const { length } = this.#held;
    while (this.#at < length) {
      const unit = this.#held.charCodeAt(this.#at);
      const isBreak = unit === LF || unit === CR;
      if (unit === CR || (unit === LF && !this.#afterCr)) this.#line += 1;
      this.#afterCr = unit === CR;
      this.#at += 1;
      if (this.#state === START) {
        this.#begin = isBreak ? this.#at : this.#at - 1;
        if (isBreak) continue;
        this.#firstLine = this.#line;
        this.#lineFeeds = 0;
        this.#kept = null;
        this.#state = FIELD;
      } else if (isBreak && this.#state !== QUOTED) {
        return this.#row(this.#at - 1);
      } else if (unit === LF) {
        this.#lineFeeds += 1;
        if (this.#lineFeeds === MAX_LINES) this.#kept = this.#held.slice(this.#begin, this.#at - 1);
        if (this.#kept !== null) this.#begin = this.#at;
      }
      this.#state = this.#after(unit);
    }
    return isEnd && this.#state !== START ? this.#row(length) : null;
  }

  #after(unit) {
    switch (this.#state) {
      case QUOTED: return unit === QUOTE ? QUOTE_ENDED : QUOTED;
      case FIELD: if (unit === QUOTE) return QUOTED; break;
      case QUOTE_ENDED: if (unit === QUOTE) return QUOTED; break;
    }
    return unit === this.#delimiter ? FIELD : PLAIN;
  }

  #row(end) {
    const text = this.#kept === null ? this.#held.slice(this.#begin, end) : `${this.#kept}"`;
    this.#begin = Math.min(end + 1, this.#at);
    this.#state = START;
    const line = this.#firstLine;
    const lines = this.#lineFeeds + 1;
    let reason = null;
    if (this.#kept !== null) {
      reason = `spans ${lines} lines from line ${line} on, and may span ${MAX_LINES}: is a quotation mark not closed?`;
    } else if (text.length > MAX_LENGTH) reason = `has ${text.length} characters, and may have ${MAX_LENGTH}.`;
    return { text, line, behind: this.#line, reason };
  }
}

/** The values of a row. */
export function values(row, delimiter) {
  const found = [];
  let value = '';
  let at = 0;
  let isQuoted = row[0] === '"';
  if (isQuoted) at = 1;
  for (; at < row.length; at += 1) {
    const character = row[at];
    if (isQuoted && character === '"') {
      if (row[at + 1] === '"') {
        value += '"';
        at += 1;
      } else isQuoted = false;
    } else if (!isQuoted && character === delimiter) {
      found.push(value);
      value = '';
      isQuoted = row[at + 1] === '"';
      if (isQuoted) at += 1;
    } else value += character;
  }
  found.push(value);
  return found;
}

/** A value as it is written in a file. */
export function written(value, delimiter) {
  const text = String(value ?? '');
  return text.includes(delimiter) || /["\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The separator of the values of a first line: the most frequent candidate. */
export function delimiterOf(line) {
  const counts = [',', ';', '\t'].map((it) => [values(line, it).length, it]);
  return counts.reduce((best, it) => (it[0] > best[0] ? it : best))[1];
}
