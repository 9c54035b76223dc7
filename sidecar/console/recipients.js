// Messages to the recipients of a file: each row results in a message with short links of its own.

import { Failure, ask, notice } from './api.js';
import { keepCsv } from './csv.js';
import { h, say } from './dom.js';
import { count } from './format.js';
import { t } from './i18n.js';
import { sheet } from './parts.js';
import { guess, plain } from './upload/columns.js';
import { allRows, beginning, opened } from './upload/file.js';
import { reasonOf } from './upload/reason.js';

/** The number of messages of a request. */
const TOGETHER = 500;

/** The numbers of messages and of failed rows that the page shows. */
const SHOWN = 3;
const SHOWN_FAILED = 100;

/** A field for the file. `changed` is called with the names of its columns and the number of its rows, or null without a file. */
export function recipients(changed) {
  let chosen = null;
  const said = h('p', { class: 'hint', role: 'status' }, t('message.file.hint'));
  const reference = h('select', { id: 'reference', 'aria-describedby': 'h-reference' });
  const ofReference = h('div', { hidden: true }, h('label', { for: 'reference' }, t('field.externalId')), reference,
    h('p', { class: 'hint', id: 'h-reference' }, t('message.reference.hint')));
  const field = h('input', { id: 'recipients-file', type: 'file', accept: '.csv,.tsv,.txt,.xlsx,text/csv', change: async () => {
    const [file] = field.files;
    const made = file ? await read(file) : null;
    chosen = made?.rows ? { ...made, name: file.name } : null;
    said.textContent = chosen ? t('message.file.rows', { count: chosen.rows.length }) : made?.fault ?? t('message.file.hint');
    ofReference.hidden = !chosen;
    if (chosen) {
      const own = guess(chosen.names, null, []).indexOf('externalId');
      reference.replaceChildren(h('option', { value: '' }, t('message.no-campaign')),
        ...chosen.names.map((name, at) => h('option', { value: at, selected: at === own }, name || String(at + 1))));
    }
    changed(chosen?.names ?? null, chosen?.rows.length);
  } });
  return {
    place: h('div', { class: 'fields' },
      h('div', {}, h('label', { for: 'recipients-file' }, t('message.file')), field, said), ofReference),
    /** The chosen file with its rows, or null; `reference` is the place of the column with references. */
    chosen: () => chosen && { ...chosen, reference: reference.value === '' ? null : Number(reference.value) },
  };
}

/** The columns and rows of a file, or its fault. */
async function read(chosen) {
  const file = await opened(chosen);
  if (!file) return { fault: t('upload.no-sheet') };
  const first = await beginning(file);
  const rows = first && await allRows(file, first);
  if (!rows) return { fault: t(first ? 'upload.encoding' : 'upload.unreadable') };
  return rows.length > 0 ? { names: first.names, rows } : { fault: t('upload.empty') };
}

/** The place of the column that a variable is most likely in; -1 without one. */
export const columnOf = (variable, names) => names.findIndex((name) => plain(name) === plain(variable));

/**
 * Creates the messages of all rows, in several requests, and shows them in a place. `row` returns the members of the
 * message for the values of a row; `columns` has the names of the file's columns by member.
 */
export async function sendAll({ file, row, columns, place, left }) {
  const all = [];
  const failed = [];
  // A repetition of a request results in the same links.
  const key = `console message ${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`;
  const bar = h('progress', { max: String(file.rows.length), 'aria-label': t('upload.progress') });
  const text = h('p', {});
  let isStopped = false;
  const stop = h('button', { type: 'button', class: 'danger', 'data-stop': '', click: () => { isStopped = true; } },
    t('upload.stop'));
  const shown = sheet(t('message.sending'), bar, text, h('div', { class: 'row' }, stop));
  for (let begin = 0; begin < file.rows.length && !isStopped && !left.aborted; begin += TOGETHER) {
    place.replaceChildren(shown);
    bar.value = begin;
    text.textContent = t('upload.counts', {
      made: all.length, failed: failed.length, rows: file.rows.length,
    });
    const rows = file.rows.slice(begin, begin + TOGETHER);
    const results = await sent(rows.map(({ cells }) => row(cells)), `${key} ${begin}`, place);
    for (const { index, message, problem } of results) {
      if (message) all.push({ ...rows[index], message });
      else failed.push({ ...rows[index], reason: reasonOf(problem, columns) });
    }
  }
  if (left.aborted) return;
  const made = outcome(file, all, failed);
  place.replaceChildren(made);
  made.querySelector('h2').focus();
  say(made.querySelector('[data-ended]').textContent);
}

/** Sends a request until it succeeds: waits while the API key is rate-limited, and lets the user repeat it after a failure. */
async function sent(rows, key, place) {
  for (;;) {
    try {
      return (await ask('POST', '/v1/messages', rows, { 'Idempotency-Key': key })).data;
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      if (failure.status === 429) await new Promise((resolve) => { setTimeout(resolve, 1000 * (Number(failure.retryAfter) || 1)); });
      else await new Promise((resolve) => { place.replaceChildren(notice(failure, resolve)); });
    }
  }
}

/** The finished messages: their numbers and segments, the first ones, the failed rows, and all as a file. */
function outcome(file, all, failed) {
  const sum = (when) => all.reduce((segments, { message }) => segments + message[when].segments, 0);
  const lines = () => [
    [...file.names, 'message', 'encoding', 'segments', 'codes'],
    ...all.map(({ cells, message: { text, after, codes } }) => [
      ...file.names.map((_, at) => cells[at] ?? ''), text, after.encoding, after.segments, codes.join(' '),
    ]),
  ];
  const numbers = { made: all.length, failed: failed.length, rows: file.rows.length };
  const made = sheet(t('message.all'),
    h('div', { class: `notice ${failed.length > 0 || all.length < file.rows.length ? 'warn' : 'good'}`, 'data-ended': '' },
      h('p', {}, t('message.counts', numbers), ' ', t('message.segments', { before: sum('before'), after: sum('after') }))),
    all.length > 0 && h('div', { class: 'row' }, h('button', { type: 'button', class: 'main', 'data-csv': '', click: () =>
      keepCsv(`${file.name.replace(/\.\w+$/, '')}-messages.csv`, lines()) }, t('message.download'))),
    h('ol', { class: 'steps' }, all.slice(0, SHOWN).map(({ message: { text, after } }) => h('li', {},
      h('p', { class: 'said' }, text), h('p', { class: 'faint small' }, t('message.size', after))))),
    failed.length > 0 && h('div', { class: 'scrolled tall', tabindex: '0', role: 'region', 'aria-label': t('upload.errors.shown') },
      h('table', { 'data-errors': '' },
        h('thead', {}, h('tr', {},
          h('th', { scope: 'col', class: 'number' }, t('upload.line')), h('th', { scope: 'col' }, t('upload.reason')))),
        h('tbody', {}, failed.slice(0, SHOWN_FAILED).map(({ line, reason }) => h('tr', {},
          h('td', { class: 'number' }, count(line)), h('td', {}, reason)))))));
  made.querySelector('h2').setAttribute('tabindex', '-1');
  return made;
}
