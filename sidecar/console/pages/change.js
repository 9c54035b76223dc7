// Changes a link, unless it has changed since it was shown.

import { ask, get, lacking, part } from '../api.js';
import { h } from '../dom.js';
import { form } from '../form.js';
import { t } from '../i18n.js';
import { planOf, previewOf } from '../rules.js';
import { activeDomains, domainField } from '../short-domains.js';
import { testOf, together, withVariants } from '../variants.js';

const STATUSES = ['301', '302', '307', '308'];

/** The fields of a link without a campaign; a campaign determines them for its links. */
const OWN = [{ name: 'longUrl', kind: 'url', required: true, hint: true }];

/** Those that only engineers need. */
const ENGINEERS = [
  { name: 'redirectStatus', kind: 'choice', choices: STATUSES.map((status) => [status, status]) },
  { name: 'forwardQuery', kind: 'truth' },
  { name: 'clickId', kind: 'text', hint: true },
];

const FIELDS = [
  { name: 'tags', kind: 'tags', hint: true },
  { name: 'validSince', kind: 'moment' },
  { name: 'validUntil', kind: 'moment' },
  { name: 'maxVisits', kind: 'number', hint: true },
];

const LAST = [
  { name: 'externalId', kind: 'text' },
  { name: 'note', kind: 'long' },
];

/** The page. */
export async function show({ heading, at, go, may }, [code]) {
  const [{ data, etag }, domains] = await Promise.all([ask('GET', `/v1/links/${code}`), activeDomains(may)]);
  const link = withVariants(data);
  const title = t('change.title', { code });
  const page = at(`/links/${code}`);
  if (!may('links:write')) {
    return { title, parts: [heading(title), lacking('links:write')] };
  }
  const of = link.campaignId && may('campaigns:read') ? await part(() => get(`/v1/campaigns/${link.campaignId}`)) : {};
  const changed = form({
    fields: [...(link.campaignId ? values(link) : OWN), ...FIELDS,
      domainField(domains, { campaign: { id: link.campaignId }, keyId: link.createdBy }, { present: link.domain }), ...LAST],
    parts: link.campaignId ? [] : [planOf(), testOf(), previewOf(), [t('form.engineers'), ENGINEERS]],
    link,
    send: t('change.send'),
    cancel: h('a', { class: 'button', href: page }, t('cancel')),
    call: async (members) => {
      if (Object.keys(members).length > 0) {
        await ask('PATCH', `/v1/links/${code}`, together(members, link), { 'If-Match': etag });
      }
      go(`/links/${code}`);
    },
  });
  return { title, parts: [
    heading(title),
    link.campaignId && h('div', { class: 'notice narrow' },
      t('change.campaign', { campaign: of.name ?? link.campaignId })),
    h('div', { class: 'sheet narrow' }, changed),
  ].filter(Boolean) };
}

/** A field for each parameter of the campaign's target. */
const values = ({ parameters = {} }) => Object.keys(parameters).map((name) => ({
  name: `parameters.${name}`, kind: 'value', label: t('upload.parameter', { name }), required: true,
}));
