// Lists campaigns, a page at a time.

import { get } from '../api.js';
import { h } from '../dom.js';
import { badge, when } from '../format.js';
import { t } from '../i18n.js';
import { asked, pages } from '../listing.js';

const LIMIT = 25;

/** The page. */
export async function show({ heading, at, may }) {
  const here = new URLSearchParams(location.search);
  const { campaigns, nextCursor } = await get(`/v1/campaigns?${asked(here, [], LIMIT)}`);
  const title = t('campaigns');
  return { title, parts: [
    h('div', { class: 'head' }, heading(title), h('div', { class: 'end' }, may('campaigns:write')
      && h('a', { class: 'button', href: at('/campaigns-new'), 'data-new': '' }, t('campaign.new')))),
    campaigns.length > 0 ? table(campaigns, at) : h('p', { class: 'sheet empty' }, t('campaigns.none')),
    pages({ here, path: '/campaigns', at, nextCursor, first: t('pages.first'), next: t('pages.next') }),
  ] };
}

function table(campaigns, at) {
  return h('div', { class: 'sheet table' }, h('table', { class: 'links' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('column.campaign')),
      h('th', { scope: 'col' }, t('field.state')),
      h('th', { scope: 'col', class: 'wide' }, t('column.made')))),
    h('tbody', {}, campaigns.map((campaign) => h('tr', { 'data-campaign': campaign.id },
      h('th', { scope: 'row' },
        h('a', { href: at(`/campaigns/${campaign.id}`) }, campaign.name),
        h('span', { class: 'faint small', title: campaign.longUrl }, campaign.longUrl)),
      h('td', {}, badge(campaign.state)),
      h('td', { class: 'when wide' }, when(campaign.createdAt)))))));
}
