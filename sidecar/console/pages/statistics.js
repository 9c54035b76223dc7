// Visits of all links over time.

import { t } from '../i18n.js';
import { statistics } from '../statistics.js';

/** The page. */
export async function show({ heading, may }) {
  const title = t('statistics');
  return { title, parts: [heading(title), statistics({ address: '/v1/stats', may, name: 'visits' })] };
}
