// One webhook: its state, its latest attempts, and the actions to test, pause, replay, change and delete it, and to
// rotate its secret.

import { ask, get, notice } from '../api.js';
import { confirmed, h, say } from '../dom.js';
import { badge, count, when } from '../format.js';
import { form } from '../form.js';
import { t } from '../i18n.js';
import { asked, pages } from '../listing.js';
import { fact, sheet } from '../parts.js';
import { rotation } from './key-parts.js';
import { FIELDS, MORE, eventInWords, members } from './webhook-parts.js';

const LIMIT = 25;

/** The page. */
export async function show(context, [id]) {
  const { heading, at, again, go } = context;
  const path = `/v1/webhooks/${id}`;
  const here = new URLSearchParams(location.search);
  const [webhook, { attempts, nextCursor }] = await Promise.all([
    get(path), get(`${path}/attempts?${asked(here, [], LIMIT)}`),
  ]);
  const { name } = webhook;
  const title = t('webhook.title', { name });
  const said = h('div', {});
  const place = h('div', { class: 'stack' });
  const act = async (call) => {
    try {
      await call();
    } catch (failure) {
      said.replaceChildren(notice(failure));
    }
  };
  const done = async (text) => {
    await again();
    say(text);
  };
  const test = () => act(async () => {
    const { data } = await ask('POST', `${path}/test`);
    await done(t(data.delivered ? 'webhook.tested' : 'webhook.tested.not'));
  });
  const switchTo = (what) => act(async () => {
    await ask('POST', `${path}/${what}`);
    await done(t(`${what}.done`, { name }));
  });
  const remove = async () => {
    const agreed = await confirmed({
      title: t('webhook.delete.title', { name }), text: t('webhook.delete.text'),
      yes: t('delete'), no: t('cancel'), danger: true,
    });
    if (!agreed) return;
    await act(async () => {
      await ask('DELETE', path);
      go('/webhooks');
    });
  };
  const button = (what, call, danger) => h('button', {
    type: 'button', class: danger && 'danger', 'data-act': what, click: call,
  }, t(what));
  const other = webhook.state === 'paused' ? 'resume' : 'pause';
  return { title, parts: [
    h('div', { class: 'head' }, heading(title), badge(webhook.state), h('div', { class: 'row end' },
      button('webhook.test', test), button(other, () => switchTo(other)), button('delete', remove, true))),
    said,
    webhook.pausedReason && h('div', { class: 'notice warn' }, t(`webhook.paused.${webhook.pausedReason}`)),
    place,
    facts(webhook),
    sheet(t('webhook.attempts'), log(attempts),
      pages({ here, path: `/webhooks/${id}`, at, nextCursor, first: t('pages.first'), next: t('pages.next') })),
    h('details', { class: 'sheet' }, h('summary', { 'data-act': 'replay' }, t('webhook.replay')),
      h('div', { class: 'narrow' }, form({
        fields: [{ name: 'since', kind: 'moment', required: true, hint: true }], send: t('webhook.replay'),
        call: async (given) => {
          await ask('POST', `${path}/replay`, given);
          await done(t('webhook.replayed'));
        },
      }))),
    h('details', { class: 'sheet' }, h('summary', { 'data-act': 'secret' }, t('webhook.secret')),
      rotation('webhook', path, place)),
    h('details', { class: 'sheet' }, h('summary', { 'data-act': 'change' }, t('change')),
      h('div', { class: 'narrow' }, form({
        fields: FIELDS(), more: MORE(), link: webhook, send: t('change.send'),
        call: async (given) => {
          await ask('PATCH', path, members(given));
          await done(t('webhook.changed'));
        },
      }))),
  ].filter(Boolean) };
}

function facts(webhook) {
  const list = (texts) => h('ul', {}, texts.map((text) => h('li', {}, text)));
  return h('section', { class: 'sheet', 'aria-label': t('link.facts') }, h('dl', { class: 'facts' },
    fact(t('campaign.id'), h('span', { class: 'code' }, webhook.id)),
    fact(t('field.url'), webhook.url),
    fact(t('field.events'), list(webhook.events.map(eventInWords))),
    webhook.events.includes('link.clicked') && fact(t('field.clicks'), t(`clicks.are.${webhook.clicks}`)),
    webhook.campaignIds && fact(t('field.campaignIds'), webhook.campaignIds.join(', ')),
    webhook.tags && fact(t('webhook.tags'), webhook.tags.join(', ')),
    webhook.classes && fact(t('field.classes'), webhook.classes.map((name) => t(`class.${name}`)).join(', ')),
    fact(t('field.maxBatch'), count(webhook.maxBatch)),
    fact(t('webhook.delivered'), count(webhook.delivered)),
    webhook.waitingSince && fact(t('webhook.waiting'), when(webhook.waitingSince)),
    webhook.failingSince && fact(t('webhook.failing'), when(webhook.failingSince)),
    fact(t('column.made'), when(webhook.createdAt))));
}

/** The attempts to deliver messages. */
function log(attempts) {
  if (attempts.length === 0) return h('p', { class: 'empty' }, t('webhook.attempts.none'));
  const column = (text, kind) => h('th', { scope: 'col', class: kind }, t(text));
  return h('div', { class: 'table' }, h('table', {},
    h('thead', {}, h('tr', {}, column('column.when'), column('column.answer'), column('webhook.attempt', 'number'),
      column('field.events', 'number'), column('webhook.took', 'number wide'))),
    h('tbody', {}, attempts.map((it) => h('tr', { 'data-message': it.messageId, 'data-delivered': it.delivered },
      h('td', { class: 'when' }, when(it.at)),
      h('td', {}, h('span', { class: `state ${it.delivered ? 'live' : 'revoked'}` }, it.status ?? it.error)),
      h('td', { class: 'number' }, count(it.attempt)),
      h('td', { class: 'number' }, count(it.events)),
      h('td', { class: 'number wide' }, t('webhook.milliseconds', { count: it.durationMs })))))));
}
