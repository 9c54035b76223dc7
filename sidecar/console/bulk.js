// Actions on several links of a list, by jobs of the service: each is tried first, and then confirmed with its numbers.

import { ask } from './api.js';
import { dialog, h, say } from './dom.js';
import { form } from './form.js';
import { t } from './i18n.js';
import { outcome, run } from './job.js';

const ACTIONS = ['pause', 'resume', 'change', 'revoke'];

/** The filters that a job can select links by; it takes one of them. */
const SELECTIONS = ['tag', 'externalId', 'campaignId'];

/** The members that many links can change at once. */
const FIELDS = [
  { name: 'longUrl', kind: 'url', placeholder: 'https://' },
  { name: 'tags', kind: 'tags', hint: 'bulk.tags' },
  { name: 'validSince', kind: 'moment' },
  { name: 'validUntil', kind: 'moment' },
];

/** The checkbox of a link. */
export const box = ({ shortCode }) => h('input', {
  type: 'checkbox', value: shortCode, 'data-pick': '', 'aria-label': t('bulk.pick', { code: shortCode }),
});

/** The checkbox of all links of the page. */
export const boxOfAll = () => h('input', { type: 'checkbox', 'data-pick-all': '', 'aria-label': t('bulk.pick.all') });

/**
 * Lets the boxes of a table choose links. Returns the bar with the actions on them, which is shown while any is chosen.
 * `filter` has the filters of the list, by which all links that match can be chosen.
 */
export function bulk(table, { filter, left, again }) {
  const boxes = [...table.querySelectorAll('[data-pick]')];
  const all = table.querySelector('[data-pick-all]');
  const names = [...filter.keys()];
  const [by] = names;
  const canAll = names.length === 1 && SELECTIONS.includes(by);
  let isAll = false;
  const chosen = () => boxes.filter(({ checked }) => checked).map(({ value }) => value);
  const number = h('b', { role: 'status' });
  const matching = canAll && h('button', { type: 'button', 'data-matching': '', click: () => {
    isAll = true;
    draw();
    say(number.textContent);
  } }, t('bulk.matching'));
  const clear = h('button', { type: 'button', class: 'plain', click: () => {
    for (const it of [...boxes, all]) it.checked = false;
    isAll = false;
    draw();
    all.focus();
  } }, t('bulk.clear'));
  const selection = () => (isAll ? { [by]: filter.get(by) } : { codes: chosen() });
  const buttons = ACTIONS.map((action) => h('button', {
    type: 'button', class: action === 'revoke' && 'danger', 'data-bulk': action,
    click: () => act(action, { selection: selection(), many: isAll ? null : chosen().length, left, again }),
  }, t(`bulk.${action}`)));
  const bar = h('section', { class: 'sheet bulk row', hidden: true, 'aria-label': t('bulk') }, number, matching, clear, buttons);
  const draw = () => {
    const { length } = chosen();
    number.textContent = isAll ? t('bulk.all') : t('bulk.chosen', { count: length });
    bar.hidden = length === 0 && !isAll;
    all.checked = length === boxes.length;
    all.indeterminate = length > 0 && length < boxes.length;
    if (matching) matching.hidden = isAll;
  };
  table.addEventListener('change', ({ target }) => {
    if (target === all) for (const it of boxes) it.checked = all.checked;
    isAll = false;
    draw();
  });
  return bar;
}

/** The dialog of an action: its members if it has any, what it would do, and its outcome. */
function act(action, { selection, many, left, again }) {
  const place = h('div', { class: 'stack' });
  const opened = dialog({ title: t(`bulk.${action}.title`), 'data-job': action }, place);
  const close = (text) => h('button', { type: 'button', click: () => opened.close() }, text);
  const request = (change, dryRun) => ({ action, ...selection, ...(change && { change }), ...(dryRun && { dryRun }) });
  const attempt = async (change, job) => {
    const tried = await run({ job, request: request(change, true), place, left, links: many });
    if (!tried) return;
    const isAny = tried.state === 'done' && tried.changed > 0;
    const sure = h('button', {
      type: 'button', class: action === 'revoke' ? 'main danger' : 'main', 'data-yes': '', click: () => go(change),
    }, t(`bulk.${action}.yes`, tried));
    place.replaceChildren(
      h('p', { role: 'status', 'data-tried': '' }, t('bulk.tried', tried), ' ', isAny && t(`bulk.${action}.text`)),
      h('div', { class: 'row' }, close(t(isAny ? 'cancel' : 'close')), ...(isAny ? [sure] : [])));
    place.querySelector('button').focus();
  };
  const go = async (change) => {
    // Closing the dialog does not end the job.
    opened.closed.then(again);
    const done = await run({ request: request(change), place, left, links: many });
    if (!done) return;
    const end = close(t('close'));
    place.replaceChildren(outcome(done, 'bulk.ended'), h('div', { class: 'row' }, end));
    end.focus();
  };
  if (action !== 'change') {
    attempt();
    return;
  }
  place.append(form({
    fields: FIELDS, send: t('bulk.check'), cancel: close(t('cancel')),
    call: async (change) => {
      try {
        const { data } = await ask('POST', '/v1/jobs', request(change, true));
        attempt(change, data);
      } catch (failure) {
        // The fields of this form are members of the change.
        for (const error of failure.problem?.errors ?? []) error.pointer = error.pointer.replace(/^\/change\b/, '');
        throw failure;
      }
    },
  }));
}
