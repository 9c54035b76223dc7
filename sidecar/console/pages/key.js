// One API key: its scopes, and the actions to change, rotate and revoke it.

import { ask, get, notice } from '../api.js';
import { confirmed, h, say } from '../dom.js';
import { badge, count, created, when } from '../format.js';
import { form } from '../form.js';
import { t } from '../i18n.js';
import { fact, sheet } from '../parts.js';
import { FIELDS, MORE, rotation, scopeInWords } from './key-parts.js';

/** The page. */
export async function show(context, [id]) {
  const { heading, at, may, keyId, again } = context;
  const key = await get(`/v1/keys/${id}`);
  const title = t('key.title', { name: key.name });
  const place = h('div', { class: 'stack' });
  const said = h('div', {});
  const isLive = key.state === 'live';
  const isOwn = key.id === keyId();
  const revoke = async () => {
    const agreed = await confirmed({
      title: t('key.revoke.title', { name: key.name }),
      text: [t('key.revoke.text'), isOwn && t('key.revoke.own')].filter(Boolean).join(' '),
      yes: t('revoke'), no: t('cancel'), danger: true,
    });
    if (!agreed) return;
    try {
      await ask('DELETE', `/v1/keys/${id}`);
      await again();
      say(t('revoke.done', { name: key.name }));
    } catch (failure) {
      said.replaceChildren(notice(failure));
    }
  };
  return { title, parts: [
    h('div', { class: 'head' }, heading(title), badge(key.state), h('div', { class: 'end' },
      key.state !== 'revoked' && may('keys:admin') && h('button', {
        type: 'button', class: 'danger', 'data-act': 'revoke', click: revoke,
      }, t('revoke')))),
    said,
    isOwn && h('div', { class: 'notice' }, t('key.own')),
    place,
    facts(key, context),
    isLive && !key.successorId && sheet(t('key.rotate'), rotation('key', `/v1/keys/${id}`, place)),
    key.state !== 'revoked' && h('details', { class: 'sheet' }, h('summary', { 'data-act': 'change' }, t('change')),
      h('div', { class: 'narrow' }, form({
        fields: FIELDS(), more: MORE, link: key, send: t('change.send'),
        call: async (members) => {
          if (Object.keys(members).length > 0) await ask('PATCH', `/v1/keys/${id}`, members);
          await again();
          say(t('key.changed'));
        },
      }))),
    may('admin') && h('p', {}, h('a', { href: at(`/audit?keyId=${id}`) }, t('key.done-with')), ' · ',
      h('a', { href: at(`/audit?subject=key:${id}`) }, t('key.done-to'))),
  ].filter(Boolean) };
}

function facts(key, { at }) {
  const { rateLimit, policy } = key;
  const lengths = [policy.minBodyLength, policy.maxBodyLength];
  return h('section', { class: 'sheet', 'aria-label': t('link.facts') }, h('dl', { class: 'facts' },
    fact(t('campaign.id'), h('span', { class: 'code' }, key.id)),
    fact(t('field.scopes'), h('ul', {}, key.scopes.map((scope) => h('li', {}, scopeInWords(scope))))),
    fact(t('field.expiresAt'), key.expiresAt ? when(key.expiresAt) : t('key.never')),
    rateLimit && fact(t('key.rate'), t('key.rate.is', {
      rate: rateLimit.requestsPerSecond, burst: rateLimit.burst,
    })),
    policy.allowedDomains && fact(t('field.policy.allowedDomains'), policy.allowedDomains.join(', ')),
    policy.strategies && fact(t('field.policy.strategies'), policy.strategies.join(', ')),
    lengths.some(Boolean) && fact(t('codes.length'), lengths.map((length) => length ?? '').join('–')),
    !policy.customCodes && fact(t('codes'), t('key.custom.no')),
    policy.minCustomLength && fact(t('field.policy.minCustomLength'), policy.minCustomLength),
    policy.ownLinksOnly && fact(t('key.reach'), t('key.reach.own')),
    fact(t('key.links'), created(key.linksCreated, policy.maxLinks)),
    key.successorId && fact(t('key.successor'),
      h('a', { class: 'code', href: at(`/keys/${key.successorId}`) }, key.successorId)),
    fact(t('column.made'), when(key.createdAt)),
    key.revokedAt && fact(t('key.revoked'), when(key.revokedAt))));
}
