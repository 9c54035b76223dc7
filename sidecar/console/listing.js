// Paginated lists, with their filters in the page's address.

import { h } from './dom.js';
import { t } from './i18n.js';

/** The query for the API: the filters of the address by these names, and the cursor. */
export function asked(here, names, limit) {
  const query = new URLSearchParams({ limit });
  for (const name of [...names, 'cursor']) {
    if (here.get(name)) query.set(name, here.get(name));
  }
  return query;
}

const withQuery = (path, query) => (query.size > 0 ? `${path}?${query}` : path);

/** Links to the first page, unless it is this one, and to the next page, if any, with their texts. */
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

/** Handles a form by navigating to the list that its fields filter; `read` returns the value of a field's text. */
export const choosing = (go, path, read = (name, text) => text) => (event) => {
  event.preventDefault();
  const said = new URLSearchParams();
  for (const [name, value] of new FormData(event.target)) {
    if (value.trim()) said.set(name, read(name, value.trim()));
  }
  go(withQuery(path, said));
};
