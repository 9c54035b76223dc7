// Creates a link: with a target of its own, or in a campaign with the values of its target.

import { ask, get, lacking, notice, part } from '../api.js';
import { h, say } from '../dom.js';
import { t } from '../i18n.js';
import { form } from '../form.js';
import { qr, shortUrl } from '../parts.js';
import { planOf, previewOf } from '../rules.js';
import { activeDomains, domainField, offered } from '../short-domains.js';
import { campaigns as listed } from '../suggestions.js';
import { addTemplates, utmOf } from '../utm.js';
import { testOf } from '../variants.js';

/** A character of a code that is not issued yet. */
const UNKNOWN = '•';

const TARGET = { name: 'longUrl', kind: 'url', required: true, placeholder: 'https://', hint: true };

const FIELDS = [
  { name: 'customSlug', kind: 'text', hint: true },
  { name: 'tags', kind: 'tags', hint: true },
];

const MORE = [
  { name: 'validSince', kind: 'moment' },
  { name: 'validUntil', kind: 'moment' },
  { name: 'maxVisits', kind: 'number', hint: true },
  { name: 'externalId', kind: 'text' },
  { name: 'note', kind: 'long' },
];

/** The page. */
export async function show(context) {
  const { heading, at, may } = context;
  const title = t('new');
  if (!may('links:write')) {
    return { title, parts: [heading(title), lacking('links:write')] };
  }
  const [campaigns, domains, codes] = await Promise.all([
    listed(may), activeDomains(may), may('links:read') ? part(() => get('/v1/codespace')) : {},
  ]);
  const usual = (campaign) => shortUrlOf(offered(domains ?? [], { campaign, keyId: context.keyId() }), codes);
  const body = h('div', {});
  const place = h('div', {});
  /** Shows the form for a campaign, or for none; values that both forms have stay. */
  const draw = async (id) => {
    const campaign = id ? await get(`/v1/campaigns/${id}`) : null;
    const made = fields(campaign, domains, usual(campaign), place, context);
    const stay = [];
    for (const { name, value } of body.querySelector('form')?.elements ?? []) {
      const field = name && made.elements[name];
      if (!field || field.value === value) continue;
      field.value = value;
      stay.push(field);
    }
    body.replaceChildren(made);
    for (const field of [made, ...stay]) field.dispatchEvent(new Event('input', { bubbles: true }));
  };
  const id = new URLSearchParams(location.search).get('campaignId');
  await draw(id);
  place.append(h('div', { class: 'sheet narrow' }, campaigns.all.length > 0 && chooser(campaigns, id, draw), body));
  return { title, parts: [
    heading(title), place, h('p', {}, h('a', { href: at('/new/file') }, t('upload'))),
  ] };
}

/** Chooses the campaign of the link, which decides about the fields; `draw` shows them. */
const chooser = ({ all, names, idOf }, id, draw) => h('div', { class: 'ahead' },
  h('label', { for: 'of-campaign' }, t('field.campaignId')),
  h('select', { id: 'of-campaign', change: async ({ target }) => {
    const failure = (await part(() => draw(target.value)))?.failure;
    target.parentElement.querySelector('.notice')?.remove();
    if (failure) target.after(notice(failure));
  } },
  h('option', { value: '' }, t('new.no-campaign')),
  names.filter((name) => idOf(name) === id || all.find((it) => it.id === idOf(name)).state !== 'revoked')
    .map((name) => h('option', { value: idOf(name), selected: idOf(name) === id }, name))));

/** The form of a link: of a campaign, or with a target of its own. */
function fields(campaign, domains, usual, place, { at, may, again, keyId }) {
  const shown = h('div', { class: 'hint', 'data-short': '' });
  const more = [domainField(domains, { campaign, keyId: keyId() }), ...MORE];
  const made = form({
    fields: [...(campaign ? valuesOf(campaign) : [TARGET]), ...FIELDS],
    parts: campaign ? [] : [utmOf(), planOf(), testOf(), previewOf(),
      [t('form.engineers'), [{ name: 'clickId', kind: 'text', hint: true }]]],
    more,
    send: t('new.make'),
    changed: (inputs) => {
      const text = usual?.(inputs.get('customSlug').value.trim(), inputs.get('domain').value.trim());
      shown.textContent = text ? t('new.short', { url: text, length: text.length }) : '';
    },
    call: async (members) => {
      const of = campaign && { campaignId: campaign.id };
      const { data: link } = await ask('POST', '/v1/links', { ...members, ...of });
      place.replaceChildren(created(link, { at, may, again }));
      place.querySelector('h2').focus();
      say(`${t('new.made')}: ${link.shortUrl ?? link.shortCode}`);
    },
  });
  if (!campaign && may('links:read')) addTemplates(made);
  made.querySelector('[name=customSlug]').parentElement.append(shown);
  return made;
}

/** A field for each parameter of the campaign's target. */
const valuesOf = ({ parameters }) => parameters.map((name) => ({
  name: `parameters.${name}`, kind: 'value', label: t('upload.parameter', { name }), required: true,
}));

/** A function that returns the short URL for a custom code and a short domain; null where their form is unknown. */
function shortUrlOf(domains, codes) {
  const issued = (codes.lengths ?? []).find(({ isIssued }) => isIssued);
  if (domains.length === 0 || !issued) return null;
  return (code, domain) => {
    const { baseUrl } = domains.find(({ name }) => name === domain) ?? domains[0];
    return `${baseUrl}/${code || UNKNOWN.repeat(issued.length)}`;
  };
}

/** A created link. */
function created(link, { at, may, again }) {
  return h('div', { class: 'sheet narrow', 'data-made': link.shortCode },
    h('h2', { tabindex: '-1' }, t('new.made')),
    shortUrl(link),
    link.longUrl && h('p', { class: 'faint' }, link.longUrl),
    link.published === false && h('div', { class: 'notice warn' }, t('new.unpublished')),
    may('links:read') && link.shortUrl && qr(link),
    h('div', { class: 'row' },
      h('button', { type: 'button', class: 'main', click: again }, t('new.another')),
      may('links:read') && h('a', { class: 'button', href: at(`/links/${link.shortCode}`) }, t('new.look'))));
}
