// The time zone of the console: that of the browser, until another one is chosen.

import { locale } from './i18n.js';

const KEPT = 'shortlink-zone';
const DAY = 24 * 3_600_000;

/** The time between two moments at which a zone may change its offset. */
const QUARTER = 15 * 60_000;

let zone = null;

/** The format that shows the offsets of the zone, and those that were found, by the quarter of an hour. */
let parts = null;
let offsets = new Map();

/** The time zone of the browser. */
const ofBrowser = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** The chosen time zone, by its name in the IANA database. */
export function timeZone() {
  zone ??= known(kept()) ?? ofBrowser();
  return zone;
}

/** The names of all time zones, those first that are chosen most often. */
export const timeZones = () => [...new Set([ofBrowser(), timeZone(), 'UTC', ...Intl.supportedValuesOf('timeZone')])];

/** A time zone as it is shown. */
export const nameOfZone = (name) => name.replaceAll('_', ' ');

/** Switches to a time zone, and remembers it; that of the browser is followed when it changes. */
export function chooseTimeZone(name) {
  zone = name;
  parts = null;
  offsets = new Map();
  try {
    if (name === ofBrowser()) localStorage.removeItem(KEPT);
    else localStorage.setItem(KEPT, name);
  } catch { /* It is not remembered then. */ }
}

function kept() {
  try {
    return localStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

/** The name if the browser knows the zone: one that was kept by another version may be unknown. */
function known(name) {
  try {
    return name && new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone && name;
  } catch {
    return null;
  }
}

/** The format of moments in the time zone, with options of `Intl.DateTimeFormat`. */
export const written = (options) => new Intl.DateTimeFormat(locale(), { timeZone: timeZone(), ...options });

/** The milliseconds that the clocks of the zone are ahead of UTC at a moment. */
function ahead(moment) {
  const quarter = Math.floor(moment / QUARTER);
  if (!offsets.has(quarter)) {
    parts ??= new Intl.DateTimeFormat('en-u-ca-gregory-nu-latn', {
      timeZone: timeZone(), hourCycle: 'h23', year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric',
      minute: 'numeric', second: 'numeric',
    });
    const found = parts.formatToParts(quarter * QUARTER);
    const part = (type) => Number(found.find((it) => it.type === type).value);
    const shown = Date.UTC(part('year'), part('month') - 1, part('day'), part('hour'), part('minute'), part('second'));
    offsets.set(quarter, shown - quarter * QUARTER);
  }
  return offsets.get(quarter);
}

/** A date whose parts in UTC are those of a moment in the time zone. */
export const inZone = (moment) => new Date(Number(moment) + ahead(Number(moment)));

/**
 * The moment whose parts in the time zone are those of a date in UTC, in milliseconds. Of two it is the first; a time that
 * clocks skip is as long after the change as it would have been without.
 */
export function fromZone(date) {
  const at = Number(date);
  const before = at - ahead(at - DAY);
  const after = at - ahead(at + DAY);
  const fits = [Math.min(before, after), Math.max(before, after)].find((moment) => Number(inZone(moment)) === at);
  return fits ?? before;
}

/** The start of a day in the time zone, by its distance from that of a moment. */
export function startOfDay(moment, days = 0) {
  const at = inZone(moment);
  return fromZone(Date.UTC(at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate() + days));
}
