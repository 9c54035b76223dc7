// How the service is: what it needs, how full the space of codes is, and whether each domain is visited.

import { get, notice, part } from '../api.js';
import { h, svg } from '../dom.js';
import { count, percent, when } from '../format.js';
import { t } from '../i18n.js';
import { fact, sheet } from '../parts.js';

/** How many minutes of domains are shown. */
const MINUTES = 60;

/** The page. */
export async function show({ heading, may }) {
  const [health, codes, domains] = await Promise.all([
    part(() => get('/readyz')),
    part(() => get('/v1/codespace')),
    may('stats:read') ? part(() => get(`/v1/domains/stats?minutes=${MINUTES}`)) : null,
  ]);
  const title = t('service');
  return { title, parts: [
    heading(title),
    sheet(t('service.health'), healthOf(health.failure?.problem?.checks ? health.failure.problem : health)),
    sheet(t('codes'), codes.failure ? notice(codes.failure) : codesOf(codes)),
    sheet(t('domains'), domainsOf(domains)),
  ] };
}

function healthOf(health) {
  if (health.failure) return notice(health.failure);
  const { status, checks } = health;
  const kind = { ready: 'good', degraded: 'warn' }[status] ?? 'bad';
  const said = { good: 'service.ready', warn: 'service.degraded', bad: 'service.unready' }[kind];
  const isUp = (check) => t(check === 'up' ? 'service.up' : 'service.down');
  const { waiting } = checks.outbox;
  return [
    h('div', { class: `notice ${kind}`, 'data-health': status }, t(said)),
    h('dl', { class: 'facts' },
      fact(t('service.database'), isUp(checks.database)),
      fact('Redis', isUp(checks.redis)),
      fact(t('service.outbox'), waiting === null ? t('service.unknown') : count(waiting))),
  ];
}

function codesOf({ lengths }) {
  return h('table', {},
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('codes.length')),
      h('th', { scope: 'col', class: 'number' }, t('codes.links')),
      h('th', { scope: 'col', class: 'number wide' }, t('codes.lately')),
      h('th', { scope: 'col', class: 'number' }, t('codes.used')),
      h('th', { scope: 'col', class: 'number wide' }, t('codes.guess')),
      h('th', { scope: 'col', class: 'wide' }, t('codes.full')))),
    h('tbody', {}, lengths.map((length) => h('tr', {},
      h('th', { scope: 'row' }, String(length.length)),
      h('td', { class: 'number' }, count(length.links)),
      h('td', { class: 'number wide' }, count(length.linksLast7Days)),
      h('td', { class: 'number' }, length.used === null ? '–' : percent(length.used)),
      h('td', { class: 'number wide' }, length.guess.oneIn === null ? '–' : count(length.guess.oneIn)),
      h('td', { class: 'wide' }, when(length.fullAt))))));
}

function domainsOf(answer) {
  if (!answer) return h('p', { class: 'faint' }, t('error.scope', { scope: 'stats:read' }));
  if (answer.failure) return notice(answer.failure);
  if (answer.domains.length === 0) return h('p', { class: 'faint' }, t('domains.none'));
  const begin = Math.floor(Date.parse(answer.since) / 60_000);
  return h('table', {},
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('domains.domain')),
      h('th', { scope: 'col', class: 'number' }, t('visits')),
      h('th', { scope: 'col' }, t('domains.minutes')))),
    h('tbody', {}, answer.domains.map((domain) => h('tr', { 'data-domain': domain.domain },
      h('th', { scope: 'row', class: 'code' }, domain.domain),
      h('td', { class: 'number' }, count(domain.visits)),
      h('td', { class: 'bar' }, bars(domain, begin))))));
}

/** A bar for each minute, as high as it had visits. */
function bars({ domain, visits, minutes }, begin) {
  const most = Math.max(...minutes.map((minute) => minute.visits), 1);
  const drawn = minutes.map((minute) => {
    const height = (minute.visits / most) * 20;
    const x = Math.floor(Date.parse(minute.begin) / 60_000) - begin;
    return svg('rect', { x, y: 20 - height, width: 0.8, height });
  });
  return svg('svg', {
    class: 'bars', viewBox: `0 0 ${MINUTES + 1} 20`, preserveAspectRatio: 'none', role: 'img',
    'aria-label': t('domains.chart', { domain, count: count(visits) }),
  }, svg('path', { d: `M0 20H${MINUTES + 1}` }), ...drawn);
}
