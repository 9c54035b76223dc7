// Lists campaigns, a page at a time.

import { get } from '../api.js';
import { h } from '../dom.js';
import { badge, when } from '../format.js';
import { t } from '../i18n.js';
import { asked, pages } from '../listing.js';

const LIMIT = 25;

/** The page. */
export async function show({ heading, at, may, go }) {
  const here = new URLSearchParams(location.search);
  const { campaigns, nextCursor } = await get(`/v1/campaigns?${asked(here, [], LIMIT)}`);
  const title = t('campaigns');
  return { title, parts: [
    h('div', { class: 'head' }, heading(title), h('div', { class: 'end row' }, campaigns.length > 0
      && may('stats:read') && compare(at, go), may('campaigns:write')
      && h('a', { class: 'button', href: at('/campaigns-new'), 'data-new': '' }, t('campaign.new')))),
    campaigns.length > 0 ? table(campaigns, at) : h('p', { class: 'sheet empty' }, t('campaigns.none')),
    pages({ here, path: '/campaigns', at, nextCursor, first: t('pages.first'), next: t('pages.next') }),
  ] };
}

/** Leads to the comparison of the chosen campaigns, or of the latest without any. */
const compare = (at, go) => h('a', { class: 'button', href: at('/campaigns-compared'), 'data-compare': '',
  click: (event) => {
    const chosen = [...document.querySelectorAll('[data-choose]:checked')].map((it) => ['id', it.value]);
    if (chosen.length === 0) return;
    event.preventDefault();
    event.stopPropagation();
    go(`/campaigns-compared?${new URLSearchParams(chosen)}`);
  } }, t('campaigns.compare'));

function table(campaigns, at) {
  return h('div', { class: 'sheet table' }, h('table', { class: 'links' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col', class: 'wide' }, t('campaigns.choose')),
      h('th', { scope: 'col' }, t('column.campaign')),
      h('th', { scope: 'col' }, t('field.state')),
      h('th', { scope: 'col', class: 'wide' }, t('column.made')))),
    h('tbody', {}, campaigns.map((campaign) => h('tr', { 'data-campaign': campaign.id },
      h('td', { class: 'wide' }, h('input', { type: 'checkbox', value: campaign.id, 'data-choose': '',
        'aria-label': t('campaigns.choose.one', { name: campaign.name }) })),
      h('th', { scope: 'row' },
        h('a', { href: at(`/campaigns/${campaign.id}`) }, campaign.name),
        h('span', { class: 'faint small', title: campaign.longUrl }, campaign.longUrl)),
      h('td', {}, badge(campaign.state)),
      h('td', { class: 'when wide' }, when(campaign.createdAt)))))));
}
