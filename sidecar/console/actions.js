// The actions on a link or a campaign, each after a confirmation that names its effect.

import { ask, notice } from './api.js';
import { confirmed, h, say } from './dom.js';
import { t } from './i18n.js';

/**
 * Buttons. `texts` is the prefix of the texts' names; `name` is the link's or campaign's name in them; `reach` returns
 * a text with the number of affected links.
 */
export function actions({ texts, name, path, state, headers = {}, first, again, reach = async () => '' }) {
  const place = h('div', { class: 'row' }, first);
  const act = async (what, method, address, danger) => {
    const far = await reach();
    const agreed = await confirmed({
      title: t(`${texts}${what}.title`, { name }), text: [t(`${texts}${what}.text`, { name }), far].join(' '),
      yes: t(what), no: t('cancel'), danger,
    });
    if (!agreed) return;
    try {
      await ask(method, address, undefined, headers);
      await again();
      say(t(`${what}.done`, { name }));
    } catch (failure) {
      place.closest('.head').after(notice(failure, again));
    }
  };
  const button = (what, method, address, danger) => h('button', {
    type: 'button', class: danger && 'danger', 'data-act': what, click: () => act(what, method, address, danger),
  }, t(what));
  place.append(
    state === 'paused' ? button('resume', 'POST', `${path}/resume`) : button('pause', 'POST', `${path}/pause`),
    button('revoke', 'DELETE', path, true));
  return place;
}
