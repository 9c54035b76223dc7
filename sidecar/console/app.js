// The session, and the routes between pages.

import { Failure, ask, get, notice, onEnded } from './api.js';
import { h, say } from './dom.js';
import { brand, frame, languageButton } from './frame.js';
import { begin, choose, t } from './i18n.js';
import { chooseTimeZone } from './zone.js';
import * as signIn from './pages/sign-in.js';
import { fillIn, keep, taken, typedIn } from './typed.js';

const ROOT = '/console';

/** Paths below the root, with the loader of the page for each: a page is loaded when it is first shown. */
const ROUTES = [
  [/^\/(overview)?$/, () => import('./pages/overview.js')],
  [/^\/search$/, () => import('./pages/search.js')],
  [/^\/links$/, () => import('./pages/links.js')],
  [/^\/new$/, () => import('./pages/new-link.js')],
  [/^\/new\/file$/, () => import('./pages/upload.js')],
  [/^\/message$/, () => import('./pages/message.js')],
  [/^\/links\/([-0-9A-Za-z_]+)$/, () => import('./pages/link.js')],
  [/^\/links\/([-0-9A-Za-z_]+)\/change$/, () => import('./pages/change.js')],
  [/^\/campaigns$/, () => import('./pages/campaigns.js')],
  [/^\/campaigns\/([0-9A-Za-z]+)$/, () => import('./pages/campaign.js')],
  [/^\/statistics$/, () => import('./pages/statistics.js')],
  [/^\/campaigns\/([0-9A-Za-z]+)\/change$/, () => import('./pages/campaign-form.js')],
  [/^\/campaigns-new$/, () => import('./pages/campaign-form.js')],
  [/^\/campaigns-compared$/, () => import('./pages/comparison.js')],
  [/^\/people$/, () => import('./pages/people.js')],
  [/^\/keys$/, () => import('./pages/keys.js')],
  [/^\/keys\/([0-9A-Za-z]+)$/, () => import('./pages/key.js')],
  [/^\/webhooks$/, () => import('./pages/webhooks.js')],
  [/^\/webhooks\/([0-9A-Za-z_]+)$/, () => import('./pages/webhook.js')],
  [/^\/audit$/, () => import('./pages/audit.js')],
  [/^\/live$/, () => import('./pages/live.js')],
  [/^\/domains$/, () => import('./pages/domains.js')],
  [/^\/service$/, () => import('./pages/service.js')],
];

const place = document.getElementById('console');

/** The session; null when signed out. */
let session = null;

/** Counts pages, so that a page that loads late is not shown. */
let turn = 0;

/** Aborts the background work of a page when it is left. */
let leaving = new AbortController();

/** The page with a form that the end of a session has interrupted, and its user; null without one. */
let interrupted = null;

/** The context of every page. */
const context = {
  /** True if the API key has a scope. A page that is still being made after the end of its session may nothing. */
  may: (scope) => Boolean(session?.scopes.includes(scope) || session?.scopes.includes('admin')),
  /** Navigates to another page. */
  go: (path) => {
    history.pushState(null, '', ROOT + path);
    show();
  },
  /** Reloads this page. */
  again: () => show(),
  /** The id of the API key of the session. */
  keyId: () => session?.keyId,
  /** The address of a page. */
  at: (path) => ROOT + path,
};

/** The path of a page below the root. */
const pathOf = (pathname) => pathname.slice(ROOT.length).replace(/\/$/, '') || '/overview';

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
  const path = pathOf(location.pathname);
  const [pattern, page] = ROUTES.find(([known]) => known.test(path)) ?? [];
  const main = h('main', { id: 'main', 'aria-busy': 'true' });
  framed(path, main);
  const heading = (text) => h('h1', { tabindex: '-1' }, text);
  let title = t('nav.nothing');
  let parts = [heading(title), h('p', {}, t('nothing'))];
  if (page) {
    try {
      const { show: made } = await loaded(page);
      ({ title, parts } = await made({ ...context, heading, left }, pattern.exec(path).slice(1)));
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

/** Shows the frame of the page at a path around it. */
const framed = (path, main) =>
  place.replaceChildren(...frame({ ...context, path, session, leave, look, switchTo, turnTo }, main).filter(Boolean));

/** Shows the interrupted page again, with the values in its form, if it is the user's; returns false if it is not. */
function continued() {
  const { main, keyId, path, address, title } = interrupted ?? {};
  interrupted = null;
  if (keyId !== session.keyId || address !== location.href) return false;
  framed(path, main);
  document.title = title;
  main.querySelector('h1')?.focus();
  return true;
}

/** The module of a page. One that the network does not bring is a failure like others. */
async function loaded(page) {
  try {
    return await page();
  } catch (failure) {
    throw failure instanceof TypeError ? new Failure(0) : failure;
  }
}

/** Loads all other pages while nothing else is to be done, so that none is awaited and all are of one version. */
function loadOthers() {
  performance.mark('first-page');
  const later = window.requestIdleCallback ?? ((call) => setTimeout(call, 2000));
  later(() => ROUTES.forEach(([, page]) => page().catch(() => {})));
}

/** Shows what is found for a text. */
const look = (text) => context.go(`/search?${new URLSearchParams({ q: text })}`);

/** Draws the page anew after a change, and stays at what has made it. Forms have the same values afterwards. */
async function redrawn(change, made) {
  const main = document.getElementById('main');
  const typed = session && main ? typedIn(main) : [];
  await change();
  await show();
  document.querySelector(made)?.focus();
  await refill(typed);
}

/** Switches to another language. */
const switchTo = (name) => redrawn(() => choose(name), '[data-language]');

/** Switches to another time zone. */
const turnTo = (name) => redrawn(() => chooseTimeZone(name), '[data-zone]');

/** Fills in the fields of the page again. */
const refill = (typed) => fillIn(document.getElementById('main'), typed, leaving.signal);

/** Keeps the values of the interrupted page while its user signs in at the provider. */
function depart() {
  if (!interrupted) return;
  const { main, keyId, address } = interrupted;
  keep({ keyId, address, typed: typedIn(main) });
}

/** Fills in what its user has typed on this page before they signed in at the provider. */
async function comeBack() {
  const { keyId, address, typed } = taken() ?? {};
  if (typed && session?.keyId === keyId && location.href === address) await refill(typed);
}

/** Shows the sign-in form. */
function showDoor(ended = false) {
  if (!interrupted) leaving.abort();
  document.title = `${t('sign-in')} · shortlink`;
  place.replaceChildren(h('div', { class: 'door' },
    brand(),
    h('main', { id: 'main' }, signIn.form({ ended, depart, entered: (made) => {
      session = made;
      if (!continued()) show();
    } })),
    h('footer', {}, languageButton(switchTo))));
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
  const main = document.getElementById('main');
  if (main.querySelector('form.fields')) {
    const { href: address, pathname } = location;
    interrupted = { main, keyId: session.keyId, path: pathOf(pathname), address, title: document.title };
  }
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
    place.replaceChildren(h('div', { class: 'door' }, h('main', {}, notice(failure, start))));
    return;
  }
  await show({ isFirst: true });
  loadOthers();
  await comeBack();
}

await start();
