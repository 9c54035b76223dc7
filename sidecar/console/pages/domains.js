// The short domains as each nginx reports them, the visits of each, and those that are suspected blocked.

import { get, part, notice } from '../api.js';
import { h, svg } from '../dom.js';
import { badge, clock, count, when } from '../format.js';
import { t } from '../i18n.js';
import { sheet } from '../parts.js';
import { campaigns, keys } from '../suggestions.js';

/** The number of minutes that are shown, with the current one. */
const MINUTES = 61;

/** The interval between reloads in milliseconds. */
const EVERY = 15_000;

/** The page. */
export async function show({ heading, left, may }) {
  const title = t('domains');
  const place = h('div', { class: 'stack' });
  const [first, ...names] = await Promise.all([get('/v1/domains'), campaigns(may), keys(may)]);
  place.replaceChildren(...shown(first, names));
  const timer = setInterval(async () => {
    if (document.hidden) return;
    const answer = await part(() => get('/v1/domains'));
    if (left.aborted) return;
    place.replaceChildren(...(answer.failure ? [notice(answer.failure)] : shown(answer, names)));
  }, EVERY);
  left.addEventListener('abort', () => clearInterval(timer));
  return { title, parts: [heading(title), place] };
}

/** The parts of the page; `names` are those of campaigns and API keys. */
function shown({ since, visitsAreLate, nodes, domains }, names) {
  const fallen = domains.filter(({ fall }) => fall);
  return [
    nodes.length === 0 && h('div', { class: 'notice warn', 'data-unheard': '' }, t('domains.unheard')),
    visitsAreLate && h('div', { class: 'notice warn', 'data-late': '' }, t('domains.late')),
    ...fallen.map(fell),
    ...domains.flatMap((domain) => domain.networks.map((fall) => fellInNetwork(domain, fall))),
    domains.length > 0
      ? h('div', { class: 'sheet table' }, table(domains, nodes, Date.parse(since), names))
      : h('p', { class: 'sheet empty' }, t('domains.none')),
    nodes.length > 0 && sheet(t('domains.nodes'), h('p', { class: 'hint' }, t('domains.nodes.hint')), nodesOf(nodes)),
  ].filter(Boolean);
}

/** A warning that a domain may be blocked, with the next steps. */
function fell({ domain, fall }) {
  const values = { domain, before: Math.round(fall.before), since: Math.round(fall.since), at: clock(fall.at) };
  return h('div', { class: 'notice bad', 'data-fell': domain },
    h('strong', {}, t('domains.fell', values)), h('p', {}, t('domains.fell.hint')));
}

/** A warning that a network may block a domain. */
function fellInNetwork({ domain }, { network, before, since, at }) {
  const values = { domain, network, before: Math.round(before), since: Math.round(since), at: clock(at) };
  return h('div', { class: 'notice bad', 'data-fell-network': `${domain} ${network}` },
    h('strong', {}, t('domains.fell.network', values)), h('p', {}, t('domains.fell.network.hint')));
}

function table(domains, nodes, since, names) {
  return h('table', { class: 'domains' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('domains.domain')),
      h('th', { scope: 'col' }, t('field.state')),
      h('th', { scope: 'col', class: 'number' }, t('domains.visits')),
      h('th', { scope: 'col', class: 'wide' }, t('domains.minutes')))),
    h('tbody', {}, domains.map((domain) => h('tr', { 'data-domain': domain.domain },
      h('th', { scope: 'row' }, h('span', { class: 'code' }, domain.domain), more(domain, names),
        h('span', { class: 'slim' }, bars(domain, since))),
      h('td', {}, states(domain, nodes)),
      h('td', { class: 'number' }, count(domain.visits)),
      h('td', { class: 'bar wide' }, bars(domain, since))))));
}

/** The further details of a domain: each variant that nodes report, once. */
function more({ announced }, [ofCampaigns, ofKeys]) {
  const said = announced.filter(({ baseUrl, brand }) => baseUrl || brand).map(({ baseUrl, brand, weight, campaignId, keyId }) => [
    brand, baseUrl,
    weight > 1 && t('domains.weight', { weight }),
    campaignId && t('domains.campaign', { name: ofCampaigns.nameOf(campaignId) ?? campaignId }),
    keyId && t('domains.key', { name: ofKeys.nameOf(keyId) ?? keyId }),
  ].filter(Boolean).join(' · '));
  return [...new Set(said)].map((text) => h('span', { class: 'faint small' }, text));
}

/** The state; per node where they differ. */
function states({ announced }, nodes) {
  const known = (state) => badge(state ?? 'other');
  if (announced.length === 0) return known('unlisted');
  const all = new Map(announced.map(({ node, state }) => [node, state]));
  const isSame = all.size === nodes.length && new Set(all.values()).size === 1;
  if (isSame) return known(announced[0].state);
  return h('ul', { class: 'by-node', 'data-differs': '' }, nodes.map(({ node }) => h('li', {},
    h('span', { class: 'faint small' }, node), ' ', known(all.has(node) ? all.get(node) : 'unlisted'))));
}

/** A bar for each minute, as high as it had visits, and a line where they collapsed. */
function bars({ domain, visits, minutes, fall }, since) {
  const most = Math.max(...minutes.map((minute) => minute.visits), 1);
  const at = (moment) => Math.round((Date.parse(moment) - since) / 60_000);
  const drawn = minutes.map((minute) => {
    const height = (minute.visits / most) * 20;
    return svg('rect', { x: at(minute.begin), y: 20 - height, width: 0.8, height });
  });
  if (fall) drawn.push(svg('path', { class: 'fell', d: `M${at(fall.at) - 0.1} 0V20` }));
  return svg('svg', {
    class: 'bars', viewBox: `0 0 ${MINUTES} 20`, preserveAspectRatio: 'none', role: 'img',
    'aria-label': t('domains.chart', { domain, count: visits, most }),
  }, svg('path', { d: `M0 20H${MINUTES}` }), ...drawn);
}

function nodesOf(nodes) {
  return h('div', {}, h('table', {},
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('domains.node')),
      h('th', { scope: 'col', class: 'number' }, t('domains')),
      h('th', { scope: 'col', class: 'wide' }, t('domains.changed')),
      h('th', { scope: 'col' }, t('domains.heard')))),
    h('tbody', {}, nodes.map(({ node, domains, notTold, changedAt, heardAt }) => h('tr', { 'data-node': node },
      h('th', { scope: 'row', class: 'code' }, node),
      h('td', { class: 'number' }, count(domains),
        notTold > 0 && h('span', { class: 'faint small' }, ` ${t('domains.cut', { count: notTold })}`)),
      h('td', { class: 'wide' }, when(changedAt)),
      h('td', {}, when(heardAt)))))));
}
