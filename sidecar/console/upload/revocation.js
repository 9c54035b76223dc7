// Revokes all links of an upload, in a job of the service.

import { confirmed, h } from '../dom.js';
import { t } from '../i18n.js';
import { outcome, run } from '../job.js';

/** A button and its outcome; null for an upload without links, or without the right to revoke them. */
export function revocation({ uploadId, made, name }, { may, left, done }) {
  if (!uploadId || made === 0 || !may('links:write')) return null;
  const place = h('div', { 'data-revocation': uploadId });
  const begin = async () => {
    const agreed = await confirmed({
      title: t('upload.revoke.title', { name }), text: t('upload.revoke.text', { count: made }),
      yes: t('revoke'), no: t('cancel'), danger: true,
    });
    if (!agreed) return;
    const job = await run({ request: { action: 'revoke', uploadId }, place, left, links: made });
    if (!job) return;
    place.replaceChildren(outcome(job, 'upload.revoke'), ...(job.state === 'done' ? [] : [button]));
    done();
  };
  const button = h('button', { type: 'button', class: 'danger', 'data-revoke': '', click: begin }, t('upload.revoke'));
  place.replaceChildren(h('div', { class: 'row' }, button));
  return place;
}
