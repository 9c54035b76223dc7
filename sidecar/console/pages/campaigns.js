// Lists campaigns, a page at a time.

import { get, part } from '../api.js';
import { h } from '../dom.js';
import { badge, count, percent, when } from '../format.js';
import { t } from '../i18n.js';
import { asked, pages } from '../listing.js';

const LIMIT = 25;

/** The page. */
export async function show({ heading, at, may, go }) {
  const here = new URLSearchParams(location.search);
  const { campaigns, nextCursor } = await get(`/v1/campaigns?${asked(here, [], LIMIT)}`);
  const ids = campaigns.map(({ id }) => id);
  const report = may('stats:read') && ids.length > 0
    ? await part(() => get(`/v1/reports/campaigns?${new URLSearchParams({ id: ids.join(','), limit: 1 })}`)) : {};
  const figures = new Map((report.campaigns ?? []).map((it) => [it.id, it]));
  const title = t('campaigns');
  return { title, parts: [
    h('div', { class: 'head' }, heading(title), h('div', { class: 'end row' }, campaigns.length > 0
      && may('stats:read') && compare(at, go), may('campaigns:write')
      && h('a', { class: 'button', href: at('/campaigns-new'), 'data-new': '' }, t('campaign.new')))),
    campaigns.length > 0 ? table(campaigns, figures, at) : h('div', { class: 'sheet empty' },
      h('p', {}, t('overview.no-campaign'))),
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

/** The table; `figures` has the report of each campaign by its id, if the key may see it. */
function table(campaigns, figures, at) {
  return h('div', { class: 'sheet table' }, h('table', { class: 'links' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col', class: 'wide' }, t('campaigns.choose')),
      h('th', { scope: 'col' }, t('column.campaign')),
      h('th', { scope: 'col' }, t('field.state')),
      figures.size > 0 && [
        h('th', { scope: 'col', class: 'number wide' }, t('clicks.issued')),
        h('th', { scope: 'col', class: 'number' }, t('clicks.rate')),
      ],
      h('th', { scope: 'col', class: 'wide' }, t('column.made')))),
    h('tbody', {}, campaigns.map((campaign) => h('tr', { 'data-campaign': campaign.id },
      h('td', { class: 'wide' }, h('input', { type: 'checkbox', value: campaign.id, 'data-choose': '',
        'aria-label': t('campaigns.choose.one', { name: campaign.name }) })),
      h('th', { scope: 'row' },
        h('a', { href: at(`/campaigns/${campaign.id}`) }, campaign.name),
        h('span', { class: 'faint small', title: campaign.longUrl }, campaign.longUrl)),
      h('td', {}, badge(campaign.state)),
      figures.size > 0 && numbers(figures.get(campaign.id)),
      h('td', { class: 'when wide' }, when(campaign.createdAt)))))));
}

const numbers = (it) => [
  h('td', { class: 'number wide' }, it ? count(it.issued) : '–'),
  h('td', { class: 'number' }, it?.clickRate == null ? '–' : percent(it.clickRate)),
];
