// Visits as they happen, the latest first.

import { get, notice } from '../api.js';
import { h, say } from '../dom.js';
import { answerOf, clock, placeOf } from '../format.js';
import { locale, t } from '../i18n.js';
import { listen } from '../feed.js';
import { CLASSES } from '../statistics.js';

const FILTERS = ['class', 'code', 'domain'];

/** The number of visits that are shown. */
const MOST = 200;

/** The intervals of new rows and of announcements to screen readers, in milliseconds. */
const DRAW_EVERY = 250;
const SAY_EVERY = 15_000;

/** The time in seconds over which the rate is measured. */
const RATE_OVER = 10;

/** The page. */
export async function show({ heading, left, at, may }) {
  const title = t('live');
  const state = h('span', { class: 'feed', 'data-feed': 'connecting' }, t('live.connecting'));
  const rate = h('span', { 'data-rate': '' });
  const missed = h('span', { class: 'faint small', 'data-missed': '' });
  const failed = h('div', {});
  const rows = h('tbody', {});
  const table = h('div', { class: 'sheet table', hidden: true }, tableOf(rows));
  const empty = h('p', { class: 'sheet empty' }, t('live.none'));
  const feed = { waiting: [], times: [], paused: false, missed: 0, unsaid: 0 };

  const pause = h('button', { type: 'button', 'data-pause': '', 'aria-pressed': 'false', click: () => {
    feed.paused = !feed.paused;
    pause.setAttribute('aria-pressed', String(feed.paused));
    draw();
  } }, t('live.pause'));

  const draw = () => {
    const now = Date.now();
    feed.times = feed.times.filter((time) => now - time < RATE_OVER * 1000);
    const perSecond = new Intl.NumberFormat(locale(), { maximumFractionDigits: 1 })
      .format(feed.times.length / RATE_OVER);
    set(rate, t('live.rate', { rate: perSecond }));
    set(missed, feed.missed > 0 ? t('live.missed', { count: feed.missed }) : '');
    if (feed.paused) {
      set(pause, t('live.resume', { count: feed.waiting.length }));
      return;
    }
    set(pause, t('live.pause'));
    if (feed.waiting.length === 0) return;
    rows.prepend(...feed.waiting.splice(0).reverse().map((visit) => row(visit, at, may)));
    while (rows.rows.length > MOST) rows.lastElementChild.remove();
    table.hidden = false;
    empty.hidden = true;
  };
  const told = (name, data) => {
    if (name === 'visit') {
      feed.times.push(Date.now());
      feed.waiting.push(data);
      // Visits beyond the shown ones are dropped.
      if (feed.waiting.length > MOST) feed.waiting.shift();
      feed.unsaid += 1;
    } else if (name === 'sampled' || name === 'lost') feed.missed += data.visits;
    else if (name === 'gap') became('gap');
    else if (name === 'interrupted') became('interrupted');
  };
  const became = (what, failure) => {
    if (left.aborted) return;
    if (what === 'gap') {
      failed.replaceChildren(h('div', { class: 'notice warn', 'data-gap': '' }, t('live.gap')));
      return;
    }
    // Repeated reconnects are not announced each time.
    const isNews = state.dataset.feed !== what && ['live', 'waiting', 'interrupted', 'over'].includes(what);
    if (what !== 'connecting' || state.dataset.feed !== 'waiting') {
      state.dataset.feed = what;
      set(state, t(`live.${what}`));
    }
    if (isNews) say(t(`live.${what}`));
    if (what === 'live') failed.replaceChildren();
    if (failure) failed.replaceChildren(notice(failure));
    // If the session has ended, this request fails and shows the sign-in form.
    if (failure?.status === 401) get('/v1/visits?limit=1').catch(() => {});
  };

  let feeding = new AbortController();
  const begin = () => {
    feeding.abort();
    feeding = new AbortController();
    rows.replaceChildren();
    Object.assign(feed, { waiting: [], times: [], missed: 0, unsaid: 0 });
    table.hidden = true;
    empty.hidden = false;
    failed.replaceChildren();
    listen({ query: asked(), left: AbortSignal.any([left, feeding.signal]), told, became });
  };
  const timers = [
    setInterval(draw, DRAW_EVERY),
    setInterval(() => {
      if (feed.unsaid > 0 && !feed.paused) say(t('live.said', { count: feed.unsaid }));
      feed.unsaid = 0;
    }, SAY_EVERY),
  ];
  left.addEventListener('abort', () => timers.forEach(clearInterval));
  draw();
  begin();
  return { title, parts: [
    h('div', { class: 'head' }, heading(title), state, rate, missed, h('div', { class: 'end' }, pause)),
    filters(begin), failed, empty, table,
  ] };
}

/** Sets a text only if it differs. */
function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The filters of the address. */
function asked() {
  const here = new URLSearchParams(location.search);
  return new URLSearchParams(FILTERS.filter((name) => here.get(name)).map((name) => [name, here.get(name)]));
}

function filters(begin) {
  const here = asked();
  const choose = (event) => {
    event.preventDefault();
    const said = new URLSearchParams();
    for (const [name, value] of new FormData(event.currentTarget)) {
      if (value.trim()) said.set(name, value.trim());
    }
    history.replaceState(null, '', `${location.pathname}${said.size > 0 ? `?${said}` : ''}`);
    begin();
  };
  const labelled = (name, text, field) => h('div', {}, h('label', { for: `l-${name}` }, text), field);
  const text = (name) => h('input', {
    id: `l-${name}`, name, value: here.get(name), autocomplete: 'off', autocapitalize: 'none', spellcheck: 'false',
  });
  return h('form', { class: 'sheet choices', submit: choose },
    labelled('class', t('column.class'), h('select', { id: 'l-class', name: 'class' },
      h('option', { value: '' }, t('live.anybody')),
      CLASSES.map((name) => h('option', { value: name, selected: here.get('class') === name }, t(`class.${name}`))))),
    labelled('code', t('live.code'), text('code')),
    labelled('domain', t('domains.domain'), text('domain')),
    h('div', { class: 'row send' }, h('button', {}, t('filter.apply'))));
}

function tableOf(rows) {
  return h('table', { class: 'live' },
    h('caption', { class: 'unseen' }, t('live.caption', { count: MOST })),
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('column.when')),
      h('th', { scope: 'col' }, t('column.link')),
      h('th', { scope: 'col' }, t('column.class')),
      h('th', { scope: 'col', class: 'wide' }, t('live.with')),
      h('th', { scope: 'col', class: 'wide' }, t('live.where')),
      h('th', { scope: 'col', class: 'wide' }, t('visit.answer')))),
    rows);
}

function row(visit, at, may) {
  const { shortCode: code } = visit;
  const name = [visit.app ?? visit.browser, visit.os].filter(Boolean).join(' · ');
  return h('tr', { 'data-visit': code },
    h('td', {}, h('time', { datetime: visit.at, title: visit.at }, clock(visit.at, true))),
    h('td', {}, may('links:read') ? h('a', { class: 'code', href: at(`/links/${code}`) }, code)
      : h('span', { class: 'code' }, code), h('span', { class: 'faint small' }, visit.domain)),
    h('td', {}, h('span', { class: `who-${visit.class}` }, t(`class.${visit.class}`))),
    h('td', { class: 'wide' }, name || '–'),
    h('td', { class: 'wide' }, placeOf(visit)),
    h('td', { class: 'wide' }, answerOf(visit.status)));
}
