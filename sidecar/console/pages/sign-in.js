// Signs users in: at a provider of OpenID Connect, or with an API key.

import { ask, get, notice, part } from '../api.js';
import { h } from '../dom.js';
import { has, t } from '../i18n.js';

/** The reason that the last sign-in has failed. The service reports it once, but another language shows it again. */
let reason = null;

/**
 * The forms; `entered` receives the session, `depart` is called before the browser goes to the provider. `ended` is true after
 * the end of a session.
 */
export function form({ entered, depart, ended }) {
  const place = h('div', { class: 'sheet' },
    h('h1', {}, t('sign-in')),
    ended && h('div', { class: 'notice warn', role: 'alert' }, t('sign-in.ended')));
  fill(place, entered, depart);
  return place;
}

async function fill(place, entered, depart) {
  const { provider, apiKey, fault } = await part(() => get('/console/sign-in/ways'));
  const here = new URLSearchParams(location.search);
  reason = fault ?? reason;
  if (reason) {
    place.append(h('div', { class: 'notice bad', role: 'alert', 'data-reason': reason.reason }, inWords(reason)));
  }
  if (provider) {
    const page = location.pathname.replace(/^\/console/, '') + location.search;
    place.append(h('p', {}, h('a', {
      // The target keeps the console from following the link itself.
      class: 'button main', 'data-provider': '', target: '_self', click: depart,
      href: `${provider.url}?return=${encodeURIComponent(page)}`,
    }, t('sign-in.with', { name: provider.name }))));
  }
  // Without an answer, an API key is what may help.
  if (apiKey !== false || here.has('key')) place.append(keyForm(entered, Boolean(provider)));
  place.querySelector('a, input')?.focus();
}

/** The reason that a sign-in has failed, with the next step. */
function inWords({ reason, groups = [] }) {
  const name = `sign-in.fault.${reason}`;
  return t(has(name) ? name : 'sign-in.fault.provider-refused', { groups: groups.join(', ') || '–' });
}

function keyForm(entered, isSecond) {
  const field = h('input', {
    id: 'key', name: 'apiKey', type: 'password', required: true, autocomplete: 'current-password',
    spellcheck: 'false', autocapitalize: 'none', 'aria-describedby': 'key-hint',
  });
  const said = h('div', {});
  const button = h('button', { class: isSecond ? false : 'main' }, t(isSecond ? 'sign-in.with-key' : 'sign-in'));
  const send = async (event) => {
    event.preventDefault();
    button.setAttribute('aria-busy', 'true');
    field.removeAttribute('aria-invalid');
    try {
      const { data } = await ask('POST', '/console/session', { apiKey: field.value });
      field.value = '';
      reason = null;
      entered(data);
    } catch (failure) {
      const isWrong = failure.status === 401;
      said.replaceChildren(isWrong
        ? h('div', { class: 'notice bad', role: 'alert', 'data-status': '401' }, t('sign-in.wrong'))
        : notice(failure));
      if (isWrong) field.setAttribute('aria-invalid', 'true');
      field.focus();
      field.select();
    } finally {
      button.removeAttribute('aria-busy');
    }
  };
  return h('form', { class: 'stack', submit: send },
    h('div', {},
      h('label', { for: 'key' }, t('sign-in.key')), field,
      h('p', { class: 'hint', id: 'key-hint' }, t('sign-in.hint'))),
    said,
    h('div', { class: 'row' }, button));
}
