// Reads the first sheet of a workbook (.xlsx) as CSV. A workbook is a zip archive of XML files; they are read in parts, so
// that a long sheet is never held as a whole.

import { written } from './csv.js';

/** The least size of the end of an archive's directory, and the most bytes at the end of a file that it lies in. */
const END = 22;
const END_WITHIN = 65_557;

/** The most columns that are read of a row. */
const MOST_COLUMNS = 1000;

/** The number of characters after which text becomes a Blob. */
const PART = 1 << 18;

/** True if a file is a zip archive, as a workbook is. */
export async function isArchive(file) {
  const [first, second] = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  return first === 0x50 && second === 0x4b;
}

/** The files of an archive by their names: a function that opens each as a stream of text. */
async function archive(file) {
  const from = Math.max(0, file.size - END_WITHIN);
  const tail = new DataView(await file.slice(from).arrayBuffer());
  let end = tail.byteLength - END;
  while (end >= 0 && tail.getUint32(end, true) !== 0x06054b50) end -= 1;
  if (end < 0) throw new Error('no archive');
  const [size, start] = [tail.getUint32(end + 12, true), tail.getUint32(end + 16, true)];
  const directory = new DataView(await file.slice(start, start + size).arrayBuffer());
  const found = new Map();
  for (let at = 0; at + 46 <= directory.byteLength;) {
    const method = directory.getUint16(at + 10, true);
    const packed = directory.getUint32(at + 20, true);
    const [nameLength, extra, comment] = [28, 30, 32].map((place) => directory.getUint16(at + place, true));
    const local = directory.getUint32(at + 42, true);
    const name = new TextDecoder().decode(new Uint8Array(directory.buffer, at + 46, nameLength));
    found.set(name, async () => {
      const head = new DataView(await file.slice(local, local + 30).arrayBuffer());
      const begin = local + 30 + head.getUint16(26, true) + head.getUint16(28, true);
      const bytes = file.slice(begin, begin + packed).stream();
      const whole = method === 8 ? bytes.pipeThrough(new DecompressionStream('deflate-raw')) : bytes;
      return whole.pipeThrough(new TextDecoderStream());
    });
    at += 46 + nameLength + extra + comment;
  }
  return found;
}

/** The parts of an XML file that end with a tag, one after the other. */
async function* partsOf(open, tag) {
  let rest = '';
  const end = `</${tag}>`;
  for await (const text of iterated(await open())) {
    const parts = (rest + text).split(end);
    rest = parts.pop();
    yield* parts;
  }
}

/** The texts of a stream; not every browser can iterate over one. */
async function* iterated(stream) {
  const reader = stream.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    yield value;
  }
}

/** The whole text of a file. */
async function textOf(open) {
  let text = '';
  for await (const part of iterated(await open())) text += part;
  return text;
}

const NAMED = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

/** A text without the escapes of XML and of workbooks. */
const plain = (text) => text
  .replace(/&(?:#x([\da-f]+)|#(\d+)|(\w+));/gi, (all, hex, number, name) =>
    (name ? NAMED[name] ?? all : String.fromCodePoint(hex ? parseInt(hex, 16) : Number(number))))
  .replace(/_x([\da-f]{4})_/gi, (_, hex) => String.fromCharCode(parseInt(hex, 16)));

/** The text of an element with runs of text; that of phonetic hints is left out. */
const runs = (xml) => [...xml.replace(/<rPh\b.*?<\/rPh>/gs, '').matchAll(/<t(?:\s[^>]*)?>([^<]*)<\/t>/g)]
  .map(([, text]) => plain(text)).join('');

/** The path of the first sheet. */
async function firstSheet(files) {
  const [workbook, relations] = await Promise.all(['xl/workbook.xml', 'xl/_rels/workbook.xml.rels'].map((name) =>
    textOf(files.get(name) ?? (() => { throw new Error('no workbook'); }))));
  const id = /<sheet\b[^>]*?\br:id="([^"]+)"/.exec(workbook)?.[1];
  const relation = [...relations.matchAll(/<Relationship\b[^>]*>/g)].map(([tag]) => tag)
    .find((tag) => tag.includes(`Id="${id}"`));
  const target = /Target="([^"]+)"/.exec(relation)[1];
  return target.startsWith('/') ? target.slice(1) : `xl/${target}`;
}

/** The column of a cell such as AB12, from 0. */
function columnOf(reference) {
  let column = 0;
  for (const letter of /^[A-Z]+/.exec(reference)?.[0] ?? '') column = column * 26 + letter.charCodeAt(0) - 64;
  return column - 1;
}

/** The value of a cell as text. A number has all its digits, as a telephone number needs them. */
function valueOf(attributes, inner, shared) {
  const type = /\bt="(\w+)"/.exec(attributes)?.[1];
  if (type === 'inlineStr') return runs(inner);
  const value = /<v(?:\s[^>]*)?>([^<]*)<\/v>/.exec(inner)?.[1];
  if (value === undefined) return '';
  if (type === 's') return shared[Number(value)] ?? '';
  if (type === 'b') return value === '1' ? 'true' : 'false';
  return type === 'str' || type === 'e' || !/e/i.test(value) ? plain(value) : String(Number(value));
}

/** The values of a row. */
function rowOf(xml, shared) {
  const found = [];
  let next = 0;
  for (const [, attributes, inner] of xml.matchAll(/<c\b([^>]*?)(?:\/>|>(.*?)<\/c>)/gs)) {
    const reference = /\br="([A-Z]+)\d*"/.exec(attributes)?.[1];
    const column = reference ? columnOf(reference) : next;
    next = column + 1;
    if (column < MOST_COLUMNS) found[column] = valueOf(attributes, inner ?? '', shared);
  }
  return Array.from(found, (value) => value ?? '');
}

/** The first sheet of a workbook as a file of CSV. Rows have as many values as the first one, and lines have its numbers. */
export async function asCsv(file) {
  const files = await archive(file);
  const sheet = files.get(await firstSheet(files));
  const shared = [];
  const strings = files.get('xl/sharedStrings.xml');
  if (strings) for await (const xml of partsOf(strings, 'si')) shared.push(runs(xml));
  const parts = [];
  let text = '';
  let width = 0;
  let line = 0;
  for await (const xml of partsOf(sheet, 'row')) {
    const row = rowOf(xml, shared);
    if (!row.some(Boolean)) continue;
    width ||= row.length;
    while (row.length < width) row.push('');
    while (row.length > width && !row.at(-1)) row.pop();
    const number = Number(/.*<row\b[^>]*?\br="(\d+)"/s.exec(xml)?.[1] ?? line + 1);
    text += `${'\n'.repeat(Math.max(0, number - 1 - line))}${row.map((value) => written(value, ',')).join(',')}\n`;
    line = Math.max(number, line + 1);
    if (text.length < PART) continue;
    parts.push(new Blob([text]));
    text = '';
  }
  return new File([...parts, text], file.name, { type: 'text/csv' });
}
