// Lists webhooks, and creates them.

import { ask, get, lacking } from '../api.js';
import { h, say } from '../dom.js';
import { badge, count, when } from '../format.js';
import { form } from '../form.js';
import { t } from '../i18n.js';
import { secret } from './key-parts.js';
import { FIELDS, MORE, members } from './webhook-parts.js';

/** The page. */
export async function show({ heading, at, may }) {
  const title = t('webhooks');
  if (!may('webhooks:admin')) {
    return { title, parts: [heading(title), lacking('webhooks:admin')] };
  }
  const { webhooks } = await get('/v1/webhooks');
  const place = h('div', {});
  const rows = h('tbody', {}, webhooks.map((webhook) => row(webhook, at)));
  const list = h('div', { class: 'sheet table', hidden: webhooks.length === 0 }, h('table', { class: 'links' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('webhook')),
      h('th', { scope: 'col' }, t('field.state')),
      h('th', { scope: 'col', class: 'number' }, t('webhook.delivered')),
      h('th', { scope: 'col', class: 'wide' }, t('webhook.waiting')))),
    rows));
  place.append(maker(place, list, at));
  return { title, parts: [heading(title), h('p', {}, t('webhooks.hint')), place, list] };
}

/** Creates a webhook, and shows its secret this once. */
function maker(place, list, at) {
  return h('details', { class: 'sheet' },
    h('summary', { 'data-new': '' }, t('webhook.new')),
    h('div', { class: 'narrow' }, form({
      fields: FIELDS(),
      more: MORE(),
      send: t('webhook.make'),
      call: async (given) => {
        const { data } = await ask('POST', '/v1/webhooks', members(given));
        const made = t('webhook.made', { name: data.name });
        place.replaceChildren(secret(data, maker(place, list, at), made));
        place.querySelector('h2').focus();
        say(made);
        list.hidden = false;
        list.querySelector('tbody').append(row(data, at));
      },
    })));
}

const row = (webhook, at) => h('tr', { 'data-webhook': webhook.id },
  h('th', { scope: 'row' },
    h('a', { href: at(`/webhooks/${webhook.id}`) }, webhook.name),
    h('span', { class: 'faint small' }, webhook.url)),
  h('td', {}, badge(webhook.state)),
  h('td', { class: 'number' }, count(webhook.delivered)),
  h('td', { class: 'when wide' }, when(webhook.waitingSince)));
