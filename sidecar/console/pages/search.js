// Finds links and campaigns by what a user remembers of them.

import { get, notice, part } from '../api.js';
import { h } from '../dom.js';
import { badge } from '../format.js';
import { t } from '../i18n.js';
import { sheet } from '../parts.js';
import { table } from '../table.js';

/** The number of links that an answer has by each member. */
const SHOWN = 10;

/** The code that a text has in it: itself, or the end of a short URL. */
function codeOf(text) {
  const code = text.split(/[?#]/)[0].replace(/\/+$/, '').split('/').pop();
  return /^[-0-9A-Za-z_]{1,64}$/.test(code) ? code : null;
}

/** The members that links are found by, each with the values of a link by which a list can be filtered. */
const MEMBERS = {
  shortCode: () => [],
  externalId: (link) => [link.externalId],
  tag: (link) => link.tags,
  longUrl: (link) => [link.longUrl],
  note: () => [],
};

/** The page. */
export async function show({ heading, at }) {
  const text = (new URLSearchParams(location.search).get('q') ?? '').trim();
  const title = t('search.title', { text });
  const { failure, links = [], campaigns = [] } = await part(() => get(`/v1/search?${new URLSearchParams({ q: text })}`));
  const parts = [
    failure && notice(failure),
    campaigns.length > 0 && group('campaigns', 'campaign', h('ul', {}, campaigns.map(({ id, name, state }) =>
      h('li', {}, h('a', { href: at(`/campaigns/${id}`) }, name), ' ', badge(state))))),
    ...Object.entries(MEMBERS).map(([member, values]) => {
      const some = links.filter(({ foundBy }) => foundBy === member).map(({ link }) => link);
      const isWhole = some.length === SHOWN && some.every((link) => values(link).includes(text));
      return some.length > 0 && group(`search.${member}`, member, table(some, { at }),
        isWhole && h('p', {}, h('a', { href: at(`/links?${new URLSearchParams([[member, text]])}`) }, t('overview.all'))));
    }),
  ].filter(Boolean);
  if (parts.length === 0) {
    const code = codeOf(text);
    parts.push(h('div', { class: 'sheet empty' }, h('p', {}, t('search.none')), h('p', {}, t('search.hint')),
      code && h('p', {}, h('a', { href: at(`/links/${code}`) }, t('search.why', { code })))));
  }
  return { title, parts: [heading(title), ...parts] };
}

/** The results by one member. */
const group = (title, by, ...shown) => h('div', { 'data-found': by, class: 'stack' }, sheet(t(title), shown));
