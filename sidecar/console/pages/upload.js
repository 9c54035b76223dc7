// Creates links from a file with a target in each row.

import { lacking } from '../api.js';
import { h } from '../dom.js';
import { t } from '../i18n.js';
import { uploader } from '../upload/part.js';

/** The page. */
export async function show(context) {
  const title = t('upload');
  const { heading, may } = context;
  return { title, parts: [heading(title), may('links:write')
    ? h('div', { class: 'sheet' }, uploader(context, null))
    : lacking('links:write')] };
}
