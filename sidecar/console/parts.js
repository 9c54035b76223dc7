// The common parts of the pages that show a link.

import { copy, h, isWeb, say } from './dom.js';
import { t } from './i18n.js';

/** A section of a page with its own heading. */
export const sheet = (title, ...parts) => h('section', { class: 'sheet' }, h('h2', {}, title), parts);

/** A name and its value, for a list of facts. */
export const fact = (name, ...value) => [h('dt', {}, name), h('dd', {}, value)];

/** The API key or person of a change: the name if it is known, else the id. */
export const author = (id, name) => (name
  ? h('span', { title: id }, name)
  : h('span', { class: 'code' }, id));

/** The short URL with a copy button; only the code when nginx names no domain. */
export function shortUrl(link) {
  const text = link.shortUrl ?? link.shortCode;
  const button = h('button', { type: 'button', 'data-copy': text, click: async () => {
    const told = (await copy(text)) ? t('copied') : t('copy.failed');
    button.textContent = told;
    say(told);
    setTimeout(() => { button.textContent = t('copy'); }, 2000);
  } }, t('copy'));
  return h('div', { class: 'row' },
    link.shortUrl && isWeb(text)
      ? h('a', { class: 'short code', href: text, target: '_blank', rel: 'noreferrer' }, text)
      : h('span', { class: 'short code' }, text),
    button);
}

/** The short URL as a QR code, which can be downloaded. */
export function qr(link) {
  const address = `/v1/links/${link.shortCode}/qr`;
  const figure = h('figure', {},
    h('img', {
      class: 'qr', src: address, alt: t('qr.alt', { url: link.shortUrl }),
      error: () => figure.replaceChildren(h('p', { class: 'notice bad', role: 'alert' }, t('qr.failed'))),
    }),
    h('figcaption', { class: 'small' },
      h('a', { href: address, download: `${link.shortCode}.svg` }, t('qr.keep'))));
  return figure;
}
