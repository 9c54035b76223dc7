// Lists API keys, a page at a time, and creates them.

import { ask, get, lacking } from '../api.js';
import { h, say } from '../dom.js';
import { badge, when } from '../format.js';
import { form } from '../form.js';
import { t } from '../i18n.js';
import { asked, pages } from '../listing.js';
import { FIELDS, MORE, secret } from './key-parts.js';

const LIMIT = 25;

/** The page. */
export async function show({ heading, at, may }) {
  const title = t('keys');
  if (!may('keys:admin')) {
    return { title, parts: [heading(title), lacking('keys:admin')] };
  }
  const here = new URLSearchParams(location.search);
  const { keys, nextCursor } = await get(`/v1/keys?${asked(here, [], LIMIT)}`);
  const place = h('div', {});
  const list = h('div', { class: 'sheet table' }, table(keys, at));
  place.append(maker(place, list, at));
  return { title, parts: [
    heading(title),
    place,
    list,
    pages({ here, path: '/keys', at, nextCursor, first: t('pages.first'), next: t('pages.next') }),
  ] };
}

/** Creates an API key, and shows its secret this once. */
function maker(place, list, at) {
  return h('details', { class: 'sheet' },
    h('summary', { 'data-new': '' }, t('key.new')),
    h('div', { class: 'narrow' }, form({
      fields: FIELDS(),
      more: MORE,
      send: t('key.make'),
      call: async (members) => {
        const { data } = await ask('POST', '/v1/keys', members);
        place.replaceChildren(secret(data, maker(place, list, at)));
        place.querySelector('h2').focus();
        say(t('key.made', { name: data.name }));
        list.querySelector('tbody').prepend(row(data, at));
      },
    })));
}

function table(keys, at) {
  return h('table', { class: 'links' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('key')),
      h('th', { scope: 'col' }, t('field.state')),
      h('th', { scope: 'col', class: 'wide' }, t('field.expiresAt')),
      h('th', { scope: 'col', class: 'wide' }, t('column.made')))),
    h('tbody', {}, keys.map((key) => row(key, at))));
}

const row = (key, at) => h('tr', { 'data-key': key.id },
  h('th', { scope: 'row' },
    h('a', { href: at(`/keys/${key.id}`) }, key.name),
    h('span', { class: 'faint small' }, key.scopes.join(' · ')),
    h('span', { class: 'faint small code' }, key.id)),
  h('td', {}, badge(key.state)),
  h('td', { class: 'when wide' }, key.expiresAt ? when(key.expiresAt) : t('key.never')),
  h('td', { class: 'when wide' }, when(key.createdAt)));
