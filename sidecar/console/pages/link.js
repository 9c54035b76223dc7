// One link: its members, an explanation of its answer, its history and its visits.

import { actions } from '../actions.js';
import { ask, get, needs, notice, part } from '../api.js';
import { h, isWeb } from '../dom.js';
import { answerOf, badge, count, when } from '../format.js';
import { t } from '../i18n.js';
import { author, fact, qr, sheet, shortUrl, validity } from '../parts.js';
import { qrButton } from '../qr.js';
import { previewInWords } from '../rules.js';
import { statistics } from '../statistics.js';
import { isVaried, trial } from '../trial.js';
import { results } from '../variants.js';

/** The page. */
export async function show(context, [code]) {
  const { heading, at } = context;
  const explained = await get(`/v1/links/${code}/explain`);
  if (!explained.database) {
    const title = t('link.none', { code });
    return { title, parts: [heading(title),
      h('div', { class: 'notice warn narrow', 'data-why': explained.answer.rule }, t(`rule.${explained.answer.rule}`)),
      h('details', { class: 'sheet narrow', 'data-engineers': '' }, h('summary', {}, t('link.none.engineers')), why(explained)),
    ] };
  }
  const path = `/v1/links/${code}`;
  const [{ data: link, etag }, past, visits] = await Promise.all([
    ask('GET', path),
    part(() => get(`/v1/links/${code}/history?limit=10`)),
    context.may('stats:read') ? part(() => get(`/v1/links/${code}/visits?limit=10`)) : null,
  ]);
  const tested = await results({
    subject: link, path, may: context.may, again: context.again, headers: { 'If-Match': etag },
    canEnd: context.may('links:write') && link.state !== 'revoked' && !link.campaignId,
  });
  const title = t('link.title', { code });
  // The next visit adds a record that Redis does not have.
  const agrees = ['same', 'missing'].includes(explained.agreement);
  const isWell = explained.answer.rule === 'live' && agrees;
  return { title, parts: [
    h('div', { class: 'head' }, heading(title), badge(link.state), h('div', { class: 'end' },
      actionsOf(link, etag, context))),
    h('div', { class: 'columns' },
      h('div', {},
        facts(link, explained.campaign, at),
        !isWell && h('div', { class: 'notice warn', 'data-why': explained.answer.rule },
          t(`rule.${explained.answer.rule}`), !agrees && [' ', t('link.differs')]),
        statistics({ address: `/v1/links/${code}/stats`, may: context.may, name: `visits-${code}`, begin: link.createdAt }),
        sheet(t('visits.latest'), visitsOf(link, visits)),
        tested,
        (explained.rules || isVaried(link)) && trial(code),
        h('details', { class: 'sheet', open: !isWell, 'data-engineers': '' }, h('summary', {}, t('link.engineers')),
          h('div', { class: 'stack' }, why(explained), details(link), section(t('history'), historyOf(past, code))))),
      h('div', {}, h('section', { class: 'sheet', 'aria-label': t('qr') }, link.shortUrl
        ? qr(link) : h('p', { class: 'faint' }, t('domain.none'))))),
  ] };
}

/** The members of a link that its users know. */
function facts(link, campaign, at) {
  const target = link.longUrl;
  return h('section', { class: 'sheet', 'aria-label': t('link.facts') },
    shortUrl(link, link.shortUrl && h('span', { class: 'slim' }, qrButton(link, t('qr')))),
    h('dl', { class: 'facts' },
      fact(t('field.longUrl'), target && isWeb(target)
        ? h('a', { href: target, rel: 'noreferrer', target: '_blank' }, target) : target ?? t('target.none')),
      link.campaignId && fact(t('field.campaignId'),
        h('a', { href: at(`/campaigns/${link.campaignId}`) }, campaign?.name ?? link.campaignId), ' ',
        link.campaignState && badge(link.campaignState)),
      validity(link),
      link.maxVisits && fact(t('field.maxVisits'), count(link.maxVisits)),
      link.domain && fact(t('field.domain'), link.domain),
      link.tags.length > 0 && fact(t('field.tags'), link.tags.map((tag) => `#${tag}`).join(' ')),
      link.preview && fact(t('preview'), previewInWords(link)),
      link.externalId && fact(t('field.externalId'), link.externalId),
      link.note && fact(t('field.note'), link.note),
      fact(t('column.made'), when(link.createdAt), ' · ', author(link.createdBy, link.createdByName))));
}

/** A part of the details with its own heading. */
const section = (title, ...parts) => h('section', { class: 'stack' }, h('h2', {}, title), parts);

/** The members of a link that only its operators need. */
const details = (link) => h('dl', { class: 'facts' },
  fact(t('field.redirectStatus'), String(link.redirectStatus)),
  link.clickId && fact(t('field.clickId'), h('span', { class: 'code' }, link.clickId)),
  link.strategy && fact(t('field.strategy'), t(`strategy.${link.strategy}`)),
  fact(t('link.changed'), when(link.updatedAt), ' · ', t('revision', { revision: link.revision })));

/** The agreement of SQL and Redis in words. */
const agreementOf = ({ agreement, database }) =>
  t(agreement !== 'same' && database?.waits ? 'agreement.waits' : `agreement.${agreement}`);

/** The answer to a visitor, and the states in SQL and Redis. */
function why(explained) {
  const { answer, database, redis, agreement, campaign, checkedAt } = explained;
  const record = (text) => (text ? h('code', { class: 'record' }, text) : null);
  return h('section', { class: 'stack', 'data-rule': answer.rule, 'data-agreement': agreement },
    h('h2', {}, t('why')),
    h('p', { class: 'verdict' }, h('b', {}, String(answer.status)),
      h('span', {}, t(`rule.${answer.rule}`), ' ', t(`source.${answer.source}`),
        answer.insteadOf && [' ', t('why.instead', { status: answer.insteadOf })])),
    answer.location && h('p', { class: 'code' }, `→ ${answer.location}`),
    h('div', { class: agreement === 'same' ? 'notice good' : 'notice warn' }, agreementOf(explained)),
    h('dl', { class: 'facts' },
      fact('Redis', record(redis.record) ?? t(`redis.${redis.holds}`)),
      fact('SQL', database
        ? [badge(database.state), ' ', t('revision', { revision: database.revision }), record(database.record)]
        : t('sql.nothing')),
      campaign && fact(t('field.campaignId'), campaign.name, ' ', badge(campaign.state),
        campaign.agrees === false && h('p', { class: 'wrong' }, t('campaign.differs')))),
    h('p', { class: 'faint small' }, t('why.at'), ' ', when(checkedAt)));
}

function visitsOf(link, visits) {
  const { total: all = 0, human = 0, refused = 0 } = link.visits ?? {};
  const total = h('p', {}, t('visits.total', { total: all, human }),
    refused > 0 && [' ', t('visits.refused', { count: refused })]);
  if (!visits) return [total, h('p', { class: 'faint' }, needs('stats:read'))];
  if (visits.failure) return [total, notice(visits.failure)];
  if (visits.visits.length === 0) return [total];
  return [total, h('div', {}, h('table', {},
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('column.when')),
      h('th', { scope: 'col' }, t('column.class')),
      h('th', { scope: 'col', class: 'wide' }, t('column.device')),
      h('th', { scope: 'col' }, t('visit.answer')))),
    h('tbody', {}, visits.visits.map((visit) => h('tr', {},
      h('td', { class: 'when' }, when(visit.at)),
      h('td', { class: 'words' }, t(`class.${visit.class}`)),
      h('td', { class: 'wide' }, [visit.app ?? visit.browser, visit.os].filter(Boolean).join(' · ') || '–'),
      h('td', { class: 'words' }, answerOf(visit.status)))))))];
}

function historyOf(past, code) {
  if (past.failure) return notice(past.failure);
  const list = h('ol', { class: 'steps' }, past.history.map(step));
  if (past.history.length === 0) return h('p', { class: 'faint' }, t('history.none'));
  let cursor = past.nextCursor;
  const older = h('button', { type: 'button', click: async () => {
    const next = await part(() => get(`/v1/links/${code}/history?limit=10&cursor=${encodeURIComponent(cursor)}`));
    if (next.failure) {
      older.before(notice(next.failure));
      return;
    }
    list.append(...next.history.map(step));
    cursor = next.nextCursor;
    if (!cursor) older.remove();
  } }, t('pages.older'));
  return [list, cursor && older];
}

function step({ changedAt, changedBy, changedByName, before }) {
  return h('li', {},
    h('p', {}, when(changedAt), ' · ', author(changedBy, changedByName)),
    h('p', { class: 'faint small' }, t('history.before', { revision: before.revision }), ' ',
      before.paused && badge('paused'), ' ', h('span', { class: 'code' }, before.longUrl ?? '')));
}

/** The actions on the link that the API key allows. */
function actionsOf(link, etag, { may, at, again }) {
  if (!may('links:write') || link.state === 'revoked') return null;
  const { shortCode: name, state } = link;
  const change = at(`/links/${name}/change`);
  return actions({
    texts: '', name, path: `/v1/links/${name}`, state, headers: { 'If-Match': etag }, again,
    first: h('a', { class: 'button', href: change, 'data-act': 'change' }, t('change')),
  });
}
