// The state of the service: its dependencies, and the usage of the code space.

import { get, notice, part } from '../api.js';
import { h } from '../dom.js';
import { count, percent, when } from '../format.js';
import { t } from '../i18n.js';
import { fact, sheet } from '../parts.js';

/** The page. */
export async function show({ heading }) {
  const [health, codes] = await Promise.all([
    part(() => get('/readyz')),
    part(() => get('/v1/codespace')),
  ]);
  const title = t('service');
  return { title, parts: [
    heading(title),
    sheet(t('service.health'), healthOf(health.failure?.problem?.checks ? health.failure.problem : health)),
    sheet(t('codes'), codes.failure ? notice(codes.failure) : codesOf(codes)),
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
