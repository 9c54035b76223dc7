// The rules of a link or a campaign: a part of its form, and their words.

import { h, say } from './dom.js';
import { country, fromField, percent, toField } from './format.js';
import { has, t } from './i18n.js';

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

let numbers = 0;

/** A field of a rule: the element with its label, and its value. */
function field(id, member, attributes, value = '') {
  const made = h('input', {
    id: `${id}-${member}`, 'data-member': member, type: 'text', autocomplete: 'off', autocapitalize: 'none',
    spellcheck: 'false', ...attributes,
  });
  made.value = value;
  return { made, shown: h('div', {}, h('label', { for: made.id }, t(`rules.${member}`)), made) };
}

/** A rule as a part of the form. `read` returns its members; those that have no field stay. */
function row(rule, act) {
  const id = `r-${numbers += 1}`;
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
    language: field(id, 'language', { placeholder: 'de, pt-BR' }, language.join(', ')),
    country: field(id, 'country', { placeholder: 'DE, US-CA' }, places.join(', ')),
    percent: field(id, 'percent', { type: 'number', min: '0.01', max: '100', step: '0.01' }, share),
    longUrl: field(id, 'longUrl', { inputmode: 'url', placeholder: 'https://', 'aria-required': 'true' }, longUrl),
    variant: field(id, 'variant', {}, variant),
    validSince: field(id, 'validSince', { type: 'datetime-local' }, toField(validSince)),
    validUntil: field(id, 'validUntil', { type: 'datetime-local' }, toField(validUntil)),
    name: field(id, 'query', {}, query?.name),
    value: field(id, 'value', {}, query?.value ?? ''),
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
  const buttons = ['up', 'down', 'remove'].map((name) =>
    h('button', { type: 'button', 'data-act': name, click: () => act(made, name) }, t(`rules.${name}`)));
  const element = h('fieldset', { class: 'rule' },
    h('legend', {}, ''),
    devices,
    h('div', { class: 'pair' }, fields.language.shown, fields.country.shown),
    h('details', {}, h('summary', {}, t('rules.more')), h('div', { class: 'fields' },
      h('div', { class: 'pair' }, fields.validSince.shown, fields.validUntil.shown),
      h('div', { class: 'pair' }, fields.name.shown, fields.value.shown))),
    h('div', { class: 'pair' }, fields.percent.shown, fields.variant.shown),
    fields.longUrl.shown,
    h('div', { class: 'row' }, buttons));
  if (validSince || validUntil || query) element.querySelector('details').open = true;
  const made = { element, read, buttons };
  return made;
}

/** The fields of all rules, read and set together as JSON, as a form has them. */
function editor(id, initial) {
  let rows = [];
  const shown = h('div', { class: 'fields' });
  const add = h('button', { type: 'button', 'data-act': 'add', click: () => {
    rows.push(row({ longUrl: '' }, act));
    draw();
    rows.at(-1).element.querySelector('input').focus();
  } }, t('rules.add'));
  const made = h('div', {
    id, role: 'group', tabindex: '-1', 'aria-labelledby': `l-${id}`, class: 'fields',
  }, h('p', { class: 'hint' }, t('hint.rules')), shown, add);
  const draw = () => {
    rows.forEach(({ element, buttons }, place) => {
      const name = t('rules.rule', { number: place + 1 });
      element.querySelector('legend').textContent = name;
      element.dataset.rule = place;
      for (const button of buttons) button.setAttribute('aria-label', `${button.textContent}: ${name}`);
      buttons[0].disabled = place === 0;
      buttons[1].disabled = place === rows.length - 1;
    });
    shown.replaceChildren(...rows.map(({ element }) => element));
    made.dispatchEvent(new Event('input', { bubbles: true }));
  };
  const act = (rule, name) => {
    const place = rows.indexOf(rule);
    rows.splice(place, 1);
    if (name !== 'remove') rows.splice(place + (name === 'up' ? -1 : 1), 0, rule);
    draw();
    if (name === 'remove') {
      (rows[Math.min(place, rows.length - 1)]?.element.querySelector('input') ?? add).focus();
      say(t('rules.removed', { number: place + 1 }));
      return;
    }
    const button = rule.buttons.find((it) => it.dataset.act === name);
    (button.disabled ? rule.buttons.find((it) => !it.disabled && it.dataset.act !== 'remove') : button).focus();
    say(t('rules.moved', { number: rows.indexOf(rule) + 1 }));
  };
  Object.defineProperty(made, 'value', {
    get: () => JSON.stringify(rows.map(({ read }) => read())),
    set: (text) => {
      rows = JSON.parse(text).map((rule) => row(rule, act));
      draw();
    },
  });
  made.value = JSON.stringify(initial ?? []);
  /** Shows a fault at its rule: `place` is the rest of its pointer, such as 2.longUrl. */
  made.refuse = (place, detail) => {
    const [number, member] = place.split('.');
    const rule = rows[number]?.element;
    if (!rule) return false;
    const at = (member && rule.querySelector(`[data-member=${member}]`)) ?? rule.querySelector('legend');
    const wrong = `${id}-w-${number}-${member ?? ''}`;
    if (document.getElementById(wrong)) return true;
    at.closest('details')?.setAttribute('open', '');
    at.after(h('p', { class: 'wrong', id: wrong }, `${member && has(`rules.${member}`) ? t(`rules.${member}`)
      : rule.querySelector('legend').textContent}: ${detail}`));
    at.setAttribute('aria-describedby', wrong);
    if (at.tagName === 'INPUT') at.setAttribute('aria-invalid', 'true');
    return true;
  };
  made.forgive = () => {
    for (const wrong of made.querySelectorAll('.wrong')) {
      const at = made.querySelector(`[aria-describedby="${wrong.id}"]`);
      at?.removeAttribute('aria-describedby');
      at?.removeAttribute('aria-invalid');
      wrong.remove();
    }
  };
  made.focus = () => (made.querySelector('[aria-invalid], [role=group][aria-describedby]')
    ?? made.querySelector('.wrong')?.closest('fieldset').querySelector('input') ?? add).focus();
  return made;
}
