// The first page: concerns that need attention, the latest campaigns, links and jobs, and the short domains.

import { get, notice, part } from '../api.js';
import { h } from '../dom.js';
import { badge, clock, count, percent, when } from '../format.js';
import { t } from '../i18n.js';
import { nameOf } from '../job.js';
import { sheet, shortText } from '../parts.js';

/** The number of rows of each list, and of jobs among which those that change something are listed. */
const ROWS = 5;
const JOBS = 20;

/** The share of the codes in use, and the days until all are, from which the code space needs attention. */
const FULL_FROM = 0.8;
const FULL_WITHIN = 90 * 24 * 3_600_000;

/** The page. */
export async function show({ heading, at, may }) {
  const asked = (scope, path) => (may(scope) ? part(() => get(path)) : null);
  const [campaigns, links, jobs, domains, webhooks, codes, health] = await Promise.all([
    asked('stats:read', '/v1/reports/campaigns?limit=1'),
    asked('links:read', `/v1/links?limit=${ROWS}`),
    asked('links:read', `/v1/jobs?limit=${JOBS}`),
    asked('stats:read', '/v1/domains'),
    asked('webhooks:admin', '/v1/webhooks'),
    asked('links:read', '/v1/codespace'),
    asked('links:read', '/readyz'),
  ]);
  const title = t('overview');
  const changes = (jobs?.jobs ?? []).filter(({ dryRun }) => !dryRun);
  const names = new Map((campaigns?.campaigns ?? []).map(({ id, name }) => [id, name]));
  const concerns = [
    ...troubles(health, at), ...suspicions(domains, at), ...filling(codes, at), ...refusals(webhooks, at),
  ];
  return { title, parts: [
    heading(title),
    ...concerns,
    card('campaigns', campaigns, may('campaigns:read') && at('/campaigns'), ({ campaigns: all }) => (all.length > 0
      ? campaignsOf(all.slice(0, ROWS), at) : start('overview.no-campaign', may('campaigns:write')
        && [at('/campaigns-new'), t('campaign.new')]))),
    h('div', { class: 'halves' },
      card('overview.links', links, at('/links'), ({ links: all }) => (all.length > 0
        ? linksOf(all, at) : start('overview.no-link', may('links:write') && [at('/new'), t('nav.new')]))),
      card('overview.domains', domains, at('/domains'), ({ domains: all }) => (all.length > 0
        ? domainsOf(all) : h('p', { class: 'empty' }, t('domains.none')))),
      changes.length > 0 && card('overview.jobs', jobs, null, () => jobsOf(changes.slice(0, ROWS), names))),
    may('links:write') && sheet(t('overview.start'), h('div', { class: 'row' }, [
      ['/new', 'nav.new'], ['/new/file', 'upload'], ['/message', 'message'],
      may('campaigns:write') && ['/campaigns-new', 'campaign.new'],
    ].filter(Boolean).map(([path, text]) => h('a', { class: 'button', href: at(path) }, t(text))))),
  ].filter(Boolean) };
}

/** A list with its heading, which leads to all of it; null without the right to see it. */
function card(name, answer, address, shown) {
  if (!answer) return null;
  return h('section', { class: 'sheet', 'data-card': name, 'aria-label': t(name) },
    h('div', { class: 'head' }, h('h2', {}, t(name)),
      address && h('a', { class: 'end', href: address, 'aria-label': `${t('overview.all')}: ${t(name)}` }, t('overview.all'))),
    answer.failure ? notice(answer.failure) : shown(answer));
}

/** The next step of a user who has nothing yet. */
const start = (text, next) => h('div', { class: 'empty' }, h('p', {}, t(text)),
  next && h('p', {}, h('a', { class: 'button', href: next[0] }, next[1])));

/** Something that needs attention, with the page that has more about it. */
const concern = (kind, name, text, address) => h('div', { class: `notice ${kind}`, 'data-concern': name },
  text, ' ', h('a', { href: address }, t('overview.more')));

function troubles(health, at) {
  const { checks } = health?.failure?.problem?.checks ? health.failure.problem : health ?? {};
  if (!checks) return [];
  return ['database', 'redis'].filter((name) => checks[name] !== 'up').map((name) =>
    concern('bad', name, t(`overview.${name}`), at('/service')));
}

function suspicions(answer, at) {
  return (answer?.domains ?? []).flatMap(({ domain, fall, networks }) => [
    fall && concern('bad', 'domain', t('overview.fell', { domain, at: clock(fall.at) }), at('/domains')),
    ...networks.map(({ network }) =>
      concern('bad', 'domain', t('overview.fell.network', { domain, network }), at('/domains'))),
  ].filter(Boolean));
}

function filling(answer, at) {
  const issued = (answer?.lengths ?? []).filter(({ isIssued }) => isIssued);
  const isFilling = ({ used, fullAt }) => used >= FULL_FROM || (fullAt && Date.parse(fullAt) - Date.now() < FULL_WITHIN);
  return issued.length > 0 && issued.every(isFilling) ? [concern('warn', 'codes', t('overview.codes'), at('/service'))] : [];
}

function refusals(answer, at) {
  return (answer?.webhooks ?? []).filter(({ state }) => state === 'failing' || state === 'paused').map(({ id, name, state }) =>
    concern('warn', 'webhook', t(`overview.webhook.${state}`, { name }), at(`/webhooks/${id}`)));
}

function campaignsOf(campaigns, at) {
  const isDelivered = campaigns.some(({ messagesByNetwork }) => messagesByNetwork.length > 0);
  const number = (text, kind = '') => h('td', { class: `number ${kind}` }, text);
  const head = (name, kind = '') => h('th', { scope: 'col', class: `number ${kind}` }, t(name));
  return h('table', { class: 'links' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('column.campaign')),
      head('clicks.issued'), isDelivered && head('report.delivered', 'wide'), head('clicks.clicked', 'wide'),
      head('clicks.rate'))),
    h('tbody', {}, campaigns.map((it) => h('tr', { 'data-campaign': it.id },
      h('th', { scope: 'row' },
        h('a', { href: at(`/campaigns/${it.id}`) }, it.name),
        h('span', { class: 'faint small dated' }, when(it.createdAt), it.state !== 'live' && [' ', badge(it.state)])),
      number(count(it.issued)), isDelivered && number(it.messagesByNetwork.length > 0 ? count(it.messages.delivered) : '–', 'wide'),
      number(count(it.clicked), 'wide'), number(it.clickRate === null ? '–' : percent(it.clickRate))))));
}

/** A table with the names of its columns; the last one is a number. */
const table = (heads, rows) => h('table', { class: 'links' },
  h('thead', {}, h('tr', {}, heads.map((text, place) =>
    h('th', { scope: 'col', class: place === heads.length - 1 && 'number' }, text)))),
  h('tbody', {}, rows));

const linksOf = (links, at) => table([t('column.link'), t('column.visits')], links.map((link) =>
  h('tr', { 'data-code': link.shortCode },
    h('th', { scope: 'row' },
      h('a', { class: 'code', href: at(`/links/${link.shortCode}`) }, shortText(link)),
      h('span', { class: 'faint small' }, link.longUrl ?? t('target.none'))),
    h('td', { class: 'number' }, count(link.visits?.total)))));

const domainsOf = (domains) => table([t('domains.domain'), t('domains.visits')],
  domains.map(({ domain, announced, visits, fall }) => h('tr', { 'data-domain': domain },
    h('th', { scope: 'row' },
      h('span', { class: 'code' }, domain),
      announced[0]?.brand && h('span', { class: 'faint small' }, announced[0].brand),
      h('span', {}, fall ? h('span', { class: 'state revoked' }, t('overview.suspected'))
        : badge(announced[0]?.state ?? 'unlisted'))),
    h('td', { class: 'number' }, count(visits)))));

const jobsOf = (jobs, names) => table([t('job'), t('field.state'), t('links')], jobs.map((job) => h('tr', { 'data-job': job.id },
  h('th', { scope: 'row' }, h('span', {}, nameOf(job, names)), h('span', { class: 'faint small dated' }, when(job.createdAt))),
  h('td', { class: 'words' }, t(`job.${job.state}`)),
  h('td', { class: 'number' }, count(job.done)))));
