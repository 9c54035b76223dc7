// The short domains that forms offer, with their brands.

import { get, part } from './api.js';
import { t } from './i18n.js';

/** The active short domains, each once; null where the API key may not see them. */
export async function activeDomains(may) {
  const answer = may('stats:read') ? await part(() => get('/v1/domains')) : {};
  return answer.domains?.flatMap(({ domain, announced }) =>
    announced.filter(({ baseUrl }) => baseUrl).slice(0, 1).map((it) => ({ ...it, name: domain }))) ?? null;
}

/** Those that a link can be on: the ones that are reserved for its campaign, else for its API key, else for none. */
export function offered(domains, { campaign, keyId }) {
  const of = (test) => domains.filter(test);
  return [
    of(({ campaignId }) => campaignId && campaignId === campaign?.id), of((it) => it.keyId && it.keyId === keyId),
    of((it) => !it.campaignId && !it.keyId),
  ].find(({ length }) => length > 0) ?? [];
}

/** The field of a short domain: a choice of them, or a text where they are unknown. `present` is the one that is set. */
export function domainField(domains, link, { name = 'domain', present } = {}) {
  const known = offered(domains ?? [], link);
  if (known.length === 0) return { name, kind: 'text', hint: true };
  const isOther = present && !known.some((it) => it.name === present);
  return { name, kind: 'choice', hint: `hint.${name}.choice`, choices: [
    ['', t('domain.any')],
    ...known.map((it) => [it.name, it.brand ? `${it.name} – ${it.brand}` : it.name]),
    ...(isOther ? [[present, present]] : []),
  ] };
}
