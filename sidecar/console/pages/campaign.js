// One campaign, and the actions on all its links at once.

import { actions } from '../actions.js';
import { get, part } from '../api.js';
import { clicks } from '../clicks.js';
import { conversions } from '../conversions.js';
import { h } from '../dom.js';
import { badge, count, created, when } from '../format.js';
import { t } from '../i18n.js';
import { fact, sheet, validity } from '../parts.js';
import { inWords, sizeOf } from '../reach.js';
import { previewInWords } from '../rules.js';
import { statistics } from '../statistics.js';
import { isVaried, trial } from '../trial.js';
import { uploader } from '../upload/part.js';
import { results } from '../variants.js';

/** The page. */
export async function show(context, [id]) {
  const { heading, at, may, again } = context;
  const [campaign, size] = await Promise.all([get(`/v1/campaigns/${id}`), sizeOf(id)]);
  const { name, state } = campaign;
  const path = `/v1/campaigns/${id}`;
  const canChange = may('campaigns:write') && state !== 'revoked';
  const converted = may('stats:read') ? await part(() => get(`${path}/conversions`)) : null;
  const [{ clicked, firstAt }, tested, tried] = await Promise.all([
    clicks({ campaign, converted, may }),
    results({ subject: campaign, path, canEnd: canChange, may, again }), sample(campaign, may),
  ]);
  const title = t('campaign.title', { name });
  const links = h('span', { 'data-links': '' }, numberOf(size));
  const recount = async () => {
    const now = await sizeOf(id);
    links.replaceChildren(numberOf(now));
  };
  const upload = may('links:write') && state !== 'revoked'
    && sheet(t('upload'), uploader(context, campaign, recount));
  const isEmpty = size?.count === 0;
  return { title, parts: [
    h('div', { class: 'head' }, heading(title), badge(state), h('div', { class: 'end row' },
      may('links:write') && state === 'live' && h('a', {
        class: 'button', href: at(`/message?${new URLSearchParams({ campaignId: id })}`), 'data-message': '',
      }, t('campaign.message')),
      may('stats:read') && h('a', {
        class: 'button', href: at(`/campaigns-compared?${new URLSearchParams({ id, latest: '' })}`), 'data-compare': '',
      }, t('campaigns.compare')),
      canChange && actions({
        texts: 'campaign.', name, path, state, again,
        first: h('a', { class: 'button', href: at(`/campaigns/${id}/change`), 'data-act': 'change' }, t('change')),
        reach: async () => inWords(await sizeOf(id)),
      }))),
    isEmpty && upload,
    !isEmpty && clicked,
    tested,
    conversions(converted),
    facts(campaign, links, { at, may }),
    !isEmpty && upload,
    statistics({
      address: `/v1/campaigns/${id}/stats`, may, name: `visits-campaign-${id}`, begin: campaign.createdAt, firstAt,
    }),
    tried,
    h('details', { class: 'sheet' }, h('summary', {}, t('campaign.engineers')), h('dl', { class: 'facts' },
      fact(t('campaign.id'), h('span', { class: 'code' }, campaign.id)),
      fact(t('field.redirectStatus'), String(campaign.redirectStatus)),
      campaign.clickId && fact(t('field.clickId'), h('span', { class: 'code' }, campaign.clickId)),
      fact(t('link.changed'), when(campaign.updatedAt), ' · ', t('revision', { revision: campaign.revision })))),
  ].filter(Boolean) };
}

/** The members of a campaign that its users know. */
function facts(campaign, links, { at, may }) {
  const { defaults } = campaign;
  return h('section', { class: 'sheet', 'aria-label': t('link.facts') }, h('dl', { class: 'facts' },
    fact(t('campaign.template'), h('span', { class: 'code' }, campaign.longUrl)),
    fact(t('links'), links, may('links:read') && [' · ',
      h('a', { href: at(`/links?${new URLSearchParams({ campaignId: campaign.id })}`) }, t('campaign.links'))]),
    campaign.maxLinks && fact(t('key.links'), created(campaign.linksCreated, campaign.maxLinks)),
    validity(campaign),
    campaign.preview && fact(t('preview'), previewInWords(campaign)),
    campaign.externalId && fact(t('field.externalId'), campaign.externalId),
    campaign.note && fact(t('field.note'), campaign.note),
    Object.keys(defaults).length > 0 && fact(t('campaign.defaults'), inShort(defaults)),
    fact(t('column.made'), when(campaign.createdAt))));
}

/** "Try as …" with a link of the campaign, if visitors can get different answers. */
async function sample(campaign, may) {
  if (!may('links:read') || !isVaried(campaign)) return null;
  const listed = await part(() => get(`/v1/links?campaignId=${campaign.id}&limit=1`));
  const [link] = listed.links ?? [];
  return link && trial(link.shortCode, t('try.link', { code: link.shortCode }));
}

const numberOf = (size) => (size ? `${count(size.count)}${size.isAll ? '' : '+'}` : '–');

/** The defaults of new links. */
function inShort({ tags = [], maxVisits, domain, strategy, codeLength }) {
  const length = codeLength?.min ? `${codeLength.min}–${codeLength.max}` : codeLength;
  return [
    tags.length > 0 && tags.map((tag) => `#${tag}`).join(' '),
    maxVisits && `${t('field.maxVisits')}: ${count(maxVisits)}`,
    domain && `${t('field.domain')}: ${domain}`,
    strategy && `${t('field.defaults.strategy')}: ${strategy}`,
    length && `${t('field.defaults.codeLength')}: ${length}`,
  ].filter(Boolean).join(' · ');
}
