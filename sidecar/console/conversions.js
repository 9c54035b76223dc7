// The conversions of a campaign's links: their rate, their number, and their values by currency.

import { notice } from './api.js';
import { h } from './dom.js';
import { count, percent } from './format.js';
import { locale, t } from './i18n.js';

/** The section of the answer of the API; null without conversions. */
export function conversions(answer) {
  if (!answer || answer.conversions === 0) return null;
  const section = (...parts) => h('section', { class: 'sheet', 'data-conversions': '', 'aria-label': t('conversions') },
    h('h2', {}, t('conversions')), parts);
  if (answer.failure) return section(notice(answer.failure));
  const { converted, conversionRate, conversions: all, values } = answer;
  const figure = (what, label, number, hint) => h('div', { 'data-figure': what }, h('dt', {}, label),
    h('dd', {}, number), hint && h('dd', { class: 'hint' }, hint));
  return section(h('dl', { class: 'figures' },
    figure('conversions', t('conversions.conversions'), count(all)),
    figure('converted', t('conversions.converted'), count(converted), t('conversions.converted.hint')),
    figure('rate', t('conversions.rate'), conversionRate === null ? '–' : percent(conversionRate),
      t('conversions.rate.hint')),
    values.map(({ currency, value }) => figure(currency, currency, money(value, currency)))));
}

/** An amount of a currency; its letters stand above it. */
function money(value, currency) {
  const { minimumFractionDigits } = new Intl.NumberFormat(locale(), { style: 'currency', currency })
    .resolvedOptions();
  return new Intl.NumberFormat(locale(), { minimumFractionDigits, maximumFractionDigits: 4 }).format(value);
}
