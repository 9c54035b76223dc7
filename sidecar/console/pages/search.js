// Finds links and campaigns by what a user remembers of them. Each question is answered by an index of the database.

import { get, notice, part } from '../api.js';
import { h, isWeb } from '../dom.js';
import { badge } from '../format.js';
import { t } from '../i18n.js';
import { sheet } from '../parts.js';
import { campaigns } from '../suggestions.js';
import { table } from '../table.js';

/** The number of links that are shown by each property. */
const SHOWN = 10;

/** The code that a text has in it: itself, or the end of a short URL. */
function codeOf(text) {
  const code = text.split(/[?#]/)[0].replace(/\/+$/, '').split('/').pop();
  return /^[-0-9A-Za-z_]{1,64}$/.test(code) ? code : null;
}

/** An answer; an empty one where the text cannot be such a property, nothing has it, or the service has no such index. */
async function found(call) {
  const answer = await part(call);
  return [400, 404, 409, 422].includes(answer.failure?.status) ? { missed: answer.failure } : answer;
}

/** The page. */
export async function show({ heading, at, may }) {
  const text = (new URLSearchParams(location.search).get('q') ?? '').trim();
  const title = t('search.title', { text });
  const code = codeOf(text);
  // Tags are mostly in small letters.
  const tags = [...new Set([text, text.toLowerCase()])].map((tag) => ['tag', tag]);
  const by = isWeb(text) ? [['longUrl', text]] : [...tags, ['externalId', text]];
  const [own, known, ...lists] = await Promise.all([
    code ? found(() => get(`/v1/links/${code}`)) : {},
    campaigns(may),
    ...by.map((pair) => found(() => get(`/v1/links?${new URLSearchParams([pair, ['limit', SHOWN]])}`))),
  ]);
  const unindexed = lists.find(({ missed }) => missed?.status === 409);
  const failed = [own, ...lists].find(({ failure }) => failure);
  const named = known.all.filter(({ name, externalId }) =>
    name.toLowerCase().includes(text.toLowerCase()) || externalId === text);
  const parts = [
    failed && notice(failed.failure),
    own.shortCode && group('search.code', 'code', table([own], { at })),
    named.length > 0 && group('campaigns', 'campaign', h('ul', {}, named.slice(0, SHOWN).map(({ id, name, state }) =>
      h('li', {}, h('a', { href: at(`/campaigns/${id}`) }, name), ' ', badge(state))))),
    ...lists.map(({ links = [], nextCursor }, place) => links.length > 0 && group(`search.${by[place][0]}`, by[place][0],
      table(links, { at }),
      nextCursor && h('p', {}, h('a', { href: at(`/links?${new URLSearchParams([by[place]])}`) }, t('overview.all'))))),
  ].filter(Boolean);
  if (parts.length === 0) {
    parts.push(h('div', { class: 'sheet empty' }, h('p', {}, t('search.none')), h('p', {}, t('search.hint')),
      unindexed && h('p', {}, unindexed.missed.problem.detail),
      code && h('p', {}, h('a', { href: at(`/links/${code}`) }, t('search.why', { code })))));
  }
  return { title, parts: [heading(title), ...parts] };
}

/** The results by one property. */
const group = (title, by, ...shown) => h('div', { 'data-found': by, class: 'stack' }, sheet(t(title), shown));
