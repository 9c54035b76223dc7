// All about one campaign, and what can be done with all its links at once.

import { actions } from '../actions.js';
import { get } from '../api.js';
import { h } from '../dom.js';
import { badge, when } from '../format.js';
import { t } from '../i18n.js';
import { fact } from '../parts.js';
import { statistics } from '../statistics.js';

/** The page. */
export async function show(context, [id]) {
  const { heading, at, may, again } = context;
  const campaign = await get(`/v1/campaigns/${id}`);
  const { name, state } = campaign;
  const title = t('campaign.title', { name });
  const canChange = may('campaigns:write') && state !== 'revoked';
  return { title, parts: [
    h('div', { class: 'head' }, heading(title), badge(state), h('div', { class: 'end' }, canChange
      && actions({ texts: 'campaign.', name, path: `/v1/campaigns/${id}`, state, again }))),
    h('section', { class: 'sheet', 'aria-label': t('link.facts') },
      h('dl', { class: 'facts' },
        fact(t('campaign.id'), h('span', { class: 'code' }, campaign.id)),
        fact(t('campaign.template'), h('span', { class: 'code' }, campaign.longUrl)),
        fact(t('field.redirectStatus'), String(campaign.redirectStatus)),
        (campaign.validSince || campaign.validUntil) && fact(t('link.valid'),
          when(campaign.validSince), ' … ', when(campaign.validUntil)),
        campaign.externalId && fact(t('field.externalId'), campaign.externalId),
        campaign.note && fact(t('field.note'), campaign.note),
        fact(t('column.made'), when(campaign.createdAt)),
        fact(t('link.changed'), when(campaign.updatedAt), ' · ', t('revision', { revision: campaign.revision }))),
      may('links:read') && h('p', {}, h('a', { href: at(`/links?campaignId=${id}`) }, t('campaign.links')))),
    statistics({ address: `/v1/campaigns/${id}/stats`, may, name: `visits-campaign-${id}` }),
  ] };
}
