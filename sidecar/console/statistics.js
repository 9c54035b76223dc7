// Visits over time, as a part of pages. The range, the step and the dimension are chosen here and stored in the
// address.

import { get, needs, notice } from './api.js';
import { chart } from './chart.js';
import { keepCsv } from './csv.js';
import { h, say } from './dom.js';
import { count, country, fromField, percent, toField, when, zoned } from './format.js';
import { has, locale, t } from './i18n.js';
import { timeText } from './scale.js';
import { startOfDay, timeZone } from './zone.js';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The ranges in days; today, and any other range, which is chosen by its bounds. */
const RANGES = [1, 7, 30, 90, 365];
const TODAY = 'today';
const STEPS = ['minute', 'hour', 'day'];
const SPLITS = ['class', 'domain', 'country', 'device', 'browser', 'os', 'referrer', 'network', 'status', 'variant'];

/** The classes of visits, in the order in which they are shown. */
export const CLASSES = ['human', 'preview', 'scanner', 'bot', 'unknown', 'refused'];

/** The most days that can be shown by the hour, and the most that are by default. */
const MOST_DAYS_BY_HOUR = 31;
const DAYS_BY_HOUR = 7;

/** The longest period by the minute, the time up to now in which it is, and the longest that is so by default. */
const MOST_BY_MINUTE = DAY;
const LATEST_BY_MINUTE = 2 * DAY;
const BY_MINUTE = 8 * HOUR;

/** The shortest time that a chart by the minute shows. */
const LEAST_BY_MINUTE = HOUR / 2;

/** The number of values with a colour of their own, and of those with a row of the legend. */
const COLOURED = 5;
const LISTED = 20;

/**
 * A section with the visits that are counted at `address`; `name` is for the file. `begin`, if any, is the time before which
 * there were none: the range is as short as it allows, unless another one is chosen. `firstAt`, if any, is the hour of the
 * first click: shortly after it, each minute is shown.
 */
export function statistics({ address, may, name, begin, firstAt }) {
  const usual = usualChoice(begin, firstAt);
  if (!may('stats:read')) {
    return h('section', { class: 'sheet statistics' }, h('h2', {}, t('stats')),
      h('p', { class: 'faint' }, needs('stats:read')));
  }
  const place = h('div', { class: 'shown' });
  const section = h('section', { class: 'sheet statistics', 'aria-label': t('stats') });
  let turn = 0;
  const load = async ({ isFirst = false } = {}) => {
    const mine = ++turn;
    const asked = read(usual);
    section.setAttribute('aria-busy', 'true');
    let parts;
    try {
      const answer = await get(`${address}?${query(asked)}`);
      if (!isFirst) say(t('stats.figures', { total: answer.visits.total, human: answer.visits.human }));
      parts = shown(answer, asked, name);
    } catch (failure) {
      parts = [notice(failure, () => load())];
    }
    if (mine !== turn) return;
    place.replaceChildren(...parts);
    section.removeAttribute('aria-busy');
  };
  section.append(h('div', { class: 'head' }, h('h2', {}, t('stats'))), choices(load, usual), place);
  load({ isFirst: true });
  return section;
}

/** The range that is shown at first, in days, and its step. */
function usualChoice(begin, firstAt) {
  if (firstAt && Date.now() - Date.parse(firstAt) <= BY_MINUTE) return { range: '1', step: 'minute' };
  const days = begin ? (Date.now() - Date.parse(begin)) / DAY : DAYS_BY_HOUR;
  return { range: String(RANGES.find((range) => days <= range && range <= DAYS_BY_HOUR) ?? DAYS_BY_HOUR) };
}

/** The choices in the address. */
function read(atFirst) {
  const here = new URLSearchParams(location.search);
  const one = (name, known, usual) => (known.includes(here.get(name)) ? here.get(name) : usual);
  const range = one('range', [TODAY, ...RANGES.map(String), 'other'], atFirst.range);
  // The service counts whole hours; the last one is still in progress.
  const now = Math.ceil(Date.now() / HOUR) * HOUR;
  const length = range === TODAY ? 1 : Number(range);
  let [since, until] = [range === TODAY ? dayOf(now - 1, 0) : now - length * DAY, now];
  if (range === 'other') {
    const moment = (name, usual) => Date.parse(here.get(name)) || usual;
    until = moment('until', now);
    since = moment('since', until - DAYS_BY_HOUR * DAY);
  }
  const days = (until - since) / DAY;
  const split = one('by', SPLITS, 'class');
  // By the bounds of the service, to whose longest period the present hour is added. Values are counted by the hour.
  const present = now - HOUR;
  const [first, last] = [since, range === 'other' ? until : present].map((at) => Math.floor(at / HOUR) * HOUR);
  const hasMinutes = split === 'class' && last - first <= MOST_BY_MINUTE && first >= present - LATEST_BY_MINUTE;
  const steps = STEPS.filter((it) => ({ minute: hasMinutes, hour: days <= MOST_DAYS_BY_HOUR })[it] ?? true);
  const byLength = days <= DAYS_BY_HOUR ? 'hour' : 'day';
  const byDefault = range === atFirst.range && hasMinutes ? atFirst.step ?? byLength : byLength;
  const step = one('step', steps, byDefault);
  if (range !== 'other' && step === 'day') since = dayOf(now - 1, 1 - length);
  return { range, since, until, days, step, split, hasMinutes };
}

/** The start of a day, by its distance from that of a moment: an hour of UTC, as the service counts. */
const dayOf = (moment, days) => Math.floor(startOfDay(moment, days) / HOUR) * HOUR;

function query({ range, since, until, step, split }) {
  const asked = { since: new Date(since).toISOString(), interval: step, timezone: timeZone() };
  // Otherwise up to now by the clock of the service.
  if (range === 'other') asked.until = new Date(until).toISOString();
  if (split !== 'class') Object.assign(asked, { by: split, valueIntervals: true, limit: LISTED });
  return new URLSearchParams(asked);
}

/** The fields of the choices. */
function choices(load, usual) {
  const place = h('form', { class: 'choices', submit: (event) => event.preventDefault() });
  const choose = (changes) => {
    const here = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) here.set(name, value);
    if (here.get('range') !== 'other') ['since', 'until'].forEach((name) => here.delete(name));
    history.replaceState(null, '', `${location.pathname}?${here}`);
    const focused = document.activeElement?.id;
    fill();
    document.getElementById(focused)?.focus();
    load();
  };
  const field = (name, element) => h('div', {},
    h('label', { for: `s-${name}` }, t(`stats.${name}`), element.type === 'datetime-local' && zoned()), element);
  const select = (name, chosen, options, change) => field(name, h('select', { id: `s-${name}`, change },
    options.map(([value, text, disabled]) =>
      h('option', { value, selected: value === chosen, disabled }, text))));
  const moment = (name, value) => field(name, h('input', {
    id: `s-${name}`, type: 'datetime-local', required: true,
    value: toField(new Date(value).toISOString()),
    change: (event) => { if (event.target.value) choose({ [name]: fromField(event.target.value) }); },
  }));
  const fill = () => {
    const { range, since, until, days, step, split, hasMinutes } = read(usual);
    const isOther = range === 'other';
    const ranges = [TODAY, ...RANGES].map((it) => [String(it), t(`stats.range.${it}`)]);
    place.replaceChildren(...[
      select('range', range, [...ranges, ['other', t('stats.range.other')]], (event) => {
        const chosen = event.target.value;
        const ends = { since: new Date(since).toISOString(), until: new Date(until).toISOString() };
        choose({ range: chosen, ...(chosen === 'other' && ends) });
      }),
      isOther && moment('since', since),
      isOther && moment('until', until),
      select('step', step, STEPS.map((it) => [it, t(`stats.step.${it}`), it === 'hour' && days > MOST_DAYS_BY_HOUR]),
        // Minutes are those of today, by class, unless the chosen period has them.
        ({ target: { value } }) => choose({
          step: value, ...(value === 'minute' && !hasMinutes && { range: TODAY, by: 'class' }),
        })),
      select('by', split, SPLITS.map((it) => [it, t(`by.${it}`)]), (event) => choose({ by: event.target.value })),
    ].filter(Boolean));
  };
  fill();
  return place;
}

/** The totals above the chart. */
function figures({ visits, visitors }) {
  const { total, human, refused } = visits;
  const known = visitors.filter((day) => day.visitors !== null);
  return {
    total: count(total), human: count(human), machines: count(visits.preview + visits.scanner + visits.bot),
    refused: count(refused),
    visitors: visitors.length > 0 && known.length === 0 ? '–'
      : count(known.reduce((sum, day) => sum + day.visitors, 0)),
  };
}

/** The days whose visitors are unknown, because the period contains only a part of them. */
function missingDays({ visitors }) {
  const missing = visitors.filter((day) => day.visitors === null);
  const day = new Intl.DateTimeFormat(locale(), { dateStyle: 'medium', timeZone: 'UTC' });
  const days = missing.map(({ begin }) => day.format(Date.parse(begin)));
  return days.length > 0 && t('stats.visitors.missing', { days: new Intl.ListFormat(locale()).format(days) });
}

function shown(answer, asked, name) {
  const { total, human, machines, refused, visitors } = figures(answer);
  const figure = (what, number, hint) => h('div', { 'data-figure': what }, h('dt', {}, t(`stats.${what}`)),
    h('dd', {}, number), hint && h('dd', { class: 'hint' }, hint));
  const begins = beginsOf(answer, asked.step);
  const { series, rows } = seriesOf(answer, asked, begins);
  const hints = [t('stats.visitors.hint'), missingDays(answer)].filter(Boolean).join(' ');
  const parts = [
    h('p', { class: 'hint', 'data-period': '' }, when(answer.since), ' – ', when(answer.until)),
    h('dl', { class: 'figures' },
      figure('total', total), figure('human', human), figure('machines', machines),
      figure('refused', refused, t('stats.refused.hint')), figure('visitors', visitors, hints)),
  ];
  if (answer.visits.total === 0) {
    return [...parts, h('p', { class: 'empty', 'data-empty': '' }, t('stats.none'))];
  }
  const label = t('chart.label', { by: t(`by.${asked.split}`) });
  const drawn = series.filter(({ values }) => values.some((value) => value > 0));
  return [...parts,
    chart({ begins, step: asked.step, series: drawn, label }),
    asked.step === 'day' && h('p', { class: 'hint' }, t('stats.timezone', { zone: answer.timezone })),
    legend(rows, answer.visits.total, t(`by.${asked.split}`)),
    numbers({ begins, series: drawn, step: asked.step, label, name }),
  ].filter(Boolean);
}

/**
 * The starts of the chart's intervals, including those without visits, which the API leaves out. Minutes are those from the
 * first visit up to now.
 */
function beginsOf(answer, step) {
  const [since, until] = [answer.since, answer.until].map((text) => Date.parse(text));
  const begins = [];
  if (step === 'minute') {
    const places = answer.intervals.map(({ begin }) => Date.parse(begin));
    const end = Math.min(until, Math.max(Date.now(), (places.at(-1) ?? since) + MINUTE));
    const first = Math.max(since, Math.min(places[0] ?? since, Math.floor((end - LEAST_BY_MINUTE) / MINUTE) * MINUTE));
    for (let begin = first; begin < end; begin += MINUTE) begins.push(begin);
    return begins;
  }
  const of = (place) => (step === 'hour' ? since + place * HOUR : dayOf(since + HOUR - 1, place));
  for (let begin = of(0); begin < until; begin = of(begins.length)) begins.push(begin);
  return begins;
}

/** The series, from the bottom up, and the rows of the legend. */
function seriesOf({ intervals, by }, { split }, begins) {
  const places = new Map(begins.map((begin, place) => [begin, place]));
  const spread = (all, number) => {
    const values = begins.map(() => 0);
    for (const it of all) {
      const place = places.get(Date.parse(it.begin));
      if (place !== undefined) values[place] += number(it);
    }
    return values;
  };
  const sum = (values) => values.reduce((all, value) => all + value, 0);
  if (split === 'class') {
    const series = CLASSES.map((name, colour) => ({
      name: t(`class.${name}`), colour, values: spread(intervals, (it) => it[name]),
    }));
    const rows = series.map((it) => ({ ...it, visits: sum(it.values) })).filter(({ visits }) => visits > 0);
    return { series, rows };
  }
  const found = by[split] ?? [];
  const series = found.slice(0, COLOURED).map(({ value, intervals: own }, colour) => ({
    name: valueText(split, value), colour, values: spread(own ?? [], (it) => it.total),
  }));
  const rest = spread(intervals, (it) => it.total).map((all, place) =>
    Math.max(0, all - sum(series.map(({ values }) => values[place]))));
  const others = { name: t('stats.others'), colour: COLOURED, values: rest };
  const rows = found.map(({ value, total }, place) => ({
    name: valueText(split, value), visits: total, colour: Math.min(place, COLOURED),
  }));
  const left = sum(rest) - sum(rows.slice(COLOURED).map(({ visits }) => visits));
  if (left > 0) rows.push({ name: t('stats.rest'), visits: left, colour: COLOURED });
  return { series: [...series, others], rows };
}

/** The text of a value. */
export function valueText(split, value) {
  if (value === '') return t('stats.unknown');
  if (value === '(other)') return t('stats.other');
  if (split === 'device' && has(`device.${value}`)) return t(`device.${value}`);
  return split === 'country' ? country(value) : value;
}

function legend(rows, total, by) {
  return h('table', { class: 'legend' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, by),
      h('th', { scope: 'col', class: 'number' }, t('visits')),
      h('th', { scope: 'col', class: 'number' }, t('stats.share')))),
    h('tbody', {}, rows.map(({ name, visits, colour }) => h('tr', { 'data-value': name },
      h('th', { scope: 'row' }, h('i', { class: `swatch c${colour}` }), name),
      h('td', { class: 'number' }, count(visits)),
      h('td', { class: 'number' }, percent(visits / total))))));
}

/** The same numbers as a table, which is created on demand, and as a file. */
function numbers({ begins, series, step, label, name }) {
  const head = [t('column.when'), ...series.map((it) => it.name), t('chart.all')];
  const row = (place) => {
    const values = series.map(({ values: own }) => own[place]);
    return [...values, values.reduce((all, value) => all + value, 0)];
  };
  const table = () => h('div', { class: 'scrolled tall', tabindex: '0', role: 'region', 'aria-label': label },
    h('table', { 'data-numbers': '' },
      h('thead', {}, h('tr', {}, head.map((text, place) =>
        h('th', { scope: 'col', class: place > 0 && 'number' }, text)))),
      h('tbody', {}, begins.map((begin, place) => h('tr', { 'data-begin': new Date(begin).toISOString() },
        h('th', { scope: 'row' }, timeText(begin, step)),
        row(place).map((value) => h('td', { class: 'number' }, count(value))))))));
  const place = h('div', {});
  const button = h('button', { type: 'button', 'aria-expanded': 'false', 'data-table': '', click: () => {
    const isOpen = place.hasChildNodes();
    place.replaceChildren(...(isOpen ? [] : [table()]));
    button.setAttribute('aria-expanded', String(!isOpen));
    button.textContent = t(isOpen ? 'stats.table' : 'stats.table.hide');
  } }, t('stats.table'));
  const lines = () => begins.map((begin, at) => [new Date(begin).toISOString(), ...row(at)]);
  return h('div', { class: 'numbers' },
    h('div', { class: 'row' }, button, h('button', {
      type: 'button', 'data-csv': '', click: () => keepCsv(`${name}.csv`, [head, ...lines()]),
    }, t('stats.csv'))),
    place);
}
