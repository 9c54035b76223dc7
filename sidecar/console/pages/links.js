// Lists links, a page at a time, without a total: the service never counts them.

import { get } from '../api.js';
import { h, isWeb } from '../dom.js';
import { badge, count, when } from '../format.js';
import { t } from '../i18n.js';
import { asked, choosing, pages } from '../listing.js';

const STATES = ['live', 'scheduled', 'paused', 'expired', 'revoked'];
const TEXTS = ['tag', 'externalId', 'longUrl', 'campaignId', 'createdBy'];
const LIMIT = 25;

/** The page. */
export async function show({ heading, at, go, may }) {
  const here = new URLSearchParams(location.search);
  const query = asked(here, ['state', ...TEXTS], LIMIT);
  const { links, nextCursor } = await get(`/v1/links?${query}`);
  const title = t('links');
  return { title, parts: [
    h('div', { class: 'head' }, heading(title), h('div', { class: 'end' }, lookUp(go))),
    filters(here, go, at),
    links.length > 0 ? table(links, at) : h('div', { class: 'sheet empty' },
      h('p', {}, said(query, nextCursor)),
      query.size === 1 && may('links:write') && h('p', {}, h('a', { href: at('/new') }, t('nav.new')))),
    pages({
      here, path: '/links', at, nextCursor,
      first: t('pages.newest'), next: links.length > 0 ? t('pages.older') : t('links.look-on'),
    }),
  ] };
}

/** The text of an empty page: with a rare filter, the service scans some thousand links per request. */
function said(query, nextCursor) {
  if (nextCursor) return t('links.go-on');
  return query.size > 1 ? t('links.none-found') : t('links.none');
}

/** Opens the link of a code or short URL, or lists the links of a target. */
function lookUp(go) {
  const field = h('input', {
    name: 'look', 'aria-label': t('look-up.label'), placeholder: t('look-up.label'), required: true,
    autocomplete: 'off', autocapitalize: 'none', spellcheck: 'false',
  });
  const said = h('p', { class: 'wrong', role: 'alert' });
  const look = (event) => {
    event.preventDefault();
    const text = field.value.trim();
    const code = text.split(/[?#]/)[0].replace(/\/+$/, '').split('/').pop();
    const target = isWeb(text) ? `?${new URLSearchParams({ longUrl: text })}` : '';
    // A URL that ends like a short URL can be a target: the page of an unknown code offers that.
    if (/^[-0-9A-Za-z_]{1,64}$/.test(code)) go(`/links/${code}${target}`);
    else if (target) go(`/links${target}`);
    else said.textContent = t('look-up.wrong');
  };
  return h('form', { role: 'search', submit: look },
    h('div', { class: 'look' }, field, h('button', {}, t('look-up'))), said);
}

function filters(here, go, at) {
  const labelled = (name, field) => h('div', {},
    h('label', { for: `by-${name}` }, t(`field.${name}`)), field);
  const text = (name) => labelled(name,
    h('input', { id: `by-${name}`, name, value: here.get(name), autocomplete: 'off', autocapitalize: 'none' }));
  const isUsed = ['state', ...TEXTS].some((name) => here.get(name));
  return h('details', { class: 'sheet', open: isUsed },
    h('summary', {}, t('filter')),
    h('form', { class: 'filters', submit: choosing(go, '/links') },
      labelled('state', h('select', { id: 'by-state', name: 'state' },
        h('option', { value: '' }, t('state.any')),
        STATES.map((state) => h('option', { value: state, selected: here.get('state') === state },
          t(`state.${state}`))))),
      TEXTS.map(text),
      h('div', { class: 'row' },
        h('button', {}, t('filter.apply')),
        isUsed && h('a', { href: at('/links') }, t('filter.clear')))));
}

function table(links, at) {
  return h('div', { class: 'sheet table' }, h('table', { class: 'links' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('column.link')),
      h('th', { scope: 'col' }, t('field.state')),
      h('th', { scope: 'col', class: 'number wide' }, t('column.visits')),
      h('th', { scope: 'col', class: 'wide' }, t('column.made')))),
    h('tbody', {}, links.map((link) => h('tr', { 'data-code': link.shortCode },
      h('th', { scope: 'row' },
        h('a', { class: 'code', href: at(`/links/${link.shortCode}`) }, link.shortCode),
        h('span', { class: 'faint small', title: link.longUrl }, link.longUrl ?? t('target.none')),
        link.tags.length > 0 && h('span', { class: 'faint small' }, link.tags.map((tag) => `#${tag}`).join(' '))),
      h('td', {}, badge(link.state === 'live' ? link.campaignState ?? 'live' : link.state)),
      h('td', { class: 'number wide' }, count(link.visits?.total)),
      h('td', { class: 'when wide' }, when(link.createdAt)))))));
}
