// The frame around the pages: session, navigation and routing.

import { ask, get, notice, onEnded } from './api.js';
import { h, say } from './dom.js';
import { begin, choose, languages, spoken, t } from './i18n.js';
import * as audit from './pages/audit.js';
import * as campaign from './pages/campaign.js';
import * as campaignForm from './pages/campaign-form.js';
import * as campaigns from './pages/campaigns.js';
import * as change from './pages/change.js';
import * as comparison from './pages/comparison.js';
import * as key from './pages/key.js';
import * as keys from './pages/keys.js';
import * as domains from './pages/domains.js';
import * as link from './pages/link.js';
import * as links from './pages/links.js';
import * as live from './pages/live.js';
import * as message from './pages/message.js';
import * as newLink from './pages/new-link.js';
import * as people from './pages/people.js';
import * as service from './pages/service.js';
import * as signIn from './pages/sign-in.js';
import * as statistics from './pages/statistics.js';
import * as upload from './pages/upload.js';
import * as webhook from './pages/webhook.js';
import * as webhooks from './pages/webhooks.js';

const ROOT = '/console';

/** Paths below the root, with the page for each. */
const ROUTES = [
  [/^\/(links)?$/, links],
  [/^\/new$/, newLink],
  [/^\/new\/file$/, upload],
  [/^\/message$/, message],
  [/^\/links\/([-0-9A-Za-z_]+)$/, link],
  [/^\/links\/([-0-9A-Za-z_]+)\/change$/, change],
  [/^\/campaigns$/, campaigns],
  [/^\/campaigns\/([0-9A-Za-z]+)$/, campaign],
  [/^\/statistics$/, statistics],
  [/^\/campaigns\/([0-9A-Za-z]+)\/change$/, campaignForm],
  [/^\/campaigns-new$/, campaignForm],
  [/^\/campaigns-compared$/, comparison],
  [/^\/people$/, people],
  [/^\/keys$/, keys],
  [/^\/keys\/([0-9A-Za-z]+)$/, key],
  [/^\/webhooks$/, webhooks],
  [/^\/webhooks\/([0-9A-Za-z_]+)$/, webhook],
  [/^\/audit$/, audit],
  [/^\/live$/, live],
  [/^\/domains$/, domains],
  [/^\/service$/, service],
];

/** The entries of the navigation, each with the scope that it needs. */
const PLACES = [
  ['/links', 'nav.links', 'links:read'],
  ['/new', 'nav.new', 'links:write'],
  ['/message', 'nav.message', 'links:write'],
  ['/campaigns', 'nav.campaigns', 'campaigns:read'],
  ['/statistics', 'nav.statistics', 'stats:read'],
  ['/live', 'nav.live', 'stats:read'],
  ['/domains', 'nav.domains', 'stats:read'],
  ['/service', 'nav.service', 'links:read'],
  ['/webhooks', 'nav.webhooks', 'webhooks:admin'],
  ['/keys', 'nav.keys', 'keys:admin'],
  ['/audit', 'nav.audit', 'admin'],
];

const frame = document.getElementById('console');

/** The session; null when signed out. */
let session = null;

/** Counts pages, so that a page that loads late is not shown. */
let turn = 0;

/** Aborts the background work of a page when it is left. */
let leaving = new AbortController();

/** The context of every page. */
const context = {
  /** True if the API key has a scope. */
  may: (scope) => session.scopes.includes(scope) || session.scopes.includes('admin'),
  /** Navigates to another page. */
  go: (path) => {
    history.pushState(null, '', ROOT + path);
    show();
  },
  /** Reloads this page. */
  again: () => show(),
  /** The id of the API key of the session. */
  keyId: () => session.keyId,
  /** The address of a page. */
  at: (path) => ROOT + path,
};

/** Shows the page of the address. */
async function show({ isFirst = false } = {}) {
  const mine = ++turn;
  leaving.abort();
  leaving = new AbortController();
  const left = leaving.signal;
  if (!session) {
    showDoor();
    return;
  }
  const path = location.pathname.slice(ROOT.length).replace(/\/$/, '') || home();
  const [pattern, page] = ROUTES.find(([known]) => known.test(path)) ?? [];
  const main = h('main', { id: 'main', 'aria-busy': 'true' });
  frame.replaceChildren(skip(), top(path), main);
  // On a phone, the navigation may be wider than the screen.
  frame.querySelector('.top [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  const heading = (text) => h('h1', { tabindex: '-1' }, text);
  let title = t('nav.nothing');
  let parts = [heading(title), h('p', {}, t('nothing'))];
  if (page) {
    try {
      ({ title, parts } = await page.show({ ...context, heading, left }, pattern.exec(path).slice(1)));
    } catch (failure) {
      title = t('failed');
      parts = [heading(title), notice(failure, () => show())];
    }
  }
  if (mine !== turn) return;
  main.replaceChildren(...parts);
  main.removeAttribute('aria-busy');
  document.title = `${title} · shortlink`;
  if (!isFirst) main.querySelector('h1')?.focus();
  say(title);
}

/** The first page that the API key allows. */
const home = () => PLACES.find(([, , scope]) => context.may(scope))?.[0] ?? '/links';

function skip() {
  return h('a', { class: 'skip', href: '#main', click: (event) => {
    event.preventDefault();
    document.querySelector('main h1')?.focus();
  } }, t('skip'));
}

function top(path) {
  const places = PLACES.filter(([, , scope]) => context.may(scope));
  return h('header', { class: 'top' }, h('div', {},
    h('a', { class: 'brand', href: ROOT }, mark(), 'shortlink'),
    h('nav', { 'aria-label': t('nav') }, h('ul', {}, places.map(([place, name]) => h('li', {},
      h('a', { href: ROOT + place, 'aria-current': path.startsWith(place) && 'page' }, t(name)))))),
    h('div', { class: 'who' },
      languageButton(),
      h('b', { title: session.keyId }, session.keyName),
      h('button', { type: 'button', class: 'plain', click: leave, 'data-leave': '' }, t('sign-out')))));
}

const mark = () => h('img', { src: new URL('icon.svg', import.meta.url), alt: '' });

/** The button that switches to the other language. */
function languageButton() {
  const [name, own] = languages.find(([known]) => known !== spoken());
  return h('button', {
    type: 'button', class: 'plain', lang: name, 'data-language': name,
    click: async () => {
      await choose(name);
      await show();
      document.querySelector('[data-language]')?.focus();
    },
  }, own);
}

/** Shows the sign-in form. */
function showDoor(ended = false) {
  leaving.abort();
  document.title = `${t('sign-in')} · shortlink`;
  frame.replaceChildren(h('div', { class: 'door' },
    h('header', { class: 'brand' }, mark(), 'shortlink'),
    h('main', { id: 'main' }, signIn.form({ ended, entered: (made) => {
      session = made;
      show();
    } })),
    h('footer', {}, languageButton())));
  document.querySelector('input')?.focus();
}

async function leave() {
  try {
    const { data } = await ask('DELETE', '/console/session');
    // The page at the provider that signs the person out there too.
    if (data?.leadsTo) {
      location.assign(data.leadsTo);
      return;
    }
  } catch (failure) {
    document.getElementById('main').prepend(notice(failure, leave));
    return;
  }
  session = null;
  showDoor();
  say(t('signed-out'));
}

onEnded(() => {
  if (!session) return;
  session = null;
  turn += 1;
  showDoor(true);
});

// Links within the console are followed without reloading it.
document.addEventListener('click', (event) => {
  const anchor = event.target.closest?.('a[href]');
  const isOther = event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey;
  if (!anchor || isOther || anchor.target || anchor.origin !== location.origin) return;
  const { pathname, search } = anchor;
  if (pathname !== ROOT && !pathname.startsWith(`${ROOT}/`)) return;
  event.preventDefault();
  context.go(pathname.slice(ROOT.length) + search);
  window.scrollTo(0, 0);
});
window.addEventListener('popstate', () => show());

async function start() {
  await begin();
  try {
    session = await get('/console/session');
  } catch (failure) {
    frame.replaceChildren(h('div', { class: 'door' }, h('main', {}, notice(failure, start))));
    return;
  }
  await show({ isFirst: true });
}

await start();
