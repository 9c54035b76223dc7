// The common parts of the pages of API keys: the fields of a key, and its secret, which is shown once.

import { ask, notice } from '../api.js';
import { copy, h, say } from '../dom.js';
import { has, t } from '../i18n.js';

const SCOPES = [
  'links:read', 'links:write', 'campaigns:read', 'campaigns:write', 'receipts:write', 'stats:read',
  'webhooks:admin', 'conversions:write', 'keys:admin', 'admin',
];

/** The times in seconds for which an old secret stays valid beside the new one. */
const OVERLAPS = [
  ['0', 'overlap.none'], ['3600', 'overlap.hour'], ['86400', 'overlap.day'], ['604800', 'overlap.week'],
];

/** A scope with its description. */
export const scopeInWords = (scope) => (has(`scope.${scope}`) ? `${scope} – ${t(`scope.${scope}`)}` : scope);

/** The fields of every API key. A function, since the texts depend on the language. */
export const FIELDS = () => [
  { name: 'name', kind: 'text', required: true, hint: true },
  { name: 'scopes', kind: 'several', required: true, choices: SCOPES.map((scope) => [scope, scopeInWords(scope)]) },
  { name: 'expiresAt', kind: 'moment', hint: true },
];

/** The fields that restrict an API key. */
export const MORE = [
  { name: 'rateLimit.requestsPerSecond', kind: 'number' },
  { name: 'rateLimit.burst', kind: 'number', hint: true },
  { name: 'policy.allowedDomains', kind: 'tags', hint: true },
  { name: 'policy.strategies', kind: 'tags', hint: true },
  { name: 'policy.minBodyLength', kind: 'number' },
  { name: 'policy.maxBodyLength', kind: 'number' },
  { name: 'policy.customCodes', kind: 'truth', initial: true },
  { name: 'policy.minCustomLength', kind: 'number' },
  { name: 'policy.maxLinks', kind: 'number', hint: true },
  { name: 'policy.ownLinksOnly', kind: 'truth', hint: true },
];

/** A secret, with a copy button; `behind` is shown after it. */
export function secret({ name, secret: text }, behind, title = t('key.made', { name })) {
  const button = h('button', { type: 'button', class: 'main', 'data-copy': '', click: async () => {
    const told = (await copy(text)) ? t('copied') : t('copy.failed');
    button.textContent = told;
    say(told);
    setTimeout(() => { button.textContent = t('copy'); }, 2000);
  } }, t('copy'));
  return h('div', { class: 'stack' }, h('section', { class: 'sheet', 'data-secret': '' },
    h('h2', { tabindex: '-1' }, title),
    h('div', { class: 'notice warn' }, t('key.once')),
    h('div', { class: 'row' }, h('code', { class: 'secret' }, text), button)), behind);
}

/** Rotates the secret of a `key` or a `webhook` at a path, and shows the new one this once in `place`. */
export function rotation(of, path, place) {
  const field = h('select', { id: 'overlap', 'aria-describedby': 'overlap-hint' },
    OVERLAPS.map(([seconds, text]) => h('option', { value: seconds, selected: seconds === '86400' }, t(text))));
  const said = h('div', {});
  const rotate = async (event) => {
    event.preventDefault();
    try {
      const { data } = await ask('POST', `${path}/rotate`, { overlapSeconds: Number(field.value) });
      const made = t(`${of}.renewed`, { name: data.name });
      place.replaceChildren(secret(data, null, made));
      event.target.replaceWith(h('p', { class: 'faint' }, t(`${of}.rotated`)));
      place.querySelector('h2').focus();
      say(made);
    } catch (failure) {
      said.replaceChildren(notice(failure));
    }
  };
  return h('form', { class: 'fields narrow', submit: rotate },
    h('div', {}, h('label', { for: 'overlap' }, t(`${of}.overlap`)), field,
      h('p', { class: 'hint', id: 'overlap-hint' }, t(`${of}.overlap.hint`))),
    said,
    h('div', { class: 'row' }, h('button', { 'data-act': 'rotate' }, t(`${of}.rotate`))));
}
