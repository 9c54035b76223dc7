// Creates a campaign, or changes one and with it the targets of all its links.

import { ask, get, lacking, part } from '../api.js';
import { confirmed, h } from '../dom.js';
import { form } from '../form.js';
import { t } from '../i18n.js';
import { inWords, sizeOf } from '../reach.js';
import { planOf, previewOf } from '../rules.js';
import { activeDomains, domainField } from '../short-domains.js';
import { filled } from '../template.js';
import { testOf, together, withVariants } from '../variants.js';

const STATUSES = ['301', '302', '307', '308'];
const STRATEGIES = ['permuted', 'pool', 'sequence', 'hash'];

/** The number of links in the preview. */
const SAMPLES = 3;

const same = (value) => [value, value];

/** The fields; those that only a new campaign has are left out of others. `domain` is that of the short domain. */
function fields(isNew, domain) {
  const first = [
    { name: 'name', kind: 'text', required: true },
    { name: 'longUrl', kind: 'url', required: true, placeholder: 'https://', label: t('campaign.template') },
  ];
  const preset = (value) => [...(isNew ? [['', t('as-configured')]] : []), ...value];
  const more = [
    { name: 'validSince', kind: 'moment' },
    { name: 'validUntil', kind: 'moment' },
    isNew && { name: 'externalId', kind: 'text' },
    { name: 'note', kind: 'long' },
    { name: 'maxLinks', kind: 'number', hint: true },
    { name: 'defaults.tags', kind: 'tags', hint: true },
    { name: 'defaults.maxVisits', kind: 'number', hint: true },
    domain,
  ].filter(Boolean);
  const engineers = [
    { name: 'redirectStatus', kind: 'choice', choices: preset(STATUSES.map(same)) },
    { name: 'forwardQuery', kind: 'truth' },
    isNew && { name: 'parameters', kind: 'tags', hint: true },
    { name: 'clickId', kind: 'text', hint: true },
    { name: 'defaults.strategy', kind: 'choice', hint: true,
      choices: [['', t('as-configured')], ...STRATEGIES.map(same)] },
    { name: 'defaults.codeLength', kind: 'length', hint: true },
  ].filter(Boolean);
  return { fields: first, more, parts: [planOf(), testOf(), previewOf(), [t('form.engineers'), engineers]] };
}

/** The page: of a new campaign, or of the one with an id. */
export async function show({ heading, at, go, may, keyId }, [id]) {
  const title = t(id ? 'campaign.change' : 'campaign.new');
  if (!may('campaigns:write')) {
    return { title, parts: [heading(title), lacking('campaigns:write')] };
  }
  const [domains, campaign, samples, size] = await Promise.all([activeDomains(may), ...(id ? [
    get(`/v1/campaigns/${id}`),
    may('links:read') ? part(() => get(`/v1/links?campaignId=${id}&limit=${SAMPLES}`)) : null,
    sizeOf(id),
  ] : [])]);
  const planned = withVariants(campaign ?? {});
  const preview = h('div', { 'data-preview': '' });
  const made = form({
    ...fields(!id, domainField(domains, { campaign, keyId: keyId() }, {
      name: 'defaults.domain', present: campaign?.defaults.domain,
    })),
    link: planned,
    send: t(id ? 'change.send' : 'campaign.make'),
    cancel: h('a', { class: 'button', href: at(id ? `/campaigns/${id}` : '/campaigns') }, t('cancel')),
    changed: (inputs) => {
      const template = inputs.get('longUrl').value;
      preview.replaceChildren(id ? leads(template, campaign, samples?.links ?? []) : placesOf(template));
    },
    call: async (members) => {
      if (!id) {
        const { data } = await ask('POST', '/v1/campaigns', members);
        go(`/campaigns/${data.id}`);
        return;
      }
      const isElsewhere = members.longUrl !== undefined && members.longUrl !== campaign.longUrl;
      if (isElsewhere && !await agreed(campaign, members.longUrl, size)) return;
      if (Object.keys(members).length > 0) await ask('PATCH', `/v1/campaigns/${id}`, together(members, planned));
      go(`/campaigns/${id}`);
    },
  });
  // Beside the field that it is about.
  made.querySelector('[name=longUrl]').parentElement.after(preview);
  return { title, parts: [heading(title), h('div', { class: 'sheet narrow' }, made)] };
}

const agreed = (campaign, target, size) => confirmed({
  title: t('retarget.title', { name: campaign.name }),
  text: `${t('retarget.text', { target })} ${inWords(size)}`,
  yes: t('retarget.yes'), no: t('cancel'),
});

/** The parameters of a template. */
function placesOf(template) {
  const names = [...new Set([...template.matchAll(/\{(\w+)\}/g)].map(([, name]) => name))]
    .filter((name) => name !== 'code');
  return h('p', { class: 'hint' }, names.length > 0
    ? t('campaign.places', { names: names.join(', ') }) : t('campaign.places.none'));
}

/** The targets of some of its links. */
function leads(template, campaign, links) {
  if (links.length === 0) return placesOf(template);
  const isSame = template.trim() === campaign.longUrl;
  return h('div', { class: 'preview' },
    h('p', { class: 'label' }, t(isSame ? 'preview.now' : 'preview.then')),
    h('ul', {}, links.map((link) => h('li', { class: 'small' },
      h('span', { class: 'code' }, link.shortCode), ' → ',
      h('span', { class: 'code' }, filled(template.trim(), link.parameters ?? {}, link.shortCode))))));
}
