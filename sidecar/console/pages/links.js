// Lists links, a page at a time, without a total: the service never counts them.

import { get } from '../api.js';
import { bulk } from '../bulk.js';
import { h } from '../dom.js';
import { t } from '../i18n.js';
import { asked, choosing, pages } from '../listing.js';
import { table } from '../table.js';
import { campaigns, keys, tags } from '../suggestions.js';

const STATES = ['live', 'scheduled', 'paused', 'expired', 'revoked'];
const TEXTS = ['tag', 'campaignId', 'externalId', 'longUrl', 'createdBy'];
const NAMES = ['state', 'clicked', ...TEXTS, 'uploadId'];
const LIMIT = 25;

/** The page. */
export async function show({ heading, at, go, may, left, again }) {
  const here = new URLSearchParams(location.search);
  const query = asked(here, NAMES, LIMIT);
  const [{ links, nextCursor }, ...known] = await Promise.all([
    get(`/v1/links?${query}`), campaigns(may), keys(may),
  ]);
  const title = t('links');
  const filter = new URLSearchParams([...here].filter(([name]) => NAMES.includes(name)));
  const listed = table(links, { at, picks: may('links:write') });
  return { title, parts: [
    heading(title),
    filters({ here, go, at, links, known }),
    links.length > 0 ? listed : h('div', { class: 'sheet empty' },
      h('p', {}, said(query, nextCursor)),
      query.size === 1 && may('links:write') && h('p', {}, h('a', { class: 'button', href: at('/new') }, t('nav.new')))),
    links.length > 0 && may('links:write') && bulk(listed, { filter, left, again }),
    pages({
      here, path: '/links', at, nextCursor,
      first: t('pages.newest'), next: links.length > 0 ? t('pages.older') : t('links.look-on'),
    }),
  ].filter(Boolean) };
}

/** The text of an empty page: with a rare filter, the service scans some thousand links per request. */
function said(query, nextCursor) {
  if (nextCursor) return t('links.go-on');
  return query.size > 1 ? t('links.none-found') : t('links.none');
}

/** The filters, with suggestions; a campaign or an API key is chosen by its name. */
function filters({ here, go, at, links, known: [ofCampaigns, ofKeys] }) {
  const labelled = (name, ...field) => h('div', {},
    h('label', { for: `by-${name}` }, t(`field.${name}`)), field);
  const suggestions = { campaignId: ofCampaigns, createdBy: ofKeys, tag: tags(links, ofCampaigns) };
  const text = (name) => {
    const known = suggestions[name];
    return labelled(name,
      h('input', {
        id: `by-${name}`, name, value: known?.nameOf(here.get(name)) ?? here.get(name), autocomplete: 'off',
        autocapitalize: 'none', list: known && `known-${name}`,
      }),
      known && h('datalist', { id: `known-${name}` }, known.names.map((value) => h('option', { value }))));
  };
  const choice = (name, values) => labelled(name, h('select', { id: `by-${name}`, name },
    h('option', { value: '' }, t('state.any')),
    values.map(([value, said]) => h('option', { value, selected: here.get(name) === value }, said))));
  const isUsed = NAMES.some((name) => here.get(name));
  return h('details', { class: 'sheet', open: isUsed },
    h('summary', {}, t('filter')),
    h('form', { class: 'filters', submit: choosing(go, '/links', (name, value) => suggestions[name]?.idOf(value) ?? value) },
      choice('state', STATES.map((state) => [state, t(`state.${state}`)])),
      choice('clicked', ['true', 'false'].map((value) => [value, t(`clicked.${value}`)])),
      TEXTS.map(text),
      here.get('uploadId') && h('input', { type: 'hidden', name: 'uploadId', value: here.get('uploadId') }),
      h('div', { class: 'row' },
        h('button', {}, t('filter.apply')),
        isUsed && h('a', { href: at('/links') }, t('filter.clear')))));
}
