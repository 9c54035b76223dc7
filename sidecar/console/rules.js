// The rules of a link or a campaign: a part of its form, and their words.

import { h } from './dom.js';
import { country, fromField, percent, toField } from './format.js';
import { t } from './i18n.js';
import { fieldOf, listed } from './rows.js';

const DEVICES = ['ios', 'android', 'harmonyos', 'desktop', 'other'];

const list = (text) => text.split(/[,，]/).map((part) => part.trim()).filter(Boolean);

/** The part of a form with rules and the targets instead of answers; its texts depend on the language. */
export const planOf = () => [t('rules'), [
  { name: 'rules', kind: 'rules', make: editor },
  { name: 'expiredTarget', kind: 'url' },
  { name: 'pausedTarget', kind: 'url' },
  { name: 'notYetTarget', kind: 'url' },
]];

/** The part of a form with what messengers show of the link. */
export const previewOf = () => [t('preview'), [
  { name: 'preview.title', kind: 'text', hint: true },
  { name: 'preview.description', kind: 'text' },
  { name: 'preview.image', kind: 'url', placeholder: 'https://' },
]];

/** The preview of a link or a campaign in words. */
export const previewInWords = ({ preview }) => preview && [preview.title, preview.description].filter(Boolean).join(' · ');

/** The name of a device. */
export const deviceOf = (name) => t(`rules.device.${name}`);

/** The conditions of a rule in words. */
export function inWords(rule) {
  const parts = [
    rule.device?.map(deviceOf).join(', '),
    rule.language?.join(', '),
    rule.country?.map((place) => (place.length === 2 ? country(place) : place)).join(', '),
    (rule.validSince || rule.validUntil) && [rule.validSince, rule.validUntil]
      .map((moment) => (moment ? toField(moment).replace('T', ' ') : '')).join(' … '),
    rule.query && `?${rule.query.name}${rule.query.value == null ? '' : `=${rule.query.value}`}`,
    rule.percent && percent(rule.percent / 100),
  ];
  return parts.filter(Boolean).join(' · ');
}

/** The fields of a rule. `read` returns its members; those that have no field stay. */
function row(rule, id) {
  const field = (...given) => fieldOf('rules', id, ...given);
  const {
    device = [], language = [], country: places = [], validSince, validUntil, query, percent: share,
    variant, longUrl, ...others
  } = rule;
  const boxes = DEVICES.map((name) => {
    const box = h('input', { type: 'checkbox', id: `${id}-${name}` });
    box.checked = device.includes(name);
    return [name, box];
  });
  const devices = h('div', {
    role: 'group', tabindex: '-1', 'aria-labelledby': `${id}-device`, 'data-member': 'device',
  },
    h('span', { class: 'label', id: `${id}-device` }, t('rules.device')),
    boxes.map(([name, box]) => h('p', { class: 'check' }, box, h('label', { for: box.id }, deviceOf(name)))));
  const fields = {
    language: field('language', { placeholder: 'de, pt-BR' }, language.join(', ')),
    country: field('country', { placeholder: 'DE, US-CA' }, places.join(', ')),
    percent: field('percent', { type: 'number', min: '0.01', max: '100', step: '0.01' }, share),
    longUrl: field('longUrl', { inputmode: 'url', placeholder: 'https://', 'aria-required': 'true' }, longUrl),
    variant: field('variant', {}, variant),
    validSince: field('validSince', { type: 'datetime-local' }, toField(validSince)),
    validUntil: field('validUntil', { type: 'datetime-local' }, toField(validUntil)),
    name: field('query', {}, query?.name),
    value: field('value', {}, query?.value ?? ''),
  };
  const text = (name) => fields[name].made.value.trim();
  // A field has no seconds, so a moment that was not changed stays as it is.
  const moment = (name, before) => (text(name) === toField(before) ? before : fromField(text(name)));
  const read = () => {
    const chosen = boxes.filter(([, box]) => box.checked).map(([name]) => name);
    const all = {
      ...others,
      device: chosen.length > 0 && chosen,
      language: text('language') && list(text('language')),
      country: text('country') && list(text('country').toUpperCase()),
      validSince: moment('validSince', validSince),
      validUntil: moment('validUntil', validUntil),
      query: text('name') && (text('value') || query?.value === '' ? { name: text('name'), value: text('value') }
        : { name: text('name') }),
      percent: text('percent') && Number(text('percent')),
      variant: text('variant'),
      longUrl: text('longUrl'),
    };
    const isSaid = ([name, value]) => name === 'longUrl' || (value !== false && value != null && value !== '');
    return Object.fromEntries(Object.entries(all).filter(isSaid));
  };
  const details = h('details', {}, h('summary', {}, t('rules.more')), h('div', { class: 'fields' },
    h('div', { class: 'pair' }, fields.validSince.shown, fields.validUntil.shown),
    h('div', { class: 'pair' }, fields.name.shown, fields.value.shown)));
  details.open = Boolean(validSince || validUntil || query);
  return { read, shown: [
    devices,
    h('div', { class: 'pair' }, fields.language.shown, fields.country.shown),
    details,
    h('div', { class: 'pair' }, fields.percent.shown, fields.variant.shown),
    fields.longUrl.shown,
  ] };
}

const editor = listed({
  texts: 'rules', one: 'rule', acts: ['up', 'down', 'remove'], row, blank: { longUrl: '' },
});
