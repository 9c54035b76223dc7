// Tables as files for spreadsheets, and other files.

import { h } from './dom.js';

/** Text that a spreadsheet would take for a formula. A number with its sign is none. */
const FORMULA = /^(?![-+]\d+$)[-=+@\t\r\n＝＋－＠]/;

/** A table as CSV. A cell that a spreadsheet would take for a formula becomes text, as in files of the service. */
export function csv(rows) {
  const cell = (value) => {
    const text = typeof value === 'string' && FORMULA.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(',')}\r\n`).join('');
}

/** Downloads a table as a file. */
export const keepCsv = (name, rows) => keep(name, csv(rows));

/** Downloads CSV as a file. The byte order mark at its beginning names the encoding for spreadsheets. */
export const keep = (name, text) => save(name, new Blob(['\ufeff', text], { type: 'text/csv;charset=utf-8' }));

/** Downloads a Blob as a file. */
export function save(name, blob) {
  const address = URL.createObjectURL(blob);
  h('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
