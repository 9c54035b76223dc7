// The ticks of a chart's axes, and the texts of ticks and intervals.

import { locale } from './format.js';

const DAY = 86_400_000;

/** The hours and days between two ticks; the smallest step is taken whose texts fit. */
const EVERY_HOURS = [1, 2, 3, 6, 12];
const EVERY_DAYS = [1, 2, 7, 14];
const EVERY_MONTHS = [1, 2, 3, 6, 12];

/** The ticks from zero up to `most`: round integers, about `count` of them. */
export function numberTicks(most, count = 4) {
  const rough = Math.max(most / count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((part) => part * power).find((it) => it >= rough);
  const ticks = [0];
  while (ticks.at(-1) < most) ticks.push(ticks.length * step);
  return ticks;
}

/** The short text of a tick's number. */
export const shortNumber = (number) => new Intl.NumberFormat(locale(), {
  notation: number < 10_000 ? 'standard' : 'compact', maximumFractionDigits: 1,
}).format(number);

/** Days are those of UTC, which the service counts by; hours are local. */
const written = (options, step) => new Intl.DateTimeFormat(locale(),
  step === 'day' ? { ...options, timeZone: 'UTC' } : options);

/** The text of the interval that begins at a moment. */
export function timeText(moment, step) {
  return step === 'day'
    ? written({ weekday: 'short', year: 'numeric', month: 'short', day: 'numeric' }, step).format(moment)
    : written({ dateStyle: 'medium', timeStyle: 'short' }, step).format(moment);
}

/** The ticks of a time axis, at most `most`: the places among `begins`, and their texts. */
export function timeTicks(begins, step, most) {
  for (const candidate of step === 'day' ? ofDays() : [...ofHours(), ...ofLocalDays()]) {
    const ticks = begins.flatMap((begin, place) => (candidate.isAt(begin)
      ? [{ place, text: candidate.format(begin) }] : []));
    if (ticks.length <= most) return ticks;
  }
  return [];
}

function ofHours() {
  const day = written({ day: 'numeric', month: 'short' });
  const hour = written({ hour: 'numeric' });
  return EVERY_HOURS.map((every) => ({
    isAt: (begin) => new Date(begin).getHours() % every === 0,
    format: (begin) => (new Date(begin).getHours() === 0 ? day : hour).format(begin),
  }));
}

function ofLocalDays() {
  const day = written({ day: 'numeric', month: 'short' });
  const number = (begin) => Math.floor((begin - new Date(begin).getTimezoneOffset() * 60_000) / DAY);
  return EVERY_DAYS.map((every) => ({
    isAt: (begin) => new Date(begin).getHours() === 0 && (number(begin) + 3) % every === 0,
    format: (begin) => day.format(begin),
  }));
}

function ofDays() {
  const day = written({ day: 'numeric', month: 'short' }, 'day');
  const month = written({ month: 'short' }, 'day');
  const year = written({ year: 'numeric' }, 'day');
  const days = EVERY_DAYS.map((every) => ({
    // Weeks begin on Monday; 1970 began on a Thursday.
    isAt: (begin) => (begin / DAY + 3) % every === 0,
    format: (begin) => day.format(begin),
  }));
  const months = EVERY_MONTHS.map((every) => ({
    isAt: (begin) => new Date(begin).getUTCDate() === 1 && new Date(begin).getUTCMonth() % every === 0,
    format: (begin) => (new Date(begin).getUTCMonth() === 0 ? year : month).format(begin),
  }));
  return [...days, ...months];
}
