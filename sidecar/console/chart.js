// Draws time series as stacked columns. A tooltip describes the column under the pointer, or the one selected with
// the arrow keys.

import { h, svg } from './dom.js';
import { count } from './format.js';
import { t } from './i18n.js';
import { numberTicks, shortNumber, timeText, timeTicks } from './scale.js';

const HEIGHT = 260;
const TOP = 10;
const BOTTOM = 26;
const LETTER = 7.5;

/** The width of a tick's text on the time axis. */
const TICK = 64;

/** The least width of columns that have a gap between them. */
const GAP_FROM = 5;

/** The number of columns that Page Up and Page Down move by. */
const PAGE = 10;

/**
 * A chart. `begins` are moments in milliseconds, `step` is the length of each interval; `series` are drawn from the
 * bottom up, each with a `name`, a `colour` (a number of the stylesheet's) and `values`. `total` is the text of a number.
 */
export function chart({ begins, step, series, label, total = 'chart.visits' }) {
  const totals = begins.map((_, place) => series.reduce((sum, { values }) => sum + values[place], 0));
  const ticks = numberTicks(Math.max(...totals, 1));
  const drawing = svg('svg', { 'aria-hidden': 'true', focusable: 'false', height: HEIGHT });
  const tip = h('div', { class: 'tip', 'aria-hidden': 'true', hidden: true });
  const plot = h('div', {
    class: 'plot', tabindex: '0', role: 'slider', 'aria-label': label, 'aria-valuemin': '0',
    'aria-valuemax': begins.length - 1, 'aria-roledescription': t('chart'),
  }, drawing, tip);
  let at = begins.length - 1;
  let frame = null;

  const tell = (place) => {
    at = Math.min(Math.max(place, 0), begins.length - 1);
    const said = series.filter(({ values }) => values[at] > 0).map(({ name, values }) =>
      `${name} ${count(values[at])}`);
    plot.setAttribute('aria-valuenow', at);
    plot.setAttribute('aria-valuetext',
      `${timeText(begins[at], step)}: ${[t(total, { count: totals[at] }), ...said].join(', ')}`);
  };
  const show = (place) => {
    tell(place);
    if (!frame) return;
    const { left, width, column } = frame;
    const x = left + (at + 0.5) * column;
    frame.mark.setAttribute('x', left + at * column);
    frame.mark.removeAttribute('display');
    tip.replaceChildren(...tipOf(begins[at], step, series, at, totals[at]));
    tip.hidden = false;
    // Beside the column, on the wider side.
    const isLeft = x > width / 2;
    const room = tip.offsetWidth + 12;
    tip.style.left = `${Math.max(0, Math.min(isLeft ? x - room : x + 12, width - room))}px`;
  };
  const hide = () => {
    tip.hidden = true;
    frame?.mark.setAttribute('display', 'none');
  };
  const placeOf = (event) => Math.floor(
    (event.clientX - plot.getBoundingClientRect().left - frame.left) / frame.column);

  plot.addEventListener('keydown', (event) => {
    const next = {
      ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
      PageDown: at - PAGE, PageUp: at + PAGE, Home: 0, End: begins.length - 1,
    }[event.key];
    if (event.key === 'Escape') hide();
    if (next === undefined || event.metaKey || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    show(next);
  });
  for (const kind of ['pointermove', 'pointerdown']) {
    plot.addEventListener(kind, (event) => { if (frame) show(placeOf(event)); });
  }
  plot.addEventListener('pointerleave', () => { if (document.activeElement !== plot) hide(); });
  plot.addEventListener('focus', () => { if (plot.matches(':focus-visible')) show(at); });
  plot.addEventListener('blur', hide);

  // Drawn for the available width, so that texts keep their size.
  new ResizeObserver(() => {
    const width = plot.clientWidth;
    if (width === 0 || width === frame?.width) return;
    frame = draw(drawing, width, { begins, step, series, ticks });
    if (!tip.hidden) show(at);
  }).observe(plot);
  tell(at);
  return plot;
}

function tipOf(begin, step, series, place, total) {
  const row = (name, value, colour) => h('tr', {},
    h('td', {}, colour != null && h('i', { class: `swatch c${colour}` })), h('td', {}, name),
    h('td', { class: 'number' }, count(value)));
  const shown = series.filter(({ values }) => values[place] > 0).reverse();
  return [
    h('b', {}, timeText(begin, step)),
    h('table', {}, h('tbody', {},
      shown.map(({ name, values, colour }) => row(name, values[place], colour)),
      shown.length !== 1 && row(t('chart.all'), total))),
  ];
}

/** Redraws; returns the measures by which positions are found. */
function draw(drawing, width, { begins, step, series, ticks }) {
  const most = ticks.at(-1);
  const labels = ticks.map(shortNumber);
  const left = Math.max(...labels.map((text) => text.length)) * LETTER + 10;
  const column = (width - left - 2) / begins.length;
  const bottom = HEIGHT - BOTTOM;
  const y = (value) => bottom - (value / most) * (bottom - TOP);
  const parts = ticks.flatMap((tick, place) => [
    svg('path', { class: tick === 0 ? 'axis' : 'grid', d: `M${left} ${y(tick)}H${width}` }),
    svg('text', { x: left - 8, y: y(tick) + 4, 'text-anchor': 'end' }, labels[place]),
  ]);
  for (const { place, text } of timeTicks(begins, step, Math.max(2, Math.floor((width - left) / TICK)))) {
    const x = left + place * column;
    parts.push(svg('path', { class: 'axis', d: `M${x} ${bottom}v5` }));
    const isLast = x > width - TICK / 2;
    const middle = column > TICK / 2 ? column / 2 : 0;
    parts.push(svg('text', {
      x: isLast ? width : x + middle, y: bottom + 19, 'text-anchor': isLast ? 'end' : 'middle',
    }, text));
  }
  const mark = svg('rect', {
    class: 'mark', y: TOP, width: Math.max(column, 2), height: bottom - TOP, display: 'none',
  });
  parts.push(mark, ...stacks({ begins, series, left, column, y }));
  drawing.setAttribute('width', width);
  drawing.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
  drawing.replaceChildren(...parts);
  return { left, width, column, mark };
}

/** The columns of each series as one shape: many elements would be slow. */
function stacks({ begins, series, left, column, y }) {
  const gap = column >= GAP_FROM ? Math.min(column * 0.2, 6) : 0;
  const below = begins.map(() => 0);
  const fixed = (number) => Number(number.toFixed(2));
  return series.map(({ values, colour }) => {
    const shape = values.map((value, place) => {
      if (value === 0) return '';
      const from = y(below[place]);
      below[place] += value;
      const to = y(below[place]);
      // A thin line of the background separates stacked columns.
      const line = gap > 0 && from - to > 4 && below[place] > value ? 1 : 0;
      const [x, wide] = [fixed(left + place * column + gap / 2), fixed(column - gap)];
      return `M${x} ${fixed(from - line)}h${wide}V${fixed(to)}h${-wide}z`;
    });
    return svg('path', { class: `c${colour}`, d: shape.join('') });
  });
}
