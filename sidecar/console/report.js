// Figures of campaigns: the parts that pages on one campaign and on several share.

import { get } from './api.js';
import { h } from './dom.js';
import { count, percent } from './format.js';
import { locale, t } from './i18n.js';
import { valueText } from './statistics.js';

/** The dimensions of a report, in the order in which they are shown. */
export const DIMENSIONS = ['device', 'country', 'network'];

/** The number of values that are shown of each. */
const VALUES = 8;

/** The figures of campaigns, by their ids; without any, of the latest. */
export async function report(ids) {
  const asked = new URLSearchParams({ by: DIMENSIONS.join(','), limit: VALUES });
  if (ids.length > 0) asked.set('id', ids.join(','));
  return (await get(`/v1/reports/campaigns?${asked}`)).campaigns;
}

/** A number of hours in words; a dash without one. */
export const hours = (number) => (number === null ? '–' : new Intl.NumberFormat(locale(), {
  style: 'unit', unit: 'hour', unitDisplay: 'long',
}).format(number));

/** The name of a value of a dimension. */
export const nameOf = (dimension, { value }) => valueText(dimension, value);

/** The human visits of a campaign by device, country and network, as tables beside each other. */
export const shares = ({ by }) => h('div', { class: 'shares' }, DIMENSIONS.map((dimension) => {
  const values = by[dimension].filter(({ human }) => human > 0);
  return h('table', { class: 'legend', 'data-by': dimension },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t(`by.${dimension}`)),
      h('th', { scope: 'col', class: 'number' }, t('stats.human')),
      h('th', { scope: 'col', class: 'number' }, t('stats.share')))),
    h('tbody', {}, values.map((it) => h('tr', { 'data-value': it.value },
      h('th', { scope: 'row' }, nameOf(dimension, it)),
      h('td', { class: 'number' }, count(it.human)),
      h('td', { class: 'number' }, percent(it.humanShare))))));
}));

/** The number of messages that will not be delivered. */
export const undelivered = ({ rejected, expired, failed }) => rejected + expired + failed;

/** The messages of a campaign by network, as delivery receipts name it. */
export const delivery = ({ messagesByNetwork }) => h('div', {
  class: 'scrolled legend', tabindex: '0', role: 'region', 'aria-label': t('clicks.messages'),
}, h('table', { class: 'legend', 'data-messages': '' },
  h('thead', {}, h('tr', {},
    h('th', { scope: 'col' }, t('by.network')),
    h('th', { scope: 'col', class: 'number' }, t('report.delivered')),
    h('th', { scope: 'col', class: 'number' }, t('report.rate')),
    h('th', { scope: 'col', class: 'number' }, t('report.undelivered')),
    h('th', { scope: 'col', class: 'number' }, t('report.sent')))),
  h('tbody', {}, messagesByNetwork.map((it) => h('tr', { 'data-network': it.network },
    h('th', { scope: 'row' }, it.network || t('stats.unknown')),
    h('td', { class: 'number' }, count(it.delivered)),
    h('td', { class: 'number' }, it.clickRate === null ? '–' : percent(it.clickRate)),
    h('td', { class: 'number' }, count(undelivered(it))),
    h('td', { class: 'number' }, count(it.sent)))))));
