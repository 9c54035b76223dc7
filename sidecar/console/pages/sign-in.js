// Signs users in with an API key.

import { ask, notice } from '../api.js';
import { h } from '../dom.js';
import { t } from '../i18n.js';

/** The form; `entered` receives the session. `ended` is true after the end of a session. */
export function form({ entered, ended }) {
  const field = h('input', {
    id: 'key', name: 'apiKey', type: 'password', required: true, autocomplete: 'current-password',
    spellcheck: 'false', autocapitalize: 'none', 'aria-describedby': 'key-hint',
  });
  const said = h('div', {});
  const button = h('button', { class: 'main' }, t('sign-in'));
  const send = async (event) => {
    event.preventDefault();
    button.setAttribute('aria-busy', 'true');
    field.removeAttribute('aria-invalid');
    try {
      const { data } = await ask('POST', '/console/session', { apiKey: field.value });
      field.value = '';
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
  return h('form', { class: 'sheet', submit: send },
    h('h1', {}, t('sign-in')),
    ended && h('div', { class: 'notice warn', role: 'alert' }, t('sign-in.ended')),
    h('div', {},
      h('label', { for: 'key' }, t('sign-in.key')), field,
      h('p', { class: 'hint', id: 'key-hint' }, t('sign-in.hint'))),
    said,
    h('div', { class: 'row' }, button));
}
