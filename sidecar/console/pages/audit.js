// The audit log, the latest entries first.

import { get, lacking } from '../api.js';
import { h } from '../dom.js';
import { when } from '../format.js';
import { has, t } from '../i18n.js';
import { asked, choosing, pages } from '../listing.js';
import { author } from '../parts.js';

const LIMIT = 50;

const ACTIONS = [
  'link.change', 'link.pause', 'link.resume', 'link.revoke', 'link.end', 'link.expire',
  'campaign.create', 'campaign.change', 'campaign.pause', 'campaign.resume', 'campaign.revoke',
  'webhook.create', 'webhook.change', 'webhook.pause', 'webhook.resume', 'webhook.rotate', 'webhook.replay',
  'webhook.delete',
  'utm-template.store', 'utm-template.delete',
  'key.create', 'key.change', 'key.rotate', 'key.revoke', 'visits.erase', 'visits.export',
  'recipients.export', 'job.create', 'job.cancel', 'job.finish',
  'session.begin', 'session.end',
  'person.create', 'person.change', 'person.block', 'person.unblock', 'person.end-sessions',
];
const NAMES = ['action', 'subject', 'keyId'];

/** The page. */
export async function show({ heading, at, go, may }) {
  const title = t('audit');
  if (!may('admin')) {
    return { title, parts: [heading(title), lacking('admin')] };
  }
  const here = new URLSearchParams(location.search);
  const { entries, nextCursor } = await get(`/v1/audit?${asked(here, NAMES, LIMIT)}`);
  return { title, parts: [
    heading(title),
    filters(here, go, at),
    entries.length > 0 ? table(entries, at) : h('p', { class: 'sheet empty' }, t('audit.none')),
    pages({ here, path: '/audit', at, nextCursor, first: t('pages.newest'), next: t('pages.older') }),
  ] };
}

function filters(here, go, at) {
  const isUsed = NAMES.some((name) => here.get(name));
  const labelled = (name, field) => h('div', {}, h('label', { for: `by-${name}` }, t(`audit.${name}`)), field);
  const text = (name, placeholder) => labelled(name, h('input', {
    id: `by-${name}`, name, value: here.get(name), autocomplete: 'off', autocapitalize: 'none', spellcheck: 'false',
    placeholder,
  }));
  return h('details', { class: 'sheet', open: isUsed },
    h('summary', {}, t('filter')),
    h('form', { class: 'filters', submit: choosing(go, '/audit') },
      labelled('action', h('select', { id: 'by-action', name: 'action' },
        h('option', { value: '' }, t('state.any')),
        ACTIONS.map((action) => h('option', { value: action, selected: here.get('action') === action },
          inWords(action))))),
      text('subject', 'link:abc, campaign:7'),
      text('keyId'),
      h('div', { class: 'row' },
        h('button', {}, t('filter.apply')),
        isUsed && h('a', { href: at('/audit') }, t('filter.clear')))));
}

const inWords = (action) => (has(`action.${action}`) ? t(`action.${action}`) : action);

function table(entries, at) {
  return h('div', { class: 'sheet table' }, h('table', { class: 'audit' },
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, t('column.when')),
      h('th', { scope: 'col' }, t('audit.action')),
      h('th', { scope: 'col' }, t('audit.subject')),
      h('th', { scope: 'col', class: 'wide' }, t('audit.keyId')))),
    h('tbody', {}, entries.map((entry) => h('tr', { 'data-action': entry.action },
      h('td', { class: 'when' }, when(entry.at)),
      h('td', {}, inWords(entry.action), more(entry.detail)),
      h('td', {}, about(entry.subject, at)),
      h('td', { class: 'wide' }, entry.keyId
        ? h('a', { href: at(`/audit?keyId=${entry.keyId}`) }, author(entry.keyId, entry.keyName))
        : h('span', { class: 'faint' }, t('audit.nobody'))))))));
}

/** The subject of an entry, with its page. */
function about(subject, at) {
  const [kind, name] = subject.split(/:(.*)/);
  const folder = { link: 'links', campaign: 'campaigns', key: 'keys' }[kind];
  if (kind === 'person') return h('a', { class: 'code', href: at(`/people#${name}`) }, subject);
  return folder ? h('a', { class: 'code', href: at(`/${folder}/${name}`) }, subject)
    : h('span', { class: 'code' }, subject);
}

/** The details of an entry. */
function more(detail) {
  const facts = Object.entries(detail);
  if (facts.length === 0) return null;
  const text = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
  return h('details', {}, h('summary', { class: 'small' }, t('audit.more')), h('dl', { class: 'detail small' },
    facts.map(([name, value]) => [h('dt', {}, name), h('dd', { class: 'code' }, text(value))])));
}
