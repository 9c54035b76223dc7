// The number of links that an action on a campaign affects.

import { get, part } from './api.js';
import { t } from './i18n.js';

/** A campaign's number of links; null when it is unknown. */
export async function sizeOf(id) {
  const size = await part(() => get(`/v1/campaigns/${id}/links`));
  return size.failure ? null : size;
}

/** A number of links as a text. */
export function inWords(size) {
  if (!size) return t('reach.unknown');
  return t(size.isAll ? 'reach.all' : 'reach.more', size);
}
