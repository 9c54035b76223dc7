// Lists the people who sign in at a provider of OpenID Connect, ends their sessions, blocks and unblocks them.

import { ask, get, lacking, notice } from '../api.js';
import { confirmed, h, say } from '../dom.js';
import { badge, count, when } from '../format.js';
import { t } from '../i18n.js';
import { asked, pages } from '../listing.js';

const LIMIT = 25;

/** The page. */
export async function show({ heading, at, may, again }) {
  const title = t('people');
  if (!may('keys:admin')) {
    return { title, parts: [heading(title), lacking('keys:admin')] };
  }
  const here = new URLSearchParams(location.search);
  const { people, nextCursor } = await get(`/v1/people?${asked(here, [], LIMIT)}`);
  const said = h('div', {});
  const act = async (what, person) => {
    const { name } = person;
    const agreed = what === 'unblock' || await confirmed({
      title: t(`people.${what}.title`, { name }), text: t(`people.${what}.text`),
      yes: t(`people.${what}`), no: t('cancel'), danger: what === 'block',
    });
    if (!agreed) return;
    try {
      await ask('POST', `/v1/people/${person.id}/${what}`);
      await again();
      say(t(`people.${what}.done`, { name }));
    } catch (failure) {
      said.replaceChildren(notice(failure));
    }
  };
  return { title, parts: [
    heading(title),
    said,
    people.length > 0 ? h('div', { class: 'sheet table' }, table(people, { act, at, may }))
      : h('div', { class: 'sheet empty' }, h('p', {}, t('people.none')), h('p', {}, t('people.none.hint'))),
    pages({ here, path: '/people', at, nextCursor, first: t('pages.first'), next: t('pages.next') }),
  ] };
}

function table(people, context) {
  return h('table', { class: 'links' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('people.person')),
      h('th', { scope: 'col' }, t('field.state')),
      h('th', { scope: 'col', class: 'wide' }, t('people.signed-in')),
      h('th', { scope: 'col' }, t('people.sessions')))),
    h('tbody', {}, people.map((person) => row(person, context))));
}

function row(person, { act, at, may }) {
  const isBlocked = person.state === 'blocked';
  const button = (what, danger) => h('button', {
    type: 'button', class: danger && 'danger', 'data-act': what, 'aria-label': `${t(`people.${what}`)}: ${person.name}`,
    click: () => act(what, person),
  }, t(`people.${what}`));
  return h('tr', { 'data-person': person.id, id: person.id },
    h('th', { scope: 'row' },
      may('admin') ? h('a', { href: at(`/audit?keyId=${person.id}`) }, person.name) : person.name,
      person.email && h('span', { class: 'faint small' }, person.email),
      h('span', { class: 'faint small' }, person.role ? t(`role.${person.role}`) : t('role.none'))),
    h('td', {}, badge(isBlocked ? 'blocked' : 'active')),
    h('td', { class: 'when wide' }, when(person.signedInAt)),
    h('td', {}, count(person.sessions), h('div', { class: 'row' },
      person.sessions > 0 && button('end-sessions'),
      isBlocked ? button('unblock') : button('block', true))));
}
