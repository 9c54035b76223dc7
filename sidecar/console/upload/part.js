// The part of a page where a file is chosen, previewed, sent, and followed row by row.

import { notice } from '../api.js';
import { keepCsv } from '../csv.js';
import { h, say } from '../dom.js';
import { count, when } from '../format.js';
import { t } from '../i18n.js';
import { filled } from '../template.js';
import { called, guess, members, missing } from './columns.js';
import { ENCODINGS, beginning, opened } from './file.js';
import * as kept from './kept.js';
import { revocation } from './revocation.js';
import { Upload, isBusy, look, under } from './upload.js';

/** The interval in milliseconds at which progress is announced to screen readers. */
const SAY_EVERY = 10_000;

const DELIMITERS = { ',': 'comma', ';': 'semicolon', '\t': 'tab' };

/** The part. `campaign` is that of the links, or null; `done` is called when links were created. */
export function uploader({ keyId, may, left }, campaign, done = () => {}) {
  const place = campaign ? `/campaigns/${campaign.id}` : '/upload';
  const body = h('div', { class: 'steps-of-upload' });
  const show = (...parts) => body.replaceChildren(...parts.flat().filter(Boolean));
  const choose = () => show(chooser(parts), past(parts));
  const parts = { place, campaign, keyId, may, left, show, done, choose };
  const going = under(place);
  if (going) follow(parts, going);
  else parts.choose();
  return body;
}

/** The area where a file is dropped or chosen. */
function chooser(parts) {
  const said = h('div', {});
  const take = async (file) => {
    if (!file) return;
    said.replaceChildren();
    const failure = await open(parts, file);
    if (failure) said.replaceChildren(h('div', { class: 'notice bad', role: 'alert' }, failure));
  };
  const field = h('input', {
    id: 'upload-file', type: 'file', accept: '.csv,.tsv,.txt,.xlsx,text/csv', 'aria-describedby': 'upload-hint',
    change: () => take(field.files[0]),
  });
  const over = (isOver) => (event) => {
    event.preventDefault();
    zone.classList.toggle('over', isOver);
  };
  const zone = h('div', { class: 'drop', dragover: over(true), dragleave: over(false), drop: (event) => {
    over(false)(event);
    take(event.dataTransfer.files[0]);
  } },
  h('label', { for: 'upload-file' }, t('upload.choose')),
  field,
  h('p', { class: 'hint', id: 'upload-hint' }, parts.campaign
    ? t('upload.hint.campaign', { names: parts.campaign.parameters.join(', ') || '–' }) : t('upload.hint')),
  h('p', {}, h('button', { type: 'button', class: 'plain', 'data-sample': '', click: () => sample(parts.campaign) },
    t('upload.sample'))));
  return [zone, said];
}

/** Downloads a file with the columns of such links and a row of each. */
function sample(campaign) {
  const own = campaign ? campaign.parameters.map((name) => [name, `${name}-1`]) : [['longUrl', t('upload.sample.target')]];
  const columns = [...own, ['externalId', 'recipient-1'], ['tags', 'sms,spring']];
  keepCsv('sample.csv', [columns.map(([name]) => name), columns.map(([, value]) => value)]);
}

/** Earlier uploads of this browser. */
function past(parts) {
  const uploads = kept.to(parts.place);
  if (uploads.length === 0) return null;
  return h('div', {}, h('h3', {}, t('upload.past')), h('ul', { class: 'past' }, uploads.map((upload) =>
    h('li', {}, h('b', {}, upload.name), ' · ', when(upload.at), ' · ', counts(upload),
      upload.state === 'done' ? '' : ` · ${t('upload.unfinished')}`, revocation(upload, parts)))),
  h('p', { class: 'hint' }, t('upload.past.hint')));
}

/** Shows the interpretation of a file; returns its fault, if any. */
async function open(parts, chosenFile, encodings = ENCODINGS) {
  const file = await opened(chosenFile);
  if (!file) return t('upload.no-sheet');
  const first = await beginning(file, encodings);
  if (!first) return t('upload.unreadable');
  const { encoding, delimiter, names, rows } = first;
  const content = { file, encoding, delimiter };
  if (rows.length === 0) return t('upload.empty');
  if (isBusy()) return t('upload.busy');
  const { campaign } = parts;
  const chosen = guess(names, campaign, rows);
  const lacks = h('div', {});
  const preview = h('div', {});
  const known = h('div', {});
  const counted = h('p', { class: 'faint', role: 'status' }, t('upload.looking'));
  const send = h('button', { type: 'button', class: 'main', disabled: true, 'data-send': '' }, t('upload.send'));
  let found = null;
  let ready = null;
  const understood = () => {
    const lacking = missing(chosen, campaign);
    lacks.replaceChildren(lacking.length > 0 && h('div', { class: 'notice warn' },
      t('upload.missing', { names: lacking.map(called).join(', ') })) || '');
    preview.replaceChildren(example(chosen, rows[0], campaign) ?? '');
    ready = found && lacking.length === 0 ? request(parts, { content, chosen, names, ...found }) : null;
    send.disabled = !ready;
    known.replaceChildren(ready ? repetition(ready) ?? '' : '');
  };
  const search = look(content, (part) => {
    counted.textContent = `${t('upload.looking')} ${Math.floor(part * 100)} %`;
  });
  const back = h('button', { type: 'button', click: () => {
    search.leave();
    parts.choose();
  } }, t('upload.other'));
  send.addEventListener('click', () => {
    const upload = new Upload(ready.isAnew ? { ...ready, ...anew(ready) } : ready);
    upload.begin();
    follow(parts, upload);
  });
  const title = h('h3', { tabindex: '-1' }, t('upload.understood', { name: file.name }));
  const table = h('div', {});
  const draw = () => {
    table.replaceChildren(columns(names, rows, chosen, campaign, understood));
    understood();
  };
  parts.show(title, table, encoding !== 'utf-8' && h('p', { class: 'hint' }, t('upload.decoded', { encoding })),
    lacks, preview, counted, known, h('div', { class: 'row' }, send, back));
  draw();
  title.focus();
  search.done.then(({ kind, rows: all, digest, isText }) => {
    if (kind !== 'looked') {
      const others = encodings.slice(1);
      if (isText && encoding === encodings[0] && others.length > 0) {
        // The beginning of the file fits this encoding, and the rest does not.
        open(parts, file, others);
        return;
      }
      counted.replaceWith(h('div', { class: 'notice bad', role: 'alert' },
        t(isText ? 'upload.encoding' : 'upload.unreadable')));
      return;
    }
    counted.textContent = t('upload.rows', { rows: all });
    send.textContent = t('upload.send.rows', { rows: all });
    found = { rows: all, digest };
    const before = kept.like(parts.place, digest);
    const isFitting = before?.chosen?.length === names.length
      && before.chosen.every((member) => member === null || members(campaign).has(member));
    if (isFitting) chosen.splice(0, names.length, ...before.chosen);
    draw();
  });
  return null;
}

/** The columns with their first values, and the member of each. */
function columns(names, rows, chosen, campaign, changed) {
  const all = [...members(campaign).keys()];
  const choice = (place) => {
    const field = h('select', {
      'aria-label': t('upload.is', { name: names[place] || String(place + 1) }), 'data-column': names[place],
      change: () => {
        chosen[place] = field.value || null;
        changed();
      },
    }, h('option', { value: '' }, t('upload.left-out')), all.map((member) =>
      h('option', { value: member, selected: chosen[place] === member }, called(member))));
    return field;
  };
  return h('div', { class: 'scrolled' }, h('table', { class: 'columns-of-file' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('upload.column')),
      h('th', { scope: 'col' }, t('upload.first')),
      h('th', { scope: 'col' }, t('upload.means')))),
    h('tbody', {}, names.map((name, place) => h('tr', {},
      h('th', { scope: 'row' }, name || String(place + 1)),
      h('td', {}, rows.map((row) => h('span', { class: 'sample' }, row[place] ?? ''))),
      h('td', {}, choice(place)))))));
}

/** The target of the first row. */
function example(chosen, row, campaign) {
  const said = Object.fromEntries(chosen.map((member, place) => [member, row[place] ?? '']));
  const parameters = Object.fromEntries(Object.entries(said)
    .filter(([member]) => member.startsWith('parameters.')).map(([member, value]) => [member.slice(11), value]));
  const target = campaign ? filled(campaign.longUrl, parameters) : said.longUrl;
  return target && h('p', {}, t('upload.leads'), ' ', h('span', { class: 'code' }, target));
}

/** The request that sends a file. Its key is derived from the content, so that a repetition creates no duplicates. */
function request({ place, campaign, keyId }, { content, chosen, names, rows, digest }) {
  const query = new URLSearchParams({
    ...(campaign && { campaignId: campaign.id }), columns: chosen.map((member) => member ?? '').join(','),
    delimiter: DELIMITERS[content.delimiter],
  }).toString();
  const id = [keyId(), place, digest, query].join(' ');
  const before = kept.of(id);
  const isKnown = before && kept.isKnown(before);
  return {
    place, content, name: content.file.name, rows, query, file: id, before: before ?? kept.like(place, digest),
    isOther: !before, isAnew: before && !isKnown, digest, chosen: [...chosen], names,
    key: isKnown ? before.key : `console ${digest} ${sum(query)}`, at: isKnown ? before.at : undefined,
  };
}

/** Another key, under which all rows are new. */
const anew = ({ key }) => ({ key: `${key.split('/')[0]}/${Date.now().toString(36)}`, at: undefined });

/** A short digest of a text. */
function sum(text) {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) value = Math.imul(value ^ text.charCodeAt(at), 16777619);
  return (value >>> 0).toString(16);
}

/** Warns that a file was sent before, and explains the effect of a repetition. */
function repetition(ready) {
  const { before, isOther } = ready;
  if (!before) return null;
  if (isOther) return h('div', { class: 'notice warn' }, t('upload.otherwise'), ' ', when(before.at));
  if (!kept.isKnown(before)) return h('div', { class: 'notice warn' }, t('upload.forgotten'), ' ', when(before.at));
  const box = h('input', { type: 'checkbox', id: 'upload-anew', change: () => { ready.isAnew = box.checked; } });
  return h('div', { class: 'notice' },
    h('p', {}, t('upload.again'), ' ', when(before.at)),
    h('p', { class: 'check' }, box, h('label', { for: 'upload-anew' }, t('upload.anew'))));
}

/** Follows an upload until it has ended, and shows the outcome. */
function follow(parts, upload) {
  const bar = h('progress', { max: String(upload.rows), 'aria-label': t('upload.progress') });
  const text = h('p', { 'data-progress': '' });
  const stop = h('button', { type: 'button', class: 'danger', click: () => upload.stop(), 'data-stop': '' },
    t('upload.stop'));
  const title = h('h3', { tabindex: '-1' }, t('upload.sending', { name: upload.name }));
  let saidAt = Date.now();
  upload.changed = () => {
    if (upload.state !== 'sending' && upload.state !== 'going') {
      ended(parts, upload);
      return;
    }
    const told = upload.state === 'sending' ? t('upload.sent') : counts(upload);
    if (upload.state === 'going') bar.value = upload.made + upload.failed;
    text.textContent = told;
    text.dataset.progress = String(upload.made + upload.failed);
    if (Date.now() - saidAt > SAY_EVERY) {
      saidAt = Date.now();
      say(told);
    }
  };
  parts.show(title, bar, text, h('p', { class: 'hint' }, t('upload.leave')), h('div', { class: 'row' }, stop));
  title.focus();
  upload.changed();
}

const counts = ({ made, failed, rows }) =>
  t('upload.counts', { made, failed, rows });

/** The outcome of an upload. */
function ended(parts, upload) {
  const { state, failed, failure } = upload;
  const again = h('button', { type: 'button', class: 'main', 'data-again': '', click: () => {
    upload.begin();
    follow(parts, upload);
  } }, t('again'));
  const isDone = state === 'done';
  const kind = { done: failed > 0 ? 'warn' : 'good', stopped: 'warn' }[state] ?? 'bad';
  const title = h('h3', { tabindex: '-1' }, t(`upload.${state}`, { name: upload.name }));
  parts.show(title,
    failure && (failure.status === 405 || failure.status === 413)
      ? h('div', { class: 'notice bad', role: 'alert' }, t('upload.no-place')) : failure && notice(failure),
    !failure && h('div', { class: `notice ${kind}`, 'data-ended': state }, h('p', {}, counts(upload)),
      !isDone && h('p', {}, t('upload.go-on'))),
    files(upload),
    revocation(upload, parts),
    mistakes(upload),
    h('div', { class: 'row' }, !isDone && again,
      h('button', { type: 'button', click: parts.choose, 'data-other': '' }, t('upload.other'))));
  title.focus();
  say(`${title.textContent} ${failure ? '' : counts(upload)}`);
  if (upload.made > 0) parts.done();
}

/** The files that can be downloaded after an upload. */
function files({ name, results, errors }) {
  const base = name.replace(/\.\w+$/, '');
  const file = (blob, what) => {
    const address = URL.createObjectURL(blob);
    return h('a', { class: 'button', href: address, download: `${base}-${what}.csv`, 'data-file': what },
      t(`upload.${what}`));
  };
  if (!results && !errors) return null;
  return h('div', { class: 'row' }, results && file(results, 'results'), errors && file(errors, 'errors'));
}

/** The first rows that failed. */
function mistakes({ shown, failed }) {
  if (shown.length === 0) return null;
  return h('div', {},
    h('div', { class: 'scrolled tall', tabindex: '0', role: 'region', 'aria-label': t('upload.errors.shown') },
      h('table', { 'data-errors': '' },
        h('thead', {}, h('tr', {},
          h('th', { scope: 'col', class: 'number' }, t('upload.line')),
          h('th', { scope: 'col', class: 'wide' }, t('upload.row')),
          h('th', { scope: 'col' }, t('upload.reason')))),
        h('tbody', {}, shown.map(({ line, text, reason }) => h('tr', {},
          h('td', { class: 'number' }, line === null ? '–' : count(line)),
          h('td', { class: 'wide' }, text),
          h('td', {}, reason)))))),
    failed > shown.length && h('p', { class: 'hint' },
      t('upload.errors.more', { rest: failed - shown.length })));
}
