// "Try as …": what a visitor of a link gets, by the explanation of the API.

import { get, notice } from './api.js';
import { h } from './dom.js';
import { fromField, zoned } from './format.js';
import { t } from './i18n.js';
import { sheet } from './parts.js';
import { deviceOf, inWords } from './rules.js';

const WEBKIT = 'AppleWebKit/537.36 (KHTML, like Gecko)';

/** User agents of the devices, as their browsers send them. */
const AGENTS = {
  ios: `Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) ${WEBKIT} Version/18.5 Mobile/15E148 Safari/604.1`,
  android: `Mozilla/5.0 (Linux; Android 10; K) ${WEBKIT} Chrome/137.0.0.0 Mobile Safari/537.36`,
  harmonyos: `Mozilla/5.0 (Phone; OpenHarmony 5.0) ${WEBKIT} Chrome/114.0.0.0 Safari/537.36 ArkWeb/4.1.6.1 Mobile`,
  desktop: `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${WEBKIT} Chrome/137.0.0.0 Safari/537.36`,
  other: '',
  messenger: 'WhatsApp/2.24.13.77 A',
};

/** Reports whether visitors of a link or a campaign can get different answers. */
export const isVaried = ({ rules, expiredTarget, pausedTarget, notYetTarget, preview }) =>
  Boolean(rules || expiredTarget || pausedTarget || notYetTarget || preview);

/** The section of the page of a link; `hint` is about the link, on the page of its campaign. */
export function trial(code, hint) {
  const said = h('div', { 'data-said': '', role: 'status' });
  const field = (name, attributes) => h('div', {},
    h('label', { for: `try-${name}` }, t(`try.${name}`), name === 'time' && zoned()),
    h('input', { id: `try-${name}`, type: 'text', autocomplete: 'off', ...attributes }));
  const device = h('select', { id: 'try-device' },
    Object.keys(AGENTS).map((name) => h('option', { value: name }, deviceOf(name))));
  const made = h('form', { class: 'fields', novalidate: true, submit: async (event) => {
    event.preventDefault();
    const value = (name) => made.querySelector(`#try-${name}`).value.trim();
    const visitor = {
      userAgent: AGENTS[device.value],
      language: value('language'),
      country: value('country').toUpperCase(),
      query: value('query').replace(/^\?/, ''),
      time: fromField(value('time')),
      // Another visitor each time, who may be in another share.
      address: `203.0.113.${Math.floor(Math.random() * 256)}`,
    };
    const given = Object.entries(visitor).filter(([, text]) => text);
    try {
      said.replaceChildren(...result(await get(`/v1/links/${code}/explain?${new URLSearchParams(given)}`)));
    } catch (failure) {
      said.replaceChildren(notice(failure));
    }
  } },
  h('div', { class: 'pair' },
    h('div', {}, h('label', { for: 'try-device' }, t('rules.device')), device),
    field('language', { placeholder: 'de-DE', spellcheck: 'false' })),
  h('div', { class: 'pair' }, field('country', { placeholder: 'DE' }), field('time', { type: 'datetime-local' })),
  field('query', { placeholder: 'src=ad', spellcheck: 'false' }),
  h('div', { class: 'row' }, h('button', { 'data-try': '' }, t('try.send'))),
  said);
  return sheet(t('try'), h('p', { class: 'hint' }, hint && [hint, ' '], t('try.hint')), made);
}

/** The answer in a sentence, and why each rule before it is not followed. */
function result({ answer, rules = [] }) {
  const { location: target, pointer = '', status, rule, preview } = answer;
  const number = Number(/^\/rules\/(\d+)/.exec(pointer)?.[1]) + 1;
  const sentence = () => {
    if (preview) return [t('try.preview'), ' '];
    if (!target) return [t('try.refused', { status }), ' ', t(`rule.${rule}`)];
    if (number) return [t('try.followed', { number }), ' '];
    if (answer.insteadOf) return [t(`rule.${rule}`), ' ', t('try.instead'), ' '];
    return [t(rules.length > 0 ? 'try.else' : 'try.all'), ' '];
  };
  const effect = ({ outcome, unmet }) => (outcome === 'unmet'
    ? t('try.unmet', { member: t(`rules.${unmet}`) }) : t(`try.is-${outcome}`));
  return [
    h('p', { class: 'notice good', 'data-pointer': pointer },
      sentence(), target && h('span', { class: 'code' }, target)),
    rules.length > 0 && h('ol', { class: 'steps' }, rules.map((tried) => h('li', { 'data-outcome': tried.outcome },
      h('p', {}, inWords(tried), tried.variant && [' · ', tried.variant]),
      h('p', { class: 'faint small' }, effect(tried))))),
  ].filter(Boolean);
}
