// The frame around the pages: the header with the search, and the navigation, whose places never move.

import { h } from './dom.js';
import { languages, spoken, t } from './i18n.js';
import { nameOfZone, timeZone, timeZones } from './zone.js';

/** The entries of the navigation by group, each with the scope that it needs. */
const GROUPS = [
  [null, [
    ['/overview', 'overview', null],
    ['/links', 'nav.links', 'links:read'],
    ['/campaigns', 'nav.campaigns', 'campaigns:read'],
    ['/message', 'nav.message', 'links:write'],
    ['/statistics', 'nav.statistics', 'stats:read'],
    ['/live', 'nav.live', 'stats:read'],
  ]],
  ['nav.operate', [
    ['/domains', 'nav.domains', 'stats:read'],
    ['/service', 'nav.service', 'links:read'],
    ['/webhooks', 'nav.webhooks', 'webhooks:admin'],
    ['/keys', 'nav.keys', 'keys:admin'],
    ['/people', 'people', 'keys:admin'],
    ['/audit', 'nav.audit', 'admin'],
  ]],
];

const mark = () => h('img', { src: new URL('icon.svg', import.meta.url), alt: '' });

/** The name of the product, as a link to the first page if there is one. */
export const brand = (home) => h(home ? 'a' : 'header',
  { class: 'brand', href: home, 'aria-label': home && 'shortlink' }, mark(), h('span', {}, 'shortlink'));

/** The button that switches to the other language; `switchTo` does. */
export function languageButton(switchTo) {
  const [name, own] = languages.find(([known]) => known !== spoken());
  return h('button', {
    type: 'button', class: 'plain', lang: name, 'data-language': name, click: () => switchTo(name),
  }, own);
}

/** The choice of the time zone of all moments; `turnTo` switches to another one. */
const zones = (turnTo) => h('label', { class: 'zone' }, h('span', {}, t('timezone')),
  h('select', { 'data-zone': '', change: ({ target }) => turnTo(target.value) }, timeZones().map((name) =>
    h('option', { value: name, selected: name === timeZone() }, nameOfZone(name)))));

/** The link that jumps over the frame. */
const skip = () => h('a', { class: 'skip', href: '#main', click: (event) => {
  event.preventDefault();
  document.querySelector('main h1')?.focus();
} }, t('skip'));

/**
 * The frame of the page at a path. `at` returns the address of a path, `leave` signs out, `look` is called with the text that
 * a user searches for, `switchTo` and `turnTo` with a language and a time zone.
 */
export function frame({ path, at, may, session, leave, look, switchTo, turnTo }, main) {
  const side = h('div', { class: 'side', id: 'side' },
    h('nav', { 'aria-label': t('nav') }, GROUPS.map(([name, places]) => group(name, places, { path, at, may }))),
    h('section', { class: 'who', 'aria-label': t('nav.session') },
      h('b', { title: session.keyId }, session.keyName),
      zones(turnTo),
      h('div', {}, languageButton(switchTo),
        h('button', { type: 'button', class: 'plain', click: leave, 'data-leave': '' }, t('sign-out')))));
  const menu = h('button', {
    type: 'button', class: 'menu', 'aria-expanded': 'false', 'aria-controls': 'side', 'data-menu': '', click: () => {
      const isOpen = side.classList.toggle('open');
      menu.setAttribute('aria-expanded', String(isOpen));
    },
  }, t('nav.menu'));
  return [
    skip(),
    h('header', { class: 'top' },
      brand(at('')),
      menu,
      may('links:read') && search(look),
      may('links:write') && h('a', {
        class: 'button main new', href: at('/new'), 'aria-current': path === '/new' && 'page',
      }, t('nav.new'))),
    h('div', { class: 'body' }, side, main),
  ];
}

function group(name, places, { path, at, may }) {
  const open = places.filter(([, , scope]) => !scope || may(scope));
  if (open.length === 0) return null;
  const isHere = (place) => path === place || path.startsWith(`${place}/`) || path.startsWith(`${place}-`);
  return [
    name && h('p', { class: 'group', id: name }, t(name)),
    h('ul', { 'aria-labelledby': name }, open.map(([place, text]) => h('li', {},
      h('a', { href: at(place), 'aria-current': isHere(place) && 'page' }, t(text))))),
  ];
}

/** The search for links, on every page. */
function search(look) {
  const field = h('input', {
    type: 'search', name: 'look', 'aria-label': t('look-up.label'), placeholder: t('look-up.short'), required: true,
    autocomplete: 'off', autocapitalize: 'none', spellcheck: 'false', enterkeyhint: 'search',
  });
  field.value = new URLSearchParams(location.search).get('q') ?? '';
  return h('form', { role: 'search', submit: (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (text) look(text);
  } }, field, h('button', {}, t('look-up')));
}
