// A file with rows, as users choose it: CSV in one of several encodings, or a workbook.

import { Rows, delimiterOf, values } from './csv.js';
import { converted } from './upload.js';
import { isArchive } from './xlsx.js';

/** The number of bytes that are read for the preview of a file, and the number of rows in it. */
const BEGINNING = 1 << 16;
const FIRST = 3;

/** The encodings of files without a byte order mark, in the order in which they are tried. */
export const ENCODINGS = ['utf-8', 'gb18030'];

/** The file itself, or the first sheet of a workbook as CSV; null for an archive that is no workbook. */
export async function opened(file) {
  const isSheet = await isArchive(file).catch(() => false);
  return isSheet ? converted(file) : file;
}

/** A file's first rows, in the first of some encodings that fits; null when the file can't be read, or none fits. */
export async function beginning(file, encodings = ENCODINGS) {
  let bytes;
  try {
    bytes = new Uint8Array(await file.slice(0, BEGINNING).arrayBuffer());
  } catch {
    return null;
  }
  const marked = { 0xfffe: ['utf-16le'], 0xfeff: ['utf-16be'] }[(bytes[0] << 8) | bytes[1]];
  const encoding = (marked ?? encodings).find((it) => decoded(bytes, it) !== null) ?? encodings[0];
  const text = decoded(bytes, encoding) ?? new TextDecoder(encoding).decode(bytes);
  const delimiter = delimiterOf(text.split(/[\r\n]/, 1)[0]);
  const reader = new Rows(delimiter);
  reader.push(text);
  const found = [];
  while (found.length <= FIRST) {
    // A row that is cut is shown as well: it may be all that follows a quotation mark that is not closed.
    const row = reader.next(true);
    if (!row) break;
    found.push(values(row.text, delimiter));
  }
  const [names = [], ...rows] = found;
  return { encoding, delimiter, names, rows };
}

/** The text of a file's beginning, which may end within a character; null for bytes that it has not in this encoding. */
function decoded(bytes, encoding) {
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes, { stream: true });
  } catch {
    return null;
  }
}

/** All rows below the first line, with the line of each; null for a file that cannot be read in its encoding. */
export async function allRows(file, { encoding, delimiter }) {
  let text;
  try {
    text = new TextDecoder(encoding, { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    return null;
  }
  const reader = new Rows(delimiter);
  reader.push(text);
  const found = [];
  for (let row = reader.next(true); row; row = reader.next(true)) {
    found.push({ line: row.line, cells: values(row.text, delimiter) });
  }
  return found.slice(1);
}
