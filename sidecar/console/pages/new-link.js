// Creates a link.

import { ask } from '../api.js';
import { h, say } from '../dom.js';
import { t } from '../i18n.js';
import { form } from '../form.js';
import { qr, shortUrl } from '../parts.js';
import { planOf, previewOf } from '../rules.js';
import { testOf } from '../variants.js';

const FIELDS = [
  { name: 'longUrl', kind: 'url', required: true, placeholder: 'https://', hint: true },
  { name: 'customSlug', kind: 'text', hint: true },
  { name: 'tags', kind: 'tags', hint: true },
];

const MORE = [
  { name: 'validSince', kind: 'moment' },
  { name: 'validUntil', kind: 'moment' },
  { name: 'maxVisits', kind: 'number', hint: true },
  { name: 'domain', kind: 'text', hint: true },
  { name: 'clickId', kind: 'text', hint: true },
  { name: 'externalId', kind: 'text' },
  { name: 'note', kind: 'long' },
];

/** The page. */
export async function show({ heading, at, may, again }) {
  const title = t('new');
  const place = h('div', {});
  if (!may('links:write')) {
    place.append(h('div', { class: 'notice warn' }, t('error.scope', { scope: 'links:write' })));
  } else {
    place.append(h('div', { class: 'sheet narrow' }, form({
      fields: FIELDS,
      more: MORE,
      parts: [planOf(), testOf(), previewOf()],
      send: t('new.make'),
      call: async (members) => {
        const { data: link } = await ask('POST', '/v1/links', members);
        place.replaceChildren(made(link, { at, may, again }));
        place.querySelector('h2').focus();
        say(`${t('new.made')} ${link.shortUrl ?? link.shortCode}`);
      },
    })));
  }
  return { title, parts: [heading(title), place, may('links:write') && h('p', {},
    h('a', { href: at('/new/file') }, t('upload.link')))].filter(Boolean) };
}

function made(link, { at, may, again }) {
  return h('div', { class: 'sheet narrow', 'data-made': link.shortCode },
    h('h2', { tabindex: '-1' }, t('new.made')),
    shortUrl(link),
    link.longUrl && h('p', { class: 'faint' }, link.longUrl),
    link.published === false && h('div', { class: 'notice warn' }, t('new.unpublished')),
    may('links:read') && link.shortUrl && qr(link),
    h('div', { class: 'row' },
      h('button', { type: 'button', class: 'main', click: again }, t('new.another')),
      may('links:read') && h('a', { class: 'button', href: at(`/links/${link.shortCode}`) }, t('new.look'))));
}
