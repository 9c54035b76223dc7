// The common parts of the pages that show a link.

import { copy, h, isWeb, say } from './dom.js';
import { when } from './format.js';
import { t } from './i18n.js';
import { qrButton } from './qr.js';

/** A section of a page with its own heading. */
export const sheet = (title, ...parts) => h('section', { class: 'sheet' }, h('h2', {}, title), parts);

/** A name and its value, for a list of facts. */
export const fact = (name, ...value) => [h('dt', {}, name), h('dd', {}, value)];

/** The time in which a link or a campaign is valid, as a fact; null without bounds. */
export function validity({ validSince: since, validUntil: until }) {
  if (!since && !until) return null;
  return fact(t('link.valid'), since && [t('valid.since'), ' ', when(since), ' '], until && [t('valid.until'), ' ', when(until)]);
}

/** The API key or person of a change: the name if it is known, else the id. */
export const author = (id, name) => (name
  ? h('span', { title: id }, name)
  : h('span', { class: 'code' }, id));

/** A button that copies a text; `attributes` are further ones. */
export function copyButton(text, attributes = {}) {
  const button = h('button', { type: 'button', 'data-copy': text, ...attributes, click: async () => {
    const told = (await copy(text)) ? t('copied') : t('copy.failed');
    button.textContent = told;
    say(told);
    setTimeout(() => { button.textContent = t('copy'); }, 2000);
  } }, t('copy'));
  return button;
}

/** The short URL without its scheme, which may break before the code; only the code when nginx names no domain. */
export function shortText(link) {
  const text = (link.shortUrl ?? link.shortCode).replace(/^https?:\/\//, '');
  const at = text.lastIndexOf('/') + 1;
  return [text.slice(0, at), h('wbr'), text.slice(at)];
}

/** The short URL with a copy button, and further ones; only the code when nginx names no domain. */
export function shortUrl(link, ...more) {
  const text = link.shortUrl ?? link.shortCode;
  return h('div', { class: 'row' },
    link.shortUrl && isWeb(text)
      ? h('a', { class: 'short code', href: text, target: '_blank', rel: 'noreferrer' }, text)
      : h('span', { class: 'short code' }, text),
    copyButton(text), more);
}

/** The short URL as a QR code, which opens the dialog with its looks and files. */
export function qr(link) {
  const figure = h('figure', {},
    h('img', {
      class: 'qr', src: `/v1/links/${link.shortCode}/qr`, alt: t('qr.alt', { url: link.shortUrl }),
      error: () => figure.replaceChildren(h('p', { class: 'notice bad', role: 'alert' }, t('qr.failed'))),
    }),
    h('figcaption', {}, qrButton(link, t('qr.open'))));
  return figure;
}
