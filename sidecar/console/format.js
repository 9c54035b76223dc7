// The formats of moments, numbers and states.

import { digits, locale, t } from './i18n.js';
import { h } from './dom.js';
import { fromZone, inZone, nameOfZone, timeZone, written } from './zone.js';

/** A moment in the chosen time zone, with an exact tooltip; a dash without one. */
export function when(text) {
  if (!text) return '–';
  const moment = new Date(text);
  const shown = written({ dateStyle: 'medium', timeStyle: 'short' }).format(moment);
  return h('time', { datetime: text, title: text }, shown);
}

/** The time of day of a moment. */
export const clock = (text, seconds = false) =>
  written({ timeStyle: seconds ? 'medium' : 'short' }).format(new Date(text));

/** A number of things with its digits in groups; 0 without one. */
export const count = (number) => digits(number ?? 0);

/** The number of links that were created, and the quota if there is one. */
export const created = (links, most) =>
  (most ? t('created.of', { count: links, most }) : count(links));

/** A state as a badge. */
export const badge = (state) => h('span', { class: `state ${state}`, 'data-state': state }, t(`state.${state}`));

/** The name of a country, by its code. */
export function country(code) {
  try {
    return new Intl.DisplayNames([locale()], { type: 'region' }).of(code) ?? code;
  } catch {
    return code;
  }
}

/** The location of a visit, as far as it is known. */
export const placeOf = (visit) =>
  [visit.city ?? visit.province, visit.country && country(visit.country)].filter(Boolean).join(', ') || '–';

/** The answer to a visit in words, with its status as the tooltip. */
export const answerOf = (status) => h('span', { title: String(status) },
  t(`answer.${Math.floor(status / 100) === 3 ? 'redirect' : ANSWERS[status] ?? 'error'}`));

const ANSWERS = { 200: 'preview', 404: 'none', 410: 'over' };

/** A moment as the value of a form's field. */
export function toField(text) {
  return text ? inZone(Date.parse(text)).toISOString().slice(0, 16) : '';
}

/** The time zone of a moment's field, for its label. */
export const zoned = () => h('span', { class: 'faint' }, ` · ${nameOfZone(timeZone())}`);

/** The moment in a form's field; null without one. */
export const fromField = (value) => (value ? new Date(fromZone(Date.parse(`${value}Z`))).toISOString() : null);

/** A share in percent; a very small one is marked as such. */
export function percent(part) {
  const least = 0.0001;
  const shown = (number) => new Intl.NumberFormat(locale(), { style: 'percent', maximumFractionDigits: 2 })
    .format(number);
  return part > 0 && part < least ? `< ${shown(least)}` : shown(part);
}
