// Lists that are read a page at a time, with what is chosen of them in the page's address.

import { h } from './dom.js';
import { t } from './i18n.js';

/** What the API is asked for: what the address says by these names, and where the page begins. */
export function asked(here, names, limit) {
  const query = new URLSearchParams({ limit });
  for (const name of [...names, 'cursor']) {
    if (here.get(name)) query.set(name, here.get(name));
  }
  return query;
}

const withQuery = (path, query) => (query.size > 0 ? `${path}?${query}` : path);

/** Ways to the first page when this is another, and to the next one when there is one, with what is said of them. */
export function pages({ here, path, at, nextCursor, first, next }) {
  const other = (cursor) => {
    const query = new URLSearchParams(here);
    query.delete('cursor');
    if (cursor) query.set('cursor', cursor);
    return at(withQuery(path, query));
  };
  return h('nav', { class: 'row', 'aria-label': t('pages') },
    here.get('cursor') && h('a', { class: 'button', href: other(null) }, first),
    nextCursor && h('a', { class: 'button', href: other(nextCursor), rel: 'next' }, next));
}

/** Has a form lead to the list of what its fields say. */
export const choosing = (go, path) => (event) => {
  event.preventDefault();
  const said = new URLSearchParams();
  for (const [name, value] of new FormData(event.target)) {
    if (value.trim()) said.set(name, value.trim());
  }
  go(withQuery(path, said));
};
