// The ticks of a chart's axes, and the texts of ticks and intervals.

import { locale } from './i18n.js';
import { inZone, written } from './zone.js';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

/** The minutes, hours, days and months between two ticks; the smallest step is taken whose texts fit. */
const EVERY_MINUTES = [1, 2, 5, 10, 15, 30];
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

/** A moment of the day that begins at `begin`. A day begins with an hour of UTC, which may be half over. */
const within = (begin) => new Date(begin + HOUR - 1);

/** The text of the interval that begins at a moment. */
export function timeText(moment, step) {
  return step === 'day'
    ? written({ weekday: 'short', year: 'numeric', month: 'short', day: 'numeric' }).format(within(moment))
    : written({ dateStyle: 'medium', timeStyle: 'short' }).format(moment);
}

/** The ticks of a time axis, at most `most`: the places among `begins`, and their texts. */
export function timeTicks(begins, step, most) {
  const kinds = { minute: [ofMinutes, ofHours], hour: [ofHours, ofDays], day: [ofDays, ofMonths] }[step];
  for (const candidate of kinds.flatMap((kind) => kind(step))) {
    const ticks = begins.flatMap((begin, place) => (candidate.isAt(begin)
      ? [{ place, text: candidate.format(begin) }] : []));
    if (ticks.length <= most) return ticks;
  }
  return [];
}

function ofMinutes() {
  const day = written({ day: 'numeric', month: 'short' });
  const time = written({ hour: 'numeric', minute: '2-digit' });
  const minutes = (begin) => inZone(begin).getUTCHours() * 60 + inZone(begin).getUTCMinutes();
  return EVERY_MINUTES.map((every) => ({
    isAt: (begin) => minutes(begin) % every === 0,
    format: (begin) => (minutes(begin) === 0 ? day : time).format(begin),
  }));
}

/** Hours of UTC, which may be half over, or among minutes those of the clock. */
function ofHours(step) {
  const day = written({ day: 'numeric', month: 'short' });
  const hour = written({ hour: 'numeric' });
  const isWhole = (at) => step === 'hour' || at.getUTCMinutes() === 0;
  return EVERY_HOURS.map((every) => ({
    isAt: (begin) => isWhole(inZone(begin)) && inZone(begin).getUTCHours() % every === 0,
    format: (begin) => (inZone(begin).getUTCHours() === 0 ? day : hour).format(begin),
  }));
}

/** Days in the time zone, which are intervals or begin with one. */
function ofDays() {
  const day = written({ day: 'numeric', month: 'short' });
  const number = (at) => Math.floor(at / DAY);
  return EVERY_DAYS.map((every) => ({
    // Weeks begin on Monday; 1970 began on a Thursday.
    isAt: (begin) => {
      const at = inZone(within(begin));
      return at.getUTCHours() === 0 && (number(at) + 3) % every === 0;
    },
    format: (begin) => day.format(within(begin)),
  }));
}

function ofMonths() {
  const month = written({ month: 'short' });
  const year = written({ year: 'numeric' });
  return EVERY_MONTHS.map((every) => ({
    isAt: (begin) => {
      const at = inZone(within(begin));
      return at.getUTCDate() === 1 && at.getUTCMonth() % every === 0;
    },
    format: (begin) => (inZone(within(begin)).getUTCMonth() === 0 ? year : month).format(within(begin)),
  }));
}
