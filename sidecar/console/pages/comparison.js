// Campaigns side by side.

import { lacking } from '../api.js';
import { keepCsv } from '../csv.js';
import { h } from '../dom.js';
import { badge, count, percent } from '../format.js';
import { t } from '../i18n.js';
import { DIMENSIONS, hours, nameOf, report } from '../report.js';

/** The page. */
export async function show({ heading, at, may }) {
  const title = t('comparison');
  if (!may('stats:read')) {
    return { title, parts: [heading(title), lacking('stats:read')] };
  }
  const here = new URLSearchParams(location.search);
  const ids = here.getAll('id');
  const campaigns = await report(ids);
  if (here.has('latest')) campaigns.push(...(await report([])).filter(({ id }) => !ids.includes(id)));
  return { title, parts: [
    h('div', { class: 'head' }, heading(title), campaigns.length > 0 && h('div', { class: 'end' }, h('button', {
      type: 'button', 'data-csv': '', click: () => keepCsv('campaigns.csv', lines(campaigns)),
    }, t('stats.csv')))),
    h('p', { class: 'hint' }, t('comparison.hint')),
    campaigns.length > 0
      ? h('div', { class: 'sheet table' }, h('div', {
        class: 'scrolled', tabindex: '0', role: 'region', 'aria-label': title,
      }, table(campaigns, at)))
      : h('p', { class: 'sheet empty' }, t('campaigns.none')),
  ] };
}

const heads = () => [t('clicks.issued'), t('clicks.clicked'), t('clicks.rate'), t('clicks.half'), t('stats.human')];

/** The value of a dimension with the most human visits. */
function most(campaign, dimension) {
  const [first] = campaign.by[dimension];
  return first?.human > 0 ? first : null;
}

function table(campaigns, at) {
  return h('table', { class: 'comparison' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('column.campaign')),
      heads().map((text) => h('th', { scope: 'col', class: 'number' }, text)),
      DIMENSIONS.map((dimension) => h('th', { scope: 'col' }, t(`by.${dimension}`))))),
    h('tbody', {}, campaigns.map((it) => h('tr', { 'data-campaign': it.id },
      h('th', { scope: 'row' }, h('a', { href: at(`/campaigns/${it.id}`) }, it.name), ' ',
        it.state !== 'live' && badge(it.state)),
      h('td', { class: 'number' }, count(it.issued)),
      h('td', { class: 'number' }, count(it.clicked)),
      h('td', { class: 'number', 'data-rate': '' }, it.clickRate === null ? '–' : percent(it.clickRate)),
      h('td', { class: 'number' }, hours(it.hoursToHalf)),
      h('td', { class: 'number' }, count(it.visits.human)),
      DIMENSIONS.map((dimension) => {
        const first = most(it, dimension);
        return h('td', {}, first ? `${nameOf(dimension, first)} ${percent(first.humanShare)}` : '–');
      })))));
}

/** The same as a file, with plain numbers. */
function lines(campaigns) {
  const head = [t('column.campaign'), ...heads(), ...DIMENSIONS.map((dimension) => t(`by.${dimension}`))];
  return [head, ...campaigns.map((it) => [
    it.name, it.issued, it.clicked, it.clickRate ?? '', it.hoursToHalf ?? '', it.visits.human,
    ...DIMENSIONS.map((dimension) => {
      const first = most(it, dimension);
      return first ? nameOf(dimension, first) : '';
    }),
  ])];
}
