// The common parts of the pages of API keys: the fields of a key, and its secret, which is shown once.

import { copy, h, say } from '../dom.js';
import { has, t } from '../i18n.js';

const SCOPES = [
  'links:read', 'links:write', 'campaigns:read', 'campaigns:write', 'receipts:write', 'stats:read',
  'webhooks:admin', 'conversions:write', 'keys:admin', 'admin',
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
