// How many links something done to a campaign reaches.

import { get, part } from './api.js';
import { count } from './format.js';
import { t } from './i18n.js';

/** A campaign's number of links; null when it is not known. */
export async function sizeOf(id) {
  const size = await part(() => get(`/v1/campaigns/${id}/links`));
  return size.failure ? null : size;
}

/** A number of links in words. */
export function inWords(size) {
  if (!size) return t('reach.unknown');
  return t(size.isAll ? 'reach.all' : 'reach.more', { count: count(size.count) });
}
