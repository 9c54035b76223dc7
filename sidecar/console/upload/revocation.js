// Revokes all links of an upload, in a job of the service.

import { Failure, ask, get, notice } from '../api.js';
import { confirmed, h, say } from '../dom.js';
import { count } from '../format.js';
import { t } from '../i18n.js';

/** The interval between questions for the progress of a job, in milliseconds. */
const ASK_EVERY = 1000;

/** A button and its outcome; null for an upload without links, or without the right to revoke them. */
export function revocation({ uploadId, made, name }, { may, left, done }) {
  if (!uploadId || made === 0 || !may('links:write')) return null;
  const place = h('div', { 'data-revocation': uploadId });
  const show = (...parts) => place.replaceChildren(...parts.filter(Boolean));
  const failed = (failure, again) => {
    if (!(failure instanceof Failure)) throw failure;
    show(notice(failure, again));
  };
  const begin = async () => {
    const agreed = await confirmed({
      title: t('upload.revoke.title', { name }), text: t('upload.revoke.text', { count: count(made) }),
      yes: t('revoke'), no: t('cancel'), danger: true,
    });
    if (agreed) await create();
  };
  // A repetition finds the links that are revoked already.
  const create = async () => {
    try {
      const { data } = await ask('POST', '/v1/jobs', { action: 'revoke', uploadId });
      await follow(data);
    } catch (failure) {
      failed(failure, create);
    }
  };
  const follow = async (job) => {
    const bar = h('progress', { 'aria-label': t('upload.revoke.progress') });
    const text = h('p', { 'data-revoking': '' });
    const stop = h('button', { type: 'button', click: async () => {
      try {
        ended((await ask('DELETE', `/v1/jobs/${job.id}`)).data);
      } catch (failure) {
        failed(failure, () => follow(job));
      }
    } }, t('upload.stop'));
    show(bar, text, h('div', { class: 'row' }, stop));
    try {
      for (let so = job; ; so = await get(`/v1/jobs/${job.id}`)) {
        if (!bar.isConnected || left.aborted) return;
        if (so.state !== 'running') {
          ended(so);
          return;
        }
        if (so.selected) Object.assign(bar, { max: so.selected, value: so.done });
        text.textContent = t('upload.revoke.so', { done: count(so.done), links: count(so.selected ?? made) });
        await new Promise((resolve) => { setTimeout(resolve, ASK_EVERY); });
      }
    } catch (failure) {
      failed(failure, () => follow(job));
    }
  };
  const ended = ({ state, reason, changed, unchanged, failed: refused }) => {
    const numbers = { changed: count(changed), unchanged: count(unchanged), failed: count(refused) };
    const told = [t(`upload.revoke.${state}`, numbers), reason].filter(Boolean).join(' ');
    const isDone = state === 'done' && refused === 0;
    show(h('div', { class: `notice ${isDone ? 'good' : 'warn'}`, 'data-revoked': state }, h('p', {}, told)),
      state !== 'done' && button);
    say(told);
    done();
  };
  const button = h('button', { type: 'button', class: 'danger', 'data-revoke': '', click: begin }, t('upload.revoke'));
  show(h('div', { class: 'row' }, button));
  return place;
}
