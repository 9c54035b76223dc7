// Links as a table: what each leads to, its state and its visits, and what is done most often with it.

import { box, boxOfAll } from './bulk.js';
import { h } from './dom.js';
import { badge, count, when } from './format.js';
import { t } from './i18n.js';
import { copyButton, shortText } from './parts.js';
import { qrButton } from './qr.js';

/** The state of a link, or that of its campaign where this keeps it from redirecting. */
const stateOf = (link) => (link.state === 'live' ? link.campaignState ?? 'live' : link.state);

/** The table; with `picks`, links can be chosen in it. */
export function table(links, { at, picks = false }) {
  return h('div', { class: 'sheet table' }, h('table', { class: 'links' },
    h('thead', {}, h('tr', {},
      picks && h('th', { scope: 'col', class: 'pick' }, boxOfAll()),
      h('th', { scope: 'col' }, t('column.link')),
      h('th', { scope: 'col', class: 'wide' }, t('field.state')),
      h('th', { scope: 'col', class: 'number' }, t('column.visits')),
      h('th', { scope: 'col', class: 'wide' }, t('column.made')),
      h('th', { scope: 'col', class: 'acts' }, h('span', { class: 'unseen' }, t('column.acts'))))),
    h('tbody', {}, links.map((link) => h('tr', { 'data-code': link.shortCode },
      picks && h('td', { class: 'pick' }, box(link)),
      h('th', { scope: 'row' },
        h('a', { class: 'code', href: at(`/links/${link.shortCode}`) }, shortText(link)),
        h('span', { class: 'faint small', title: link.longUrl }, link.longUrl ?? t('target.none')),
        link.tags.length > 0 && h('span', { class: 'faint small' }, link.tags.map((tag) => `#${tag}`).join(' ')),
        stateOf(link) !== 'live' && h('span', { class: 'slim' }, badge(stateOf(link)))),
      h('td', { class: 'wide' }, badge(stateOf(link))),
      h('td', { class: 'number' }, count(link.visits?.total)),
      h('td', { class: 'when wide' }, when(link.createdAt)),
      h('td', { class: 'acts' }, copyButton(link.shortUrl ?? link.shortCode,
        { 'aria-label': `${t('copy')}: ${link.shortCode}` }), link.shortUrl && qrButton(link)))))));
}
