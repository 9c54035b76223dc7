// Jobs of the service, which change many links: their progress, and their outcome.

import { Failure, ask, get, notice } from './api.js';
import { h, say } from './dom.js';
import { t } from './i18n.js';

/** The interval between questions for the progress of a job, in milliseconds. */
const ASK_EVERY = 1000;

/** The name of a job: its action and its selection; `names` are those of campaigns by their ids. */
export function nameOf({ action, dryRun, selection }, names = new Map()) {
  const [[by, id] = []] = Object.entries(selection);
  const value = by === 'campaignId' ? names.get(id) ?? id : id;
  const what = t(`job.action.${action}`);
  const of = by && t(`job.of.${by}`, { value });
  return [what, of, dryRun && t('job.trial')].filter(Boolean).join(' · ');
}

/** Calls until that succeeds: a failure is shown in a place, with a button for another attempt. */
const retried = (place, call) => new Promise((resolve, reject) => {
  const attempt = () => call().then(resolve, (failure) => {
    if (failure instanceof Failure) place.replaceChildren(notice(failure, attempt));
    else reject(failure);
  });
  attempt();
});

/**
 * Creates a job from a request, unless there is one, and shows its progress in a place, with a button that cancels it. Resolves to the job at its
 * end; to null when the place was left meanwhile.
 */
export async function run({ job, request, place, left, links }) {
  const made = job ?? (await retried(place, () => ask('POST', '/v1/jobs', request))).data;
  return retried(place, () => followed(made, { place, left, links }));
}

async function followed(job, { place, left, links }) {
  const bar = h('progress', { 'aria-label': t('upload.revoke.progress') });
  const text = h('p', { 'data-revoking': '' });
  let cancelled = null;
  const stop = h('button', { type: 'button', click: async () => {
    cancelled = (await retried(place, () => ask('DELETE', `/v1/jobs/${job.id}`))).data;
  } }, t('upload.stop'));
  place.replaceChildren(bar, text, h('div', { class: 'row' }, stop));
  for (let so = job; !cancelled && !left.aborted && place.isConnected; so = await get(`/v1/jobs/${job.id}`)) {
    if (so.state !== 'running') return so;
    if (so.selected) Object.assign(bar, { max: so.selected, value: so.done });
    text.textContent = t('upload.revoke.so', { done: so.done, links: so.selected ?? links ?? 0 });
    await new Promise((resolve) => { setTimeout(resolve, ASK_EVERY); });
  }
  return cancelled;
}

/** The outcome of a job as a notice; `texts` is the prefix of the texts for its state. */
export function outcome({ state, reason, changed, unchanged, failed }, texts) {
  const told = [t(`${texts}.${state}`, { changed, unchanged, failed }), reason].filter(Boolean).join(' ');
  say(told);
  const isDone = state === 'done' && failed === 0;
  return h('div', { class: `notice ${isDone ? 'good' : 'warn'}`, 'data-revoked': state }, h('p', {}, told));
}
