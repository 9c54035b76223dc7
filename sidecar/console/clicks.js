// How many links of a campaign were clicked and when for the first time, and the recipients as files.

import { file, get, notice, part } from './api.js';
import { chart } from './chart.js';
import { keep } from './csv.js';
import { h, say, svg } from './dom.js';
import { count, percent, when } from './format.js';
import { t } from './i18n.js';
import { delivery, hours as inHours, report, shares, undelivered } from './report.js';
import { startOfDay } from './zone.js';

const HOUR = 3_600_000;

/** The most hours that are shown one by one; above, days are. */
const MOST_HOURS = 14 * 24;

/**
 * A section with the clicks of a campaign, and its conversions if there are any; null where the key may not see them. And
 * the hour of the first click, if there is one.
 */
export async function clicks({ campaign, converted, may }) {
  if (!may('stats:read')) return { clicked: null };
  const [answer, figures] = await Promise.all([
    part(() => get(`/v1/campaigns/${campaign.id}/clicks`)),
    part(() => report([campaign.id])),
  ]);
  return { clicked: shown({ campaign, converted, may, answer, figures }), firstAt: answer.hours?.[0]?.begin };
}

function shown({ campaign, converted, may, answer, figures }) {
  const section = (...parts) => h('section', { class: 'sheet', 'data-clicks': '', 'aria-label': t('clicks') },
    h('h2', {}, t('clicks')), parts);
  const failed = [answer, figures].find(({ failure }) => failure);
  if (failed) return section(notice(failed.failure));
  const [own] = figures;
  const { issued, clickRate, firstLinkAt, hours } = answer;
  const figure = (what, number, hint) => h('div', { 'data-figure': what }, h('dt', {}, t(`clicks.${what}`)),
    h('dd', {}, number), hint && h('dd', { class: 'hint' }, hint));
  return section(
    funnel(answer, own, converted),
    h('dl', { class: 'figures' },
      figure('rate', clickRate === null ? '–' : percent(clickRate), t('clicks.rate.hint')),
      own.deliveredClickRate !== null && figure('delivered-rate', percent(own.deliveredClickRate),
        t('clicks.delivered.hint', { failed: undelivered(own.messages) })),
      figure('half', inHours(own.hoursToHalf), own.firstClickAt
        && [t('clicks.half.hint'), ' ', when(own.firstClickAt)])),
    hours.length > 0 ? drawn(hours, firstLinkAt) : h('p', { class: 'empty', 'data-empty': '' }, t('clicks.none')),
    own.visits.human > 0 && [h('h3', {}, t('clicks.from')), shares(own)],
    own.messagesByNetwork.length > 0 && [h('h3', {}, t('clicks.messages')), delivery(own)],
    may('links:read') && issued > 0 && downloads(campaign));
}

/** The number of links at each step, from their creation to conversions; steps without any data are left out. */
function funnel({ issued, clicked, firstLinkAt }, { messages, messagesByNetwork }, conversions) {
  const steps = [
    ['issued', issued],
    messagesByNetwork.length > 0 && ['delivered', messages.delivered],
    ['clicked', clicked],
    conversions?.conversions > 0 && ['converted', conversions.converted],
  ].filter(Boolean);
  return h('ol', { class: 'funnel' }, steps.map(([what, number], place) => {
    const [, before] = steps[place - 1] ?? [];
    return h('li', { 'data-figure': what },
      h('span', { class: 'faint' }, t(`clicks.${what}`)),
      h('b', {}, count(number)),
      svg('svg', { viewBox: '0 0 100 1', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
        svg('rect', { width: 100 * Math.min(1, number / (issued || 1)), height: 1 })),
      h('span', { class: 'faint small' }, place === 0 ? firstLinkAt && [t('clicks.since'), ' ', when(firstLinkAt)]
        : before > 0 && t('clicks.of-before', { share: percent(number / before) })));
  }));
}

/**
 * First clicks since the first link, by the hour, or by the day over a long time; hours without any are not in the answer.
 * Links that were created long before they were sent are no beginning.
 */
function drawn(hours, firstLinkAt) {
  const places = hours.map(({ begin }) => Date.parse(begin));
  const created = Math.floor(Date.parse(firstLinkAt) / HOUR) * HOUR;
  const begin = created < places[0] && places[0] - created < MOST_HOURS * HOUR / 2 ? created : places[0];
  const isLong = (places.at(-1) - begin) / HOUR >= MOST_HOURS;
  const of = (place) => (isLong ? startOfDay(begin, place) : begin + place * HOUR);
  const begins = [];
  for (let next = of(0); next <= places.at(-1); next = of(begins.length)) begins.push(next);
  const values = begins.map(() => 0);
  let at = 0;
  hours.forEach(({ links }, place) => {
    while (begins[at + 1] <= places[place]) at += 1;
    values[at] += links;
  });
  return chart({
    begins, step: isLong ? 'day' : 'hour', series: [{ name: t('clicks.first'), colour: 0, values }],
    label: t('clicks.chart'), total: 'clicks.total',
  });
}

/** Buttons that download the recipients with and without clicks. */
function downloads({ id }) {
  const failed = h('div', {});
  const button = (clicked) => h('button', { type: 'button', 'data-download': String(clicked), click: async (event) => {
    const { target } = event;
    target.disabled = true;
    const answer = await part(() => file(`/v1/campaigns/${id}/recipients?clicked=${clicked}`, 'text/csv'));
    target.disabled = false;
    failed.replaceChildren(...(answer.failure ? [notice(answer.failure)] : []));
    if (answer.failure) return;
    keep(`campaign-${id}-${clicked ? 'clicked' : 'not-clicked'}.csv`, answer);
    say(t('clicks.saved'));
  } }, t(`clicks.download.${clicked}`));
  return h('div', {}, h('div', { class: 'row' }, button(true), button(false)), failed);
}
